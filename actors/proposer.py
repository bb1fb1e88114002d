"""A projection that also proposes: what scheduler and lease keeper have in common.

Until the open state is read, what gateway and root say is kept (the newest of its kind), for it can
only be judged, and only be given a time, from then on.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from actors.asks import Asks
from actors.follower import Follower
from actors.host import Host
from perdure.core.boot import Boot
from perdure.core.commands import AnyAnswer, AnyCommand
from perdure.core.ids import Session
from perdure.core.links import (
    GATEWAY,
    HISTORY,
    ROOT,
    Answer,
    SessionDead,
    Sessions,
    Sync,
    unpack_session,
)
from perdure.crash_points import ARMED, CrashPoint, reached


class Proposer(Follower):
    """Keeps what it has asked of history until it is answered, and knows the present gateway."""

    def __init__(self, boot: Boot, host: Host | None = None) -> None:
        super().__init__(boot, host)
        self.asks = Asks()
        self.gateway = ""  # The incarnation that spoke to us last for the first time.
        self._has_begun = False
        self._gateways_seen: set[str] = set()
        self._kept: dict[Hashable, tuple[str, bytes, Any]] = {}
        self._sessions: dict[bytes, Session] = {}

    # --- what subclasses override -------------------------------------------
    def on_gateway(self, incarnation: str, now_ms: int) -> None:
        """Another gateway said its first word."""

    def on_sessions(self, message: Sessions) -> None:
        """A source's set of live sessions."""

    def on_sync(self, session: Session, message: Sync, now_ms: int) -> None:
        """A worker says what it holds."""

    def on_request(self, sender: str, head: bytes, message: Any, now_ms: int) -> None:
        """Anything else that came through the gateway. `head` is empty for its own."""

    def on_answer(
        self, command: AnyCommand, tag: Any, answer: AnyAnswer, commit: int, now_ms: int
    ) -> None:
        """History has answered what we asked."""

    # --- asking -----------------------------------------------------------------
    def propose(self, command: AnyCommand, tag: Any = None) -> None:
        """Ask history, again and again until it answers."""
        self.send(HISTORY, self.asks.ask(command, self.now_ms(), tag))
        if ARMED:
            reached(CrashPoint.PROPOSAL_MADE_NOT_SENT)

    def on_history(self, incarnation: str) -> None:
        """History may be asked. The first one has heard what we asked since its state was read."""
        if self._has_begun:
            self.on_new_history(incarnation)
        self._has_begun = True

    def on_new_history(self, incarnation: str) -> None:
        """It has not heard what we asked: ask it all again."""
        for ask in self.asks.unanswered():
            self.send(HISTORY, ask)

    def ask_again(self, now_ms: int) -> None:
        """Send again what has waited too long for its answer, a greeting of history included."""
        Follower.on_timer(self, now_ms)
        for ask in self.asks.due(now_ms):
            self.send(HISTORY, ask)

    # --- hearing ------------------------------------------------------------------
    @property
    def is_loaded(self) -> bool:
        """True once the open state was read."""
        return self._loaded

    def on_session_message(self, message: Sessions | SessionDead) -> None:
        """The root's set of its workers."""
        if isinstance(message, Sessions):
            if self._loaded:
                self.on_sessions(message)
            else:
                self._kept[ROOT, message.source] = (ROOT, b"", message)

    def on_other(self, sender: str, head: bytes, message: Any) -> None:
        """An answer of history, or something that came through a gateway."""
        if isinstance(message, Answer):
            found = self.asks.answered(message)
            if found is not None:
                if ARMED:
                    reached(CrashPoint.PROPOSAL_ANSWERED)
                command, tag = found
                self.on_answer(command, tag, message.answer, message.commit, self.now_ms())
            return
        if not self._knows_gateway(sender):
            return
        if self._loaded:
            self._hear(sender, head, message)
        else:
            self._keep(sender, head, message)

    def hear_sync(self, sender: str, head: bytes, sync: Sync) -> None:
        """A worker's Sync that came from itself."""
        if self._loaded:
            self._hear(sender, head, sync)
        else:
            self._keep(sender, head, sync)

    def _keep(self, sender: str, head: bytes, message: Any) -> None:
        name = getattr(message, "n", None) if not isinstance(message, Sync) else None
        self._kept[sender, head, type(message), name] = (sender, head, message)

    def _knows_gateway(self, sender: str) -> bool:
        """False for what an earlier gateway had left behind."""
        if sender == self.gateway:
            return True
        if not sender.startswith(GATEWAY) or sender in self.departed:
            return False
        if sender in self._gateways_seen and sender != self.there.get(GATEWAY):
            return False
        self._gateways_seen.add(sender)
        self.gateway = sender
        self._sessions.clear()
        if self._loaded:
            self.on_gateway(sender, self.now_ms())
        return True

    def take_kept(self) -> None:
        """Hear what was said before the open state was read."""
        now_ms = self.now_ms()
        if self.gateway:
            self.on_gateway(self.gateway, now_ms)
        kept, self._kept = self._kept, {}
        for sender, head, message in kept.values():
            if sender == ROOT:
                self.on_sessions(message)
            elif sender == self.gateway or isinstance(message, Sync):
                self._hear(sender, head, message)

    def _hear(self, sender: str, head: bytes, message: Any) -> None:
        if isinstance(message, Sync):
            self.on_sync(self._session(head), message, self.now_ms())
        elif isinstance(message, Sessions):
            # Only about its own: what workers send bears a head and speaks for no source.
            if not head and message.source == sender:
                self.on_sessions(message)
        else:
            self.on_request(sender, head, message, self.now_ms())

    def _session(self, head: bytes) -> Session:
        session = self._sessions.get(head)
        if session is None:
            session = self._sessions[head] = unpack_session(head)
        return session

    def earliest(self, at_ms: int | None) -> int | None:
        """The earliest of `at_ms` and the times to ask again; None where there is none."""
        times = (at_ms, self.asks.next_ms(), Follower.next_timer_ms(self))
        return min((each for each in times if each is not None), default=None)
