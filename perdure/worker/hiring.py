"""Which activities this worker asks to be leased in the very report that schedules them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perdure.core.commands import Hire, ScheduleActivity, Step
from perdure.core.ids import Session
from perdure.core.limits import INLINE_BYTES
from perdure.worker.endings import TERMINAL


class Hiring:
    """What this worker can take at once, and for whom.

    Without a session (before the first welcome) it asks for nothing. `backlog`: activities of
    others wait for our slots, so that none is handed on.
    """

    __slots__ = ("backlog", "queues", "session", "types", "worker_id")

    def __init__(self) -> None:
        self.backlog = False
        self.session: Session | None = None
        self.worker_id = ""
        self.queues: Collection[str] = ()
        self.types: Collection[str] = ()

    def wish(self, steps: Sequence[Step], most: int) -> Hire | None:
        """The first activities of these steps, at most so many, that we could run ourselves.

        Large inputs are left out: their task is better made where the input is kept.
        """
        if self.session is None or not steps or isinstance(steps[-1], TERMINAL):
            return None
        wanted: list[str] = []
        for step in steps:
            if (
                isinstance(step, ScheduleActivity)
                and step.activity_type in self.types
                and step.options.task_queue in self.queues
                and (step.input is None or len(step.input) <= INLINE_BYTES)
            ):
                wanted.append(step.activity_id)
                if len(wanted) == most:
                    break
        return Hire(self.worker_id, self.session, tuple(wanted)) if wanted else None
