"""A user's outbox (docs/outbox.md) as a history of a client: what its rows say became of requests.

It was written on a wall clock of somebody else's, so that its instants order nothing.
"""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import Any

import apsw

from chaos.auditor.findings import Findings

MAGIC = b"SQLite format 3\0"
FOR_EVER_MS = 1 << 62
TABLE = "perdure_outbox"
# The state of a row, and what that means to whoever wrote it.
OUTCOMES = {"pending": "unknown", "done": "ok", "failed": "refused"}
_ROWS = f"SELECT seq, id, op, workflow_id, state, code, ended_ms FROM {TABLE} ORDER BY seq"


def is_database(path: Path) -> bool:
    """Whether this is one that may hold an outbox. OSError where it can't be read."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read(path: Path, found: Findings) -> list[dict[str, Any]]:
    """Its requests, as fields of operations. A row that makes no sense is a violation of 13;
    ValueError where there is no outbox.
    """
    uri = f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro"
    operations = []
    try:
        connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            rows = connection.execute(_ROWS).fetchall()
        finally:
            connection.close()
    except (apsw.Error, UnicodeDecodeError) as problem:
        raise ValueError(f"{path} is no database with an outbox: {problem}") from problem
    for seq, request_id, op, workflow_id, state, code, ended_ms in rows:
        where = f"{path.name}, {TABLE} row {seq}"
        if state not in OUTCOMES:
            found.add(13, where, f"its state {state!r} makes no sense")
        elif (ended_ms is None) != (state == "pending") or (state == "failed" and code is None):
            found.add(13, where, f"it is {state}, ended at {ended_ms}, with code {code}")
        else:
            times = {"t0_ms": 0, "t1_ms": FOR_EVER_MS, "outcome": OUTCOMES[state], "code": code}
            of = {"request_id": request_id, "workflow_id": workflow_id}
            operations.append({"client": path.name, "op": op, **times, **of})
    return operations
