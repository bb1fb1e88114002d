"""Commands that made history fail, in a table that is made for the first of them."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from perdure.core.limits import ASIDES_MAX
from perdure.store.protocol import AsideRow

_TABLE = """CREATE TABLE IF NOT EXISTS asides (
    digest BLOB PRIMARY KEY,
    command TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    body BLOB,
    error TEXT NOT NULL,
    first_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    times INTEGER NOT NULL
) STRICT"""
_PUT = (
    "INSERT INTO asides VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
    " error = excluded.error, last_ms = excluded.last_ms, times = times + 1"
)


def put(connection: apsw.Connection, rows: Sequence[AsideRow]) -> None:
    """Within the caller's transaction: keep these, or count them once more."""
    connection.execute(_TABLE)
    for row in rows:
        connection.execute(_PUT, msgspec.structs.astuple(row))
    # A flood of different ones: the first tell most.
    connection.execute(
        "DELETE FROM asides WHERE rowid NOT IN (SELECT rowid FROM asides ORDER BY rowid LIMIT ?)",
        (ASIDES_MAX,),
    )


def load(connection: apsw.Connection) -> list[AsideRow]:
    """All of them, the newest last."""
    is_there = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'asides'").get
    if not is_there:
        return []
    return [
        AsideRow(*row) for row in connection.execute("SELECT * FROM asides ORDER BY last_ms, rowid")
    ]
