"""Schedules, as the log tells of them: each run once, at a time that was announced; and whether the
store's rows of them say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec

from chaos.auditor import names
from chaos.auditor.source import ScheduleRow

MARK = "\x1e"
Record = list[Any]
# Fields within ScheduleFired, behind the tag.
DUE_MS, OUTCOME, WHY, WORKFLOW_ID = 2, 3, 4, 5
NEXT_AT = {"ScheduleSet": 3, "ScheduleFired": 7, "SchedulePaused": 4}
PAUSED_AT = {"ScheduleSet": 4, "SchedulePaused": 2}  # The reason stands behind it.
REQUEST_AT = {"ScheduleSet": 6, "ScheduleFired": 8, "SchedulePaused": 5, "ScheduleDeleted": 2}
REQUESTS_KEPT, RECENT_KEPT = 100, 20
# Of a schedule that was there before a pruned log, what its newest record gives.
_OF_NEWEST = ("changed_ms", "changed_n", "deleted")

_decode = msgspec.msgpack.Decoder().decode


class Place(Protocol):
    """What these rules need of the fold."""

    @property
    def found(self) -> Any:
        """Where what is wrong is told."""

    @property
    def n(self) -> int:
        """The present commit."""

    @property
    def at_ms(self) -> int:
        """The instant of the present commit."""

    def where(self, workflow_id: str, activity_id: str = "") -> str:
        """The place of the present record, for people."""


class _Schedule:
    """A schedule after the records so far. The fields that the store keeps too bear its names."""

    def __init__(self, schedule_id: str, at_ms: int) -> None:
        self.fired_ms = -1  # The newest instant that a run was due at by time.
        self.asked: dict[str, int] = {}  # Of requests for runs, the commit.
        self.began: set[str] = set()  # All that it has ever started.
        self.schedule_id = schedule_id
        self.spec: Any = None
        self.created_ms = self.changed_ms = at_ms
        self.next_ms: int | None = None
        self.paused = False
        self.reason = ""
        self.running: dict[str, int] = {}
        self.buffered: list[int] = []
        self.started = self.skipped = self.missed = 0
        self.recent: list[list[Any]] = []
        self.requests: list[str] = []
        self.deleted = False
        self.changed_n = 0
        self.runs = 0

    def take(self, kind: str, record: Record, n: int) -> None:
        """Believe a record: what it says in so many words."""
        if kind in NEXT_AT:
            self.next_ms = record[NEXT_AT[kind]]
        if kind in PAUSED_AT:
            self.paused, self.reason = record[PAUSED_AT[kind] : PAUSED_AT[kind] + 2]
        at = REQUEST_AT.get(kind, 0)
        request_id = record[at] if 0 < at < len(record) else None
        if request_id is not None and request_id not in self.requests:
            self.requests = [*self.requests[1 - REQUESTS_KEPT :], request_id]
        if kind == "ScheduleSet":
            self.spec = record[2]
        elif kind == "ScheduleRunEnded":
            self.running.pop(record[2], None)
            for one in self.recent:
                if one[4] == record[2]:
                    one[5] = record[3]
        elif kind == "ScheduleDeleted":
            self.deleted, self.next_ms, self.buffered = True, None, []
        self.changed_ms, self.changed_n = record[1], n

    def fired(self, record: Record) -> None:
        """A run that was due."""
        _, at_ms, due_ms, outcome, why, workflow_id, count = record[:7]
        if outcome == "missed":
            self.missed += count
            return
        if outcome == "buffered":
            self.buffered.append(due_ms)
            return
        if why == "buffer":
            self.buffered = self.buffered[1:]
        if outcome == "started":
            self.started += 1
            self.runs += 1
            self.began.add(workflow_id)
            self.running[workflow_id] = due_ms
        else:
            self.skipped += 1
        newest = [due_ms, at_ms, outcome, why, workflow_id, ""]
        self.recent = [*self.recent[1 - RECENT_KEPT :], newest]


class Schedules:
    """State of every schedule after the records so far.

    A pruned log may begin in the middle of one: what is known of it begins there too.
    """

    def __init__(self, fold: Place) -> None:
        self._fold = fold
        self._known: dict[str, _Schedule] = {}
        self._wronged: set[str] = set()

    def record(self, group: str, record: Record, *, is_whole: bool) -> None:
        """Hold one record against those before it."""
        kind = names.KINDS[record[0]].name
        schedule = self._known.get(group)
        if schedule is None or (schedule.deleted and kind == "ScheduleSet"):
            if is_whole and kind != "ScheduleSet":
                self._wrong(34, group, f"{kind} stands before its ScheduleSet")
            before = schedule
            schedule = _Schedule(group.removeprefix(MARK), record[1])
            if before is not None:
                schedule.runs, schedule.began = before.runs, before.began
            self._known[group] = schedule
        elif schedule.deleted:
            self._wrong(34, group, f"{kind} stands behind its ScheduleDeleted")
        if kind == "ScheduleFired":
            self._fired(group, schedule, record, is_whole=is_whole)
        elif kind == "ScheduleRunEnded" and is_whole and record[2] not in schedule.running:
            self._wrong(36, group, f"run {record[2]} ended and was not going on")
        schedule.take(kind, record, self._fold.n)

    def ids(self) -> Iterator[str]:
        """All that the log tells of, deleted or not."""
        return (schedule.schedule_id for schedule in self._known.values())

    def has_started(self, group: str, workflow_id: str, *, is_whole: bool) -> bool:
        """Whether this schedule says so; where the log was pruned it may have."""
        schedule = self._known.get(group)
        return not is_whole or (schedule is not None and workflow_id in schedule.began)

    def compare(self, rows: Iterable[ScheduleRow], *, is_whole: bool) -> None:
        """Hold the store's rows against this; `is_whole`: the log was not pruned."""
        add = self._fold.found.add
        unreadable = self._fold.found.count[13]
        missing = dict(self._known)
        for row in rows:
            where = f"schedules, {row.schedule_id}"
            group = MARK + row.schedule_id
            schedule = missing.pop(group, None)
            if schedule is None:
                if is_whole:
                    add(11, where, "the log has no such schedule")
            elif group not in self._wronged:
                self._compare(schedule, row, where, is_whole=is_whole)
        if self._fold.found.count[13] != unreadable:
            return
        for schedule in missing.values():
            number = 11 if schedule.deleted else 36
            add(number, f"schedules, {schedule.schedule_id}", "the log has it, the table has not")

    def _compare(
        self, schedule: _Schedule, row: ScheduleRow, where: str, *, is_whole: bool
    ) -> None:
        add = self._fold.found.add
        try:
            body = _decode(row.body)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as problem:
            add(13, where, f"can't be read: {problem}")
            return
        if not isinstance(body, list) or len(body) < names.SCHEDULE_REQUIRED:
            add(13, where, "its body is no schedule")
            return
        if row.deleted is not schedule.deleted:
            add(11, where, f"its column says deleted: {row.deleted}; the log does not")
        for name, found in zip(names.SCHEDULE, body, strict=False):
            expected = getattr(schedule, name)
            if found != expected and (is_whole or name in _OF_NEWEST):
                number = 27 if name == "next_ms" else 11
                add(number, where, f"{name} is {found!r}, the log gives {expected!r}")

    def _fired(self, group: str, schedule: _Schedule, record: Record, *, is_whole: bool) -> None:
        due_ms, outcome, why, workflow_id = (
            record[at] for at in (DUE_MS, OUTCOME, WHY, WORKFLOW_ID)
        )
        if why == "time":
            if due_ms > self._fold.at_ms:
                self._wrong(27, group, f"the run due at {due_ms} came early")
            if outcome != "missed":
                if due_ms <= schedule.fired_ms:
                    self._wrong(27, group, f"the run due at {due_ms} came a second time")
                schedule.fired_ms = max(schedule.fired_ms, due_ms)
        request_id = record[8] if len(record) > 8 else None
        if request_id is not None and self._fold.n != schedule.asked.setdefault(
            request_id, self._fold.n
        ):
            self._wrong(32, group, f"request {request_id} made runs a second time")
        if outcome == "started" and workflow_id in schedule.running:
            self._wrong(36, group, f"{workflow_id} was started twice")
        if why == "buffer" and is_whole and due_ms not in schedule.buffered[:1]:
            self._wrong(36, group, f"the run due at {due_ms} was not the next that waited")
        schedule.fired(record)

    def _wrong(self, invariant: int, group: str, what: str) -> None:
        self._wronged.add(group)  # What its row says then follows from that.
        name = f"schedule {group.removeprefix(MARK)}"
        self._fold.found.add(invariant, self._fold.where(name), what)
