"""What stands in the database of this format, and how an older one becomes it."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from perdure.store import sqlite_schedules

# For retention: what is to be removed, oldest first.
_INDEX_CLOSED = (
    "CREATE INDEX executions_closed ON executions (closed_ms)"
    " WHERE closed_ms IS NOT NULL AND status <> 'Removed'"
)
# What stays of an execution that retention has removed.
_VIEW_TOMBSTONES = (
    "CREATE VIEW tombstones AS SELECT workflow_id, request_id, digest, closed_ms"
    " FROM executions WHERE status = 'Removed'"
)

# Within the database an execution is its `seq`, which counts starts. So the rows of executions that
# run at one time stand side by side, in a few pages: keyed by the ids, which are as good as random,
# every row would cost a page in the log.
TABLES = (
    # format, key, base_n and base_hash: the log begins after commit base_n.
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE epochs (
        epoch INTEGER PRIMARY KEY,
        incarnation TEXT NOT NULL,
        boot_id TEXT NOT NULL,
        boot_ms INTEGER NOT NULL,
        base_ms INTEGER NOT NULL,
        now_ms INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE commits (
        n INTEGER PRIMARY KEY,
        epoch INTEGER NOT NULL REFERENCES epochs,
        at_ms INTEGER NOT NULL,
        previous_hash BLOB NOT NULL,
        hash BLOB NOT NULL,
        body BLOB NOT NULL,
        stall_ms INTEGER NOT NULL DEFAULT 0 -- Sum of all stalls so far.
    ) STRICT""",
    """CREATE TABLE executions (
        seq INTEGER PRIMARY KEY,
        workflow_id TEXT NOT NULL UNIQUE,
        workflow_type TEXT NOT NULL,
        task_queue TEXT NOT NULL,
        started_ms INTEGER NOT NULL,
        request_id TEXT,
        digest BLOB NOT NULL,
        shard INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 1023),
        status TEXT NOT NULL,
        closed_ms INTEGER,
        last_event_id INTEGER NOT NULL,
        last_wake_id INTEGER NOT NULL,
        consumed INTEGER NOT NULL,
        commands INTEGER NOT NULL,
        task_failures INTEGER NOT NULL,
        task_due_ms INTEGER NOT NULL,
        task_failure BLOB,
        task_reason TEXT NOT NULL,
        more BLOB -- Of executions that are more than plain.
    ) STRICT""",
    # What is open is what is Running: recovery reads this range alone. (An index ends in seq.)
    "CREATE INDEX executions_status ON executions (status)",
    _INDEX_CLOSED,
    """CREATE TABLE events (
        seq INTEGER NOT NULL REFERENCES executions,
        event_id INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        kind TEXT NOT NULL,
        body BLOB NOT NULL,
        closes TEXT,
        request_id TEXT,
        PRIMARY KEY (seq, event_id)
    ) STRICT, WITHOUT ROWID""",
    # No activity is closed twice.
    "CREATE UNIQUE INDEX events_closes ON events (seq, closes) WHERE closes IS NOT NULL",
    "CREATE INDEX events_request ON events (seq, request_id) WHERE request_id IS NOT NULL",
    """CREATE TABLE activities (
        seq INTEGER NOT NULL REFERENCES executions,
        activity_id TEXT NOT NULL,
        state TEXT NOT NULL,
        activity_type TEXT NOT NULL,
        failure_type TEXT, -- Of the newest failure.
        attempt INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (seq, activity_id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX activities_dead ON activities (seq, activity_id) WHERE state = 'DeadLettered'",
    """CREATE TABLE timers (
        seq INTEGER NOT NULL REFERENCES executions,
        timer_id INTEGER NOT NULL,
        due_ms INTEGER NOT NULL,
        PRIMARY KEY (seq, timer_id)
    ) STRICT, WITHOUT ROWID""",
    sqlite_schedules.TABLE,
    _VIEW_TOMBSTONES,
)


def _bury_in_place(connection: apsw.Connection) -> None:
    """To format 2: a tombstone is the execution's own row. The table for them was always empty."""
    connection.execute("DROP TABLE tombstones")
    connection.execute("DROP INDEX executions_closed")
    connection.execute(_INDEX_CLOSED)
    connection.execute(_VIEW_TOMBSTONES)


def _more_than_plain(connection: apsw.Connection) -> None:
    """To format 3: executions that were started, signalled or held back in other ways."""
    connection.execute("ALTER TABLE executions ADD COLUMN more BLOB")
    connection.execute(sqlite_schedules.TABLE)


# From a format to the next: each function is given the connection, within the epoch's transaction.
UPGRADES: dict[int, Callable[[apsw.Connection], None]] = {1: _bury_in_place, 2: _more_than_plain}
