"""The lease keeper's mind: live leases, who holds them, and what is to be said about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from perdure.core.commands import AnyAnswer, AnyCommand
from perdure.core.ids import Session
from perdure.core.lease_sessions import LeaseSessions
from perdure.core.lease_table import LeaseTable
from perdure.core.limits import GRACE_MS
from perdure.core.links import CancelTask, Heartbeat, LeaseTerms, Sessions, Sync
from perdure.core.records import Record
from perdure.core.state import Execution

# Between a deadline and its proposal at least one drain, and what gateway and workers need for one.
LINGER_MS = 20


class LeaseKeeping:
    """Records and messages come in as they arrive; `step`, after a drain, does what there is to do.

    `propose` brings a command and its tag to history, `tell` a message to a worker session,
    `reply` (asker, commit, answer) answers a heartbeat, `probe` brings a number to the gateway and
    so to `table.echoed`.
    """

    def __init__(
        self,
        key: bytes,
        node: str,
        propose: Callable[[AnyCommand, Any], None],
        tell: Callable[[Session, CancelTask | LeaseTerms], None],
        reply: Callable[[Any, int, AnyAnswer], None],
        probe: Callable[[int], None] | None = None,
        grace_ms: int = GRACE_MS,
    ) -> None:
        self._sessions = LeaseSessions(key, node, tell)
        self.table = LeaseTable(
            key, propose, reply, self._sessions.changed, LINGER_MS, probe, grace_ms
        )
        self._sessions.watch(self.table)

    # --- the log ----------------------------------------------------------------
    def load(self, executions: Iterable[Execution], now_ms: int) -> None:
        """Begin with what is open."""
        self.table.load(executions, now_ms)

    def apply(self, at_ms: int, workflow_id: str, records: Sequence[Record]) -> None:
        """What one commit states about one workflow."""
        for record in records:
            self.table.apply(workflow_id, at_ms, record)

    def answered(
        self, command: AnyCommand, tag: Any, answer: AnyAnswer, commit: int, now_ms: int
    ) -> None:
        """History has judged a proposal."""
        self.table.answered(command, tag, answer, commit, now_ms)

    # --- what others say --------------------------------------------------------
    def heartbeat(self, asker: Any, message: Heartbeat, now_ms: int) -> None:
        """The holder of a token lives."""
        self.table.heartbeat(
            asker, message.token, message.beat, message.details, message.has_details, now_ms
        )

    def sync(self, session: Session, message: Sync, now_ms: int) -> None:
        """What a worker holds."""
        self._sessions.sync(session, message, now_ms)

    def sessions(self, message: Sessions) -> None:
        """A source's live sessions. `died` is on history's clock."""
        self._sessions.sessions(message)

    def gateway(self, incarnation: str, now_ms: int) -> None:
        """Another gateway said its first word."""
        self._sessions.gateway(incarnation, now_ms)

    def coming(self, incarnation: str, now_ms: int) -> None:
        """Whom the root calls the gateway; "": nobody."""
        self._sessions.coming(incarnation, now_ms)

    # --- time -------------------------------------------------------------------
    def next_ms(self) -> int | None:
        """When `step` has something to do, apart from what comes in; None: not at all."""
        due_ms, judged_ms = self.table.next_due_ms(), self._sessions.next_ms()
        if due_ms is None or judged_ms is None:
            return judged_ms if due_ms is None else due_ms
        return min(due_ms, judged_ms)

    def step(self, reached: int, now_ms: int) -> None:
        """Everything was drained, and applied up to commit `reached`."""
        self._sessions.step(reached, now_ms)
        self.table.check(now_ms)
