"""What the root tells its children: who their peers are, which sessions live, and, to those that
are to end, that they should.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.clock import boottime_ms
from perdure.core import links
from perdure.core.ids import Session
from perdure.crash_points import CrashPoint, reached
from supervisors.children import Child
from supervisors.control import Control
from supervisors.sessions import LocalSessions
from supervisors.timers import Timers

SESSION_LISTENERS = (links.SCHEDULER, links.LEASE_KEEPER, links.GATEWAY)


class News:
    """Sent whole on every change, and once a second to whoever has not heard the newest."""

    def __init__(
        self,
        children: dict[str, Child],
        control: Control,
        sessions: LocalSessions,
        timers: Timers,
        clock: Callable[[], int] = boottime_ms,
    ) -> None:
        self._children = children
        self._control = control
        self._sessions = sessions
        self._clock = clock
        self._pings = 0
        self._peers_n = 1
        self._after: Callable[[int, Callable[[], None]], None] = timers.after

    def greet(self, child: Child) -> None:
        """A child has said hello: it and, if it can be reached, everybody hears who is there."""
        if child.is_peer:
            self.tell_peers()
        else:
            self._control.send(child.incarnation, [self._peers()])
        if child.spec.id in SESSION_LISTENERS:
            self._tell(child.spec.id, self._sessions.message())

    def tell_peers(self) -> None:
        """Who is there has changed: to everybody."""
        self._peers_n += 1
        peers = self._peers()
        for child in self._children.values():
            if child.has_said_hello:
                self._control.send(child.incarnation, [peers])

    def _peers(self) -> links.Peers:
        return links.Peers(
            tuple(
                (child.spec.id, child.incarnation, child.endpoint)
                for child in self._children.values()
                if child.is_peer
            ),
            self._peers_n,
        )

    def ping(self, child: Child) -> None:
        """Ask a child for a word; tell it what we lack of its own, or again that it is to end."""
        self._pings += 1
        words: list[links.Message] = [
            links.Ping(self._pings, child.has_said_hello, child.ready_at_ms is not None)
        ]
        if child.stop_by_ms is not None:
            words.append(links.Stop(max(0, child.stop_by_ms - self._clock())))
        self._control.send(child.incarnation, words)

    def answered(self, child: Child, pong: links.Pong) -> None:
        """A child says how far it has heard us: say again what it lacks."""
        if child.has_said_hello and pong.peers != self._peers_n:
            self._control.send(child.incarnation, [self._peers()])
        if child.spec.id in SESSION_LISTENERS and pong.sessions != self._sessions.n:
            self._tell(child.spec.id, self._sessions.message())

    def open_session(self) -> Session:
        """The session of a worker that is about to start."""
        session = self._sessions.open()
        self._tell_sessions()
        return session

    def session_died(self, session: Session) -> None:
        """Its worker is dead: it leaves the set when the gateway has passed on all it said."""
        now_ms = self._clock()
        until_ms = self._sessions.died(session, now_ms)
        self._tell(links.GATEWAY, links.SessionDead(session))
        reached(CrashPoint.SUPERVISOR_SESSION_ENDING)
        self._after(until_ms - now_ms, self._expire_sessions)

    def session_done(self, session: Session) -> None:
        """The gateway has passed it all on."""
        if self._sessions.done(session):
            self._tell_sessions()

    def _expire_sessions(self) -> None:
        if self._sessions.expire(self._clock()):
            self._tell_sessions()

    def _tell_sessions(self) -> None:
        for role in SESSION_LISTENERS:
            self._tell(role, self._sessions.message())

    def _tell(self, role: str, message: links.Message) -> None:
        child = self._children.get(role)
        if child is not None and child.has_said_hello:
            self._control.send(child.incarnation, [message])
