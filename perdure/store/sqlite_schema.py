"""The database: where it is, how it is opened, what stands in it, and whether it is ours to read.

No plain file call ever opens the database files here: closing such a file would drop the locks of
the whole process.
"""

from __future__ import annotations

import errno
import os
import urllib.parse
from pathlib import Path

import apsw

from perdure.core.chain import GENESIS
from perdure.core.limits import FORMAT_VERSION
from perdure.store import sqlite_tables
from perdure.store.protocol import DiskFailed, NoRoom, StoreError
from perdure.store.rules import KEY_BYTES

DATABASE_NAME = "perdure.db"
APPLICATION_ID = 0x50455244  # "PERD", in the database's header.
BUSY_MS = 5_000

Pragma = tuple[str, str | int, str | int]

# (name, value, what it reads back as); set one per call, in this order.
SHARED_PRAGMAS: tuple[Pragma, ...] = (
    ("busy_timeout", BUSY_MS, BUSY_MS),
    ("foreign_keys", "ON", 1),
    ("trusted_schema", "OFF", 0),
    ("mmap_size", 0, 0),
    ("cell_size_check", "ON", 1),
    ("temp_store", "MEMORY", 2),
)
WRITER_PRAGMAS: tuple[Pragma, ...] = (
    *SHARED_PRAGMAS,
    ("journal_mode", "wal", "wal"),
    ("synchronous", "FULL", 2),
    ("wal_autocheckpoint", 0, 0),
    # Where fsync does not reach the medium (macOS), these make it.
    ("fullfsync", "ON", 1),
    ("checkpoint_fullfsync", "ON", 1),
    ("cache_size", -65_536, -65_536),  # KiB
)
READER_PRAGMAS: tuple[Pragma, ...] = (
    *SHARED_PRAGMAS,
    ("query_only", "ON", 1),
    ("cache_size", -8_192, -8_192),  # KiB
)


def open_for_writing(data_dir: Path, vfs: str | None = None) -> apsw.Connection:
    """The writing connection, its settings read back; makes the directory and an empty database.

    Raises StoreError, with what to do, where the database cannot be written or is not ours.
    """
    path = _in_directory(data_dir)
    is_new = not path.exists()
    try:
        connection = apsw.Connection(str(path), vfs=vfs)
    except apsw.Error as cause:
        raise StoreError(
            f"cannot open {path} ({_reason(cause)}); give a data directory that can be written"
        ) from cause
    try:
        connection.set_busy_timeout(BUSY_MS)
        _require_writable(connection, path)
        if is_new:
            path.chmod(0o600)  # It holds the key of the tokens. Log and index inherit the mode.
        is_ours(connection, path)  # Before anything that would change another program's file.
        _settle(connection, WRITER_PRAGMAS, path)
    except apsw.Error as cause:
        connection.close()
        raise told(cause, path) from cause
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(data_dir: Path) -> apsw.Connection:
    """A read-only connection to a store of this format. Raises StoreError where there is none."""
    path = data_dir / DATABASE_NAME
    if not path.is_file():
        raise _no_store(data_dir)
    uri = f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro"
    try:
        connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    except apsw.Error as cause:
        raise StoreError(f"cannot open {path} ({_reason(cause)}); check who may read it") from cause
    try:
        connection.set_busy_timeout(BUSY_MS)
        _require_current(connection, path)
        _settle(connection, READER_PRAGMAS, path)
    except apsw.Error as cause:
        connection.close()
        raise told(cause, path) from cause
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: apsw.Connection, data_dir: Path) -> None:
    """Within the caller's transaction: make the schema where it is missing, upgrade an older one.

    Raises StoreError on a newer format.
    """
    path = data_dir / DATABASE_NAME
    if not is_ours(connection, path):
        _create(connection)
        return
    version = format_of(connection, path)
    while version < FORMAT_VERSION:
        upgrade = sqlite_tables.UPGRADES.get(version)
        if upgrade is None:
            raise StoreError(
                f"{path} has format {version}, too old for this version of perdure;"
                " upgrade it with a version in between"
            )
        upgrade(connection)
        version += 1
        connection.execute("UPDATE meta SET value = ? WHERE name = 'format'", (version,))


def format_of(connection: apsw.Connection, path: Path) -> int:
    """The store's format. Raises StoreError on one that is newer than this version, or none."""
    version = connection.execute("SELECT value FROM meta WHERE name = 'format'").get
    if not isinstance(version, int):
        raise StoreError(f"{path} names no format; it is damaged: restore it from a backup")
    if version > FORMAT_VERSION:
        raise StoreError(
            f"{path} has format {version}, this version of perdure knows up to {FORMAT_VERSION};"
            " use the perdure that wrote it, or a newer one"
        )
    return version


def _create(connection: apsw.Connection) -> None:
    for statement in sqlite_tables.TABLES:
        connection.execute(statement)
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        [
            ("format", FORMAT_VERSION),
            ("key", os.urandom(KEY_BYTES)),
            ("base_n", 0),
            ("base_hash", GENESIS),
        ],
    )
    connection.pragma("application_id", APPLICATION_ID)


def _in_directory(data_dir: Path) -> Path:
    """Where the database stands, in a directory that exists."""
    if not data_dir.exists():
        try:
            data_dir.mkdir(mode=0o700, parents=True)
            _sync_directory(data_dir.absolute().parent)
        except OSError as cause:
            raise StoreError(
                f"cannot make the data directory {data_dir} ({cause.strerror});"
                " give one that can be written"
            ) from cause
    elif not data_dir.is_dir():
        raise StoreError(f"{data_dir} is not a directory; give a directory for the data")
    return data_dir / DATABASE_NAME


def _sync_directory(path: Path) -> None:
    """Make the entries of `path` durable: a store in a directory that is forgotten is lost."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_ours(connection: apsw.Connection, path: Path) -> bool:
    """True for a store, False for an empty database. Raises StoreError for anything else."""
    identity = connection.pragma("application_id")
    if identity == APPLICATION_ID:
        return True
    if identity or connection.execute("SELECT count(*) FROM sqlite_schema").get:
        raise StoreError(f"{path} belongs to another program; give another data directory")
    return False


def _require_writable(connection: apsw.Connection, path: Path) -> None:
    if connection.readonly("main"):
        raise StoreError(f"{path} is read-only; make it writable, or give another data directory")


def _require_current(connection: apsw.Connection, path: Path) -> None:
    if not is_ours(connection, path):
        raise _no_store(path.parent)
    version = format_of(connection, path)
    if version != FORMAT_VERSION:
        raise StoreError(
            f"{path} has format {version}, not {FORMAT_VERSION}; start a node to upgrade it"
        )


def _settle(connection: apsw.Connection, pragmas: tuple[Pragma, ...], path: Path) -> None:
    for name, value, expected in pragmas:
        connection.pragma(name, value)
        found = connection.pragma(name)
        if found != expected:
            raise StoreError(
                f"{path}: {name} is {found!r} and cannot be set to {value!r};"
                " give a data directory on a local file system"
            )


def _no_store(data_dir: Path) -> StoreError:
    return StoreError(f"there is no store in {data_dir} yet; start a node there first")


def told(cause: apsw.Error, path: Path) -> StoreError:
    """The driver's error as one clear line."""
    if has_no_room(cause):
        return NoRoom(f"there is no room on the disk of {path} ({_reason(cause)}); make some")
    match cause:
        case apsw.NotADBError():
            return StoreError(f"{path} is not a database of perdure; give another data directory")
        case apsw.BusyError():
            return StoreError(f"{path} is locked by another process; stop that one first")
        case apsw.CorruptError():
            return StoreError(f"{path} is damaged ({_reason(cause)}); restore it from a backup")
        case apsw.IOError():
            return DiskFailed(f"the disk of {path} fails ({_reason(cause)}); look after it")
        case _:
            return StoreError(
                f"cannot use {path} ({_reason(cause)}); see that its directory and files can be"
                " written and its disk works"
            )


def has_no_room(cause: BaseException) -> bool:
    """Whether a full disk is what is wrong."""
    if isinstance(cause, OSError):
        return cause.errno in (errno.ENOSPC, errno.EDQUOT)
    # The index of the log is a file as well, and says it in its own way.
    return isinstance(cause, apsw.FullError) or (
        isinstance(cause, apsw.IOError)
        and getattr(cause, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    )


def _reason(cause: apsw.Error) -> str:
    return str(cause) or type(cause).__name__
