"""Queues and activity types that were ever paused; the table is made for the first of them."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from perdure.core.gates import Gate

_TABLE = """CREATE TABLE IF NOT EXISTS gates (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    paused INTEGER NOT NULL,
    since_ms INTEGER NOT NULL,
    reason TEXT NOT NULL,
    requests BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID"""
_PUT = "INSERT OR REPLACE INTO gates VALUES (?, ?, ?, ?, ?, ?)"

_encode = msgspec.msgpack.Encoder().encode
_decode_requests = msgspec.msgpack.Decoder(tuple[tuple[str, bool], ...]).decode


def put(connection: apsw.Connection, gates: Sequence[Gate]) -> None:
    """Within the caller's transaction: these take the place of what was known of them."""
    connection.execute(_TABLE)
    connection.executemany(
        _PUT,
        [
            (it.kind, it.name, int(it.paused), it.since_ms, it.reason, _encode(it.requests))
            for it in gates
        ],
    )


def load(connection: apsw.Connection) -> list[Gate]:
    """All of them, by kind and name."""
    is_there = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'gates'").get
    if not is_there:
        return []
    rows = connection.execute("SELECT * FROM gates ORDER BY kind, name")
    return [
        Gate(kind, name, bool(paused), since_ms, reason, _decode_requests(requests))
        for kind, name, paused, since_ms, reason, requests in rows
    ]
