"""Between rows and state: columns, codecs, and the reads that writer and readers share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apsw
import msgspec

from perdure.core.change import StoredEvent
from perdure.core.more import More
from perdure.core.records import Record, decode_event
from perdure.core.state import Activity, ActivityState, Execution, Status
from perdure.failures import Failure
from perdure.store import leaps
from perdure.store.protocol import CommitRow, Damaged
from perdure.store.rules import Boot, Newest, newest_run

# In the order of Execution's fields, so that a row is its arguments.
EXECUTION_COLUMNS = (
    "workflow_id",
    "workflow_type",
    "task_queue",
    "started_ms",
    "request_id",
    "digest",
    "shard",
    "status",
    "closed_ms",
    "last_event_id",
    "last_wake_id",
    "consumed",
    "commands",
    "task_failures",
    "task_due_ms",
    "task_failure",
    "task_reason",
    "more",
)
# A field without a column would be lost without a word.
assert Execution.__struct_fields__ == (*EXECUTION_COLUMNS, "activities", "timers")

_STATUS_AT = EXECUTION_COLUMNS.index("status")
_FAILURE_AT = EXECUTION_COLUMNS.index("task_failure")
_MORE_AT = EXECUTION_COLUMNS.index("more")
_STATUSES = {status.value: status for status in Status}
# The first column is the execution's number in this database.
_COLUMNS = f"SELECT seq, {', '.join(EXECUTION_COLUMNS)}"
_SELECT = f"{_COLUMNS} FROM executions"
_SEQ = "(SELECT seq FROM executions WHERE workflow_id = ?)"

encode = msgspec.msgpack.Encoder().encode
decode_activity = msgspec.msgpack.Decoder(Activity).decode
_decode_failure = msgspec.msgpack.Decoder(Failure).decode
decode_more = msgspec.msgpack.Decoder(More).decode

Row = tuple[Any, ...]


def execution_of(row: Row) -> Execution:
    """The execution of a row of `seq` and EXECUTION_COLUMNS, without what is open in it."""
    fields = list(row[1:])
    fields[_STATUS_AT] = _STATUSES[fields[_STATUS_AT]]
    if fields[_FAILURE_AT] is not None:
        fields[_FAILURE_AT] = _decode_failure(fields[_FAILURE_AT])
    if fields[_MORE_AT] is not None:
        fields[_MORE_AT] = decode_more(fields[_MORE_AT])
    return Execution(*fields)


def started_row(seq: int, one: Execution) -> Row:
    """The row of a new execution: `seq` and EXECUTION_COLUMNS."""
    failure = one.task_failure
    return (
        seq,
        one.workflow_id,
        one.workflow_type,
        one.task_queue,
        one.started_ms,
        one.request_id,
        one.digest,
        one.shard,
        one.status,
        one.closed_ms,
        one.last_event_id,
        one.last_wake_id,
        one.consumed,
        one.commands,
        one.task_failures,
        one.task_due_ms,
        None if failure is None else encode(failure),
        one.task_reason,
        None if one.more is None else encode(one.more),
    )


def open_row(seq: int, one: Execution) -> Row:
    """What an execution that goes on may have changed, then `seq`: nothing that has an index."""
    failure = one.task_failure
    return (
        one.last_event_id,
        one.last_wake_id,
        one.consumed,
        one.commands,
        one.task_failures,
        one.task_due_ms,
        None if failure is None else encode(failure),
        one.task_reason,
        None if one.more is None else encode(one.more),
        seq,
    )


def closed_row(seq: int, one: Execution) -> Row:
    """As `open_row`, for an execution that has ended: status and instant first."""
    return (one.status, one.closed_ms, *open_row(seq, one))


def event_row(seq: int, event: StoredEvent) -> Row:
    """The row of an event."""
    return (
        seq,
        event.event_id,
        event.at_ms,
        event.kind,
        event.body,
        event.closes,
        event.request_id,
    )


def activity_row(seq: int, activity: Activity) -> Row:
    """The row of an open activity."""
    newest = activity.failures_newest
    return (
        seq,
        activity.activity_id,
        activity.state,
        activity.activity_type,
        newest[-1].failure.type if newest else None,
        activity.attempt,
        encode(activity),
    )


def find_seq(connection: apsw.Connection, workflow_id: str) -> int | None:
    """The execution's number in this database, or None: never started."""
    seq: int | None = connection.execute(f"SELECT {_SEQ}", (workflow_id,)).get
    return seq


def load_newest_run(connection: apsw.Connection, workflow_id: str) -> int:
    """How many runs the workflow of this id has had; 0: never started."""
    return newest_run(lambda one: find_seq(connection, one) is not None, workflow_id)


def load_history_bytes(connection: apsw.Connection, workflow_id: str) -> int:
    """How many bytes the events of this execution have."""
    size: int = connection.execute(
        f"SELECT ifnull(sum(length(body)), 0) FROM events WHERE seq = {_SEQ}", (workflow_id,)
    ).get
    return size


def load_last_seq(connection: apsw.Connection) -> int:
    """The number of the newest execution, or 0."""
    seq: int = connection.execute("SELECT ifnull(max(seq), 0) FROM executions").get
    return seq


def load_execution(connection: apsw.Connection, workflow_id: str) -> Execution | None:
    """One execution; with its activities and timers while it is open."""
    row = connection.execute(f"{_SELECT} WHERE workflow_id = ?", (workflow_id,)).fetchone()
    if row is None:
        return None
    execution = execution_of(row)
    load_activities(connection, row[0], execution)
    if execution.is_open:
        execution.timers.update(
            connection.execute("SELECT timer_id, due_ms FROM timers WHERE seq = ?", row[:1])
        )
    return execution


def load_activities(connection: apsw.Connection, seq: int, execution: Execution) -> None:
    """Into the execution, its activities, while it is open."""
    if not execution.is_open:
        return
    for activity_id, body in connection.execute(
        "SELECT activity_id, body FROM activities WHERE seq = ?", (seq,)
    ):
        execution.activities[activity_id] = decode_activity(body)


def load_open(connection: apsw.Connection) -> list[Execution]:
    """Every open execution with what is open in it, in the order of their starts.

    Raises Damaged where a row is not what was written: no restart would read it.
    """
    try:
        return _load_open(connection)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as cause:
        raise Damaged(
            f"{connection.filename} is damaged (a row of what is open: {cause}); restore it from a"
            " backup"
        ) from cause


def _load_open(connection: apsw.Connection) -> list[Execution]:
    found: dict[int, Execution] = {
        row[0]: execution_of(row)
        for row in connection.execute(f"{_SELECT} WHERE status = 'Running' ORDER BY seq")
    }
    for seq, activity_id, body in connection.execute(
        "SELECT seq, activity_id, body FROM activities"
    ):
        execution = found.get(seq)
        if execution is not None:
            execution.activities[activity_id] = decode_activity(body)
    for seq, timer_id, due_ms in connection.execute("SELECT seq, timer_id, due_ms FROM timers"):
        execution = found.get(seq)
        if execution is not None:
            execution.timers[timer_id] = due_ms
    return list(found.values())


def select_executions(
    connection: apsw.Connection,
    source: str,
    conditions: Iterable[str],
    bindings: dict[str, Any],
    limit: int,
) -> list[tuple[int, Execution]]:
    """(seq, execution) of those in `source` that meet all conditions, newest start first."""
    where = " AND ".join(conditions)
    query = (
        f"{_COLUMNS} FROM {source} {'WHERE ' + where if where else ''}"
        " ORDER BY seq DESC LIMIT :limit"
    )
    rows = connection.execute(query, {**bindings, "limit": limit})
    return [(row[0], execution_of(row)) for row in rows]


def load_events(
    connection: apsw.Connection, workflow_id: str, after: int, limit: int
) -> Iterator[bytes]:
    """Encoded events with event_id > after, in order, as they are read."""
    for (body,) in connection.execute(
        f"SELECT body FROM events WHERE seq = {_SEQ} AND event_id > ? ORDER BY event_id LIMIT ?",
        (workflow_id, after, limit),
    ):
        yield body


def load_event(connection: apsw.Connection, workflow_id: str, event_id: int) -> bytes | None:
    """The encoded event record at this id."""
    return _one_blob(
        connection,
        f"SELECT body FROM events WHERE seq = {_SEQ} AND event_id = ?",
        (workflow_id, event_id),
    )


def load_history(connection: apsw.Connection, workflow_id: str, after: int = 0) -> list[Record]:
    """All events of an execution behind event `after`, in order."""
    rows = connection.execute(
        f"SELECT body FROM events WHERE seq = {_SEQ} AND event_id > ? ORDER BY event_id",
        (workflow_id, after),
    )
    return [decode_event(body) for (body,) in rows]


def closing_event(connection: apsw.Connection, workflow_id: str, activity_id: str) -> Record | None:
    """The event that closed this activity."""
    raw = _one_blob(
        connection,
        f"SELECT body FROM events WHERE seq = {_SEQ} AND closes = ?",
        (workflow_id, activity_id),
    )
    return None if raw is None else decode_event(raw)


def requested_event(
    connection: apsw.Connection, workflow_id: str, request_id: str
) -> Record | None:
    """The first event that an operator's request made."""
    raw = _one_blob(
        connection,
        f"SELECT body FROM events WHERE seq = {_SEQ} AND request_id = ? ORDER BY event_id LIMIT 1",
        (workflow_id, request_id),
    )
    return None if raw is None else decode_event(raw)


def activity_body(connection: apsw.Connection, workflow_id: str, activity_id: str) -> bytes | None:
    """The encoded open activity."""
    return _one_blob(
        connection,
        f"SELECT body FROM activities WHERE seq = {_SEQ} AND activity_id = ?",
        (workflow_id, activity_id),
    )


def count_ready(connection: apsw.Connection) -> int:
    """How many activities and workflow tasks wait for a worker, after a backoff or at once."""
    count: int = connection.execute(
        "SELECT (SELECT count(*) FROM activities WHERE state IN (?, ?))"
        " + (SELECT count(*) FROM executions WHERE status = ? AND last_wake_id > consumed"
        " AND (task_due_ms = 0 OR task_reason <> ''))",
        (ActivityState.SCHEDULED, ActivityState.RETRYING, Status.RUNNING),
    ).get
    return count


def load_key(connection: apsw.Connection) -> bytes:
    """The key of the store's tokens."""
    key: bytes = connection.execute("SELECT value FROM meta WHERE name = 'key'").get
    return key


def load_newest(connection: apsw.Connection) -> Newest:
    """The end of the log; before the first commit, its base."""
    row = connection.execute(
        "SELECT (SELECT max(epoch) FROM epochs), n, at_ms, hash, stall_ms FROM commits"
        " ORDER BY n DESC LIMIT 1"
    ).fetchone()
    if row is not None:
        return Newest(*row)
    n, link = load_base(connection)
    return Newest(0, n, 0, link)


def load_began_ms(connection: apsw.Connection) -> int:
    """When the newest epoch began; 0 before the first."""
    row = connection.execute("SELECT now_ms FROM epochs ORDER BY epoch DESC LIMIT 1").fetchone()
    return int(row[0]) if row is not None else 0


def load_boot(connection: apsw.Connection) -> Boot | None:
    """The clock of the newest epoch; None before the first."""
    row = connection.execute(
        "SELECT boot_id, base_ms FROM epochs ORDER BY epoch DESC LIMIT 1"
    ).fetchone()
    return None if row is None else Boot(*row)


def load_leaps(connection: apsw.Connection) -> leaps.Leaps:
    """What the clock has leapt over."""
    raw = connection.execute("SELECT value FROM meta WHERE name = 'leaps'").get
    return leaps.decode(raw)


def load_base(connection: apsw.Connection) -> tuple[int, bytes]:
    """(n, hash) of the commit that the log begins after."""
    meta = dict(connection.execute("SELECT name, value FROM meta"))
    return meta["base_n"], meta["base_hash"]


def load_commit(connection: apsw.Connection, n: int) -> CommitRow | None:
    """Commit `n`, or None: there is none, or it was pruned."""
    row = connection.execute(
        "SELECT n, epoch, at_ms, previous_hash, hash, body FROM commits WHERE n = ?", (n,)
    ).fetchone()
    return None if row is None else CommitRow(*row)


def _one_blob(connection: apsw.Connection, query: str, bindings: Row) -> bytes | None:
    row = connection.execute(query, bindings).fetchone()
    return None if row is None else row[0]
