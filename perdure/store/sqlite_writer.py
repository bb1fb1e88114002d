"""The one connection that writes: history's, on history's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from perdure.core.chain import GENESIS, next_hash
from perdure.core.change import Change
from perdure.core.gates import Gate
from perdure.core.limits import GRACE_MS
from perdure.core.records import Record
from perdure.core.schedule_state import Schedule
from perdure.core.state import Execution
from perdure.crash_points import CrashPoint, reached
from perdure.store import (
    leaps,
    rules,
    sqlite_asides,
    sqlite_changes,
    sqlite_found_by,
    sqlite_gates,
    sqlite_log,
    sqlite_rows,
    sqlite_schedules,
    sqlite_schema,
    witness,
)
from perdure.store.protocol import (
    AsideRow,
    CommitRow,
    Contradiction,
    DiskFailed,
    NoRoom,
    Opened,
    StoreBehind,
    StoreError,
)
from perdure.store.retention import TIDY_COMMITS, TIDY_WORKFLOWS, TIMES_ADDED, Retention
from perdure.store.room import Room
from perdure.store.sqlite_retention import Tidying
from perdure.store.sqlite_wal import WriteAheadLog

Tell = Callable[[int, bytes], None]


def _nobody(n: int, link: bytes) -> None:
    """Where nobody else wants to hear of commits."""


class SqliteWriter(WriteAheadLog):
    """Writes the store in `data_dir`; see perdure.store.protocol.Writer.

    `tell(n, hash)` is called after each commit, once it is durable, beside the witness in the data
    directory. `vfs` names another way to the disk, such as one that fails on demand.
    """

    def __init__(self, data_dir: Path, tell: Tell = _nobody, *, vfs: str | None = None) -> None:
        super().__init__()
        self._data_dir = data_dir
        self._tell = tell
        self._vfs = vfs
        self._path = data_dir / sqlite_schema.DATABASE_NAME
        self._room = Room(data_dir)
        self._witness: witness.Witness | None = None
        self._connection: apsw.Connection | None = None
        self._seqs: sqlite_changes.Seqs
        self._epoch = 0
        self._leaps: leaps.Leaps = ()
        self._is_over = False

    def open_epoch(
        self,
        incarnation: str,
        wall_ms: int,
        boot_id: str,
        boot_ms: int,
        grace_ms: int = GRACE_MS,
    ) -> Opened:
        """Take the store over: commit the next epoch. Raises StoreError with instructions.

        The commit syncs the whole log file, and with it all that a killed predecessor wrote and did
        not sync.
        """
        if self._connection is not None or self._is_over:
            raise StoreError("this writer has had its epoch; make another writer")
        seen = witness.read(self._data_dir)
        if not self._path.exists():
            witness.check(self._data_dir, seen, witness.Seen(0, GENESIS), lambda n: None)
            witness.check_new(self._data_dir)
        elif not self._room.is_enough():
            raise NoRoom(f"there is no room on the disk of {self._data_dir}; make some")
        connection = self._open()
        connection.set_wal_hook(self.on_log)
        try:
            self._witness = witness.Witness(self._data_dir)
            at = wall_ms, boot_id, boot_ms
            opened, row = self._take_over(connection, seen, incarnation, *at, grace_ms)
            self._epoch = opened.epoch
            reached(CrashPoint.STORE_EPOCH_COMMITTED)
            self._note(row.n, row.hash)
            self.stretch(connection, self._data_dir)
        except BaseException as cause:
            self._give_up(cause)
            self.close()
            meaning = self._meaning(cause, was_locked=True)
            if meaning is None:
                raise
            raise meaning from cause
        return opened

    def reserve(self, reserve_bytes: int) -> None:
        """Before all else: below so many free bytes `is_short` is true. 0: never."""
        self._room = Room(self._data_dir, reserve_bytes, has_ballast=True)

    def is_short(self) -> bool:
        """Whether so little room is left that new work should be refused."""
        return self._room.is_short()

    def make_durable(self, wall_ms: int, boot_id: str, boot_ms: int) -> Opened:
        """Instead of `open_epoch`: sync what is there through the VFS, write nothing."""
        seen = witness.read(self._data_dir)
        if not self._path.exists():
            raise StoreError(f"there is no store in {self._data_dir} yet, and no room for one")
        connection = self._open()
        try:
            sqlite_log.sync(connection)
            newest = sqlite_rows.load_newest(connection)
            self._check_end(connection, newest, seen)
            base_ms = rules.base_ms(
                newest, sqlite_rows.load_boot(connection), wall_ms, boot_id, boot_ms
            )
            key = sqlite_rows.load_key(connection)
        except apsw.Error as cause:
            raise self._meaning(cause) or cause from cause
        finally:
            self._is_over = True
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self.close()
        return Opened(newest.epoch, newest.n, newest.hash, base_ms, key, newest.stall_ms)

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

        After any error but Contradiction the writer takes nothing more. The outcome is unknown,
        except that after EpochLost and StoreError nothing was written.
        """
        connection = self._owned()
        try:
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
            reached(CrashPoint.STORE_TRANSACTION_BEGUN)
            rules.check_link(change, self._epoch, sqlite_rows.load_newest(connection))
            ended = self._write(connection, change)
            if self._tidying.is_due(change.at_ms):
                self._tidying.remove(change.at_ms, TIMES_ADDED * ended)
                self._tidying.prune(change.at_ms, TIMES_ADDED)
            reached(CrashPoint.STORE_ALL_WRITTEN_NOT_COMMITTED)
            connection.execute("COMMIT")
        except Contradiction:
            raise
        except BaseException as cause:
            began = connection.in_transaction
            self._give_up(cause)
            meaning = self._meaning(cause, was_locked=not began)
            if meaning is None:
                raise
            raise meaning from cause
        reached(CrashPoint.STORE_COMMITTED_NOT_WITNESSED)
        self._note(change.n, change.hash)
        reached(CrashPoint.STORE_WITNESSED_NOT_RETURNED)

    def _write(self, connection: apsw.Connection, change: Change) -> int:
        try:
            return sqlite_changes.write(connection, self._seqs, change)
        except Exception as cause:
            if not sqlite_changes.is_contradiction(cause):
                raise
            connection.execute("ROLLBACK")
            self._seqs = sqlite_changes.Seqs(connection)
            text = f"commit {change.n} contradicts the store: {cause}"
            raise Contradiction(text) from cause

    def set_aside(self, rows: Sequence[AsideRow]) -> None:
        """Keep these, at most ASIDES_MAX in all: what is kept already counts once more."""
        connection = self._owned()
        try:
            connection.execute("BEGIN IMMEDIATE")
            rules.check_owner(self._epoch, sqlite_rows.load_newest(connection))
            sqlite_asides.put(connection, rows)
            connection.execute("COMMIT")
        except BaseException as cause:
            began = connection.in_transaction
            self._give_up(cause)
            meaning = self._meaning(cause, was_locked=not began)
            if meaning is None:
                raise
            raise meaning from cause

    def retain(self, retention: Retention) -> None:
        """Keep closed workflows and old commits so long; without it, for ever."""
        self._tidying = Tidying(self._owned(), retention, self._leaps)

    def tidy(self, now_ms: int) -> bool:
        """Take away a part of what is over its time, with a commit of the database's own; whether
        there was any. Raises as `commit` does.
        """
        connection = self._owned()
        if not self._tidying.is_due(now_ms):
            return False
        try:
            connection.execute("BEGIN IMMEDIATE")
            rules.check_owner(self._epoch, sqlite_rows.load_newest(connection))
            found = self._tidying.remove(now_ms, TIDY_WORKFLOWS)
            found += self._tidying.prune(now_ms, TIDY_COMMITS)
            connection.execute("COMMIT" if found else "ROLLBACK")
        except BaseException as cause:
            began = connection.in_transaction
            self._give_up(cause)
            meaning = self._meaning(cause, was_locked=not began)
            if meaning is None:
                raise
            raise meaning from cause
        return found > 0

    def maybe_checkpoint(self, *, idle: bool = False) -> None:
        """Copy the log back into the database where it has grown; call it between batches.

        `idle`: nothing else is waiting, so a smaller log is worth it.
        """
        try:
            self.copy_back(self._owned(), idle=idle)
        except apsw.Error as cause:
            self._give_up(cause)
            raise (self._meaning(cause) or cause) from cause

    def load(self, workflow_id: str) -> Execution | None:
        """The execution with all its open activities and timers; None: never started."""
        return sqlite_rows.load_execution(self._owned(), workflow_id)

    def schedule(self, schedule_id: str) -> Schedule | None:
        """The schedule, deleted or not; None where there never was one."""
        return sqlite_schedules.load(self._owned(), schedule_id)

    def closing_event(self, workflow_id: str, activity_id: str) -> Record | None:
        """The event that closed this activity, decoded, or None."""
        return sqlite_rows.closing_event(self._owned(), workflow_id, activity_id)

    def requested_event(self, workflow_id: str, request_id: str) -> Record | None:
        """The event that an operator's command with this request id made, decoded, or None."""
        return sqlite_rows.requested_event(self._owned(), workflow_id, request_id)

    def history(self, workflow_id: str, after: int = 0) -> list[Record]:
        """All stored events of this execution behind event `after`, in order."""
        return sqlite_rows.load_history(self._owned(), workflow_id, after)

    def history_bytes(self, workflow_id: str) -> int:
        """How many bytes the stored events of this execution have."""
        return sqlite_rows.load_history_bytes(self._owned(), workflow_id)

    def newest_run(self, workflow_id: str) -> int:
        """How many runs the workflow of this id has had; 0: it was never started."""
        return sqlite_rows.load_newest_run(self._owned(), workflow_id)

    def gates(self) -> list[Gate]:
        """Every gate that was ever set, by kind and name."""
        return sqlite_gates.load(self._owned())

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
        if self._witness is not None:
            self._witness.close()

    # --- within --------------------------------------------------------------
    def _open(self) -> apsw.Connection:
        try:
            self._connection = sqlite_schema.open_for_writing(self._data_dir, self._vfs)
        except NoRoom as cause:
            cause.has_freed = self._room.drop()
            raise
        return self._connection

    def _owned(self) -> apsw.Connection:
        if self._connection is None or self._is_over or not self._epoch:
            raise StoreError("this writer has no epoch, or has failed; make another, open an epoch")
        return self._connection

    def _take_over(
        self,
        connection: apsw.Connection,
        seen: list[witness.Seen],
        incarnation: str,
        wall_ms: int,
        boot_id: str,
        boot_ms: int,
        grace_ms: int,
    ) -> tuple[Opened, CommitRow]:
        connection.execute("BEGIN IMMEDIATE")
        sqlite_schema.prepare(connection, self._data_dir)
        newest = sqlite_rows.load_newest(connection)
        self._check_end(connection, newest, seen)
        earlier = sqlite_rows.load_boot(connection)
        base_ms = rules.base_ms(newest, earlier, wall_ms, boot_id, boot_ms)
        now_ms = base_ms + boot_ms
        self._leaps = sqlite_rows.load_leaps(connection)
        same = rules.is_same_boot(earlier, boot_id)
        grown = leaps.grown(self._leaps, newest.at_ms, now_ms, is_same_boot=same)
        if grown != self._leaps:
            self._leaps = grown
            sqlite_changes.write_leaps(connection, grown)
        row = rules.epoch_commit(newest, now_ms, incarnation, grace_ms)
        sqlite_found_by.take_over(connection, row.epoch)
        connection.execute(
            "INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?)",
            (row.epoch, incarnation, boot_id, boot_ms, base_ms, now_ms),
        )
        sqlite_changes.write_row(connection, row)
        key = sqlite_rows.load_key(connection)
        reached(CrashPoint.STORE_EPOCH_WRITTEN_NOT_COMMITTED)
        connection.execute("COMMIT")
        self._seqs = sqlite_changes.Seqs(connection)
        self._tidying = Tidying(connection, Retention(), self._leaps)
        return Opened(row.epoch, row.n, row.hash, base_ms, key, row.stall_ms), row

    def _check_end(
        self, connection: apsw.Connection, newest: rules.Newest, seen: list[witness.Seen]
    ) -> None:
        """Raise StoreBehind where the log does not end in the commit that it should end in."""
        last = sqlite_rows.load_commit(connection, newest.n)
        if last is not None and last.hash != next_hash(last.previous_hash, last.body):
            raise StoreBehind(
                f"commit {newest.n}, the last of the store in {self._data_dir}, is damaged; nothing"
                f" was changed: restore a backup (perdure restore SRC --data {self._data_dir})"
            )

        def hash_of(n: int) -> bytes | None:
            row = sqlite_rows.load_commit(connection, n)
            return None if row is None else row.hash

        witness.check(self._data_dir, seen, witness.Seen(newest.n, newest.hash), hash_of)

    def _note(self, n: int, link: bytes) -> None:
        """Commit `n` is durable."""
        assert self._witness is not None
        try:
            self._witness(n, link)
        except OSError as cause:
            self._give_up(cause)
            raise (self._meaning(cause) or cause) from cause
        self._tell(n, link)

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

    def _meaning(self, cause: BaseException, *, was_locked: bool = False) -> StoreError | None:
        """What an error means to whoever runs the node; None where it says that itself."""
        if isinstance(cause, apsw.BusyError) and was_locked:
            return StoreError(
                f"another process holds the write lock of the store in {self._data_dir};"
                " stop that one first"
            )
        if isinstance(cause, apsw.IOError | apsw.FullError):
            meaning = sqlite_schema.told(cause, self._path)
        elif isinstance(cause, OSError):
            kind = NoRoom if sqlite_schema.has_no_room(cause) else DiskFailed
            meaning = kind(f"cannot write in {self._data_dir}: {cause.strerror}")
        elif isinstance(cause, NoRoom):
            meaning = cause
        else:
            return None
        if isinstance(meaning, NoRoom):
            # For whoever comes next: this writer is over.
            meaning.has_freed = self._room.drop()
        return meaning
