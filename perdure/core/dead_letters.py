"""The index of dead letters: activities whose last attempt failed and that wait for an operator.

A projection of history's records. It answers lists; what becomes of a dead letter, history decides.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from perdure.core.execution import begin, evolve
from perdure.core.records import (
    CLOSING_TYPES,
    ActivityDeadLettered,
    ActivityRedriven,
    ActivityTaskCancelled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    Record,
    WorkflowStarted,
)
from perdure.core.state import Activity, ActivityState, Execution
from perdure.errors import InvalidArgument

Name = tuple[str, str]  # (workflow id, activity id)
Position = tuple[int, str, str]  # (dead_ms, workflow id, activity id)

_ENDS = ActivityRedriven | ActivityTaskCompleted | ActivityTaskFailed | ActivityTaskCancelled
_position_decoder = msgspec.msgpack.Decoder(Position)


class DeadLetterFilter(msgspec.Struct, frozen=True):
    """What a list is narrowed to; None matches all. `older_than_ms`: dead for longer than this."""

    workflow_id: str | None = None
    activity_id: str | None = None
    activity_type: str | None = None
    failure_type: str | None = None
    older_than_ms: int | None = None


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """One entry: the activity as it stands, with every failure that is kept of it."""

    workflow_id: str
    workflow_type: str
    activity: Activity


class DeadLetters:
    """Every dead letter, oldest first."""

    def __init__(self) -> None:
        self._executions: dict[str, Execution] = {}
        self._dead: dict[Name, int] = {}
        self._order: list[Position] = []

    def __len__(self) -> int:
        return len(self._order)

    # --- records --------------------------------------------------------------
    def load(self, executions: Iterable[Execution]) -> None:
        """Begin with these open executions, which belong to this object from now on."""
        for execution in executions:
            if not execution.is_open:
                continue
            self._executions[execution.workflow_id] = execution
            for activity in execution.activities.values():
                if activity.state is ActivityState.DEAD_LETTERED:
                    self._add(execution.workflow_id, activity)

    def apply(self, workflow_id: str, record: Record, n: int = 0) -> None:
        """Take in one record of commit `n`, in the order of the log."""
        execution = self._executions.get(workflow_id)
        if execution is None:
            if isinstance(record, WorkflowStarted):
                self._executions[workflow_id] = begin(workflow_id, record)
            return
        if type(record) in CLOSING_TYPES:
            for activity_id in execution.activities:
                self._remove(workflow_id, activity_id)
            del self._executions[workflow_id]
            return
        evolve(execution, record, n)
        if isinstance(record, ActivityDeadLettered):
            activity = execution.activities.get(record.activity_id)
            if activity is not None and activity.state is ActivityState.DEAD_LETTERED:
                self._add(workflow_id, activity)
        elif isinstance(record, _ENDS):
            self._remove(workflow_id, record.activity_id)

    def _add(self, workflow_id: str, activity: Activity) -> None:
        name = (workflow_id, activity.activity_id)
        self._remove(*name)
        self._dead[name] = activity.dead_ms or 0
        insort(self._order, (activity.dead_ms or 0, *name))

    def _remove(self, workflow_id: str, activity_id: str) -> None:
        dead_ms = self._dead.pop((workflow_id, activity_id), None)
        if dead_ms is not None:
            del self._order[bisect_left(self._order, (dead_ms, workflow_id, activity_id))]

    # --- lists ------------------------------------------------------------------
    def list(
        self, where: DeadLetterFilter, now_ms: int, limit: int, page: str | None = None
    ) -> tuple[list[DeadLetter], str | None]:
        """At most `limit` entries that match, oldest first, and the token of the next page.

        Raises InvalidArgument where `page` is not a token that a list gave.
        """
        start = 0 if page is None else bisect_right(self._order, _position(page))
        found: list[DeadLetter] = []
        for entry in self._from(start):
            if not _matches(where, entry, now_ms):
                continue
            if len(found) == limit:
                return found, _token(found[-1])
            found.append(entry)
        return found, None

    def by_failure_type(self, where: DeadLetterFilter, now_ms: int) -> dict[str, int]:
        """How many entries that match there are of each type of last failure, most first."""
        kinds: Counter[str] = Counter()
        for entry in self._from(0):
            failure = entry.activity.last_failure
            if failure is not None and _matches(where, entry, now_ms):
                kinds[failure.type] += 1
        return dict(kinds.most_common())

    def _from(self, start: int) -> Iterator[DeadLetter]:
        for index in range(start, len(self._order)):
            _, workflow_id, activity_id = self._order[index]
            execution = self._executions[workflow_id]
            activity = execution.activities[activity_id]
            yield DeadLetter(workflow_id, execution.workflow_type, activity)


def _matches(where: DeadLetterFilter, entry: DeadLetter, now_ms: int) -> bool:
    activity = entry.activity
    failure = activity.last_failure
    wanted = (
        (where.workflow_id, entry.workflow_id),
        (where.activity_id, activity.activity_id),
        (where.activity_type, activity.activity_type),
        (where.failure_type, None if failure is None else failure.type),
    )
    if any(want is not None and want != has for want, has in wanted):
        return False
    return where.older_than_ms is None or now_ms - (activity.dead_ms or 0) > where.older_than_ms


def _token(entry: DeadLetter) -> str:
    activity = entry.activity
    position = (activity.dead_ms or 0, entry.workflow_id, activity.activity_id)
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(position)).decode("ascii")


def _position(page: str) -> Position:
    try:
        raw = base64.b64decode(page.encode("ascii"), altchars=b"-_", validate=True)
        return _position_decoder.decode(raw)
    except (UnicodeEncodeError, binascii.Error, ValueError, msgspec.MsgspecError):
        raise InvalidArgument("page is not a token that a list gave", field="page") from None
