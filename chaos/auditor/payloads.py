"""Payloads as the log has them: long ones by their length and digest."""

from __future__ import annotations

import hashlib
from typing import Any

from chaos.auditor import names

_MARK = b"#"
_DIGEST_BYTES = 16


def refer(payload: bytes) -> bytes:
    """`payload`, or what stands for it in the log where it is long."""
    if len(payload) <= names.REFERENCE_FROM_BYTES:
        return payload
    digest = hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).digest()
    return _MARK + len(payload).to_bytes(8, "big") + digest


def same(one: bytes | None, other: bytes | None) -> bool:
    """Whether both are the same payload, each whole or by reference."""
    if one == other:
        return True
    return one is not None and other is not None and refer(one) == refer(other)


def as_logged(record: list[Any]) -> list[Any]:
    """The record that the log has where the store has `record`."""
    at = names.KINDS[record[0]].payload
    if not at or record[at] is None or len(record[at]) <= names.REFERENCE_FROM_BYTES:
        return record
    return [*record[:at], refer(record[at]), *record[at + 1 :]]
