"""An actor's inbox: sockets that are drained, file descriptors that are watched, a timer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import zmq
import zmq.backend
from pykka._envelope import Envelope

from perdure.clock import boottime_ms
from perdure.core import limits

DRAIN_MS = 10
DRAIN_LOOK = 16  # Messages between two looks at the clock.
SEND_HWM = 100_000
RECEIVE_HWM = 100_000
# Plain integers: combining pyzmq's flags anew for each frame costs more than the sending.
LAST = int(zmq.NOBLOCK)
MORE = int(zmq.NOBLOCK | zmq.SNDMORE)

_EVENTS, _READABLE = int(zmq.EVENTS), int(zmq.POLLIN)
# The compiled method: pyzmq makes an enum of what it says.
_get = zmq.backend.Socket.get

Frames = list[bytes]


def configure(socket: zmq.Socket[bytes]) -> None:
    """Set what every socket of the core sets: bounds, and nothing that could hang an exit."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, SEND_HWM)
    socket.setsockopt(zmq.RCVHWM, RECEIVE_HWM)
    socket.setsockopt(zmq.MAXMSGSIZE, limits.WORKER_FRAME_BYTES_MAX)
    socket.setsockopt(zmq.HANDSHAKE_IVL, 10_000)
    socket.setsockopt(zmq.RECONNECT_IVL, 10)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)


class Inbox:
    """Where an actor's messages come from: sockets, file descriptors, a timer, and itself.

    pykka makes it before the actor has a socket, and its reference keeps this very object: so it
    begins unbound.
    """

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._local: deque[Envelope[Any]] = deque()
        self._drains: dict[Any, tuple[zmq.Socket[bytes] | None, Callable[..., None]]] = {}
        self.timeout_ms: Callable[[], int | None] = lambda: None
        self.is_empty = True  # The last turn took all that lay in the sockets.

    def put(self, item: Envelope[Any], /) -> None:
        """A message from this very process (an actor telling itself to stop)."""
        self._local.append(item)

    def empty(self) -> bool:
        """True when nothing was put that is not taken yet."""
        return not self._local

    def add_socket(self, socket: zmq.Socket[bytes], take: Callable[[Frames], None]) -> None:
        """Drain `socket` too; each multipart message goes to `take`."""
        self._drains[socket] = (socket, take)
        self._poller.register(socket, zmq.POLLIN)

    def add_fd(self, fd: int, take: Callable[[], None]) -> None:
        """Call `take` whenever `fd` is readable."""
        self._drains[fd] = (None, take)
        self._poller.register(fd, zmq.POLLIN)

    def remove_fd(self, fd: int) -> None:
        """No longer look at `fd`."""
        if self._drains.pop(fd, None) is not None:
            self._poller.unregister(fd)

    def get(self, /) -> Envelope[Any]:
        """Wait for something to do, drain it, and say so."""
        while not self._local:
            ready = self._poller.poll(self.timeout_ms())
            self.is_empty = True
            for key, _ in ready:
                entry = self._drains.get(key)
                if entry is None:
                    continue
                socket, take = entry
                if socket is None:
                    take()
                elif not _drain(socket, take):
                    self.is_empty = False
            self._local.append(Envelope(None))
        return self._local.popleft()


def _drain(socket: zmq.Socket[bytes], take: Callable[[Frames], None]) -> bool:
    """Hand over what lies in `socket`, of at most DRAIN_MAX messages or about DRAIN_MS; whether
    that was all.

    So that who floods one socket waits, and not those on the others.
    """
    until_ms = boottime_ms() + DRAIN_MS
    for number in range(1, limits.DRAIN_MAX + 1):
        try:
            frames = receive(socket)
        except zmq.Again:
            return True
        take(frames)
        # Mostly there was one: to be told so costs half of what an exception does.
        if number == 1 and not _get(socket, _EVENTS) & _READABLE:  # type: ignore[operator]
            return True
        if number % DRAIN_LOOK == 0 and boottime_ms() >= until_ms:
            break
    return False


def receive(socket: zmq.Socket[bytes]) -> Frames:
    """The next message to a ROUTER; zmq.Again where there is none. Never waits.

    An identity is never the last part, and a Frame knows whether it is: recv_multipart would ask
    the socket after each part, which costs more than the receiving.
    """
    frames = [socket.recv(LAST)]
    while True:
        part = socket.recv(LAST, copy=False)
        frames.append(part.bytes)
        if not part.more:
            return frames
