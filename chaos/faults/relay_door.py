"""The doors of a relay: one socket an actor, and a line to that actor for each peer that calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import zmq

from perdure.clock import boottime_ms

if TYPE_CHECKING:
    from chaos.faults.relay import Relay

HIGH_WATER = 100_000

Frames = list[bytes]


class Door:
    """The socket at which the peers of one actor call, and the lines on which we call that actor
    for them.
    """

    def __init__(self, relay: Relay, role: str, name: str, target: str, identity: bytes) -> None:
        self.role = role
        self.name = name
        self.target = target
        self.lines: dict[bytes, zmq.Socket[bytes]] = {}
        self.heard_ms: dict[bytes, int] = {}
        self.is_open = True
        self._relay = relay
        self._endpoint = f"ipc://{relay.directory / name}"
        self.socket = relay.context.socket(zmq.ROUTER)
        configure(self.socket)
        if identity:
            self.socket.setsockopt(zmq.ROUTING_ID, identity)
        self.socket.bind(self._endpoint)
        relay.listen(self.socket, self.take)

    def take(self, frames: Frames) -> None:
        """A peer says something to the actor."""
        identity, rest = frames[0], frames[1:]
        self.heard_ms[identity] = boottime_ms()
        if identity not in self.lines:
            self._call(identity)
        self._relay.outward(self, identity, rest)

    def _call(self, identity: bytes) -> None:
        line = self.lines[identity] = self._relay.context.socket(zmq.DEALER)
        configure(line)
        line.setsockopt(zmq.ROUTING_ID, identity)
        line.setsockopt(zmq.RECONNECT_IVL, 10)
        line.setsockopt(zmq.RECONNECT_IVL_MAX, 100)
        line.connect(self.target)
        self._relay.listen(line, lambda frames: self._relay.inward(self, identity, frames))

    def to_actor(self, identity: bytes, rest: Frames) -> None:
        """Pass on what that peer said."""
        line = self.lines.get(identity)
        if line is not None:
            send(line, rest)

    def deliver(self, identity: bytes, rest: Frames) -> None:
        """Pass on what that peer said long ago, even if it has not called here yet."""
        if self.is_open:
            if identity not in self.lines:
                self._call(identity)
            self.to_actor(identity, rest)

    def to_peer(self, identity: bytes, rest: Frames) -> None:
        """Pass on what the actor said to that peer."""
        if self.is_open:
            send(self.socket, [identity, *rest])

    def hang_up(self, identity: bytes) -> None:
        """That peer is gone, or was silent for too long."""
        line = self.lines.pop(identity, None)
        self.heard_ms.pop(identity, None)
        if line is not None:
            self._relay.unlisten(line)
            line.close(0)

    def close(self) -> None:
        """The actor is gone: whoever is connected sees it."""
        self.is_open = False
        for identity in list(self.lines):
            self.hang_up(identity)
        self._relay.unlisten(self.socket)
        self.socket.close(0)


def configure(socket: zmq.Socket[bytes]) -> None:
    """Bounds, and nothing that could hang an exit."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER)


def send(socket: zmq.Socket[bytes], frames: Frames) -> None:
    """Send without waiting, if that can be."""
    try:
        socket.send_multipart(frames, zmq.NOBLOCK)
    except zmq.ZMQError as error:
        # The receiver is gone or full: the message is lost, as it is without us.
        if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
            raise
