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
    if names.KINDS[record[0]].name == "WorkflowStarted" and len(record) > 8 and record[8]:
        record = [*record[:8], _terms(record[8])]
    at = names.KINDS[record[0]].payload
    if not at or record[at] is None or len(record[at]) <= names.REFERENCE_FROM_BYTES:
        return record
    return [*record[:at], refer(record[at]), *record[at + 1 :]]


def _terms(terms: list[Any]) -> list[Any]:
    """Of a start: the signals that an earlier run handed on hold payloads too."""
    signals = [[name, None if one is None else refer(one)] for name, one in terms[6]]
    return [*terms[:6], signals, *terms[7:]]
