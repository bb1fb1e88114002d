"""Opens what a power loss has left with the engine's own store, and holds it against the run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import apsw
import msgspec

from chaos.auditor import audit_data_dir
from chaos.drills.powerloss_run import Recorded, SmallWriter
from chaos.drills.powerloss_states import State
from chaos.faults.recording_vfs import DATABASE
from perdure.store.protocol import StoreBehind, StoreError
from perdure.store.sqlite_rows import load_open

WALL_MS = 2_000_000
TABLES = (
    "meta",
    "epochs",
    "commits",
    "executions",
    "events",
    "activities",
    "timers",
    "tombstones",
)


class Checker:
    """Checks states of one run, one after the other, in a directory that is its own."""

    def __init__(self, directory: Path, run: Recorded) -> None:
        self.directory = directory
        self._run = run
        self._audited: dict[bytes, list[str]] = {}

    @property
    def contents(self) -> int:
        """How many different contents were found and audited."""
        return len(self._audited)

    def check(self, state: State) -> list[str]:
        """What is wrong with this state, once it is opened; nothing, if it is as promised.

        It must open, end in a commit of the run that is not older than what was acknowledged, and
        have a sound structure; the auditor reads each different content once.
        """
        try:
            found = self._opened(state)
        except StoreError as error:
            found = [f"it is refused: {error}"]
        except apsw.Error as error:
            found = [f"it cannot be read: {error}"]
        at = f"power loss after operation {state.at}, floor {state.floor}"
        return [f"{at}: {text}" for text in found]

    def _opened(self, state: State) -> list[str]:
        lay_out(state, self.directory)
        writer = SmallWriter(self.directory)
        try:
            newest = writer.open_epoch("history.after", WALL_MS, "after", 0).n - 1
            writer.ready_count()
        finally:
            writer.close()
        connection = apsw.Connection(
            str(self.directory / DATABASE), flags=apsw.SQLITE_OPEN_READONLY
        )
        try:
            found = self._compare(connection, newest, state.floor)
            content = _content(connection)
        finally:
            connection.close()
        if content not in self._audited:
            report = audit_data_dir(self.directory)
            self._audited[content] = [
                f"invariant {it.invariant}, {it.where}: {it.what}" for it in report.violations
            ]
        return found + self._audited[content]

    def _compare(self, connection: apsw.Connection, newest: int, floor: int) -> list[str]:
        found = []
        if newest < floor:
            found.append(f"it ends at commit {newest}: acknowledged commits are lost")
        if newest:
            link = connection.execute("SELECT hash FROM commits WHERE n = ?", (newest,)).get
            if link != self._run.hashes.get(newest):
                found.append(f"commit {newest} is not the one that was made")
        load_open(connection)  # What every projection begins with: it must be readable.
        sound = connection.pragma("integrity_check")
        if sound != "ok":
            found.append(f"the database is damaged: {sound}")
        return found


def _content(connection: apsw.Connection) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for table in TABLES:
        rows = connection.execute(f"SELECT * FROM {table}").fetchall()
        digest.update(msgspec.msgpack.encode(rows))
    return digest.digest()


def is_refused(state: State, directory: Path) -> bool:
    """Whether the store says that commits are lost, and changes nothing."""
    lay_out(state, directory)
    writer = SmallWriter(directory)
    try:
        writer.open_epoch("history.after", WALL_MS, "after", 0)
    except StoreBehind:
        return True
    finally:
        writer.close()
    return False


def lay_out(state: State, directory: Path) -> None:
    """The files of the state, and no others."""
    for path in directory.iterdir():
        path.unlink()
    for name, data in state.files.items():
        (directory / name).write_bytes(data)
