"""The one connection that writes: history's, on history's thread."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import apsw
import msgspec

from perdure.core.records import Record
from perdure.core.state import Execution
from perdure.store import rules, sqlite_rows, sqlite_schema
from perdure.store.protocol import Change, CommitRow, Opened, StoreError

PAGE_BYTES = 4_096
MIB = 1024 * 1024
# The log is copied back into the database above these sizes: when there is nothing else to do, in any case, and to the
# last page (which waits for readers), so that it starts over.
CHECKPOINT_IDLE_PAGES = 1 * MIB // PAGE_BYTES
CHECKPOINT_PAGES = 8 * MIB // PAGE_BYTES
TRUNCATE_PAGES = 64 * MIB // PAGE_BYTES
TRUNCATE_WAIT_MS = 50
SEQS_KEPT = 200_000

_INSERT_COMMIT = (
    "INSERT INTO commits (n, epoch, at_ms, previous_hash, hash, body) VALUES (?, ?, ?, ?, ?, ?)"
)
_INSERT_EXECUTION = (
    f"INSERT INTO executions (seq, {', '.join(sqlite_rows.EXECUTION_COLUMNS)})"
    f" VALUES (?, {', '.join('?' * len(sqlite_rows.EXECUTION_COLUMNS))})"
)
_SET = (
    "last_event_id = ?, last_wake_id = ?, consumed = ?, commands = ?, task_failures = ?,"
    " task_due_ms = ?, task_failure = ?, task_reason = ? WHERE seq = ?"
)
# What is closed never opens again.
_UPDATE_OPEN = f"UPDATE executions SET {_SET} AND status = 'Running'"
# Apart, because naming an indexed column costs a change of its index.
_UPDATE_CLOSED = f"UPDATE executions SET status = ?, closed_ms = ?, {_SET}"
_INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)"
_of_event = operator.attrgetter("event_id", "at_ms", "kind", "body", "closes", "request_id")
_PUT_ACTIVITY = "INSERT OR REPLACE INTO activities VALUES (?, ?, ?, ?, ?, ?, ?)"
_DELETE_ACTIVITY = "DELETE FROM activities WHERE seq = ? AND activity_id = ?"
_INSERT_TIMER = "INSERT INTO timers VALUES (?, ?, ?)"
_DELETE_TIMER = "DELETE FROM timers WHERE seq = ? AND timer_id = ?"

Witness = Callable[[int, bytes], None]


def _no_witness(n: int, link: bytes) -> None:
    """Where nobody keeps the newest (number, hash) elsewhere."""


class SqliteWriter:
    """Writes the store in `data_dir`; see perdure.store.protocol.Writer.

    `witness(n, hash)` is called after each commit, once it is durable.
    """

    def __init__(self, data_dir: Path, witness: Witness = _no_witness) -> None:
        self._data_dir = data_dir
        self._witness = witness
        self._connection: apsw.Connection | None = None
        self._epoch = 0
        self._is_over = False
        self._seqs = _Seqs()
        self._log_pages = 0
        self._checked_pages = 0  # How long the log was at the last checkpoint; 0 since it began anew.

    def open_epoch(self, incarnation: str, wall_ms: int, boot_id: str, boot_ms: int) -> Opened:
        """Take the store over: commit the next epoch. Raises StoreError with instructions.

        The commit syncs the whole log file, and with it all that a killed predecessor wrote and did not sync.
        """
        if self._connection is not None or self._is_over:
            raise StoreError("this writer has had its epoch; make another writer")
        connection = self._connection = sqlite_schema.open_for_writing(self._data_dir)
        connection.set_wal_hook(self._on_log)
        try:
            opened, row = self._take_over(connection, incarnation, wall_ms, boot_id, boot_ms)
        except BaseException as cause:
            self._give_up(cause)
            self.close()
            if isinstance(cause, apsw.BusyError):
                raise self._locked() from cause
            raise
        self._epoch = opened.epoch
        self._witness(row.n, row.hash)
        return opened

    def commit(self, change: Change) -> None:
        """Make `change` durable; returns after the sync. Raises EpochLost, StoreError or apsw.Error.

        After any error the writer takes nothing more: the outcome is unknown, except that after EpochLost and
        StoreError nothing was written.
        """
        connection = self._owned()
        try:
            connection.execute("BEGIN IMMEDIATE")
            rules.check_link(change, self._epoch, sqlite_rows.load_newest(connection))
            self._write(connection, change)
            connection.execute("COMMIT")
        except BaseException as cause:
            began = connection.in_transaction
            self._give_up(cause)
            if isinstance(cause, apsw.ConstraintError):
                raise StoreError(f"commit {change.n} contradicts the store: {cause}") from cause
            if isinstance(cause, apsw.BusyError) and not began:
                raise self._locked() from cause
            raise
        self._witness(change.n, change.hash)

    def maybe_checkpoint(self, *, idle: bool = False) -> None:
        """Copy the log back into the database where it has grown; call it between batches.

        `idle`: nothing else is waiting, so a smaller log is worth it.
        """
        connection, pages = self._owned(), self._log_pages
        # Growth, not length: a reader may keep the log from starting over.
        grown = pages - self._checked_pages
        if grown < (CHECKPOINT_IDLE_PAGES if idle else CHECKPOINT_PAGES):
            return
        self._checked_pages = pages
        if pages < TRUNCATE_PAGES:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            return
        connection.set_busy_timeout(TRUNCATE_WAIT_MS)
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._log_pages = self._checked_pages = 0
        except apsw.BusyError:
            pass  # A reader is in the way. What could be copied is; the rest when the log has grown.
        finally:
            connection.set_busy_timeout(sqlite_schema.BUSY_MS)

    def load(self, workflow_id: str) -> Execution | None:
        """The execution with all its open activities and timers; None: never started."""
        return sqlite_rows.load_execution(self._owned(), workflow_id)

    def closing_event(self, workflow_id: str, activity_id: str) -> Record | None:
        """The event that closed this activity, decoded, or None."""
        return sqlite_rows.closing_event(self._owned(), workflow_id, activity_id)

    def requested_event(self, workflow_id: str, request_id: str) -> Record | None:
        """The event that an operator's command with this request id made, decoded, or None."""
        return sqlite_rows.requested_event(self._owned(), workflow_id, request_id)

    def event(self, workflow_id: str, event_id: int) -> bytes | None:
        """The encoded event record at this id."""
        return sqlite_rows.load_event(self._owned(), workflow_id, event_id)

    def close(self) -> None:
        """Let go of the files. Idempotent. A writer that failed leaves the log as it is."""
        connection, self._connection = self._connection, None
        self._is_over = True
        if connection is not None:
            connection.set_wal_hook(None)
            connection.close()

    # --- within --------------------------------------------------------------
    def _owned(self) -> apsw.Connection:
        if self._connection is None or self._is_over or not self._epoch:
            raise StoreError("this writer has no epoch, or has failed; make another, open an epoch")
        return self._connection

    def _take_over(
        self,
        connection: apsw.Connection,
        incarnation: str,
        wall_ms: int,
        boot_id: str,
        boot_ms: int,
    ) -> tuple[Opened, CommitRow]:
        connection.execute("BEGIN IMMEDIATE")
        sqlite_schema.prepare(connection, self._data_dir)
        newest = sqlite_rows.load_newest(connection)
        earlier = connection.execute(
            "SELECT boot_id, base_ms FROM epochs ORDER BY epoch DESC LIMIT 1"
        ).fetchone()
        base_ms = rules.base_ms(
            newest, None if earlier is None else rules.Boot(*earlier), wall_ms, boot_id, boot_ms
        )
        now_ms = base_ms + boot_ms
        row = rules.epoch_commit(newest, now_ms, incarnation)
        connection.execute(
            "INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?)",
            (row.epoch, incarnation, boot_id, boot_ms, base_ms, now_ms),
        )
        connection.execute(_INSERT_COMMIT, msgspec.structs.astuple(row))
        key = sqlite_rows.load_key(connection)
        connection.execute("COMMIT")
        self._seqs.next = 1 + connection.execute("SELECT ifnull(max(seq), 0) FROM executions").get
        return Opened(row.epoch, row.n, row.hash, base_ms, key), row

    def _on_log(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._log_pages = pages
        if pages < self._checked_pages:
            self._checked_pages = 0
        return apsw.SQLITE_OK

    def _give_up(self, cause: BaseException) -> None:
        """After an error: roll back, and write nothing more, not even by closing."""
        self._is_over = True
        connection = self._connection
        assert connection is not None
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except apsw.Error as second:
                cause.add_note(f"and the rollback failed: {second}")

    def _locked(self) -> StoreError:
        return StoreError(
            f"another process holds the write lock of {self._data_dir / sqlite_schema.DATABASE_NAME};"
            " stop that one first"
        )

    # --- the rows of a commit ------------------------------------------------
    def _write(self, connection: apsw.Connection, change: Change) -> None:
        """All rows of `change`, in the caller's transaction: what is put before what is taken away."""
        many, at = connection.executemany, partial(self._seqs.at, connection)
        connection.execute(
            _INSERT_COMMIT,
            (change.n, change.epoch, change.at_ms, change.previous_hash, change.hash, change.body),
        )
        if change.started:
            add, row = self._seqs.add, sqlite_rows.started_row
            many(_INSERT_EXECUTION, [row(add(one.workflow_id), one) for one in change.started])
        if change.events:
            many(_INSERT_EVENT, [(at(one.workflow_id), *_of_event(one)) for one in change.events])
        if change.activities:
            put = sqlite_rows.activity_row
            many(_PUT_ACTIVITY, [put(at(id_), one) for id_, one in change.activities])
        if change.activities_closed:
            many(_DELETE_ACTIVITY, [(at(id_), one) for id_, one in change.activities_closed])
        if change.timers:
            many(_INSERT_TIMER, [(at(id_), one, due_ms) for id_, one, due_ms in change.timers])
        if change.timers_closed:
            many(_DELETE_TIMER, [(at(id_), one) for id_, one in change.timers_closed])
        if change.touched:
            self._update(connection, change.touched)

    def _update(self, connection: apsw.Connection, touched: Iterable[Execution]) -> None:
        going_on, ended = [], []
        for one in touched:
            seq = self._seqs.at(connection, one.workflow_id)
            if one.closed_ms is None:
                going_on.append(sqlite_rows.open_row(seq, one))
            else:
                ended.append(sqlite_rows.closed_row(seq, one))
                self._seqs.forget(one.workflow_id)
        before = connection.total_changes()
        if going_on:
            connection.executemany(_UPDATE_OPEN, going_on)
        if ended:
            connection.executemany(_UPDATE_CLOSED, ended)
        if connection.total_changes() - before != len(going_on) + len(ended):
            raise StoreError("an execution that is closed already cannot go on")


class _Seqs:
    """The numbers of executions in this database, those of the ones in use at hand."""

    def __init__(self) -> None:
        self.next = 1
        self._known: dict[str, int] = {}

    def add(self, workflow_id: str) -> int:
        """The number of a new execution."""
        seq, self.next = self.next, self.next + 1
        return self._known.setdefault(workflow_id, seq)

    def at(self, connection: apsw.Connection, workflow_id: str) -> int:
        """The number of an execution. Raises StoreError where there is none."""
        seq = self._known.get(workflow_id)
        if seq is None:
            seq = sqlite_rows.find_seq(connection, workflow_id)
            if seq is None:
                raise StoreError(f"workflow {workflow_id} was never started")
            if len(self._known) >= SEQS_KEPT:
                self._known.clear()
            self._known[workflow_id] = seq
        return seq

    def forget(self, workflow_id: str) -> None:
        """This execution has ended."""
        self._known.pop(workflow_id, None)
