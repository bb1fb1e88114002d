"""Quarantine: what killed its workers again and again runs alone, so that it hurts only itself.

From the second death in a row an activity runs on a worker of one slot; so does a workflow task
that has been parked after deaths or silence. The supervisor starts such workers on demand. How many
there should be, and which are no longer needed, is said here; time comes in with every call.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.core.ids import Session
from perdure.core.links import Quarantine
from perdure.core.open_work import ALONE, Key
from perdure.core.ranked import Ranked
from perdure.core.seats import Seat, Serving
from perdure.core.task_queues import TaskQueues

# A worker that had nothing to do for so long is no longer needed.
IDLE_MS = 5_000
# What is wanted is said again this often, should it have got lost on the way.
SAY_AGAIN_MS = 1_000


def is_free(seat: Seat, leases: int) -> bool:
    """Whether a seat in quarantine, which holds so many leases, has nothing to do whatever."""
    return not (leases or seat.proposed or seat.given or seat.foreign)


class QuarantineNeeds:
    """How many workers in quarantine are wanted, said through `say` on change and once a second.

    `most`: there are never more; 0: none at all.
    """

    def __init__(
        self,
        queues: TaskQueues,
        seats: dict[Session, Seat],
        serving: Serving,
        most: int,
        say: Callable[[Quarantine], None],
    ) -> None:
        self._queues = queues
        self._seats = seats
        self._serving = serving
        self._most = most
        self._say = say
        self._said: Quarantine | None = None
        self._again_ms: int | None = None
        self._idle_since: dict[Session, int] = {}

    def next_ms(self) -> int | None:
        """When `look` has something to do, apart from what comes in."""
        return self._again_ms

    def look(self, now_ms: int) -> None:
        """Count what waits and what runs, let go of those that were idle for long, and say it."""
        if not self._most:
            return
        waiting = self._waiting(self._queues.activities, workflows=False)
        waiting += self._waiting(self._queues.workflows, workflows=True)
        seats = [seat for seat in self._seats.values() if seat.quarantine]
        if not (waiting or seats or self._said is None or self._said.wanted):
            self._again_ms = None
            return
        busy = kept = 0
        release = []
        idle_since, self._idle_since = self._idle_since, {}
        for seat in seats:
            if not is_free(seat, len(self._queues.leases.get(seat.session, ()))):
                busy += 1
            elif not (waiting or seat.retired):
                since_ms = idle_since.get(seat.session, now_ms)
                self._idle_since[seat.session] = since_ms
                if now_ms - since_ms >= IDLE_MS:
                    seat.retired = True
                    self._serving.changed()
            if seat.retired:
                release.append(seat.session.ordinal)
            elif not seat.draining:
                kept += 1
        self._tell(Quarantine(min(self._most, max(kept, busy + waiting)), tuple(release)), now_ms)

    def _waiting(self, ready: dict[Key, Ranked], *, workflows: bool) -> int:  # type: ignore[type-arg]
        return sum(
            len(tasks)
            for key, tasks in ready.items()
            if ALONE in key[2:] and self._serving.is_for_quarantine(key, workflows=workflows)
        )

    def _tell(self, message: Quarantine, now_ms: int) -> None:
        if message != self._said or self._again_ms is None or now_ms >= self._again_ms:
            self._said = message
            self._again_ms = now_ms + SAY_AGAIN_MS
            self._say(message)
