"""Lease keeper: knows who may work until when, and says when nobody does.

Receives: the commit log (history), Syncs and heartbeats of workers, heartbeats of clients and sets
of sessions (gateway), sets of sessions (root). Sends: heartbeats to record and proposals of ends
(history); answers to heartbeats, and what not to go on with (gateway, for workers).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from actors.follower import from_history
from actors.mailbox import run
from actors.proposer import Proposer
from perdure.core.boot import Boot
from perdure.core.commands import AnyAnswer, AnyCommand, ExpireLease
from perdure.core.ids import Session
from perdure.core.lease_keeping import LeaseKeeping
from perdure.core.limits import HOLD_MS
from perdure.core.links import (
    GATEWAY,
    HISTORY,
    LEASE_KEEPER,
    Answer,
    CancelTask,
    Echo,
    Heartbeat,
    LeaseTerms,
    Newest,
    Sessions,
    Sync,
    ToLeaseKeeper,
    pack_session,
)
from perdure.core.records import Group
from perdure.core.state import Execution
from perdure.crash_points import CrashPoint, reached

LOOK_MS = 500
_from_gateway = msgspec.msgpack.Decoder(list[ToLeaseKeeper])


# --- state --------------------------------------------------------------------
class LeaseKeeper(Proposer):
    """The actor; all judgement is in `LeaseKeeping`."""

    role = LEASE_KEEPER
    # A lease lasts for long: that it exists, or has ended, need not be known at once.
    patient = True
    decoders: ClassVar[dict[str, msgspec.msgpack.Decoder[Any]]] = {
        HISTORY: from_history,
        GATEWAY: _from_gateway,
    }

    _mind: LeaseKeeping
    _judged_ms = 0
    _look_ms = 0

    # --- handle: the log ------------------------------------------------------
    def on_open_state(self, n: int, executions: list[Execution]) -> None:
        """Begin."""
        self._mind = LeaseKeeping(
            self.reader.key(),
            self.boot.node,
            self.propose,
            self._tell,
            self._reply,
            self._probe,
            self.boot.recovery_grace_ms,
        )
        self._mind.load(executions, self.now_ms())
        self.take_kept()

    def on_commit(self, n: int, at_ms: int, groups: Sequence[Group]) -> None:
        """Follow the log."""
        for group in groups:
            self._mind.apply(at_ms, group.workflow_id, group.records)

    def on_answer(
        self, command: AnyCommand, tag: Any, answer: AnyAnswer, commit: int, now_ms: int
    ) -> None:
        """Pass on what history said of a heartbeat; learn of refusals."""
        self._mind.answered(command, tag, answer, commit, now_ms)

    def on_beat(self, message: Newest) -> None:
        """Learn of history's stalls: leases last longer by them."""
        if self.is_loaded:
            self._mind.table.history_beats(message.stall_ms, self.now_ms())

    def on_stall(self, now_ms: int) -> None:
        """We ourselves heard nobody: as when we had just begun."""
        if self.is_loaded:
            self._mind.table.disturbed(now_ms)

    def on_peer_gone(self, role: str, incarnation: str) -> None:
        """No report can arrive: nothing expires meanwhile."""
        if self.is_loaded:
            self._mind.table.pause()

    def on_new_history(self, incarnation: str) -> None:
        """Ask it all again but expiries: reports that it has not seen come first."""
        now_ms = self.now_ms()
        self._mind.table.resume(now_ms)
        for command, tag in self.asks.drop_all():
            if isinstance(command, ExpireLease):
                self._mind.table.withdrawn(command, now_ms)
            else:
                self.propose(command, tag)

    # --- handle: workers and clients --------------------------------------------
    def on_gateway(self, incarnation: str, now_ms: int) -> None:
        """Give those whom an earlier gateway led to their time to come back."""
        self._mind.gateway(incarnation, now_ms)

    def on_sessions(self, message: Sessions) -> None:
        """End the leases of the dead."""
        # The node's processes share a boot clock; from it to history's is what Welcome said.
        died = tuple((ordinal, at_ms + self.base_ms) for ordinal, at_ms in message.died)
        self._mind.sessions(msgspec.structs.replace(message, died=died))

    def on_sync(self, session: Session, message: Sync, now_ms: int) -> None:
        """Learn what a worker holds."""
        self._mind.sync(session, message, now_ms)

    def on_request(self, sender: str, head: bytes, message: Any, now_ms: int) -> None:
        """A heartbeat: of a worker (then `head` says whose), or of a client."""
        if isinstance(message, Heartbeat):
            reached(CrashPoint.LEASE_KEEPER_HEARTBEAT_HEARD)
            self._mind.heartbeat((sender, head, message.n), message, now_ms)
        elif isinstance(message, Echo) and not head:
            self._mind.table.echoed(message.n, now_ms)

    # --- handle: time -----------------------------------------------------------
    def on_drained(self, now_ms: int) -> None:
        """Judge Syncs and deadlines, now that all that was sent is known.

        A heartbeat may still lie in a socket that is not empty: it is waited for, at most HOLD_MS.
        """
        self._look_ms = now_ms + LOOK_MS
        if self.inbox.is_empty or now_ms - self._judged_ms >= HOLD_MS:
            self._judged_ms = now_ms
            if self.is_loaded:
                self._mind.coming(self.there.get(GATEWAY, ""), now_ms)
                self._mind.step(self.reached, now_ms)

    def next_timer_ms(self) -> int | None:
        """The next deadline, or proposal to repeat. What a turn does for them is in on_drained.

        Soon in any case: who waits for nothing can't tell a standstill of its own from waiting.
        """
        due_ms = self.earliest(self._mind.next_ms() if self.is_loaded else None)
        return self._look_ms if due_ms is None else min(due_ms, self._look_ms)

    def on_timer(self, now_ms: int) -> None:
        """Ask again what was not answered."""
        self.ask_again(now_ms)

    # --- sending ------------------------------------------------------------------
    def _tell(self, session: Session, message: CancelTask | LeaseTerms) -> None:
        if self.gateway:
            self.send(self.gateway, message, pack_session(session))

    def _probe(self, n: int) -> None:
        if self.gateway:
            self.send(self.gateway, Echo(n))
        else:
            self._mind.table.echoed(n, self.now_ms())  # Nobody has come through one yet.

    def _reply(self, asker: tuple[str, bytes, int], commit: int, answer: AnyAnswer) -> None:
        reached(CrashPoint.LEASE_KEEPER_HEARTBEAT_COMMITTED_NOT_ANSWERED)
        sender, head, n = asker
        # A worker has outlived the gateway that it asked through; its new one leads to it, too.
        to = self.gateway if head else sender
        self.send(to, Answer(n, commit, answer), head)


def main(boot: Boot) -> None:
    """Be the lease keeper until told to stop."""
    run(LeaseKeeper, boot)
