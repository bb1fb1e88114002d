"""What a worker and its children for isolated activities say to each other, and how.

A stream of frames: four bytes of length, then a MessagePack message.
"""

from __future__ import annotations

import socket

import msgspec

from perdure.core import links
from perdure.core.records import Payload
from perdure.failures import Failure

HEAD_BYTES = 4
# What a template says first: it will fork a child for each byte that comes with its descriptors.
TEMPLATE_READY = b"R"


class _Message(msgspec.Struct, frozen=True, array_like=True):
    pass


# --- to the child ---------------------------------------------------------------------
class Run(_Message, frozen=True, tag=1):
    """Run this attempt."""

    task: links.ActivityTask


class Cancel(_Message, frozen=True, tag=2):
    """The attempt that runs no longer counts. SIGTERM follows."""

    reason: str


# --- from the child -------------------------------------------------------------------
class Beat(_Message, frozen=True, tag=3):
    """The function recorded a heartbeat, with these details or (None) as a mere sign of life."""

    details: Payload | None


class Ended(_Message, frozen=True, tag=4):
    """What came of the attempt: failed, or returned; neither: it is completed later.

    `clean`: nothing of it runs on in the child, which can run another one.
    """

    failure: Failure | None
    result: Payload | None
    clean: bool


class Broken(_Message, frozen=True, tag=5):
    """The application can't be imported here."""

    message: str


ToChild = Run | Cancel
FromChild = Beat | Ended | Broken

_encoder = msgspec.msgpack.Encoder()
to_child = msgspec.msgpack.Decoder(ToChild)
from_child = msgspec.msgpack.Decoder(FromChild)


def frame(message: ToChild | FromChild) -> bytes:
    """The bytes of one message."""
    data = _encoder.encode(message)
    return len(data).to_bytes(HEAD_BYTES, "big") + data


class Frames:
    """Puts together what comes in pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def add(self, chunk: bytes) -> list[bytes]:
        """The frames that are whole now."""
        self._rest += chunk
        whole: list[bytes] = []
        start = 0
        while len(self._rest) - start >= HEAD_BYTES:
            end = start + HEAD_BYTES
            end += int.from_bytes(self._rest[start:end], "big")
            if end > len(self._rest):
                break
            whole.append(bytes(self._rest[start + HEAD_BYTES : end]))
            start = end
        del self._rest[:start]
        return whole


def receive(connection: socket.socket, frames: Frames) -> list[bytes] | None:
    """The frames that have come, after a wait for the next bytes; None at the end."""
    try:
        chunk = connection.recv(64 * 1024)
    except ConnectionError:
        return None
    return frames.add(chunk) if chunk else None
