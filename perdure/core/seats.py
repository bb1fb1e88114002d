"""Worker sessions as the scheduler knows them: what they can take, and what they hold.

Who is there is learnt from two sides: each worker's own Syncs, and the sets of live sessions that
sources send (the root for its workers, a gateway for those that said hello to it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perdure.core.ids import GATEWAY_SOURCE, Session
from perdure.core.limits import SYNC_MS
from perdure.core.links import Sessions, Sync, pack_session
from perdure.core.open_work import ALONE, Entry, Key, Work

# After this long without a Sync a session gets no new tasks: it, or the way to it, is stuck. One
# that is merely late gets some where no other has room: a worker that hangs loses its leases, looks
# free, and would draw to itself all that it has just lost.
SILENT_MS = 2 * SYNC_MS
LATE_MS = SYNC_MS + SYNC_MS // 4
# What a Sync lacks although it was sent this recently may still have been on its way.
ON_THE_WAY_MS = 100
LOST_MS = 1_000
# Refusals that say nothing: whether the command was carried out, the feed may tell.
UNKNOWN_CODES = frozenset({"UNAVAILABLE", "INTERNAL", "RESOURCE_EXHAUSTED"})


def is_lost(seen_n: int, heard_ms: int, task_n: int, sent_ms: int) -> bool:
    """Whether a task that a Sync lacks got lost on the way to its worker.

    The worker had seen commit `seen_n` when its Sync came at `heard_ms`; the task is of commit
    `task_n` and was sent at `sent_ms`.
    """
    age_ms = heard_ms - sent_ms
    return age_ms > LOST_MS or (seen_n >= task_n and age_ms >= ON_THE_WAY_MS)


class SessionSets:
    """The newest set of live sessions of every source."""

    __slots__ = ("_died", "_sets")

    def __init__(self) -> None:
        self._sets: dict[str, tuple[int, frozenset[int]]] = {}
        self._died: dict[str, dict[int, int]] = {}

    def put(self, message: Sessions) -> None:
        """A source's set, whole. Of one that comes late, the next one makes up."""
        known = self._sets.get(message.source)
        if known is not None and message.highest < known[0]:
            return
        self._sets[message.source] = (message.highest, frozenset(message.live))
        self._died[message.source] = dict(message.died)

    def died_ms(self, session: Session) -> int | None:
        """When the end of a dead session was seen, on its source's clock; None: not known."""
        return self._died.get(session.source, {}).get(session.ordinal)

    def is_dead(self, session: Session) -> bool:
        """True when a set of its source reaches the session and lacks it; else it may be alive."""
        known = self._sets.get(session.source)
        if known is None:
            return False
        highest, live = known
        return session.ordinal <= highest and session.ordinal not in live

    def live(self) -> Iterator[Session]:
        """Every session that is in a set."""
        for source, (_, ordinals) in self._sets.items():
            for ordinal in ordinals:
                yield Session(source, ordinal)

    def forget_gateways(self, but: str) -> None:
        """Drop the sets of earlier gateways."""
        for source in [s for s in self._sets if s.startswith(GATEWAY_SOURCE) and s != but]:
            del self._sets[source], self._died[source]


class Given:
    """A workflow task that is out. `proposed`: history was asked to count it as failed."""

    __slots__ = (
        "first",
        "n",
        "permits",
        "proposed",
        "reason",
        "seat",
        "sent_ms",
        "since_ms",
        "work",
    )

    def __init__(self, work: Work, seat: Seat, now_ms: int, n: int, permits: int = 0) -> None:
        self.work = work
        self.permits = permits  # Slots kept for what it schedules.
        self.first = work.execution.consumed == 0
        self.seat = seat
        self.since_ms = now_ms
        self.sent_ms = now_ms
        self.n = n
        self.proposed = False
        self.reason = ""


class Seat:
    """One live worker session, from its Syncs."""

    __slots__ = (
        "activity_types",
        "backlog",
        "capacity",
        "draining",
        "foreign",
        "freed_ms",
        "given",
        "head",
        "lends_anew",
        "lent",
        "lent_used",
        "permits",
        "progress_ms",
        "proposed",
        "quarantine",
        "queues",
        "recalls",
        "refused",
        "retired",
        "session",
        "sync_ms",
        "worker_id",
        "workflow_types",
    )

    def __init__(self, session: Session) -> None:
        self.session = session
        self.head = pack_session(session)
        self.worker_id = ""
        self.queues: tuple[str, ...] = ()
        self.activity_types: frozenset[str] = frozenset()
        self.workflow_types: frozenset[str] = frozenset()
        self.capacity = (0, 0)  # Activity slots, workflow slots.
        self.draining = False
        self.quarantine = False  # It takes what must run alone, one task at a time.
        self.retired = False  # It gets nothing more: its worker is to end.
        self.sync_ms = 0
        self.progress_ms = 0  # When it last brought a workflow task back.
        self.proposed: set[Entry] = set()
        self.given: dict[str, Given] = {}
        self.permits = 0  # Of all that is given.
        # First tasks that history may send it, and so many slots; what it has sent so far.
        # `recalls`: all of it is to come back; `lends_anew`: it takes other kinds now.
        self.lent = self.lent_used = 0
        self.recalls = self.lends_anew = False
        self.freed_ms = 0  # When a slot was last promised, or came free.
        self.backlog = False  # What it was told last of activities that wait for a slot of its.
        # Live leases of other sessions that this worker holds: it was another session before.
        self.foreign = 0
        # Types that it named and did not know: not again before it names others.
        self.refused: set[tuple[bool, str]] = set()  # (whether of a workflow, type)

    def hear(self, sync: Sync, now_ms: int) -> bool:
        """Take over what a Sync says it can do; True when that changed."""
        self.sync_ms = now_ms
        activity_types, workflow_types = (
            frozenset(sync.activity_types),
            frozenset(sync.workflow_types),
        )
        types_changed = (activity_types, workflow_types) != (
            self.activity_types,
            self.workflow_types,
        )
        changed = types_changed or (sync.queues, sync.draining) != (self.queues, self.draining)
        self.worker_id = sync.worker_id
        self.capacity = (sync.activity_slots, sync.workflow_slots)
        self.quarantine = sync.quarantine
        if changed:
            self.queues = sync.queues
            self.activity_types = activity_types
            self.workflow_types = workflow_types
            self.draining = sync.draining
            self.lends_anew = True
        if types_changed:
            self.refused.clear()
        return changed

    def serves(self, key: Key, *, workflows: bool) -> bool:
        """Whether it would take this kind of task at all."""
        return (ALONE in key[2:]) == self.quarantine and self.knows(key, workflows=workflows)

    def knows(self, key: Key, *, workflows: bool) -> bool:
        """Whether it could run this kind of task."""
        types = self.workflow_types if workflows else self.activity_types
        queue, kind = key[0], key[1]
        return (
            not self.draining
            and not self.retired
            and queue in self.queues
            and kind in types
            and (workflows, kind) not in self.refused
        )

    def refuse(self, kind: str, *, workflows: bool) -> None:
        """It does not know this type after all."""
        self.refused.add((workflows, kind))
        self.lends_anew = True


class Serving:
    """Which seats take which kind of task, remembered until something changes."""

    __slots__ = ("_has_quarantine", "_known", "_local", "_seats")

    def __init__(self, seats: dict[Session, Seat], *, has_quarantine: bool = False) -> None:
        self._seats = seats
        self._known: dict[tuple[bool, Key], list[Seat]] = {}
        self._has_quarantine = has_quarantine
        # What workers of this node serve: then one of its own in quarantine would serve it too.
        self._local: set[tuple[bool, tuple[str, ...], frozenset[str]]] = set()

    def seat(self, session: Session) -> Seat | None:
        """The seat of a live session."""
        return self._seats.get(session)

    def changed(self) -> None:
        """A seat came, went, or takes other tasks now."""
        self._known.clear()

    def heard(self, seat: Seat) -> None:
        """A seat says what it takes, for the first time or otherwise than before."""
        self._known.clear()
        if seat.session.is_local and self._has_quarantine:
            self._local.add((False, seat.queues, seat.activity_types))
            self._local.add((True, seat.queues, seat.workflow_types))

    def is_for_quarantine(self, key: Key, *, workflows: bool) -> bool:
        """Whether tasks of `key` run in quarantine only.

        What no worker of this node serves can't: others take it, as they take everything.
        """
        return ALONE in key[2:] and any(
            of_workflows == workflows and key[0] in queues and key[1] in types
            for of_workflows, queues, types in self._local
        )

    def seats(self, key: Key, *, workflows: bool) -> list[Seat]:
        """The seats for tasks of `key`."""
        known = self._known.get((workflows, key))
        if known is None:
            sought = key
            if not self.is_for_quarantine(key, workflows=workflows):
                sought = key[:2]
            known = [
                seat for seat in self._seats.values() if seat.serves(sought, workflows=workflows)
            ]
            self._known[workflows, key] = known
        return known

    def freest(
        self, key: Key, now_ms: int, free: Callable[[Seat], int], *, workflows: bool
    ) -> Seat | None:
        """The seat with the most free slots, a late one last.

        None where none has any or all are silent.
        """
        best = late_best = None
        most = late_most = 0
        for seat in self.seats(key, workflows=workflows):
            slots = free(seat)
            if slots <= late_most and slots <= most:
                continue
            silent_ms = now_ms - seat.sync_ms
            if silent_ms <= LATE_MS:
                if slots > most:
                    best, most = seat, slots
            elif silent_ms <= SILENT_MS and slots > late_most:
                late_best, late_most = seat, slots
        return best or late_best
