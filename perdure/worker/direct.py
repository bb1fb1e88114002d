"""A local worker's own connections to history and scheduler: hops less on a lone workflow's way.

The gateway's way stays, for all else and for what finds no connection here. Nothing depends on
which of the two a message takes: whatever gets lost on either is said again, by whoever said it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import zmq

from perdure.core import limits, links
from perdure.core.ids import Session
from perdure.worker.asks import TO_HISTORY, TO_SCHEDULER
from perdure.worker.sockets import BYE_LINGER_MS, HWM, decode_batch, has_more

RECONNECT_MS, RECONNECT_MAX_MS = 10, 200
_NOBLOCK, _SNDMORE = int(zmq.NOBLOCK), int(zmq.SNDMORE)
_ROLES = {links.HISTORY: TO_HISTORY, links.SCHEDULER: TO_SCHEDULER}

Socket = zmq.Socket[bytes]


class DirectLinks:
    """`opened` and `closed` are told of every socket, to wait for it; `first_words` gives what is
    said to every new scheduler.
    """

    def __init__(
        self,
        context: zmq.Context[Socket],
        incarnation: str,
        session: Session,
        opened: Callable[[Socket], Any],
        closed: Callable[[Socket], Any],
        first_words: Callable[[], links.Message] = links.Direct,
    ) -> None:
        self._first_words = first_words
        self._context = context
        self._incarnation = incarnation
        self._head = links.pack_session(session)
        self._opened = opened
        self._closed = closed
        self._peers: dict[bytes, str] = {}
        self._decoder = msgspec.msgpack.Decoder(list[links.ToWorker])
        self.sockets: dict[bytes, Socket] = {}  # By destination.

    def follow(self, peers: Sequence[tuple[str, str, str]]) -> None:
        """Connect to who is there now: (role, incarnation, endpoint) of everybody."""
        there = {_ROLES[role]: (name, where) for role, name, where in peers if role in _ROLES}
        for dest in _ROLES.values():
            name, endpoint = there.get(dest, ("", ""))
            if self._peers.get(dest, "") == name:
                continue
            self._peers[dest] = name
            old = self.sockets.pop(dest, None)
            if old is not None:
                self._closed(old)
                old.close(linger=0)
            if name:
                self._open(dest, endpoint)

    def _open(self, dest: bytes, endpoint: str) -> None:
        socket = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.ROUTING_ID, self._incarnation.encode("ascii")),
            (zmq.LINGER, BYE_LINGER_MS),
            (zmq.SNDHWM, HWM),
            (zmq.RCVHWM, HWM),
            (zmq.MAXMSGSIZE, limits.WORKER_FRAME_BYTES_MAX),
            (zmq.RECONNECT_IVL, RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS),
        ):
            socket.setsockopt(option, value)
        socket.connect(endpoint)
        self.sockets[dest] = socket
        self._opened(socket)
        if dest == TO_SCHEDULER:
            self.send(dest, links.pack([self._first_words()]))

    def send(self, dest: bytes, body: bytes) -> bool:
        """Send a frame to history or scheduler; False where there is no way there from here."""
        socket = self.sockets.get(dest)
        if socket is None:
            return False
        try:
            socket.send(self._head, _NOBLOCK | _SNDMORE)
            socket.send(body, _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self, socket: Socket) -> Iterator[links.ToWorker]:
        """All messages that lie in one of our sockets (of at most DRAIN_MAX frames)."""
        for number in range(limits.DRAIN_MAX):
            try:
                socket.recv(_NOBLOCK)  # Our own session: nobody else's is sent here.
                body = socket.recv(_NOBLOCK)
            except zmq.Again:
                return
            yield from decode_batch(self._decoder, body, links.ToWorker, "direct")
            if not number and not has_more(socket):
                return

    def close(self) -> None:
        """Close; what was said last still leaves, for a moment."""
        for socket in self.sockets.values():
            socket.close()
        self.sockets.clear()
