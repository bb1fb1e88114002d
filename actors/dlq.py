"""DLQ: the index of dead letters.

Receives: the commit log (history), lists to answer (gateway). Sends: entries (gateway). What
becomes of a dead letter is a command of an operator, which the gateway brings to history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from actors.follower import Follower, from_history
from actors.host import Host
from actors.mailbox import run
from perdure import views
from perdure.core.boot import Boot
from perdure.core.commands import Refusal
from perdure.core.dead_letters import DeadLetterFilter, DeadLetters
from perdure.core.links import DLQ, GATEWAY, HISTORY, Answer, DeadListed, ListDead
from perdure.core.records import ActivityDeadLettered, ActivityRedriven, Group, Record
from perdure.core.state import Execution
from perdure.crash_points import CrashPoint, reached
from perdure.errors import InvalidArgument
from perdure.log_names import LogName

_from_gateway = msgspec.msgpack.Decoder(list[ListDead])


# --- state --------------------------------------------------------------------
class Dlq(Follower):
    """The actor; all judgement is in `DeadLetters`."""

    role = DLQ
    only_dead_letters = True
    decoders: ClassVar[dict[str, msgspec.msgpack.Decoder[Any]]] = {
        HISTORY: from_history,
        GATEWAY: _from_gateway,
    }

    def __init__(self, boot: Boot, host: Host | None = None) -> None:
        super().__init__(boot, host)
        self._letters = DeadLetters()
        self._waiting: list[tuple[str, ListDead]] = []

    # --- handle -----------------------------------------------------------------
    def on_open_state(self, n: int, executions: list[Execution]) -> None:
        """Begin."""
        self._letters.load(executions)

    def on_commit(self, n: int, at_ms: int, groups: Sequence[Group]) -> None:
        """Look again where something died, or had."""
        for group in groups:
            if self._letters.concerns(group.workflow_id, group.records):
                execution = self.reader.execution(group.workflow_id)
                self._letters.refresh(group.workflow_id, execution)
                reached(CrashPoint.DLQ_INDEX_CHANGED)
            for record in group.records:
                self._report(group.workflow_id, record)

    def _report(self, workflow_id: str, record: Record) -> None:
        """Tell operators what came here, and what left for another try. No payloads."""
        if isinstance(record, ActivityDeadLettered):
            self.log.warning(
                LogName.ACTIVITY_DEAD_LETTERED,
                workflow_id=workflow_id,
                activity_id=record.activity_id,
                attempts=record.attempt,
                failure=record.failure.type,
            )
        elif isinstance(record, ActivityRedriven):
            self.log.info(
                LogName.ACTIVITY_REDRIVEN,
                workflow_id=workflow_id,
                activity_id=record.activity_id,
                generation=record.generation,
            )

    def on_other(self, sender: str, head: bytes, message: Any) -> None:
        """Somebody wants a list."""
        if isinstance(message, ListDead) and not head:
            self._waiting.append((sender, message))
            reached(CrashPoint.DLQ_LIST_ASKED_NOT_ANSWERED)
            if self._loaded and message.commit > self.reached:
                self._read_log()  # History would tell us so far with its next beat only.

    def on_drained(self, now_ms: int) -> None:
        """Answer those lists whose asker knows no more than we do."""
        if not self._waiting or not self._loaded:
            return
        waiting, self._waiting = self._waiting, []
        for sender, message in waiting:
            if message.commit > self.reached:
                self._waiting.append((sender, message))
            else:
                self.send(sender, self._answer(message, now_ms))

    def _answer(self, message: ListDead, now_ms: int) -> DeadListed | Answer:
        where = DeadLetterFilter(
            message.workflow_id,
            message.activity_id,
            message.activity_type,
            message.failure_type,
            message.older_than_ms,
        )
        try:
            found, page = self._letters.list(where, now_ms, message.limit, message.page)
        except InvalidArgument as problem:
            return Answer(message.n, self.reached, Refusal(problem.code, problem.message))
        entries = tuple(
            views.dead_letter(it.workflow_id, it.workflow_type, it.activity) for it in found
        )
        return DeadListed(message.n, entries, page)


def main(boot: Boot) -> None:
    """Be the dead-letter actor until told to stop."""
    run(Dlq, boot)
