"""How a command that made history fail is kept."""

from __future__ import annotations

import hashlib

import msgspec

from perdure.core.batch import Aside
from perdure.core.limits import ASIDE_BODY_BYTES_MAX, ASIDE_ERROR_CHARS_MAX
from perdure.store.protocol import AsideRow

DIGEST_BYTES = 16
_encode = msgspec.msgpack.Encoder().encode


def aside_row(aside: Aside, now_ms: int) -> AsideRow:
    """The row of `aside`, at `now_ms`. The same command sent again has the same digest."""
    body = _encode(aside.command)
    return AsideRow(
        digest=hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest(),
        command=type(aside.command).__name__,
        workflow_id=aside.workflow_id,
        body=body if len(body) <= ASIDE_BODY_BYTES_MAX else None,
        error=aside.error[-ASIDE_ERROR_CHARS_MAX:],  # What was raised stands at the end.
        first_ms=now_ms,
        last_ms=now_ms,
    )
