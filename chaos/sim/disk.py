"""The simulated disk: the store in memory, with what a crash, an error or a full disk may do to it.

One commit is one write and one sync. What a fault leaves of the commit at hand is all of it or
nothing: SQLite's log is checksummed by frame, so a torn commit is no commit. Both are tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.sim.loop import MS_US
from chaos.sim.plan import Fault
from chaos.sim.process import Killed, Process
from perdure.core.change import Change
from perdure.store.memory import MemoryReader, MemoryStore, MemoryWriter
from perdure.store.protocol import Opened, Reader, StoreError, Writer

if TYPE_CHECKING:
    from chaos.sim.world import World

KEY_BYTES = 32


class DiskError(OSError):
    """What the disk answers when it fails."""


class SimDisk:
    """What outlives every process of the node."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.store = MemoryStore()
        self.store.key = world.chance.stream("key").randbytes(KEY_BYTES)
        self.synced = 0  # The newest commit whose sync has returned.

    def writer(self, process: Process) -> Writer:
        """A writer for this process."""
        return SimWriter(self._world, self, process)

    def reader(self) -> Reader:
        """A reader."""
        return self.store.reader()


class SimWriter(MemoryWriter):
    """The store's own writer, on a disk that may fail."""

    def __init__(self, world: World, disk: SimDisk, process: Process) -> None:
        super().__init__(disk.store, lambda n, link: None)
        self._world = world
        self._disk = disk
        self._process = process

    def open_epoch(self, incarnation: str, wall_ms: int, boot_id: str, boot_ms: int) -> Opened:
        """Take the store over."""
        fault = self._world.count("epoch", self._process.role)
        if fault is not None and fault.action in ("eio_lost", "eio_kept", "full"):
            raise StoreError("the disk answers EIO")
        if fault is not None and fault.action == "unsynced_lost":
            raise Killed
        self._sync(fault)
        opened = super().open_epoch(incarnation, wall_ms, boot_id, boot_ms)
        self._disk.synced = opened.n
        self._world.committed(self._disk.store.log[-1])
        if fault is not None and fault.action == "unsynced_kept":
            raise Killed
        return opened

    def commit(self, change: Change) -> None:
        """Keep `change`, unless a fault says otherwise."""
        fault = self._world.count("commit", self._process.role)
        action = "" if fault is None else fault.action
        if action in ("eio_lost", "full"):
            raise DiskError("EIO" if action == "eio_lost" else "ENOSPC")
        if action == "unsynced_lost":
            raise Killed
        super().commit(change)
        self._world.committed(self._disk.store.log[-1])
        if action == "eio_kept":
            raise DiskError("EIO")
        if action == "unsynced_kept":
            raise Killed
        self._sync(fault)
        self._disk.synced = change.n

    def _sync(self, fault: Fault | None) -> None:
        self._process.elapsed_us += self._world.sync_us()
        if fault is not None and fault.action == "slow":
            self._process.elapsed_us += fault.ms * MS_US


__all__ = ["DiskError", "MemoryReader", "SimDisk", "SimWriter"]
