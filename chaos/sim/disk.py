"""The simulated disk: a store with what a crash, an error or a full disk may do to it.

One commit is one write and one sync. What a fault leaves of the commit at hand is all of it or
nothing: SQLite's log is checksummed by frame, so a torn commit is no commit. Both are tried. The
store is the one in memory, or in some runs a real one on a real disk, which must do the same.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from chaos.sim import broken_plant
from chaos.sim.loop import MS_US
from chaos.sim.plan import Fault
from chaos.sim.process import Killed, Process
from perdure.core.change import Change
from perdure.core.limits import GRACE_MS
from perdure.store.memory import MemoryStore
from perdure.store.protocol import (
    AsideRow,
    CommitRow,
    DiskFailed,
    NoRoom,
    Opened,
    Reader,
    Writer,
)
from perdure.store.sqlite import SqliteReader, SqliteWriter

if TYPE_CHECKING:
    from chaos.sim.world import World

KEY_BYTES = 32
LOST = frozenset({"eio_lost", "full", "unsynced_lost"})


class SimDisk:
    """What outlives every process of the node."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.key = world.chance.stream("key").randbytes(KEY_BYTES)
        self.synced = 0  # The newest commit whose sync has returned.
        self.newest = 0
        self.base_ms = 0  # What history adds to the boot's time.
        self.closed: set[str] = set()  # Executions that have ended.
        self.open: dict[str, None] = {}  # Those that have not.
        self.full_until_us = 0
        self._memory: MemoryStore | None = None
        self._directory: Path | None = None
        self._writers: list[SqliteWriter] = []
        if world.plan.knobs.store == "sqlite":
            self._directory = Path(tempfile.mkdtemp(prefix="perdure-sim-"))
        else:
            self._memory = MemoryStore()
            self._memory.key = self.key

    @property
    def is_full(self) -> bool:
        """Whether there is no room now."""
        return self._world.loop.now_us < self.full_until_us

    def fill(self, length_ms: int) -> None:
        """No room for so long."""
        self.full_until_us = self._world.loop.now_us + length_ms * MS_US

    def writer(self, process: Process) -> Writer:
        """A writer for this process."""
        writer: Any = SimWriter(self._world, self, self.real_writer(), process)
        return writer  # type: ignore[no-any-return]

    def real_writer(self) -> Writer:
        """A writer of the store itself."""
        if self._memory is not None:
            return self._memory.writer()
        assert self._directory is not None
        for earlier in self._writers:
            earlier.close()
        self._writers = [SqliteWriter(self._directory)]
        return self._writers[0]

    def reader(self) -> Reader:
        """A reader. StoreError while there is no store."""
        if self._memory is not None:
            return self._memory.reader()
        assert self._directory is not None
        return SqliteReader(self._directory)

    def took_over(self, opened: Opened) -> CommitRow:
        """There is a new epoch; its row."""
        if opened.n == 1 and self._directory is not None:
            self._set_key()
        self.newest = opened.n
        self.base_ms = opened.base_ms
        return self.reader().commits(opened.n - 1, 1)[0]

    def took(self, change: Change) -> CommitRow:
        """There is a new commit; its row."""
        self.newest = change.n
        for execution in (*change.started, *change.touched):
            if execution.is_open:
                self.open[execution.workflow_id] = None
                self.closed.discard(execution.workflow_id)  # A reset opens it again.
            else:
                self.open.pop(execution.workflow_id, None)
                self.closed.add(execution.workflow_id)
        return CommitRow(
            change.n,
            change.epoch,
            change.at_ms,
            change.previous_hash,
            change.hash,
            change.body,
            change.stall_ms,
        )

    def _set_key(self) -> None:
        # A store makes its key by chance: tokens, and with them traces, would differ.
        assert self._directory is not None
        connection = apsw.Connection(str(self._directory / "perdure.db"))
        connection.execute("UPDATE meta SET value = ? WHERE name = 'key'", (self.key,))
        connection.close()

    def close(self) -> None:
        """Nothing of it is left on the machine."""
        for writer in self._writers:
            writer.close()
        if self._directory is not None:
            shutil.rmtree(self._directory)


class SimWriter:
    """A store's own writer, on a disk that may fail."""

    def __init__(self, world: World, disk: SimDisk, inner: Writer, process: Process) -> None:
        self._world = world
        self._disk = disk
        self._inner = inner
        self._process = process

    def __getattr__(self, name: str) -> Any:
        """What has nothing to do with a failing disk is the store's own."""
        return getattr(self._inner, name)

    def make_durable(self, wall_ms: int, boot_id: str, boot_ms: int) -> Opened:
        """Sync what is there, without an epoch: there is no room for one."""
        self._process.elapsed_us += self._world.sync_us()
        there = self._inner.make_durable(wall_ms, boot_id, boot_ms)
        self._disk.synced = max(self._disk.synced, there.n)
        return self._keyed(there)

    def is_short(self) -> bool:
        """Whether the disk is full."""
        return self._disk.is_full

    def set_aside(self, rows: Sequence[AsideRow]) -> None:
        """What made the core raise: in a simulation that is a finding."""
        for row in rows:
            broken_plant.check(row.error)
            self._world.violated(13, f"a command was set aside: {row}"[:600])
        self._inner.set_aside(rows)

    def open_epoch(
        self,
        incarnation: str,
        wall_ms: int,
        boot_id: str,
        boot_ms: int,
        grace_ms: int = GRACE_MS,
    ) -> Opened:
        """Take the store over."""
        fault = self._world.count("epoch", self._process.role)
        action = "" if fault is None else fault.action
        if self._disk.is_full or action == "full":
            raise NoRoom("the disk is full")
        if action in ("eio_lost", "eio_kept"):
            raise DiskFailed("the disk answers EIO")
        if action == "unsynced_lost":
            raise Killed
        self._sync(fault)
        opened = self._inner.open_epoch(incarnation, wall_ms, boot_id, boot_ms, grace_ms)
        row = self._disk.took_over(opened)
        self._disk.synced = opened.n
        self._world.committed(row)
        if action == "unsynced_kept":
            raise Killed
        return self._keyed(opened)

    def _keyed(self, opened: Opened) -> Opened:
        return msgspec.structs.replace(opened, key=self._disk.key)

    def commit(self, change: Change) -> None:
        """Keep `change`, unless a fault says otherwise."""
        fault = self._world.count("commit", self._process.role)
        action = "" if fault is None else fault.action
        if self._disk.is_full or action in LOST:
            self._inner.abandon()
            if action == "unsynced_lost":
                raise Killed
            raise DiskFailed("EIO") if action == "eio_lost" else NoRoom("ENOSPC")
        self._inner.commit(change)
        self._world.committed(self._disk.took(change))
        if action == "eio_kept":
            raise DiskFailed("EIO")
        if action == "unsynced_kept":
            raise Killed
        self._sync(fault)
        self._disk.synced = change.n

    def _sync(self, fault: Fault | None) -> None:
        self._process.elapsed_us += self._world.sync_us()
        if fault is not None and fault.action == "slow":
            self._process.elapsed_us += fault.ms * MS_US
