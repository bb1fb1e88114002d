"""Writes down all that SQLite asks of the disk, in order: what a power loss may leave of it is
worked out from that.
"""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

DATABASE, LOG, JOURNAL, WITNESS = "perdure.db", "perdure.db-wal", "perdure.db-journal", "witness"


class Write(msgspec.Struct, frozen=True, tag=True):
    """Bytes at an offset of a file; on the disk once the file is synced, before that perhaps."""

    file: str
    offset: int
    data: bytes


class Truncate(msgspec.Struct, frozen=True, tag=True):
    """A file is cut to this size."""

    file: str
    size: int


class Delete(msgspec.Struct, frozen=True, tag=True):
    """A file is taken away; `synced`: its directory was synced with it."""

    file: str
    synced: bool


class Sync(msgspec.Struct, frozen=True, tag=True):
    """All of this file that stands before is on the disk."""

    file: str


class Witnessed(msgspec.Struct, frozen=True, tag=True):
    """The witness is this from now on; it is never synced."""

    data: bytes


class Begun(msgspec.Struct, frozen=True, tag=True):
    """A commit with this number and hash is about to be written."""

    n: int
    hash: bytes


class Durable(msgspec.Struct, frozen=True, tag=True):
    """Commit `n` may be acknowledged from here on: the store has said that it is on the disk."""

    n: int
    hash: bytes


Op = Write | Truncate | Delete | Sync | Witnessed | Begun | Durable


class RecordingVFS(apsw.VFS):
    """The system's own way to the disk, with every change that goes it appended to `ops`. Keep it
    while it is in use: SQLite does not.
    """

    def __init__(self, name: str, ops: list[Op]) -> None:
        self.ops = ops
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's word
        """A file that is written down, unless it is a temporary one."""
        if name is None:
            return apsw.VFSFile("", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return _File(path.rpartition("/")[2], self.ops, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's word
        """A journal that is over."""
        super().xDelete(filename, syncdir)
        self.ops.append(Delete(filename.rpartition("/")[2], syncdir))


class _File(apsw.VFSFile):
    def __init__(
        self, file: str, ops: list[Op], name: str | apsw.URIFilename, flags: list[int]
    ) -> None:
        self._file = file
        self._ops = ops
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's word
        super().xWrite(data, offset)
        self._ops.append(Write(self._file, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's word
        super().xTruncate(newsize)
        self._ops.append(Truncate(self._file, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's word
        super().xSync(flags)
        self._ops.append(Sync(self._file))
