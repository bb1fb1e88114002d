"""What the root tells its children without being asked: who their peers are, and which sessions
live.
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

SESSION_LISTENERS = (links.SCHEDULER, links.LEASE_KEEPER)


class News:
    """Sent whole on every change, so that a later one makes up for one that was lost."""

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
        """Who is there, to everybody."""
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
            )
        )

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
