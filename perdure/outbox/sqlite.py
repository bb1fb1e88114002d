"""The rows of an outbox in an SQLite database that belongs to an application."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote

from perdure.clock import boottime_ms
from perdure.outbox import table
from perdure.outbox.drain import PAGE_BYTES, End
from perdure.outbox.table import Entry, Row, Trouble

BUSY_S = 1.0
# Looking whether somebody has committed costs microseconds, and no transaction.
LOOK_MS = 100
SAME_FILE_MS = 1_000
LOCK_SUFFIX = "-perdure-outbox"


class SqliteSource:
    """See perdure.outbox.drain.Source. Raises Trouble where the file is not there.

    With `exclusive` it is the only one of its kind on this file, of whatever process: two nodes
    that drained one outbox would start everything twice, once each. A connection of one thread.
    """

    def __init__(self, path: str, *, exclusive: bool = False) -> None:
        self._path = path
        self._lock = -1
        self._looked_ms = 0
        with _telling(path):
            self._inode = os.stat(path).st_ino
            if exclusive:
                self._lock = _locked(path)
            try:
                # mode=rw: a file that is not there is not made.
                self._db = sqlite3.connect(
                    f"file:{quote(path)}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_S
                )
            except sqlite3.Error:
                self._unlock()
                raise
        self._version = -1

    def pending(self, after: int, limit: int) -> list[Row]:
        """Rows that nobody has dealt with, in order, as many as fit into PAGE_BYTES."""
        with _telling(self._path):
            self._version = self._data_version()  # What is committed from now on is noticed.
            sizes = self._db.execute(table.SIZES, (after, limit)).fetchall()
            last = table.last_of(sizes, PAGE_BYTES)
            rows = self._db.execute(table.SELECT_PENDING, (after, last)).fetchall()
        return [Row(seq, str(row_id), str(op), _bytes(args)) for seq, row_id, op, args in rows]

    def end(self, ends: Iterable[End], at_ms: int) -> None:
        """Write down what became of these, in one transaction."""
        with _telling(self._path), self._transaction():
            for it in ends:
                if it.state is None:
                    self._db.execute(table.NOTE, (it.code, it.message, it.id))
                else:
                    self._db.execute(table.END, (it.state, at_ms, it.code, it.message, it.id))

    def prune(self, before_ms: int, limit: int) -> int:
        """Delete rows that were done before then; how many they were."""
        with _telling(self._path):
            return self._db.execute(table.PRUNE, (before_ms, limit)).rowcount

    def entries(self, state: str, limit: int) -> list[Entry]:
        """Rows in this state, the newest first."""
        with _telling(self._path):
            return [Entry(*row) for row in self._db.execute(table.LIST, (state, limit))]

    def retry(self, row_id: str) -> bool:
        """Have a failed row asked again; False where there is none of this id."""
        with _telling(self._path):
            return bool(self._db.execute(table.RETRY, (row_id,)).rowcount)

    def wait(self, timeout_ms: int, pause: Callable[[int], bool]) -> None:
        """Return once somebody has written, or after `timeout_ms`, or when `pause(ms)` says True.

        Trouble where the file was exchanged for another.
        """
        until_ms = boottime_ms() + timeout_ms
        with _telling(self._path):
            while (left_ms := until_ms - boottime_ms()) > 0:
                if pause(min(LOOK_MS, left_ms)) or self._data_version() != self._version:
                    return
                self._check_file()

    def _check_file(self) -> None:
        now_ms = boottime_ms()
        if now_ms - self._looked_ms >= SAME_FILE_MS:
            self._looked_ms = now_ms
            if os.stat(self._path).st_ino != self._inode:
                raise Trouble("another file has taken its place")

    def _data_version(self) -> int:
        version: int = self._db.execute("PRAGMA data_version").fetchone()[0]
        return version

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _locked(path: str) -> int:
    """A lock of this file's outbox, which ends with this process. Beside it, never on it: SQLite's
    own locks would be lost.
    """
    fd = os.open(path + LOCK_SUFFIX, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise Trouble("another node drains it") from None
        raise
    return fd


@contextlib.contextmanager
def _telling(path: str) -> Iterator[None]:
    """The database's own errors, as Trouble."""
    try:
        yield
    except FileNotFoundError:
        raise Trouble("the file is not there") from None
    except OSError as error:
        raise Trouble(f"{error.strerror}") from error
    except sqlite3.Error as error:
        if f"no such table: {table.TABLE}" in str(error):
            raise Trouble(f"it has no table {table.TABLE} yet") from None
        raise Trouble(f"{error}") from error


def _bytes(args: object) -> bytes:
    """Another program may have written JSON as text."""
    if isinstance(args, str):
        return args.encode("utf-8", "surrogateescape")
    return args if isinstance(args, bytes) else b""
