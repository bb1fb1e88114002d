"""Clients that poll for activity tasks by hand: who waits for what, longest first."""

from __future__ import annotations

from perdure.core.links import Poll
from perdure.core.open_work import Key
from perdure.core.ranked import Ranked

Asker = tuple[str, int]  # (gateway, its number)


class WaitingPoll:
    """One wish for one task, perhaps asked several times (with the same poll id)."""

    __slots__ = ("askers", "due_ms", "group", "poll_id", "proposed", "rank", "worker_id")

    def __init__(self, poll: Poll, due_ms: int, rank: int) -> None:
        self.askers: list[Asker] = []
        self.due_ms = due_ms
        self.group = (poll.task_queue, frozenset(poll.types))
        self.worker_id = poll.worker_id
        self.poll_id = poll.poll_id
        self.rank = rank
        self.proposed = False  # A lease is on its way to it, or refused.


class Polls:
    """Polls by what they would take, and by the time they wait until."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, frozenset[str]], Ranked[WaitingPoll]] = {}
        self._by_asker: dict[Asker, WaitingPoll] = {}
        self._by_id: dict[tuple[str, str], WaitingPoll] = {}
        self._due: Ranked[WaitingPoll] = Ranked()
        self._arrival = 0

    def add(self, asker: Asker, poll: Poll, now_ms: int) -> None:
        """Let `asker` wait until `wait_ms` from now. The same asker again is the same poll."""
        due_ms = now_ms + poll.wait_ms
        waiting = self._by_asker.get(asker)
        if waiting is None and poll.poll_id is not None:
            waiting = self._by_id.get((poll.worker_id, poll.poll_id))
        if waiting is None:
            self._arrival += 1
            waiting = WaitingPoll(poll, due_ms, self._arrival)
            if poll.poll_id is not None:
                self._by_id[poll.worker_id, poll.poll_id] = waiting
        waiting.due_ms = max(waiting.due_ms, due_ms)
        if asker not in waiting.askers:
            waiting.askers.append(asker)
            self._by_asker[asker] = waiting
        if not waiting.proposed:
            self.wait(waiting)

    def wait(self, poll: WaitingPoll) -> None:
        """Put it (back) in line, at its place."""
        poll.proposed = False
        group = self._groups.get(poll.group)
        if group is None:
            group = self._groups[poll.group] = Ranked()
        group.put(poll, poll.rank)
        self._due.put(poll, poll.due_ms)

    def remove(self, asker: Asker) -> None:
        """`asker` no longer wants it."""
        poll = self._by_asker.pop(asker, None)
        if poll is None:
            return
        poll.askers.remove(asker)
        if not poll.askers:
            self.close(poll)

    def close(self, poll: WaitingPoll) -> list[Asker]:
        """It is over; who is to be answered."""
        self._leave(poll)
        if poll.poll_id is not None and self._by_id.get((poll.worker_id, poll.poll_id)) is poll:
            del self._by_id[poll.worker_id, poll.poll_id]
        for asker in poll.askers:
            del self._by_asker[asker]
        askers, poll.askers = poll.askers, []
        return askers

    def take(self, poll: WaitingPoll) -> None:
        """A lease is proposed for it: it is out of the line until that is decided."""
        poll.proposed = True
        self._leave(poll)

    def first_for(self, key: Key) -> WaitingPoll | None:
        """The poll that has waited longest for such a task, or None."""
        queue, kind = key[0], key[1]
        best: tuple[int, WaitingPoll] | None = None
        for (wanted, types), group in self._groups.items():
            if wanted == queue and (not types or kind in types):
                found = group.first()
                if found is not None and (best is None or found[0] < best[0]):
                    best = found
        return None if best is None else best[1]

    def by_id(self, worker_id: str, poll_id: str | None) -> WaitingPoll | None:
        """The open poll of that name."""
        return None if poll_id is None else self._by_id.get((worker_id, poll_id))

    def expired(self, now_ms: int) -> list[WaitingPoll]:
        """Those whose time is over, out of the line."""
        over: list[WaitingPoll] = []
        while (poll := self._due.pop_up_to(now_ms)) is not None:
            over.append(poll)
        return over

    def next_ms(self) -> int | None:
        """When the next one's time is over."""
        lowest_ms: int | None = self._due.lowest()
        return lowest_ms

    def forget_gateways(self, but: str) -> None:
        """Whoever asked through an earlier gateway can't be answered any more."""
        for asker in [asker for asker in self._by_asker if asker[0] != but]:
            self.remove(asker)

    def __len__(self) -> int:
        return len(self._due)

    def _leave(self, poll: WaitingPoll) -> None:
        self._due.remove(poll)
        group = self._groups.get(poll.group)
        if group is not None:
            group.remove(poll)
            if not group:
                del self._groups[poll.group]
