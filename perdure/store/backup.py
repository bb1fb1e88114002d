"""Copies of the embedded store, and whether a copy can be trusted."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec

from perdure.clock import wall_ms
from perdure.core.chain import next_hash
from perdure.store import sqlite_rows, sqlite_schema
from perdure.store.protocol import StoreError

PAGES_A_STEP = 4_096
PARTIAL = ".partial"
PAGE_REPORT_HEAD = "*** in database main ***"


class Copied(msgspec.Struct, frozen=True):
    """A store as of one commit: its number, epoch, instant and hash (hex), and how large it is."""

    path: str
    n: int
    epoch: int
    at_ms: int
    hash: str
    base_n: int
    workflows: int
    bytes: int


class NotWritable(StoreError):
    """The copy can't be written; the store is as it was."""


def backup(data_dir: Path, dest: Path) -> Copied:
    """Copy the store in `data_dir` to the new file `dest`, as of one commit; a node may go on.

    The file stands for itself, has been checked and is durable when this returns. Raises StoreError
    where there is no store, where `dest` is there, or where the copy is not whole.
    """
    connection = sqlite_schema.open_for_reading(data_dir)
    try:
        return copy(connection, dest, origin=data_dir / sqlite_schema.DATABASE_NAME)
    finally:
        connection.close()


def copy(source: apsw.Connection, dest: Path, *, origin: Path, key: bytes | None = None) -> Copied:
    """Copy what `source` reads to the new file `dest`; see `backup`.

    `origin` is the file that `source` reads, which errors name. `key` takes the place of the
    store's own, so that no token that it gave out is known any more.
    """
    if dest.exists():
        raise StoreError(f"{dest} is there already; name a file that is not")
    partial = dest.with_name(dest.name + PARTIAL)
    try:
        partial.unlink(missing_ok=True)
        # It holds the key of the tokens: for its owner alone, from its first byte on.
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as cause:
        raise NotWritable(f"cannot write {partial}: {cause.strerror}") from cause
    try:
        _fill(source, partial, key)
        found = examine(partial, origin=origin)
        _sync(partial, os.O_RDONLY)
        os.replace(partial, dest)
        _sync(dest.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    except apsw.Error as cause:
        # What can't be read is the source's; what can't be written, the copy's.
        is_source = isinstance(cause, (apsw.CorruptError, apsw.NotADBError))
        raise sqlite_schema.told(cause, origin if is_source else dest) from cause
    except OSError as cause:
        raise NotWritable(f"cannot write {dest}: {cause.strerror}") from cause
    finally:
        partial.unlink(missing_ok=True)
    return msgspec.structs.replace(found, path=str(dest))


def examine(path: Path, *, origin: Path | None = None) -> Copied:
    """What the store in this database file holds. Raises StoreError where it is not whole: a page,
    a number or a hash of the log is wrong, or it is of another format.

    `origin` is what the error names, where the file is a copy of that.
    """
    named = origin or path
    with opened(path, named) as connection:
        for (text,) in connection.execute("PRAGMA integrity_check(1)"):
            if text != "ok":
                what = str(text).removeprefix(PAGE_REPORT_HEAD)
                raise _damaged(named, " ".join(what.split()))
        newest = sqlite_rows.load_newest(connection)
        base_n, link = sqlite_rows.load_base(connection)
        n = base_n
        for number, previous, own, body in connection.execute(
            "SELECT n, previous_hash, hash, body FROM commits ORDER BY n"
        ):
            n += 1
            if number != n or previous != link or own != next_hash(previous, body):
                raise _damaged(named, f"commit {number} does not follow commit {n - 1}")
            link = own
        workflows = connection.execute("SELECT count(*) FROM executions").get
    size = path.stat().st_size
    return Copied(
        str(path), newest.n, newest.epoch, newest.at_ms, link.hex(), base_n, workflows, size
    )


def _damaged(path: Path, what: str) -> StoreError:
    return StoreError(f"{path} is damaged: {what}; restore a backup that is whole")


@contextmanager
def opened(path: Path, named: Path | None = None) -> Iterator[apsw.Connection]:
    """A reading connection to a store in any file, at one instant. Raises StoreError, which names
    the file, or `named`.
    """
    named = named or path
    if not path.is_file():
        raise StoreError(f"there is no store in {path}; name the file that a backup made")
    uri = f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro"
    connection = None
    try:
        connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        connection.set_busy_timeout(sqlite_schema.BUSY_MS)
        if not sqlite_schema.is_ours(connection, named):
            raise StoreError(f"{named} is empty; name the file that a backup made")
        # An older format will do: the node that is started on it upgrades it.
        sqlite_schema.format_of(connection, named)
        connection.execute("BEGIN")
        yield connection
    except apsw.NotADBError as cause:
        raise StoreError(
            f"{named} is not a database of perdure; name the file that a backup made"
        ) from cause
    except apsw.Error as cause:
        raise sqlite_schema.told(cause, named) from cause
    finally:
        if connection is not None:
            connection.close()


def rekey(connection: apsw.Connection, key: bytes) -> None:
    """A new key for tokens, and when it came: an audit can't match what ledgers kept of older
    tokens.
    """
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
        [("key", key), ("rekeyed_ms", wall_ms())],
    )


def _fill(source: apsw.Connection, path: Path, key: bytes | None) -> None:
    connection = apsw.Connection(str(path))
    in_transaction = source.in_transaction
    try:
        if not in_transaction:
            source.execute("BEGIN")
        source.execute("SELECT count(*) FROM meta").fetchall()  # From here on it stands still.
        with connection.backup("main", source, "main") as pages:
            while not pages.done:
                pages.step(PAGES_A_STEP)
        connection.pragma("journal_mode", "delete")  # One file, without a log beside it.
        if key is not None:
            rekey(connection, key)
    finally:
        connection.close()
        if not in_transaction and source.in_transaction:
            source.execute("COMMIT")


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
