"""The rows of a commit: all that a `Change` says, written in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable

import apsw
import msgspec

from perdure.core.change import Change
from perdure.core.state import Execution
from perdure.crash_points import CrashPoint, reached
from perdure.store import leaps, sqlite_found_by, sqlite_gates, sqlite_rows, sqlite_schedules
from perdure.store.protocol import CommitRow, StoreError

SEQS_KEPT = 200_000

_INSERT_COMMIT = (
    "INSERT INTO commits (n, epoch, at_ms, previous_hash, hash, body, stall_ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
# What says something about the rows, or about what was to become one.
_STATEMENT_ERRORS = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.SQLError,
    apsw.TooBigError,
)
_INSERT_EXECUTION = (
    f"INSERT INTO executions (seq, {', '.join(sqlite_rows.EXECUTION_COLUMNS)})"
    f" VALUES (?, {', '.join('?' * len(sqlite_rows.EXECUTION_COLUMNS))})"
)
_SET = (
    "last_event_id = ?, last_wake_id = ?, consumed = ?, commands = ?, task_failures = ?,"
    " task_due_ms = ?, task_failure = ?, task_reason = ?,"
    " more = ? WHERE seq = ?"
)
# What is closed never opens again.
_UPDATE_OPEN = f"UPDATE executions SET {_SET} AND status = 'Running'"
# Apart, because naming an indexed column costs a change of its index.
_UPDATE_CLOSED = f"UPDATE executions SET status = ?, closed_ms = ?, {_SET}"
# But by a reset.
_REOPEN = (
    "UPDATE executions SET status = 'Running', closed_ms = NULL WHERE seq = ?"
    " AND status NOT IN ('Running', 'Removed')"
)
_UNCLOSE = "UPDATE events SET closes = NULL WHERE seq = ? AND event_id > ? AND closes IS NOT NULL"
_INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)"
_PUT_ACTIVITY = (
    "INSERT INTO activities VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
    " state = excluded.state, failure_type = excluded.failure_type, attempt = excluded.attempt,"
    " body = excluded.body"
)
_DELETE_ACTIVITY = "DELETE FROM activities WHERE seq = ? AND activity_id = ?"
_INSERT_TIMER = "INSERT INTO timers VALUES (?, ?, ?)"
_DELETE_TIMER = "DELETE FROM timers WHERE seq = ? AND timer_id = ?"


class Seqs(dict[str, int]):
    """The numbers of executions in this database; those not at hand are looked up."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__()
        self._connection = connection
        self._next = 1 + sqlite_rows.load_last_seq(connection)

    def __missing__(self, workflow_id: str) -> int:
        seq = sqlite_rows.find_seq(self._connection, workflow_id)
        if seq is None:
            raise StoreError(f"workflow {workflow_id} was never started")
        if len(self) >= SEQS_KEPT:
            self.clear()
        self[workflow_id] = seq
        return seq

    def add(self, workflow_id: str) -> int:
        """The number of a new execution."""
        seq = self[workflow_id] = self._next
        self._next += 1
        return seq


def write_row(connection: apsw.Connection, row: CommitRow) -> None:
    """A commit's own row, for one that changes nothing else."""
    connection.execute(_INSERT_COMMIT, msgspec.structs.astuple(row))


def write_leaps(connection: apsw.Connection, grown: leaps.Leaps) -> None:
    """What the clock has leapt over, in the transaction of the epoch that it leapt to."""
    connection.execute(
        "INSERT INTO meta VALUES ('leaps', ?) ON CONFLICT DO UPDATE SET value = excluded.value",
        (leaps.encode(grown),),
    )


def is_contradiction(cause: Exception) -> bool:
    """Whether `write` failed because of what it was to write, and not of the disk."""
    if isinstance(cause, apsw.Error):
        return isinstance(cause, _STATEMENT_ERRORS)
    return type(cause) is StoreError or not isinstance(cause, OSError | MemoryError | StoreError)


def write(connection: apsw.Connection, seqs: Seqs, change: Change) -> int:
    """All rows of `change`: put first, then take away; how many executions ended with it.

    Raises StoreError where it cannot be.
    """
    many = connection.executemany
    connection.execute(
        _INSERT_COMMIT,
        (
            change.n,
            change.epoch,
            change.at_ms,
            change.previous_hash,
            change.hash,
            change.body,
            change.stall_ms,
        ),
    )
    reached(CrashPoint.STORE_COMMIT_ROW_WRITTEN)
    if change.started:
        started = [sqlite_rows.started_row(seqs.add(e.workflow_id), e) for e in change.started]
        many(_INSERT_EXECUTION, started)
        for one in change.started:
            if one.more is not None:
                sqlite_found_by.started(connection, seqs[one.workflow_id], one.more)
        reached(CrashPoint.STORE_EXECUTIONS_WRITTEN)
    for id_, to_event in change.resets:
        connection.execute(_REOPEN, (seqs[id_],))
        connection.execute(_UNCLOSE, (seqs[id_], to_event))
    if change.events:
        many(
            _INSERT_EVENT,
            [sqlite_rows.event_row(seqs[e.workflow_id], e) for e in change.events],
        )
        reached(CrashPoint.STORE_EVENTS_WRITTEN)
    if change.activities:
        put = [sqlite_rows.activity_row(seqs[id_], one) for id_, one in change.activities]
        many(_PUT_ACTIVITY, put)
        reached(CrashPoint.STORE_ACTIVITIES_WRITTEN)
    if change.activities_closed:
        many(_DELETE_ACTIVITY, [(seqs[id_], one) for id_, one in change.activities_closed])
    if change.timers:
        many(_INSERT_TIMER, [(seqs[id_], one, due_ms) for id_, one, due_ms in change.timers])
    if change.timers_closed:
        many(_DELETE_TIMER, [(seqs[id_], one) for id_, one in change.timers_closed])
    if change.gates:
        sqlite_gates.put(connection, change.gates)
    if change.schedules:
        sqlite_schedules.put(connection, change.schedules)
    return _update(connection, seqs, change.touched) if change.touched else 0


def _update(connection: apsw.Connection, seqs: Seqs, touched: Iterable[Execution]) -> int:
    going_on, ended = [], []
    for one in touched:
        if one.more is not None:
            sqlite_found_by.changed(connection, seqs[one.workflow_id], one.more)
        if one.closed_ms is None:
            going_on.append(sqlite_rows.open_row(seqs[one.workflow_id], one))
        else:
            ended.append(sqlite_rows.closed_row(seqs[one.workflow_id], one))
            del seqs[one.workflow_id]  # It has ended; whoever asks again looks it up.
    before = connection.total_changes()
    if going_on:
        connection.executemany(_UPDATE_OPEN, going_on)
    if ended:
        connection.executemany(_UPDATE_CLOSED, ended)
    if connection.total_changes() - before != len(going_on) + len(ended):
        raise StoreError("an execution that is closed already cannot go on")
    return len(ended)
