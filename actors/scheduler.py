"""Scheduler: gives ready tasks to workers, and says when anything but a lease falls due.

Receives: the commit log (history), Syncs of workers, polls and sets of sessions (gateway), sets of
sessions (root). Sends: proposals (history); tasks for workers, and answers to polls (gateway); how
many workers it wants for what must run alone (root).
Changes nothing by itself: history may refuse any proposal as out of date.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from actors.follower import from_history
from actors.mailbox import run
from actors.proposer import Proposer
from perdure import explaining
from perdure.core.boot import Boot
from perdure.core.commands import AnyAnswer, AnyCommand, Refusal
from perdure.core.explain_links import Explain, Explained
from perdure.core.ids import Session
from perdure.core.links import (
    GATEWAY,
    HISTORY,
    ROOT,
    SCHEDULER,
    WORKER,
    ActivityTask,
    Direct,
    Lend,
    Lent,
    Message,
    Poll,
    Polled,
    Quarantine,
    Sessions,
    Sync,
    ToScheduler,
    Unpoll,
    unpack_session,
)
from perdure.core.matching import Matching
from perdure.core.records import Group
from perdure.core.rules import Rules
from perdure.core.schedule_clock import ScheduleClock
from perdure.core.schedule_commands import FireSchedule
from perdure.core.schedule_state import is_schedule
from perdure.core.seats import Seat
from perdure.core.state import Execution
from perdure.crash_points import ARMED, CrashPoint, reached
from perdure.errors import NotFound
from perdure.values import is_reference

_from_worker = msgspec.msgpack.Decoder(list[Direct])
_from_gateway = msgspec.msgpack.Decoder(list[ToScheduler | Explain])


# --- state --------------------------------------------------------------------
class Scheduler(Proposer):
    """The actor; all judgement is in `Matching`."""

    role = SCHEDULER
    decoders: ClassVar[dict[str, msgspec.msgpack.Decoder[Any]]] = {
        HISTORY: from_history,
        GATEWAY: _from_gateway,
        WORKER: _from_worker,
    }

    _mind: Matching
    _clock: ScheduleClock

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._asked_why: list[tuple[str, Explain]] = []
        self._direct: dict[bytes, str] = {}  # Packed session -> where its worker is, for itself.

    # --- handle: the log ------------------------------------------------------
    def on_open_state(self, n: int, executions: list[Execution]) -> None:
        """Begin."""
        self._mind = Matching(
            self.reader.key(),
            self.propose,
            self._tell,
            self._answer_poll,
            self.boot.options.get("quarantine_max", 0),
            self._say_quarantine,
            self._lend,
            msgspec.convert(self.boot.options.get("rules", {}), Rules),
        )
        self._mind.load(executions, self.now_ms(), self.reader.gates())
        self._clock = ScheduleClock(self._ask_for_run)
        self._clock.load(self.reader.schedules("", -1))
        self.take_kept()

    def on_commit(self, n: int, at_ms: int, groups: Sequence[Group]) -> None:
        """Follow the log."""
        now_ms = self.now_ms()
        for group in groups:
            if is_schedule(group.workflow_id):
                self._clock.apply(group.workflow_id, group.records, n)
            else:
                self._mind.apply(n, at_ms, group.workflow_id, group.records, now_ms)

    def on_answer(
        self, command: AnyCommand, tag: Any, answer: AnyAnswer, commit: int, now_ms: int
    ) -> None:
        """Learn of refusals."""
        if isinstance(command, FireSchedule):
            if isinstance(answer, Refusal):
                self._clock.refused(command, answer.at_ms, now_ms)
        else:
            self._mind.answered(command, answer, now_ms)

    def on_history(self, incarnation: str) -> None:
        """A history that we have lent nothing yet."""
        super().on_history(incarnation)
        self._mind.new_history()

    # --- handle: workers and clients --------------------------------------------
    def on_gateway(self, incarnation: str, now_ms: int) -> None:
        """Forget whom an earlier gateway led to."""
        self._mind.gateway(incarnation)

    def on_other(self, sender: str, head: bytes, message: Any) -> None:
        """A worker may be spoken to directly; all else came through a gateway, or is an answer."""
        if isinstance(message, Direct):
            if head and sender.startswith(WORKER):
                self._direct[head] = sender
                if message.sync is not None:
                    self.hear_sync(sender, head, message.sync)
            return
        if isinstance(message, Lent):
            if sender == self.peers.get(HISTORY) and self.is_loaded:
                self._mind.lent(message, self.reached, self.now_ms())
            return
        super().on_other(sender, head, message)

    def on_sessions(self, message: Sessions) -> None:
        """Forget the dead."""
        for head in [head for head in self._direct if _has_ended(unpack_session(head), message)]:
            del self._direct[head]
        self._mind.sessions(message)

    def on_sync(self, session: Session, message: Sync, now_ms: int) -> None:
        """Learn what a worker holds and can take."""
        self._mind.sync(session, message, now_ms)

    def on_request(self, sender: str, head: bytes, message: Any, now_ms: int) -> None:
        """Polls, which only the gateway itself may bring."""
        if head:
            return
        if isinstance(message, Poll):
            self._mind.poll((sender, message.n), message, now_ms)
        elif isinstance(message, Explain):
            self._asked_why.append((sender, message))
            if message.commit > self.reached:
                self._read_log()  # History lets some of its news wait.
        elif isinstance(message, Unpoll):
            self._mind.unpoll((sender, message.n))

    # --- handle: time -----------------------------------------------------------
    def on_drained(self, now_ms: int) -> None:
        """Give out what can be given, propose what is due."""
        if self.is_loaded:
            self._clock.step(now_ms)
            self._mind.step(self.reached, now_ms)
            if self._asked_why:
                self._say_why(now_ms)

    def next_timer_ms(self) -> int | None:
        """The next deadline, or proposal to repeat. What a turn does for them is in on_drained."""
        if not self.is_loaded:
            return self.earliest(None)
        times = [at_ms for at_ms in (self._mind.next_ms(), self._clock.next_ms()) if at_ms]
        return self.earliest(min(times, default=None))

    def on_timer(self, now_ms: int) -> None:
        """Ask again what was not answered."""
        self.ask_again(now_ms)

    def _say_why(self, now_ms: int) -> None:
        """Answer those whose asker knows no more than we do."""
        asked, self._asked_why = self._asked_why, []
        look = explaining.of_matching(self._mind, now_ms)
        for sender, message in asked:
            if message.commit > self.reached:
                self._asked_why.append((sender, message))
                continue
            try:
                view = explaining.explain(look, message.workflow_id, message.activity_id)
            except NotFound as problem:
                refused = (problem.code, problem.message)
                self.send(sender, Explained(message.n, None, refused))
            else:
                self.send(sender, Explained(message.n, view))

    def _ask_for_run(self, command: FireSchedule) -> None:
        reached(CrashPoint.SCHEDULER_RUN_DUE_NOT_ASKED_FOR)
        self.propose(command)

    # --- sending ------------------------------------------------------------------
    def _tell(self, head: bytes, message: Message) -> None:
        if ARMED:
            reached(CrashPoint.SCHEDULER_TASK_CHOSEN_NOT_SENT)
        to = self._direct.get(head)
        if to is None or (isinstance(message, ActivityTask) and _refers(message)):
            to = self.gateway  # It puts payloads in the place of references.
        if to:
            self.send(to, message, head)

    def _lend(self, seat: Seat, message: Lend) -> bool:
        worker = self._direct.get(seat.head)
        if worker is None or HISTORY not in self.peers:
            return False
        self.send(HISTORY, msgspec.structs.replace(message, worker=worker))
        return True

    def _say_quarantine(self, message: Quarantine) -> None:
        self.send(ROOT, message)

    def _answer_poll(self, gateway: str, message: Polled) -> None:
        self.send(gateway, message)


def _refers(task: ActivityTask) -> bool:
    return any(it is not None and is_reference(it) for it in (task.input, task.details))


def _has_ended(session: Session, sessions: Sessions) -> bool:
    return (
        session.source == sessions.source
        and session.ordinal <= sessions.highest
        and session.ordinal not in sessions.live
    )


def main(boot: Boot) -> None:
    """Be the scheduler until told to stop."""
    run(Scheduler, boot)
