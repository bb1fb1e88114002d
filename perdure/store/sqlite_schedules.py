"""The rows of schedules: one each, deleted ones too, so that a repeated request is recognised."""

from __future__ import annotations

from collections.abc import Iterable

import apsw
import msgspec

from perdure.core.schedule_state import Schedule

TABLE = """CREATE TABLE schedules (
    schedule_id TEXT PRIMARY KEY,
    deleted INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID"""

_encode = msgspec.msgpack.Encoder().encode
decode_schedule = msgspec.msgpack.Decoder(Schedule).decode


def put(connection: apsw.Connection, schedules: Iterable[Schedule]) -> None:
    """Keep these as they stand now."""
    connection.executemany(
        "INSERT OR REPLACE INTO schedules VALUES (?, ?, ?)",
        [(one.schedule_id, int(one.deleted), _encode(one)) for one in schedules],
    )


def load(connection: apsw.Connection, schedule_id: str) -> Schedule | None:
    """The schedule, deleted or not; None where there never was one."""
    body = connection.execute(
        "SELECT body FROM schedules WHERE schedule_id = ?", (schedule_id,)
    ).get
    return None if body is None else decode_schedule(body)


def load_some(connection: apsw.Connection, after: str, limit: int) -> list[Schedule]:
    """Those that are not deleted with an id above `after`, by id; a limit of -1 means all."""
    rows = connection.execute(
        "SELECT body FROM schedules WHERE schedule_id > ? AND NOT deleted"
        " ORDER BY schedule_id LIMIT ?",
        (after, limit),
    )
    return [decode_schedule(body) for (body,) in rows]
