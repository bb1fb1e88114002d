"""Give activities to worker sessions with free slots, and to clients that poll by hand.

A lease is proposed to history, and its task sent when the grant appears in the feed. Free slots are
capacity less live leases less proposals: no credit is counted, so none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heapreplace

from perdure.core.admission import Admission, Hold
from perdure.core.commands import AnyCommand, EndLease, GrantLease
from perdure.core.ids import Session, unseal
from perdure.core.links import Backlog, Message, Poll, Polled, Sync, pack_session
from perdure.core.open_work import Entry, Key, activity_task
from perdure.core.polls import Asker, Polls, WaitingPoll
from perdure.core.quarantine import is_free
from perdure.core.records import LeaseGranted, LeaseReleased
from perdure.core.seats import LATE_MS, Seat, Serving, is_lost
from perdure.core.task_queues import TaskQueues

Taker = Seat | WaitingPoll
Grant = tuple[str, str, int]  # (workflow id, activity id, grant)


class ActivityTasks:
    """The leases that are proposed, and the giving out of activities that are ready."""

    def __init__(
        self,
        queues: TaskQueues,
        admission: Admission,
        serving: Serving,
        key: bytes,
        propose: Callable[[AnyCommand], None],
        tell: Callable[[bytes, Message], None],
        answer_poll: Callable[[str, Polled], None],
    ) -> None:
        self.polls = Polls()
        self.held: dict[
            Key, Hold
        ] = {}  # What limits or pauses keep from starting, at the last look.
        self._queues = queues
        self._admission = admission
        self._serving = serving
        self._key = key
        self._propose = propose
        self._tell = tell
        self._answer_poll = answer_poll
        self._proposed: dict[Grant, tuple[Entry, Taker]] = {}
        self._polls_turn = False

    # --- giving out -------------------------------------------------------------
    def match(self, now_ms: int) -> None:
        """Propose a lease for every ready activity that somebody can take, in fair order."""
        heads = []
        self.held.clear()
        is_open = self._admission.is_open
        for key, ready in self._queues.activities.items():
            found = ready.first()
            if found is not None:
                heads.append((found[0], key, found[1]))
        heapify(heads)
        while heads:
            _, key, entry = heads[0]
            ready = self._queues.activities[key]
            if not is_open and (hold := self._admission.hold(key, now_ms)) is not None:
                self.held[key] = hold
                heappop(heads)
                continue
            taker = self._taker(entry, now_ms)
            if taker is None:
                heappop(heads)  # Nobody has room for this kind now: the others may go on.
                continue
            if self._admission.counts:
                self._admission.take(entry, now_ms)
            self._propose_lease(entry, taker)
            following = ready.first()
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (following[0], key, following[1]))

    def _taker(self, entry: Entry, now_ms: int) -> Taker | None:
        """A session with a free slot or the longest waiting poll; where there are both, in turn.

        Where the workflow waits for this alone, best the worker that can run it on from there.
        """
        key = entry.key
        seat = self._home(entry, now_ms) if len(entry.work.entries) == 1 else None
        seat = seat or self._serving.freest(key, now_ms, self.room, workflows=False)
        poll = self.polls.first_for(key) if len(self.polls) else None
        if seat is None or poll is None:
            return seat or poll
        self._polls_turn = not self._polls_turn
        return poll if self._polls_turn else seat

    def _home(self, entry: Entry, now_ms: int) -> Seat | None:
        """The session that has the activity's workflow in memory, if it can take the activity."""
        sticky = entry.work.sticky
        seat = None if sticky is None else self._serving.seat(sticky)
        if seat is None or now_ms - seat.sync_ms > LATE_MS or self.room(seat) <= 0:
            return None
        return seat if seat.serves(entry.key, workflows=False) else None

    def room(self, seat: Seat) -> int:
        """How many more leases this session may be given or promised."""
        leases = self._queues.leases.get(seat.session)
        held = 0 if leases is None else len(leases)
        if seat.quarantine:
            return int(is_free(seat, held))
        taken = held + len(seat.proposed) + seat.foreign + seat.permits + seat.lent
        return seat.capacity[0] - taken

    def tell_backlog(self, seats: Iterable[Seat]) -> None:
        """Tell every session for whose slots activities wait so, or that none do any more."""
        waiting = self._queues.activities
        for seat in seats:
            waits = bool(waiting) and any(
                key not in self.held and seat.serves(key, workflows=False) for key in waiting
            )
            if waits is not seat.backlog:
                seat.backlog = waits
                self._tell(seat.head, Backlog(waits))

    def _propose_lease(self, entry: Entry, taker: Taker) -> None:
        activity = entry.activity
        workflow_id, activity_id = entry.work.workflow_id, activity.activity_id
        self._queues.withdraw_activity(entry)
        self._queues.turns.take(entry)
        grant = activity.grant + 1
        session: Session | None = None
        poll_id: str | None = None
        if isinstance(taker, Seat):
            taker.proposed.add(entry)
            session = taker.session
        else:
            self.polls.take(taker)
            poll_id = taker.poll_id
        self._proposed[workflow_id, activity_id, grant] = (entry, taker)
        self._propose(
            GrantLease(
                workflow_id=workflow_id,
                activity_id=activity_id,
                generation=activity.generation,
                grant=grant,
                attempt=activity.attempt,
                worker_id=taker.worker_id,
                session=session,
                poll_id=poll_id,
            )
        )

    def refused(self, command: GrantLease, again_ms: int, now_ms: int) -> None:
        """History did not grant it: whoever was to take it is free, and the activity looked at."""
        grant = (command.workflow_id, command.activity_id, command.grant)
        entry, taker = self._proposed.pop(grant, (None, None))
        if entry is None or taker is None:
            return
        self._release(taker, entry)
        if self._admission.counts:
            self._admission.refused(entry, now_ms)
        if self._queues.is_waiting(entry):
            self._queues.requeue_activity(entry, now_ms, again_ms)

    def _release(self, taker: Taker, entry: Entry) -> None:
        if isinstance(taker, Seat):
            taker.proposed.discard(entry)
        elif taker.askers:
            self.polls.wait(taker)

    # --- grants -------------------------------------------------------------------
    def granted(self, workflow_id: str, record: LeaseGranted, now_ms: int, *, hired: bool) -> None:
        """A lease is committed: send its task, whoever proposed it.

        `hired`: history has sent it, for the worker had asked for the lease itself.
        """
        grant = (workflow_id, record.activity_id, record.grant)
        proposed, taker = self._proposed.pop(grant, (None, None))
        if proposed is not None and self._admission.counts:
            self._admission.granted(proposed)
        entry = self._queues.entry(workflow_id, record.activity_id)
        poll: WaitingPoll | None = None
        if isinstance(taker, WaitingPoll) and _is_for(record, taker):
            poll = taker
        elif proposed is not None and taker is not None:
            self._release(taker, proposed)
        if entry is None:
            return
        if hired:
            entry.sent_ms = now_ms
            return
        if record.session is not None:
            seat = self._serving.seat(record.session)
            head = pack_session(record.session) if seat is None else seat.head
            self._send(entry, head, now_ms)
            return
        if poll is None:
            poll = self.polls.by_id(record.worker_id, record.poll_id)
        self._answer(entry, poll, record, now_ms)

    def _answer(
        self, entry: Entry, poll: WaitingPoll | None, record: LeaseGranted, now_ms: int
    ) -> None:
        if poll is None:
            return  # An earlier scheduler's: its client asks again, or the lease runs out.
        askers = self.polls.close(poll)
        for gateway, n in askers:
            self._answer_poll(gateway, Polled(n, activity_task(entry, self._key, now_ms)))
        if not askers and record.poll_id is None:
            # The client went away before it could learn the token: nobody can ever report.
            self._propose(EndLease(entry.address(), "undelivered", is_polled=True))

    def _send(self, entry: Entry, head: bytes, now_ms: int) -> None:
        task = activity_task(entry, self._key, now_ms)
        if task is not None:
            entry.sent_ms = now_ms
            self._tell(head, task)

    # --- what workers say -------------------------------------------------------
    def judge(self, seat: Seat, sync: Sync, heard_ms: int, now_ms: int) -> None:
        """Send again what this worker should hold and does not; count what it holds of others."""
        held = set(sync.tokens)
        for entry in self._queues.leases.get(seat.session, ()):
            lease = entry.activity.lease
            token = entry.sealed(self._key)
            if token in held:
                held.discard(token)
            elif lease is not None and is_lost(
                sync.n, heard_ms, lease.granted_n, entry.sent_ms or lease.granted_ms
            ):
                self._send(entry, seat.head, now_ms)
        seat.foreign = sum(1 for token in held if self._is_live(token))

    def _is_live(self, token: str) -> bool:
        address = unseal(token, self._key)
        if address is None:
            return False
        entry = self._queues.entry(address.workflow_id, address.activity_id)
        return entry is not None and entry.held_by is not None and entry.address() == address

    def handed_back(self, workflow_id: str, record: LeaseReleased) -> None:
        """Before it is applied: a session that did not know a type is not offered it again."""
        entry = self._queues.entry(workflow_id, record.activity_id)
        if record.reason != "unknown_type" or entry is None or entry.held_by is None:
            return
        seat = self._serving.seat(entry.held_by)
        if seat is not None and entry.activity.grant == record.grant:
            seat.refuse(entry.activity.activity_type, workflows=False)
            self._serving.changed()

    # --- polls ----------------------------------------------------------------------
    def poll(self, asker: Asker, message: Poll, now_ms: int) -> None:
        """A client wants one task. The same poll id gets the same task while its lease lives."""
        if message.poll_id is not None:
            entry = self._queues.polled.get((message.worker_id, message.poll_id))
            if entry is not None:
                task = activity_task(entry, self._key, now_ms)
                self._answer_poll(asker[0], Polled(asker[1], task))
                return
        self.polls.add(asker, message, now_ms)

    def next_ms(self) -> int | None:
        """When a limit lets something go, or a poll has waited in vain."""
        is_held = self.held and self._queues.activities
        times = [hold.at_ms for hold in self.held.values()] if is_held else []
        return min((it for it in (*times, self.polls.next_ms()) if it is not None), default=None)

    def expire_polls(self, now_ms: int) -> None:
        """Answer those that waited in vain."""
        for poll in self.polls.expired(now_ms):
            for gateway, n in self.polls.close(poll):
                self._answer_poll(gateway, Polled(n, None))


def _is_for(record: LeaseGranted, poll: WaitingPoll) -> bool:
    """Whether this grant is that poll's, not one that an earlier scheduler had proposed."""
    wanted = (None, poll.worker_id, poll.poll_id)
    return (record.session, record.worker_id, record.poll_id) == wanted
