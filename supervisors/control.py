"""The root's socket: the control link with its children, and `ps` for anybody of the same user.

A child sends [head][body] or, over a DEALER, [body] alone; it is answered in the form that it used.
`ps` is a single frame, answered with JSON; `reload` is one, too, and answered step by step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import zmq

from perdure.core import links
from perdure.log_names import LogName
from perdure.node_client import PS, RELOAD

HIGH_WATER = 1_000
MESSAGE_BYTES_MAX = 1024 * 1024
HANDSHAKE_MS = 5_000

_decoder = msgspec.msgpack.Decoder(list[links.ToRoot])


class PsRequest(msgspec.Struct, frozen=True):
    """Somebody asks for the tree; `envelope` leads back."""

    envelope: tuple[bytes, ...]


class ReloadRequest(msgspec.Struct, frozen=True):
    """Somebody asks for a rolling restart; `order` is JSON, `envelope` leads back."""

    envelope: tuple[bytes, ...]
    order: bytes


Heard = links.ToRoot | PsRequest | ReloadRequest


class Control:
    """The bound ROUTER. Nothing here ever blocks."""

    def __init__(self, endpoint: str, log: Any) -> None:
        self._log = log
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTING_ID, links.ROOT.encode())
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
        self.socket.setsockopt(zmq.RCVHWM, HIGH_WATER)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        self.socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self.socket.bind(endpoint)
        self._bare: set[bytes] = set()  # Peers that send no head.

    def receive(self) -> Iterator[tuple[str, Heard]]:
        """Everything that lies in the socket: (sender's routing id, message)."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            yield from self._parse(frames)

    def _parse(self, frames: list[bytes]) -> Iterator[tuple[str, Heard]]:
        identity, body = frames[0], frames[-1]
        if body == PS:
            yield "", PsRequest(tuple(frames[:-1]))
            return
        if body.startswith(RELOAD):
            yield "", ReloadRequest(tuple(frames[:-1]), body.removeprefix(RELOAD))
            return
        if len(frames) == 2:
            self._bare.add(identity)
        try:
            name = identity.decode("ascii")
            batch = _decoder.decode(body)
        except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError) as error:
            self._log.warning(LogName.CONTROL_UNREADABLE, peer=repr(identity), error=str(error))
            return
        for message in batch:
            yield name, message

    def send(self, peer: str, messages: Sequence[links.Message]) -> bool:
        """Send one batch; False when the peer is gone or does not read: whoever must know repeats
        it.
        """
        identity = peer.encode("ascii")
        body = links.pack(messages)
        frames = [identity, body] if identity in self._bare else [identity, b"", body]
        return self._send(frames)

    def answer(self, request: PsRequest, tree: dict[str, Any]) -> None:
        """The answer to `ps`."""
        self._send([*request.envelope, msgspec.json.encode(tree)])

    def answer_reload(self, request: ReloadRequest, step: dict[str, Any]) -> None:
        """One step of a rolling restart."""
        self._send([*request.envelope, msgspec.json.encode(step)])

    def _send(self, frames: list[bytes]) -> bool:
        try:
            self.socket.send_multipart(frames, zmq.DONTWAIT)
        except zmq.ZMQError as error:
            self._log.debug(LogName.CONTROL_UNROUTABLE, peer=repr(frames[0]), error=str(error))
            return False
        return True

    def forget(self, peer: str) -> None:
        """This incarnation is gone for good."""
        self._bare.discard(peer.encode("ascii"))

    def close(self) -> None:
        """Close without waiting for anybody."""
        self.socket.close(0)
        self._context.term()
