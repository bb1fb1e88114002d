"""The one connection that writes: history's, on history's thread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from pathlib import Path

import apsw
import msgspec

from perdure.core.change import Change
from perdure.core.records import Record
from perdure.core.state import Execution
from perdure.crash_points import CrashPoint, reached
from perdure.store import rules, sqlite_rows, sqlite_schema
from perdure.store.protocol import CommitRow, Opened, StoreError

PAGE_BYTES = 4_096
MIB = 1024 * 1024
# By how much the log grows before it is copied back into the database: when there is nothing else
# to do, and in any case; and from which length on that waits for readers, so that it starts over.
CHECKPOINT_IDLE_PAGES = 1 * MIB // PAGE_BYTES
CHECKPOINT_PAGES = 4 * MIB // PAGE_BYTES
# The log is stretched to this length once, and stays so: to overwrite a file syncs in about half
# the time that it takes to make it longer.
LOG_BYTES = 8 * MIB
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
_PUT_ACTIVITY = (
    "INSERT INTO activities VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
    " state = excluded.state, failure_type = excluded.failure_type, attempt = excluded.attempt,"
    " body = excluded.body"
)
_DELETE_ACTIVITY = "DELETE FROM activities WHERE seq = ? AND activity_id = ?"
_INSERT_TIMER = "INSERT INTO timers VALUES (?, ?, ?)"
_DELETE_TIMER = "DELETE FROM timers WHERE seq = ? AND timer_id = ?"

Witness = Callable[[int, bytes], None]


def _no_witness(n: int, link: bytes) -> None:
    """Where nobody keeps the newest (number, hash) elsewhere."""


class SqliteWriter:
    """Writes the store in `data_dir`; see perdure.store.protocol.Writer.

    `witness(n, hash)` is called after each commit, once it is durable.
    `vfs` names another way to the disk, such as one that fails on demand.
    """

    def __init__(
        self, data_dir: Path, witness: Witness = _no_witness, *, vfs: str | None = None
    ) -> None:
        self._data_dir = data_dir
        self._witness = witness
        self._vfs = vfs
        self._connection: apsw.Connection | None = None
        self._epoch = 0
        self._is_over = False
        self._log_pages = 0
        self._checked_pages = (
            0  # How long the log was at the last checkpoint; 0 since it began anew.
        )

    def open_epoch(self, incarnation: str, wall_ms: int, boot_id: str, boot_ms: int) -> Opened:
        """Take the store over: commit the next epoch. Raises StoreError with instructions.

        The commit syncs the whole log file, and with it all that a killed predecessor wrote and did
        not sync.
        """
        if self._connection is not None or self._is_over:
            raise StoreError("this writer has had its epoch; make another writer")
        connection = self._connection = sqlite_schema.open_for_writing(self._data_dir, self._vfs)
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
        reached(CrashPoint.STORE_EPOCH_COMMITTED)
        self._witness(row.n, row.hash)
        self._stretch(connection)
        return opened

    def begin(self) -> None:
        """Open the transaction of the next commit, so that what is read before it is cheap."""
        connection = self._owned()
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")

    def abandon(self) -> None:
        """Close a transaction in which nothing was written."""
        connection = self._owned()
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def commit(self, change: Change) -> None:
        """Make `change` durable; returns after the sync. Raises EpochLost, StoreError, apsw.Error.

        After any error the writer takes nothing more. The outcome is unknown, except that after
        EpochLost and StoreError nothing was written.
        """
        connection = self._owned()
        try:
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
            reached(CrashPoint.STORE_TRANSACTION_BEGUN)
            rules.check_link(change, self._epoch, sqlite_rows.load_newest(connection))
            self._write(connection, change)
            reached(CrashPoint.STORE_ALL_WRITTEN_NOT_COMMITTED)
            connection.execute("COMMIT")
        except BaseException as cause:
            began = connection.in_transaction
            self._give_up(cause)
            if isinstance(cause, apsw.ConstraintError):
                raise StoreError(f"commit {change.n} contradicts the store: {cause}") from cause
            if isinstance(cause, apsw.BusyError) and not began:
                raise self._locked() from cause
            raise
        reached(CrashPoint.STORE_COMMITTED_NOT_WITNESSED)
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
            reached(CrashPoint.STORE_CHECKPOINTED)
            return
        connection.set_busy_timeout(TRUNCATE_WAIT_MS)
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._log_pages = self._checked_pages = 0
        except apsw.BusyError:
            pass  # A reader is in the way. The rest is copied when the log has grown further.
        finally:
            connection.set_busy_timeout(sqlite_schema.BUSY_MS)

    def _stretch(self, connection: apsw.Connection) -> None:
        """Make the log as long as it will be, and keep it so when the database is closed."""
        keep = ctypes.c_int(1)  # Read through its address during the call.
        connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(keep))
        path = self._data_dir / f"{sqlite_schema.DATABASE_NAME}-wal"
        # A look at its size opens nothing, and so drops no lock.
        if path.stat().st_size >= LOG_BYTES:
            return
        with connection:
            connection.execute("CREATE TABLE stretch (filler)")
            connection.execute("INSERT INTO stretch VALUES (zeroblob(?))", (LOG_BYTES,))
            connection.execute("DROP TABLE stretch")
        reached(CrashPoint.STORE_LOG_STRETCHED)
        connection.set_busy_timeout(TRUNCATE_WAIT_MS)
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            self._log_pages = self._checked_pages = 0
        except apsw.BusyError:
            pass  # A reader is in the way; a later checkpoint does it.
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

    def ready_count(self) -> int:
        """How many activities and workflow tasks wait for a worker, after a backoff or at once."""
        return sqlite_rows.count_ready(self._owned())

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
        reached(CrashPoint.STORE_EPOCH_WRITTEN_NOT_COMMITTED)
        connection.execute("COMMIT")
        self._seqs = _Seqs(connection)
        return Opened(row.epoch, row.n, row.hash, base_ms, key), row

    def _on_log(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._log_pages = pages
        if pages < self._checked_pages:
            self._checked_pages = 0
        reached(CrashPoint.STORE_LOG_SYNCED_NOT_RETURNED)
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
            f"another process holds the write lock of the store in {self._data_dir};"
            " stop that one first"
        )

    # --- the rows of a commit ------------------------------------------------
    def _write(self, connection: apsw.Connection, change: Change) -> None:
        """All rows of `change`, in the caller's transaction: put first, then take away."""
        many, seqs = connection.executemany, self._seqs
        connection.execute(
            _INSERT_COMMIT,
            (change.n, change.epoch, change.at_ms, change.previous_hash, change.hash, change.body),
        )
        reached(CrashPoint.STORE_COMMIT_ROW_WRITTEN)
        if change.started:
            started = [sqlite_rows.started_row(seqs.add(e.workflow_id), e) for e in change.started]
            many(_INSERT_EXECUTION, started)
            reached(CrashPoint.STORE_EXECUTIONS_WRITTEN)
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
        if change.touched:
            self._update(connection, change.touched)

    def _update(self, connection: apsw.Connection, touched: Iterable[Execution]) -> None:
        going_on, ended = [], []
        for one in touched:
            if one.closed_ms is None:
                going_on.append(sqlite_rows.open_row(self._seqs[one.workflow_id], one))
            else:
                ended.append(sqlite_rows.closed_row(self._seqs[one.workflow_id], one))
                del self._seqs[one.workflow_id]  # It has ended; whoever asks again looks it up.
        before = connection.total_changes()
        if going_on:
            connection.executemany(_UPDATE_OPEN, going_on)
        if ended:
            connection.executemany(_UPDATE_CLOSED, ended)
        if connection.total_changes() - before != len(going_on) + len(ended):
            raise StoreError("an execution that is closed already cannot go on")


class _Seqs(dict[str, int]):
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
