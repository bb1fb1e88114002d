"""First tasks that the scheduler leaves to history: the scheduler's side.

While nothing waits, each worker's free slots are lent to history in part: a new workflow's first
task is then sent with the commit that starts it, and history need not wake the scheduler at all for
a workflow whose worker does the rest. What is lent counts as taken here until history has used it
or given it back.

Both sides count from the beginning of a session: `up_to` tasks may be sent in all, `used` were. So
whatever is lost on the way is made up for by what is said next.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.core.ids import Session
from perdure.core.links import Lend, Lent
from perdure.core.seats import LATE_MS, Seat
from perdure.core.task_queues import TaskQueues

# To one worker at a time: as many as start while history lets its news wait, and some.
LENT_MAX = 16


class Lending:
    """Says through `say` what may be sent to a seat; False where its worker can't be reached by
    history itself.
    """

    def __init__(
        self,
        queues: TaskQueues,
        seats: dict[Session, Seat],
        slots: Callable[[Seat], int],
        say: Callable[[Seat, Lend], bool],
    ) -> None:
        self._queues = queues
        self._seats = seats
        self._slots = slots
        self._say = say

    def look(self, now_ms: int) -> None:
        """Lend where nothing waits, take back where something does or the seat is to rest."""
        waits = bool(self._queues.activities or self._queues.workflows)
        for seat in self._seats.values():
            if seat.recalls:
                continue
            rests = waits or now_ms - seat.sync_ms > LATE_MS or not _takes_any(seat)
            if seat.lent and (rests or seat.lends_anew):
                self._take_back(seat)
            elif not rests:
                self._lend(seat)

    def _lend(self, seat: Seat) -> None:
        """Up to half of what is free, when most of it is used."""
        seat.lends_anew = False
        before = seat.lent
        most = min(LENT_MAX, (self._slots(seat) + before + 1) // 2)
        if before <= most // 4 and before < most:
            seat.lent = most
            if not self._tell(seat):
                seat.lent = before

    def _take_back(self, seat: Seat) -> None:
        seat.recalls = True
        self._tell(seat)

    def _tell(self, seat: Seat) -> bool:
        up_to = seat.lent_used if seat.recalls else seat.lent_used + seat.lent
        # Sorted: what is said must not depend on how Python orders a set.
        known = sorted(seat.workflow_types)
        types = tuple(kind for kind in known if (True, kind) not in seat.refused)
        return self._say(seat, Lend(seat.session, "", seat.queues, types, up_to, seat.lent_used))

    def say_again(self, seat: Seat) -> None:
        """Now and then: it may have been lost, in either direction."""
        if seat.lent or seat.recalls:
            self._tell(seat)

    def left(self, seat: Seat) -> None:
        """Its session is over."""
        self._say(seat, Lend(seat.session, "", (), (), 0))

    def heard(self, message: Lent) -> Seat | None:
        """What history has used of it, or has given back; the seat that it is about."""
        seat = self._seats.get(message.session)
        if seat is None or message.used < seat.lent_used:
            return None
        up_to = seat.lent_used + seat.lent
        seat.lent_used = message.used
        seat.lent = max(0, up_to - message.used)
        if message.up_to < 0 or (seat.recalls and message.up_to <= message.used):
            seat.lent = 0
            seat.recalls = False
        return seat

    def begin_anew(self) -> None:
        """Another history, to whom nothing was lent yet."""
        for seat in self._seats.values():
            seat.lent = seat.lent_used = 0
            seat.recalls = False


def _takes_any(seat: Seat) -> bool:
    return not (seat.quarantine or seat.draining or seat.retired)
