"""The write-ahead log of the writing connection: how long it is, and when it is copied back."""

from __future__ import annotations

import ctypes
from pathlib import Path

import apsw

from perdure.crash_points import CrashPoint, reached
from perdure.store import sqlite_schema

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


class WriteAheadLog:
    """What the writer does about its log; its lengths can be others in a subclass.

    A checkpoint may wait: for a reader that is in its way, for room. Nothing is lost then, and the
    rest is copied when the log has grown further. Any other error is raised, as apsw.Error.
    """

    # For a subclass that is to see within a few commits what takes thousands.
    checkpoint_idle_pages = CHECKPOINT_IDLE_PAGES
    checkpoint_pages = CHECKPOINT_PAGES
    truncate_pages = TRUNCATE_PAGES
    log_bytes = LOG_BYTES

    def __init__(self) -> None:
        self._log_pages = 0
        self._checked_pages = 0  # Its length at the last checkpoint; 0 since it began anew.

    def on_log(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """The connection's hook: a commit is in the log, which has so many pages now."""
        self._log_pages = pages
        if pages < self._checked_pages:
            self._checked_pages = 0
        reached(CrashPoint.STORE_LOG_SYNCED_NOT_RETURNED)
        return apsw.SQLITE_OK

    def copy_back(self, connection: apsw.Connection, *, idle: bool) -> None:
        """A checkpoint, where the log has grown."""
        pages = self._log_pages
        # Growth, not length: a reader may keep the log from starting over.
        grown = pages - self._checked_pages
        if grown < (self.checkpoint_idle_pages if idle else self.checkpoint_pages):
            return
        self._checked_pages = pages
        if pages >= self.truncate_pages:
            self._begin_anew(connection, apsw.SQLITE_CHECKPOINT_TRUNCATE)
            return
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as cause:
            _bear(cause)
        reached(CrashPoint.STORE_CHECKPOINTED)

    def stretch(self, connection: apsw.Connection, data_dir: Path) -> None:
        """Make the log as long as it will be, and keep it so when the database is closed."""
        keep = ctypes.c_int(1)  # Read through its address during the call.
        connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(keep))
        path = data_dir / f"{sqlite_schema.DATABASE_NAME}-wal"
        # A look at its size opens nothing, and so drops no lock.
        if path.stat().st_size >= self.log_bytes:
            return
        try:
            with connection:
                connection.execute("CREATE TABLE stretch (filler)")
                connection.execute("INSERT INTO stretch VALUES (zeroblob(?))", (self.log_bytes,))
                connection.execute("DROP TABLE stretch")
        except apsw.FullError:
            return  # It grows commit by commit.
        reached(CrashPoint.STORE_LOG_STRETCHED)
        self._begin_anew(connection, apsw.SQLITE_CHECKPOINT_RESTART)

    def _begin_anew(self, connection: apsw.Connection, mode: int) -> None:
        connection.set_busy_timeout(TRUNCATE_WAIT_MS)
        try:
            connection.wal_checkpoint(mode=mode)
            self._log_pages = self._checked_pages = 0
        except apsw.Error as cause:
            _bear(cause)
        finally:
            connection.set_busy_timeout(sqlite_schema.BUSY_MS)


def _bear(cause: apsw.Error) -> None:
    if not isinstance(cause, apsw.BusyError) and not sqlite_schema.has_no_room(cause):
        raise cause
