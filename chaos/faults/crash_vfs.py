"""The crash points that lie within SQLite: between what it writes and what it syncs.

`PERDURE_TEST_VFS=chaos.faults.crash_vfs:register` puts this between history and the disk.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from perdure.crash_points import CrashPoint, reached

NAME = "perdure-crash-points"

_kept: list[apsw.VFS] = []  # SQLite does not keep it alive.


class CrashVFS(apsw.VFS):
    """The system's own way to the disk, with crash points on it."""

    def __init__(self, name: str = NAME) -> None:
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's word
        """The log and the database with crash points, everything else as it is."""
        if flags[0] & apsw.SQLITE_OPEN_WAL:
            return _Log("", name, flags)
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            return _Database("", name, flags)
        return apsw.VFSFile("", name, flags)


class _Log(apsw.VFSFile):
    """The write-ahead log: synced once a commit."""

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's word
        reached(CrashPoint.STORE_LOG_WRITTEN_NOT_SYNCED)
        super().xSync(flags)


class _Database(apsw.VFSFile):
    """The database: written by checkpoints only."""

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's word
        super().xWrite(data, offset)
        reached(CrashPoint.STORE_DATABASE_PAGE_WRITTEN)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's word
        reached(CrashPoint.STORE_DATABASE_WRITTEN_NOT_SYNCED)
        super().xSync(flags)
        reached(CrashPoint.STORE_DATABASE_SYNCED)


def register(data_dir: Path) -> str:
    """For PERDURE_TEST_VFS: make it known to SQLite; its name."""
    _kept.append(CrashVFS())
    return NAME
