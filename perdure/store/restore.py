"""Putting another store in the place of the one that is there, or taking that one as it is.

The caller holds the locks of the data directory, so that no process uses it. Nothing is ever
deleted: what was there stands in a directory of its own beside the new.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import apsw
import msgspec

from perdure.core.ids import execution_id
from perdure.core.interaction_records import WorkflowReset
from perdure.core.records import ActivityTaskCancelled
from perdure.store import backup, sqlite_rows, witness
from perdure.store.backup import Copied
from perdure.store.protocol import StoreBehind, StoreError
from perdure.store.rules import KEY_BYTES
from perdure.store.sqlite_schema import DATABASE_NAME
from perdure.store.witness import WITNESS_NAME, Seen

ASIDE = "aside"
FRESH = f"{DATABASE_NAME}.restored"
_BESIDE = (f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm")


class Unknown(msgspec.Struct, frozen=True):
    """An effect that a ledger has applied and the store does not know to be done.

    `why`: "no workflow" (none of this id), "not scheduled" or "not completed" (an activity that
    will run again: the receiver knows its key), "given up" (one that failed or was cancelled, or
    whose workflow has ended: nobody will ask for it again), "no key" (not made of ids).
    """

    ledger: str
    key: str
    at_ms: int
    why: str


class Restored(msgspec.Struct, frozen=True):
    """What stands in the data directory now, and what was lost for it.

    `seen`: the newest commit that the witness knew, None where there was none to read. `lost`: how
    many commits that was ahead. `aside`: where the files are that were there.
    """

    store: Copied
    seen: int | None
    lost: int
    aside: str | None


def restore(data_dir: Path, source: Path, stamp: str) -> Restored:
    """Install a copy of the store in the file (or data directory) `source`.

    `stamp` names the directory for what was there. The copy has a new key, so that no token of the
    time that is lost is taken for one of its own. Raises StoreError; the old store is in its place
    then, or the next start of a node is refused until a restore has come to its end.
    """
    path = source / DATABASE_NAME if source.is_dir() else source
    if path.resolve() == (data_dir / DATABASE_NAME).resolve():
        raise StoreError(f"{source} is the store itself; to take it as it is, give --accept")
    fresh = data_dir / FRESH
    fresh.unlink(missing_ok=True)  # Of a restore that was interrupted.
    with backup.opened(path) as connection:
        copied = backup.copy(connection, fresh, origin=path, key=os.urandom(KEY_BYTES))
    seen = _seen(data_dir)
    aside = _make_aside(data_dir, stamp)
    _copy(data_dir / WITNESS_NAME, aside)
    witness.moving(data_dir)
    for name in (DATABASE_NAME, *_BESIDE):
        if (data_dir / name).exists():
            os.replace(data_dir / name, aside / name)
    os.replace(fresh, data_dir / DATABASE_NAME)
    witness.reset(data_dir, Seen(copied.n, bytes.fromhex(copied.hash)))
    copied = msgspec.structs.replace(copied, path=str(data_dir / DATABASE_NAME))
    return Restored(copied, seen, max(0, (seen or 0) - copied.n), str(aside))


def accept(data_dir: Path, stamp: str) -> Restored:
    """Take the store that is there as it is, though it may have lost commits.

    What cannot be read of its log is lost for good, so log and witness are copied aside first.
    `aside` is None where nothing is lost: then nothing was changed. Raises StoreError where the
    store itself is damaged.
    """
    path = data_dir / DATABASE_NAME
    if not path.is_file():
        raise StoreError(f"there is no store in {data_dir} to accept; restore a backup")
    seen = _seen(data_dir)
    found = backup.examine(path)
    if _is_whole(data_dir, found):
        return Restored(found, seen, 0, None)
    aside = _make_aside(data_dir, stamp)
    for name in (_BESIDE[0], WITNESS_NAME):
        _copy(data_dir / name, aside)
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with connection:
            backup.rekey(connection, os.urandom(KEY_BYTES))
    finally:
        connection.close()
    witness.reset(data_dir, Seen(found.n, bytes.fromhex(found.hash)))
    return Restored(found, seen, max(0, (seen or 0) - found.n), str(aside))


def check_ledgers(ledgers: list[Path]) -> None:
    """Raise StoreError where one of the files is no ledger of SqliteEffects."""
    for ledger in ledgers:
        next(_applied(ledger), None)


def unknown_effects(data_dir: Path, ledgers: list[Path]) -> Iterator[Unknown]:
    """What the ledgers (files of SqliteEffects) have applied and the store does not know.

    Raises StoreError where a file is no such ledger.
    """
    with backup.opened(data_dir / DATABASE_NAME) as store:
        for ledger in ledgers:
            for key, at_ms in _applied(ledger):
                why = _why(store, key)
                if why:
                    yield Unknown(str(ledger), key, at_ms, why)


# --- within ------------------------------------------------------------------
def _seen(data_dir: Path) -> int | None:
    try:
        found = witness.read(data_dir)
    except StoreBehind:
        return None
    return found[0].n if found and not witness.is_moving(found) else None


def _make_aside(data_dir: Path, stamp: str) -> Path:
    aside = data_dir / ASIDE / stamp
    try:
        aside.mkdir(mode=0o700, parents=True)
    except OSError as cause:
        raise StoreError(f"cannot make {aside}: {cause.strerror}") from cause
    return aside


def _copy(path: Path, aside: Path) -> None:
    if path.exists():
        shutil.copyfile(path, aside / path.name)


def _is_whole(data_dir: Path, found: Copied) -> bool:
    try:
        seen = witness.read(data_dir)
        witness.check(data_dir, seen, Seen(found.n, bytes.fromhex(found.hash)), lambda n: None)
    except StoreBehind:
        return False
    return True


def _applied(ledger: Path) -> Iterator[tuple[str, int]]:
    if not ledger.is_file():
        raise StoreError(f"there is no ledger {ledger}")
    # For writing, because a log left by a killed process must be recovered before it can be read.
    connection = apsw.Connection(str(ledger), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(5_000)
        for key, at_ms in connection.execute(
            "SELECT key, at_ms FROM perdure_effects ORDER BY at_ms, key"
        ):
            yield str(key), int(at_ms)
    except apsw.Error as cause:
        raise StoreError(f"{ledger} is no ledger of perdure.effects ({cause})") from cause
    finally:
        connection.close()


def _why(store: apsw.Connection, key: str) -> str:
    """Why the store does not know this effect to be done; empty where it does."""
    parts = key.split("/")
    if len(parts) != 2 or not all(parts):
        return "no key"
    name, _, run = parts[0].partition("#")
    if run and not (run.isascii() and run.isdigit()):
        return "no key"
    workflow_id = execution_id(unquote(name), int(run or 1))
    activity_id = unquote(parts[1])
    execution = sqlite_rows.load_execution(store, workflow_id)
    if execution is None:
        return "no workflow"
    if execution.status.value == "Removed":
        return ""
    closing = sqlite_rows.closing_event(store, workflow_id, activity_id)
    if closing is not None:
        return "" if type(closing).__name__ == "ActivityTaskCompleted" else "given up"
    if execution.status.value != "Running":
        return "given up"
    if activity_id in execution.activities:
        return "not completed"
    return "given up" if _is_cancelled(store, workflow_id, activity_id) else "not scheduled"


def _is_cancelled(store: apsw.Connection, workflow_id: str, activity_id: str) -> bool:
    """Whether the workflow, which goes on, gave the activity up, and no reset took that back."""
    at: int | None = None
    for event in sqlite_rows.load_history(store, workflow_id):
        if isinstance(event, ActivityTaskCancelled) and event.activity_id == activity_id:
            at = event.event_id
        elif isinstance(event, WorkflowReset) and at is not None and at > event.to_event:
            at = None
    return at is not None
