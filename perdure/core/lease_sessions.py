"""Leases and the sessions that hold them: who is dead, who holds what they should not, or lacks it.

A lease of a worker session ends when its session does. Which sessions live, their sources say: the
root for local workers, a gateway for those that said hello to it. A lease polled by hand names no
session and is no concern of this module.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.core.attempt_ends import WAIT
from perdure.core.ids import GATEWAY_SOURCE, Session, seal
from perdure.core.lease_table import LeaseTable
from perdure.core.limits import GRACE_MS, SYNC_MS, UNDELIVERED_MAX
from perdure.core.links import CancelTask, LeaseTerms, Sessions, Sync
from perdure.core.live_lease import LiveLease
from perdure.core.records import (
    CLOSING_TYPES,
    ActivityCancelRequested,
    ActivityTaskCancelled,
    LeaseDetached,
    Record,
    WorkflowReset,
)
from perdure.core.seats import SessionSets

WORKER_DIED = "worker_died"
NODE_RESTART = "node_restart"
UNDELIVERED = "undelivered"

# With these nobody wants what was leased any more.
_GIVEN_UP = CLOSING_TYPES | {ActivityTaskCancelled, WorkflowReset}

# Several Syncs in a row may come at once, at a reconnect; those count once.
MISS_APART_MS = SYNC_MS // 2


class LeaseSessions:
    """Proposes the ends of leases to its table, and tells workers (`tell`) what not to go on with.

    `node` is the present start of the node: local sessions of another one are gone with it.
    Give `LeaseTable` this object's `changed`, and this object the table by `watch`.
    """

    def __init__(
        self, key: bytes, node: str, tell: Callable[[Session, CancelTask | LeaseTerms], None]
    ) -> None:
        self._key = key
        self._node = node
        self._tell = tell
        self._sets = SessionSets()
        self._held: dict[Session, dict[LiveLease, None]] = {}
        self._unjudged: dict[Session, tuple[Sync, int]] = {}
        self._gateway = ""
        self._coming = ""  # Whom the root calls the gateway: it may not have spoken to us yet.
        self._seen: set[str] = set()  # Each that was one of these.
        self._earlier_judged_ms: int | None = None  # When earlier gateways' sessions count as dead.
        self._earlier_due = False
        self._table: LeaseTable

    def watch(self, table: LeaseTable) -> None:
        """The table whose leases these are; before it is loaded."""
        self._table = table

    # --- leases -----------------------------------------------------------------
    def changed(self, lease: LiveLease, record: Record | None, begins: bool) -> None:
        """A lease began or ended, or something was noted about it."""
        if lease.holder is None:
            return
        if isinstance(record, ActivityCancelRequested):
            self._tell(lease.holder, CancelTask(seal(lease.address, self._key), WAIT))
            return
        if isinstance(record, LeaseDetached):
            self._let_go(lease)
            return
        if begins:
            self._held.setdefault(lease.holder, {})[lease] = None
            if self._is_past(lease.holder) and lease.holder.source not in self._seen:
                # Nobody has told us of that gateway: it may as well be a new one as an old one.
                self._judge_earlier_at(lease.granted_ms + GRACE_MS)
            self._judge_session(
                lease, self._earlier_judged_ms is not None and not self._earlier_due
            )
            return
        self._let_go(lease)
        is_cancelled = type(record) in _GIVEN_UP
        if is_cancelled or lease.ending == "expired":
            # Nobody waits for its result: the worker need not find out at its next Sync.
            reason = "cancelled" if is_cancelled else "stale"
            self._tell(lease.holder, CancelTask(seal(lease.address, self._key), reason))

    def _let_go(self, lease: LiveLease) -> None:
        if lease.holder is None:
            return
        held = self._held.get(lease.holder)
        if held is not None:
            held.pop(lease, None)
            if not held:
                del self._held[lease.holder]

    def _judge_session(self, lease: LiveLease, earlier_are_dead: bool) -> None:
        session = lease.holder
        if session is None or lease.ending not in ("", "expired"):
            return
        if session.is_local and session.source != self._node:
            self._table.end(lease, NODE_RESTART)
        elif self._sets.is_dead(session) or (earlier_are_dead and self._is_past(session)):
            died_ms = self._sets.died_ms(session)
            came_late = died_ms is not None and lease.granted_ms >= died_ms
            self._table.end(lease, UNDELIVERED if came_late else WORKER_DIED)

    def _is_past(self, session: Session) -> bool:
        source = session.source
        if not self._gateway or not source.startswith(GATEWAY_SOURCE):
            return False
        return source not in (self._gateway, self._coming)

    # --- what sources and workers say -------------------------------------------
    def sessions(self, message: Sessions) -> None:
        """A source's live sessions, whole: the leases of those that are not among them end."""
        self._sets.put(message)
        for session in [s for s in self._held if s.source == message.source]:
            if self._sets.is_dead(session):
                for lease in list(self._held[session]):
                    self._judge_session(lease, earlier_are_dead=False)

    def gateway(self, incarnation: str, now_ms: int) -> None:
        """Another gateway said its first word: workers of earlier ones have 10 s to come back."""
        if incarnation == self._gateway:
            return
        self._gateway = incarnation
        self._seen.add(incarnation)
        self._sets.forget_gateways(incarnation)
        self._judge_earlier_at(now_ms + GRACE_MS)
        self._table.disturbed(now_ms)

    def coming(self, incarnation: str, now_ms: int) -> None:
        """The root's word on who is the gateway; "": nobody. It may have given out leases before
        its own first word reaches us.
        """
        if incarnation == self._coming:
            return
        self._coming = incarnation
        self._seen.add(incarnation)
        self._judge_earlier_at(now_ms + GRACE_MS)

    def _judge_earlier_at(self, at_ms: int) -> None:
        self._earlier_judged_ms = at_ms
        self._earlier_due = True

    def sync(self, session: Session, message: Sync, now_ms: int) -> None:
        """What a worker holds. It is judged by `step`, once we know all that the worker knew."""
        if not self._sets.is_dead(session) and not self._is_past(session):
            self._unjudged[session] = (message, now_ms)

    # --- time -------------------------------------------------------------------
    def next_ms(self) -> int | None:
        """When `step` has something to do, apart from what comes in."""
        return self._earlier_judged_ms if self._earlier_due else None

    def step(self, reached: int, now_ms: int) -> None:
        """Judge Syncs that `reached`, the newest commit applied, allows; and earlier sessions."""
        if self._unjudged:
            for session in [s for s, (sync, _) in self._unjudged.items() if sync.n <= reached]:
                sync, heard_ms = self._unjudged.pop(session)
                if not self._sets.is_dead(session):
                    self._judge(session, sync, heard_ms)
        due_ms = self.next_ms()
        if due_ms is not None and now_ms >= due_ms:
            self._earlier_due = False
            for session in [s for s in self._held if self._is_past(s)]:
                for lease in list(self._held[session]):
                    self._judge_session(lease, earlier_are_dead=True)

    def _judge(self, session: Session, sync: Sync, heard_ms: int) -> None:
        held: set[LiveLease] = set()
        terms = []
        for token in sync.tokens:
            lease = self._table.by_token(token)
            if lease is None:
                # Its grant is older than what we have reached: it has ended.
                self._tell(session, CancelTask(token, "stale"))
                continue
            held.add(lease)
            lease.misses = 0
            if lease.is_given_up:  # Once more: it may not have heard.
                self._tell(session, CancelTask(token, WAIT))
            if lease.holder is not None and lease.holder != session:
                self._adopt(lease, session)
            moved = self._table.moved(lease, heard_ms)
            if moved is not None:
                lease_ms, attempt_ms = (max(0, at_ms - heard_ms) for at_ms in moved)
                terms.append((token, lease_ms, attempt_ms))
        if terms:
            self._tell(session, LeaseTerms(sync.sent_ms, tuple(terms)))
        for lease in list(self._held.get(session, ())):
            if lease not in held:
                self._missed(lease, heard_ms)

    def _adopt(self, lease: LiveLease, session: Session) -> None:
        """The worker came back as another session: from now on its fate is that one's."""
        self._let_go(lease)
        lease.holder = session
        self._held.setdefault(session, {})[lease] = None

    def _missed(self, lease: LiveLease, heard_ms: int) -> None:
        """It was sent, and again after each Sync that lacked it; three times in vain is enough."""
        if heard_ms - lease.granted_ms < SYNC_MS or heard_ms - lease.missed_ms < MISS_APART_MS:
            return
        lease.missed_ms = heard_ms
        lease.misses += 1
        if lease.misses >= UNDELIVERED_MAX and lease.ending in ("", "expired"):
            self._table.end(lease, UNDELIVERED)
