"""The scheduler's side of schedules: which is due next, and the proposal that it is.

A projection of history's records, as perdure.core.task_queues is: fed with all of them, or begun
from the store, it holds the same. No clock: every call says what time it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from perdure.core.decide_schedule import fires_at_ms
from perdure.core.ranked import Ranked
from perdure.core.record_base import Record
from perdure.core.schedule_commands import FireSchedule
from perdure.core.schedule_state import Schedule, fold, schedule_group

AGAIN_MS = 1_000


class ScheduleClock:
    """Proposes each run when it is due, by `propose`."""

    def __init__(self, propose: Callable[[Any], None]) -> None:
        self._propose = propose
        self._schedules: dict[str, Schedule] = {}
        self._due: Ranked[str] = Ranked()

    def load(self, schedules: Iterable[Schedule]) -> None:
        """Begin with these, which belong to this object from now on."""
        for schedule in schedules:
            group = schedule_group(schedule.schedule_id)
            self._schedules[group] = schedule
            self._rank(group, schedule)

    def apply(self, group: str, records: Sequence[Record], n: int) -> None:
        """Take in what commit `n` states about one schedule; what was in the store is skipped."""
        schedule = self._schedules.get(group)
        if schedule is not None and schedule.changed_n >= n:
            return
        for record in records:
            schedule = fold(schedule, group, record, n)
        if schedule is None or schedule.deleted:
            self._schedules.pop(group, None)
            self._due.remove(group)
            return
        self._schedules[group] = schedule
        self._rank(group, schedule)

    def next_ms(self) -> int | None:
        """When `step` has something to do."""
        first = self._due.first()
        return None if first is None else first[0]

    def step(self, now_ms: int) -> None:
        """Propose what is due: once, for a proposal is asked until it is answered."""
        while (group := self._due.pop_up_to(now_ms)) is not None:
            schedule = self._schedules[group]
            if schedule.next_ms is not None:
                self._propose(FireSchedule(group, schedule.next_ms))

    def refused(self, command: FireSchedule, at_ms: int, now_ms: int) -> None:
        """History did not take the proposal; not before `at_ms`, where it said so."""
        schedule = self._schedules.get(command.workflow_id)
        if schedule is None or schedule.next_ms != command.due_ms or schedule.paused:
            return  # It has gone on.
        self._due.put(command.workflow_id, max(at_ms, now_ms + AGAIN_MS))

    def _rank(self, group: str, schedule: Schedule) -> None:
        at_ms = fires_at_ms(schedule)
        if at_ms is None:
            self._due.remove(group)
        else:
            self._due.put(group, at_ms)
