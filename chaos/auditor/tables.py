"""The store's tables against the auditor's own reading of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from chaos.auditor import interactions, names, payloads
from chaos.auditor.findings import Findings
from chaos.auditor.fold import Fold, checksum
from chaos.auditor.log import Log
from chaos.auditor.resets import is_taken_back
from chaos.auditor.source import (
    ActivityRow,
    EventRow,
    ExecutionRow,
    Tables,
    TombstoneRow,
)
from chaos.auditor.state import DEAD, RUNNING, Activity, Workflow

_decode = msgspec.msgpack.Decoder().decode
_COMPARED = tuple(
    name
    for name in ExecutionRow._fields
    if name not in ("workflow_id", "task_failure", "more")  # The key, and what is encoded.
)
_CLOSES = frozenset({"ActivityTaskCompleted", "ActivityTaskFailed"})
_AT_ACTIVITY = {name: at for at, name in enumerate(names.ACTIVITY)}
# Of the table's columns of an activity, what heartbeats left behind.
_CARRIED = ("details", "beat")
_EVENT_ID_BITS = 32
_CHECKSUM = 2**_EVENT_ID_BITS - 1


class TableCheck:
    """Compares once, after the whole log was read."""

    def __init__(self, found: Findings, fold: Fold, log: Log) -> None:
        self._found = found
        self._fold = fold
        self._log = log
        self.removed: set[str] = set()
        self.events = 0
        self._orphans: Counter[str] = Counter()

    def run(self, tables: Tables) -> None:
        """Report every difference, under the number of what it breaks."""
        self._epochs(tables)
        if self._log.unread:
            self._found.note(
                f"tables were not compared: {self._log.unread} commits could not be read"
            )
            return
        self._tombstones(tables)
        self._executions(tables)
        self._events(tables)
        self._activities(tables)
        self._timers(tables)
        self._orphaned()
        self._gates(tables)
        schedules = self._fold.schedules
        rows = tables.schedules(list(schedules.ids()))
        schedules.compare(rows, is_whole=not self._log.base.n)

    # --- within ------------------------------------------------------------
    def _orphaned(self) -> None:
        """Rows of no execution, in one line a table. Where something could not be read it may be
        their execution that is missing, and that is said already.
        """
        for table, count in self._orphans.items():
            rows = "1 row belongs" if count == 1 else f"{count} rows belong"
            if self._found.count[13]:
                self._found.note(f"{table}: {rows} to an execution that could not be read, or none")
            else:
                self._found.add(11, table, f"{rows} to no execution")

    def _could_read(self, before: int) -> bool:
        """Whether all rows of a table were read, given what was unreadable before it: only then is
        what was not seen missing.
        """
        return self._found.count[13] == before

    def _known(self, workflow_id: str | None, where: str) -> Workflow | None:
        """The workflow to compare with; None where it was reported, or can't be known."""
        if workflow_id is None:
            self._orphans[where.partition(",")[0]] += 1
            return None
        workflow = self._fold.workflows.get(workflow_id)
        if workflow is None:
            if not self._log.base.n:
                self._found.add(11, where, "belongs to a workflow that the log does not have")
            return None
        return None if workflow.is_tainted else workflow

    def _epochs(self, tables: Tables) -> None:
        rows = {row.epoch: row for row in tables.epochs()}
        if not rows:
            return
        for epoch, opening in self._log.openings.items():
            row = rows.get(epoch)
            where = f"epoch {epoch}"
            if row is None:
                self._found.add(3, where, f"commit {opening.n} opens it, the table has none")
            elif (row.incarnation, row.now_ms) != (opening.incarnation, opening.at_ms):
                self._found.add(
                    3, where, f"the table names another opening than commit {opening.n}"
                )
        newest, last = max(rows), self._log.epoch or 0
        if newest > last:
            text = f"the log ends in epoch {last}, and epoch {newest} was opened"
            self._found.add(9, f"commit {self._log.n}", text)

    def _tombstones(self, tables: Tables) -> None:
        for row in tables.tombstones():
            self.removed.add(row.workflow_id)
            self._tombstone(row)

    def _tombstone(self, row: TombstoneRow) -> None:
        where = f"tombstone of {row.workflow_id}"
        workflow = self._fold.workflows.get(row.workflow_id)
        if workflow is None or workflow.is_tainted:
            if workflow is None and not self._log.base.n:
                self._found.add(11, where, "the log has no such workflow")
        elif workflow.is_open:
            self._found.add(5, where, "its workflow has not ended")
        elif row.closed_ms != workflow.closed_ms or (
            not workflow.is_partial and row.digest != workflow.digest
        ):
            self._found.add(6, where, "it is not that of the workflow in the log")

    def _executions(self, tables: Tables) -> None:
        unreadable = self._found.count[13]
        seen: set[str] = set()
        for row in tables.executions():
            where = f"executions, {row.workflow_id}"
            seen.add(row.workflow_id)
            if row.workflow_id in self.removed:
                self._found.add(6, where, "it has a tombstone as well")
            workflow = self._known(row.workflow_id, where)
            if workflow is not None:
                self._execution(workflow, row, where)
        if not self._could_read(unreadable):
            return
        for workflow_id, workflow in self._fold.workflows.items():
            missing = workflow_id not in seen and workflow_id not in self.removed
            # What began before a pruned log's first commit may be gone with its tombstone.
            if missing and not workflow.is_partial:
                text = "the log has this workflow, the table has not"
                self._found.add(11, f"executions, {workflow_id}", text)

    def _execution(self, workflow: Workflow, row: ExecutionRow, where: str) -> None:
        if workflow.is_partial:
            expected = {"status": workflow.status, "closed_ms": workflow.closed_ms}
        else:
            expected = {name: getattr(workflow, name) for name in _COMPARED}
            failure = None if row.task_failure is None else self._decoded(row.task_failure, where)
            if failure != workflow.task_failure:
                self._found.add(11, where, "task_failure is not what the log gives")
            more = None if row.more is None else self._decoded(row.more, where)
            for name in interactions.differences(workflow, more):
                self._found.add(11, where, f"{name} is not what the log gives")
        for name, value in expected.items():
            found = getattr(row, name)
            if found != value:
                number = 34 if name in ("status", "closed_ms") else 11
                self._found.add(number, where, f"{name} is {found!r}, the log gives {value!r}")

    # --- events ------------------------------------------------------------
    def _events(self, tables: Tables) -> None:
        unreadable = self._found.count[13]
        present: str | None = None
        workflow: Workflow | None = None
        due: Iterator[int] = iter(())
        next_due: int | None = None
        seen: set[str] = set()
        for row in tables.events():
            if row.workflow_id != present or row.workflow_id is None:
                self._missing(workflow, next_due, due)
                present = row.workflow_id
                workflow = self._known(present, f"events, {present}")
                due = iter(workflow.events if workflow is not None else ())
                next_due = next(due, None)
                seen.add(present or "")
            if workflow is None or (workflow.is_partial and _is_before(row, next_due)):
                continue
            self.events += 1
            while next_due is not None and next_due >> _EVENT_ID_BITS < row.event_id:
                self._missing(workflow, next_due, iter(()))
                next_due = next(due, None)
            where = f"events, {present} event {row.event_id}"
            if next_due is None or next_due >> _EVENT_ID_BITS != row.event_id:
                self._found.add(11, where, "the log has no such event")
                continue
            self._event(workflow, row, next_due & _CHECKSUM, where)
            next_due = next(due, None)
        if not self._could_read(unreadable):
            return
        self._missing(workflow, next_due, due)
        for workflow_id, one in self._fold.workflows.items():
            if workflow_id not in seen and workflow_id not in self.removed and not one.is_tainted:
                self._missing(one, None, iter(one.events))

    def _missing(self, workflow: Workflow | None, first: int | None, rest: Iterator[int]) -> None:
        if workflow is None:
            return
        for one in ([] if first is None else [first]) + list(rest):
            where = f"events, {workflow.workflow_id} event {one >> _EVENT_ID_BITS}"
            self._found.add(11, where, "the log has this event, the table has not")

    def _event(self, workflow: Workflow, row: EventRow, expected: int, where: str) -> None:
        record = self._decoded(row.body, where)
        if record is None:
            return
        problem = names.problem_of(record)
        if problem:
            self._found.add(13, where, problem)
            return
        kind = names.KINDS[record[0]]
        try:
            logged = checksum(payloads.as_logged(record))
        except (TypeError, ValueError, IndexError) as trouble:
            self._found.add(13, where, f"makes no sense: {trouble!r}")
            return
        if logged != expected:
            number = 30 if kind.name == "ActivityTaskCompleted" else 11
            self._found.add(number, where, f"{kind.name} is not what the log has")
            return
        closes = record[3] if kind.name in _CLOSES else None
        if row.closes is None and is_taken_back(workflow, row.event_id):
            closes = None  # Another may close that activity now.
        at = names.REQUEST_AT.get(kind.name, 0)
        request_id = record[at] if 0 < at < len(record) else None
        if request_id is not None:
            request_id = f"{kind.name}/{request_id}"
        if (row.at_ms, row.kind, row.closes, row.request_id) != (
            record[2],
            kind.name,
            closes,
            request_id,
        ):
            self._found.add(11, where, "its columns are not those of its record")

    # --- what is open --------------------------------------------------------
    def _activities(self, tables: Tables) -> None:
        unreadable = self._found.count[13]
        seen: set[tuple[str, str]] = set()
        for row in tables.activities():
            where = f"activities, {row.workflow_id}/{row.activity_id}"
            workflow = self._known(row.workflow_id, where)
            if workflow is None:
                continue
            seen.add((workflow.workflow_id, row.activity_id))
            activity = workflow.activities.get(row.activity_id)
            if activity is not None:
                self._activity(activity, row, where)
            elif not workflow.is_partial or row.activity_id in workflow.closed:
                self._found.add(11, where, "it stands there as open; by the log it is not")
        if not self._could_read(unreadable):
            return
        for workflow_id, workflow in self._fold.workflows.items():
            if workflow.is_tainted:
                continue
            for activity_id, activity in workflow.activities.items():
                if (workflow_id, activity_id) not in seen:
                    where = f"activities, {workflow_id}/{activity_id}"
                    self._found.add(36, where, f"by the log it is {activity.state}; it has no row")

    def _activity(self, activity: Activity, row: ActivityRow, where: str) -> None:
        body = self._decoded(row.body, where)
        if not isinstance(body, list) or len(body) < 6:
            if body is not None:
                self._found.add(13, where, "its body is no activity")
            return
        newest = activity.failures_newest
        failure_type = newest[-1][4].get("type") if newest else None
        if row.state != activity.state:
            number = 31 if DEAD in (row.state, activity.state) else 36
            text = f"its row says {row.state}, the log gives {activity.state}"
            self._found.add(number, where, text)
        if (row.activity_type, row.attempt, row.failure_type) != (
            activity.activity_type,
            activity.attempt,
            failure_type,
        ):
            self._found.add(11, where, "its columns are not what the log gives")
        for name, at in _AT_ACTIVITY.items():
            if at >= len(body):
                continue
            expected, found = getattr(activity, name), body[at]
            equal = payloads.same if name == "details" else _equal
            if not equal(expected, found):
                number = _number_of(name, expected, found)
                text = f"{name} is {found!r}, the log gives {expected!r}"
                self._found.add(number, where, text)

    def _timers(self, tables: Tables) -> None:
        unreadable = self._found.count[13]
        seen: set[tuple[str, int]] = set()
        for row in tables.timers():
            where = f"timers, {row.workflow_id} timer {row.timer_id}"
            workflow = self._known(row.workflow_id, where)
            if workflow is None:
                continue
            seen.add((workflow.workflow_id, row.timer_id))
            due_ms = workflow.timers.get(row.timer_id)
            if due_ms is None:
                if not workflow.is_partial or row.timer_id in workflow.timers_gone:
                    self._found.add(11, where, "by the log it does not run")
            elif due_ms != row.due_ms:
                self._found.add(27, where, f"due at {row.due_ms}, the log gives {due_ms}")
        if not self._could_read(unreadable):
            return
        for workflow_id, workflow in self._fold.workflows.items():
            if workflow.is_tainted:
                continue
            for timer_id in workflow.timers:
                if (workflow_id, timer_id) not in seen:
                    where = f"timers, {workflow_id} timer {timer_id}"
                    self._found.add(36, where, "it runs by the log, and has no row")

    def _gates(self, tables: Tables) -> None:
        known = dict(self._fold.gates.known)
        for row in tables.gates():
            where = f"gates, {row.kind} {row.name}"
            logged = known.pop((row.kind, row.name), None)
            if logged is None and self._log.base.n:
                continue  # Set before a pruned log's first commit.
            found = (row.paused, row.since_ms, row.reason)
            if found != logged:
                self._found.add(11, where, f"it is {found}, the log gives {logged}")
        for kind, name in known:
            self._found.add(11, f"gates, {kind} {name}", "the log sets it, the table has no row")

    def _decoded(self, raw: bytes, where: str) -> Any:
        """What these bytes say; None, and reported, where they say nothing."""
        try:
            return _decode(raw)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as problem:
            self._found.add(13, where, f"can't be read: {problem}")
            return None


def _is_before(row: EventRow, next_due: int | None) -> bool:
    """Whether this event is of before a pruned log's first commit."""
    return next_due is None or row.event_id < next_due >> _EVENT_ID_BITS


def _equal(expected: Any, found: Any) -> bool:
    if expected == found:
        return True
    # Fields that a later version put at the end of a nested list.
    both = isinstance(expected, list) and isinstance(found, list)
    return both and len(found) > len(expected) and found[: len(expected)] == expected


def _number_of(name: str, expected: Any, found: Any) -> int:
    if name in _CARRIED:
        return 24
    if name == "state":
        return 31 if DEAD in (expected, found) else 36
    if name == "lease" and (expected is None) != (found is None):
        return 36
    return 11


__all__ = ["RUNNING", "TableCheck"]
