"""Names of the things that messages speak of: sessions, roles, and the tokens of attempts.

A token is the address of one grant and a MAC over it under a key of the store. It carries no secret
of its own: whether it is live is decided by generation and grant, in history, and nowhere else.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac

import msgspec

NODE_SOURCE = "node"
GATEWAY_SOURCE = "gateway"
MAC_BYTES = 12


class Session(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One life of one worker process, numbered by whoever noticed it first (its source).

    `source` is `node.<random>` for workers that the supervisor of that node start began, and
    `gateway.<random>` for workers that said hello to that gateway incarnation.
    """

    source: str
    ordinal: int

    @property
    def is_local(self) -> bool:
        """True when a supervisor is the source: its worker cannot outlive the node."""
        return self.source.startswith(NODE_SOURCE)


class Address(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a token points: one grant of one activity."""

    workflow_id: str
    activity_id: str
    generation: int
    grant: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Address).decode
# Base64 as URLs have it. The module of that name makes a table anew for each text.
_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")


def _mac(body: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(body, key=key, digest_size=MAC_BYTES).digest()


def seal(address: Address, key: bytes) -> str:
    """The token of `address`: URL-safe text, unguessable without `key` (16 to 64 bytes)."""
    body = _encode(address)
    raw = binascii.b2a_base64(_mac(body, key) + body, newline=False)
    return raw.translate(_TO_URL).decode("ascii")


def unseal(token: str, key: bytes) -> Address | None:
    """The address that `seal` made `token` from, or None: forged, damaged or of another store."""
    try:
        raw = binascii.a2b_base64(token.encode("ascii").translate(_FROM_URL), strict_mode=True)
    except (UnicodeEncodeError, binascii.Error, ValueError):
        return None
    mac, body = raw[:MAC_BYTES], raw[MAC_BYTES:]
    if not hmac.compare_digest(mac, _mac(body, key)):
        return None
    try:
        return _decode(body)
    except msgspec.MsgspecError:
        return None


RUN_MARK = "\x1f"  # No id that people give has a control character.


def execution_id(workflow_id: str, run: int) -> str:
    """What the engine calls run `run` (from 1) of a workflow: of the first it is the id itself."""
    return workflow_id if run == 1 else f"{workflow_id}{RUN_MARK}{run}"


def of_execution(execution_id: str) -> tuple[str, int]:
    """(workflow_id, run) of an execution."""
    if RUN_MARK not in execution_id:
        return execution_id, 1
    workflow_id, _, run = execution_id.rpartition(RUN_MARK)
    return workflow_id, int(run)


def idempotency_key(execution_id: str, activity_id: str) -> str:
    """The key of an activity's effect: the same on every attempt and after every redrive.

    Injective: a `/`, `%` or `#` inside an id is percent-encoded, so no two pairs share a key. The
    runs of a workflow that continues as new are told apart by `#2`, `#3`, … behind its id.
    """
    if RUN_MARK in execution_id:
        workflow_id, run = of_execution(execution_id)
        return f"{_escaped(workflow_id)}#{run}/{_escaped(activity_id)}"
    return f"{_escaped(execution_id)}/{_escaped(activity_id)}"


def _escaped(part: str) -> str:
    if "%" in part or "/" in part or "#" in part:
        return part.replace("%", "%25").replace("/", "%2F").replace("#", "%23")
    return part
