"""History's side of schedules: the state at hand, and how one command about one is judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.core.commands import AnyAnswer
from perdure.core.decide_schedule import decide_schedule
from perdure.core.draft import Draft
from perdure.core.schedule_state import SCHEDULE_MARK, Schedule, fold

KEPT_MAX = 10_000


class ScheduleBook:
    """The schedules that were touched lately. `read` gives one by its id, from the store."""

    def __init__(self, read: Callable[[str], Schedule | None]) -> None:
        self._read = read
        self._kept: dict[str, Schedule] = {}

    def judge(self, draft: Draft, group: str, command: Any, now_ms: int, n: int) -> AnyAnswer:
        """Decide about `command` in commit `n`, and note in `draft` all that follows."""
        schedule = self._kept.get(group)
        if schedule is None:
            schedule = self._read(group.removeprefix(SCHEDULE_MARK))
        decision = decide_schedule(schedule, command, now_ms)
        for record in decision.records:
            schedule = fold(schedule, group, record, n)
        if decision.records and schedule is not None:
            draft.groups.setdefault(group, []).extend(decision.records)
            draft.schedules[group] = schedule
            self._kept[group] = schedule
        draft.then += decision.then
        return decision.answer

    def forget(self) -> None:
        """Begin again with what the store has."""
        self._kept.clear()

    def committed(self) -> None:
        """What is kept is durable: let go of what is too much."""
        while len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
