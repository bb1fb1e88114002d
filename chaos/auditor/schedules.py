"""Schedules, as the log tells of them: each run once, at a time that was announced."""

from __future__ import annotations

from typing import Any, Protocol

from chaos.auditor import names

MARK = "\x1e"
Record = list[Any]
# Fields within ScheduleFired, behind the tag.
DUE_MS, OUTCOME, WHY, WORKFLOW_ID = 2, 3, 4, 5
NEXT_AT = {"ScheduleSet": 3, "ScheduleFired": 7, "SchedulePaused": 4}


class Place(Protocol):
    """What these rules need of the fold."""

    @property
    def found(self) -> Any:
        """Where what is wrong is told."""

    @property
    def at_ms(self) -> int:
        """The instant of the present commit."""

    def where(self, workflow_id: str, activity_id: str = "") -> str:
        """The place of the present record, for people."""


class _Schedule:
    def __init__(self) -> None:
        self.next_ms: int | None = None
        self.fired_ms = -1  # The newest instant that a run was due at by time.
        self.running: set[str] = set()
        self.waiting: list[int] = []


class Schedules:
    """State of every schedule after the records so far.

    A pruned log may begin in the middle of one: what is known of it begins there too.
    """

    def __init__(self, fold: Place) -> None:
        self._fold = fold
        self._known: dict[str, _Schedule] = {}

    def record(self, group: str, record: Record, *, is_whole: bool) -> None:
        """Hold one record against those before it."""
        kind = names.KINDS[record[0]].name
        schedule = self._known.get(group)
        if schedule is None:
            if is_whole and kind != "ScheduleSet":
                self._wrong(34, group, f"{kind} stands before its ScheduleSet")
            schedule = self._known[group] = _Schedule()
        if kind == "ScheduleFired":
            self._fired(group, schedule, record, is_whole=is_whole)
        elif kind == "ScheduleRunEnded":
            if is_whole and record[2] not in schedule.running:
                self._wrong(36, group, f"run {record[2]} ended and was not going on")
            schedule.running.discard(record[2])
        elif kind == "ScheduleDeleted":
            del self._known[group]
        if kind in NEXT_AT:
            schedule.next_ms = record[NEXT_AT[kind]]

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
        if outcome == "started":
            if workflow_id in schedule.running:
                self._wrong(36, group, f"{workflow_id} was started twice")
            schedule.running.add(workflow_id)
        elif outcome == "buffered":
            schedule.waiting.append(due_ms)
        if why == "buffer":
            if is_whole and due_ms not in schedule.waiting[:1]:
                self._wrong(36, group, f"the run due at {due_ms} was not the next that waited")
            schedule.waiting = schedule.waiting[1:]

    def _wrong(self, invariant: int, group: str, what: str) -> None:
        name = f"schedule {group.removeprefix(MARK)}"
        self._fold.found.add(invariant, self._fold.where(name), what)
