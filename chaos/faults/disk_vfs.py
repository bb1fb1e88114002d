"""A disk that fails on demand, between history and the real one.

`PERDURE_TEST_VFS=chaos.faults.disk_vfs:register` puts it there. What it does stands in a small file
that both sides map into memory, `disk-faults` in the data directory: whoever hurts the node holds a
`DiskFaults` on it and may change it at any time, and reads there what was done.
"""

from __future__ import annotations

import contextlib
import mmap
import time
from pathlib import Path
from typing import Any

import apsw

NAME = "perdure-disk-faults"
CONTROL_NAME = "disk-faults"
HOOK = "chaos.faults.disk_vfs:register"
NO_LIMIT = -1

# What to do. `fail_*`: the n-th call from now on fails, once; ALWAYS: every one. `grow_bytes`: by
# how much files may still become longer, NO_LIMIT for no limit; what is there can be written over.
# `no_room`: not even that, as on a file system that never writes in place.
_ORDERS = ("fail_sync", "fail_write", "fail_read", "grow_bytes", "no_room", "slow_sync_ms")
# What was done.
_COUNTS = ("syncs", "writes", "reads", "failed", "full", "slowed")
_FIELDS = (*_ORDERS, *_COUNTS)
ALWAYS = -1

_kept: list[apsw.VFS] = []  # SQLite does not keep it alive.


class DiskFaults:
    """The orders, and what came of them, as attributes; whole numbers."""

    def __init__(self, data_dir: Path) -> None:
        path = data_dir / CONTROL_NAME
        is_new = not path.exists()
        if is_new:
            path.write_bytes(bytes(8 * len(_FIELDS)))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8 * len(_FIELDS))
        self._cells = memoryview(self._map).cast("q")
        if is_new:
            self.heal()

    def __getitem__(self, name: str) -> int:
        return self._cells[_FIELDS.index(name)]

    def __setitem__(self, name: str, value: int) -> None:
        self._cells[_FIELDS.index(name)] = value

    def heal(self) -> None:
        """From now on the disk is a good one."""
        for name in _ORDERS:
            self[name] = 0
        self["grow_bytes"] = NO_LIMIT

    def counts(self) -> dict[str, int]:
        """What was done so far."""
        return {name: self[name] for name in _COUNTS}

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        self._cells.release()
        with contextlib.suppress(BufferError):
            self._map.close()

    def is_hit(self, order: str) -> bool:
        """Whether this call is the one that the order means."""
        left = self[order]
        if left == 0:
            return False
        if left > 0:
            self[order] = left - 1
        if left > 1:
            return False
        self["failed"] += 1
        return True


class FaultyDisk(apsw.VFS):
    """The system's own way to the disk, with faults in log and database."""

    def __init__(self, faults: DiskFaults, name: str = NAME) -> None:
        self._faults = faults
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's word
        """Log and database with faults, everything else as it is."""
        if flags[0] & (apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_DB):
            return _File(self._faults, name, flags)
        return apsw.VFSFile("", name, flags)


class _File(apsw.VFSFile):
    def __init__(
        self, faults: DiskFaults, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._faults = faults
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's word
        self._faults["reads"] += 1
        if self._faults.is_hit("fail_read"):
            raise _failure(apsw.SQLITE_IOERR_READ)
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's word
        faults = self._faults
        faults["writes"] += 1
        if faults.is_hit("fail_write"):
            raise _failure(apsw.SQLITE_IOERR_WRITE)
        left = faults["grow_bytes"]
        growth = 0 if left == NO_LIMIT else max(0, offset + len(data) - self.xFileSize())
        if faults["no_room"] or (left != NO_LIMIT and growth > left):
            faults["full"] += 1
            raise apsw.FullError("there is no room on this disk")
        if growth:
            faults["grow_bytes"] = left - growth
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's word
        faults = self._faults
        faults["syncs"] += 1
        slow_ms = faults["slow_sync_ms"]
        if slow_ms:
            faults["slowed"] += 1
            time.sleep(slow_ms / 1_000)
        if faults.is_hit("fail_sync"):
            raise _failure(apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)


def _failure(code: int) -> apsw.Error:
    error: Any = apsw.IOError("this disk fails")
    error.extendedresult = code
    return error  # type: ignore[no-any-return]


def register(data_dir: Path) -> str:
    """For PERDURE_TEST_VFS: make it known to SQLite; its name."""
    if not _kept:
        _kept.append(FaultyDisk(DiskFaults(data_dir)))
    return NAME
