"""Stand-ins in memory for the databases of SqliteEffects, so that a verification writes no file.

Each begins as a copy of the file, and its committed state is part of the world. Tables that the
application makes in the file later, through a connection of its own, are made here too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from perdure import effects

_FLAGS = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
_numbers = itertools.count(1)

Stamp = tuple[tuple[int, int], ...]


class Doubles:
    """One stand-in for each path; `images` has what is committed in each, by path."""

    def __init__(self, images: dict[str, bytes]) -> None:
        self.images = dict(images)
        self._kept: dict[str, tuple[str, apsw.Connection]] = {}  # One keeps the database alive.
        self._stamps: dict[str, Stamp] = {}

    def connection(self, path: str) -> apsw.Connection:
        """One more connection to the stand-in for `path`."""
        path = whole(path)
        if path not in self._kept:
            uri = f"file:/perdure-verify-{next(_numbers)}?vfs=memdb"
            kept = _connect(uri)
            self._kept[path] = (uri, kept)
            self._fill(path, kept)
            effects.prepare(kept)
        return _connect(self._kept[path][0])

    def refresh(self, path: str) -> None:
        """Make the tables that are new in the file since the last look."""
        path = whole(path)
        stamp = _stamp(path)
        if stamp != self._stamps.get(path):
            self._stamps[path] = stamp
            with _file(path) as file:
                _make_missing(file, self._kept[path][1])

    def committed(self, path: str) -> None:
        """Something has been committed there: take the image anew."""
        path = whole(path)
        self.images[path] = self._kept[path][1].serialize("main")

    def _fill(self, path: str, kept: apsw.Connection) -> None:
        image = self.images.get(path)
        if image is None:
            self._stamps[path] = stamp = _stamp(path)
            if not stamp:
                return
            with _file(path) as file:
                image = file.serialize("main")
        if not image:
            return
        source = apsw.Connection(":memory:")
        source.deserialize("main", _without_log(image))
        with kept.backup("main", source, "main") as backup:
            backup.step()
        source.close()


def whole(path: str) -> str:
    """The one name of a file, however it was given."""
    return str(Path(path).absolute())


def _connect(uri: str) -> apsw.Connection:
    made = apsw.Connection(uri, flags=_FLAGS)
    made.set_busy_timeout(effects.BUSY_TIMEOUT_MS)
    return made


@contextmanager
def _file(path: str) -> Iterator[apsw.Connection]:
    """The file, to be read. Nothing is left beside it, unless a log with something in it is."""
    log = Path(f"{path}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    uri = Path(path).as_uri() + ("?mode=ro" if has_log else "?immutable=1")
    file = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READONLY)
    try:
        yield file
    finally:
        file.close()


def _without_log(image: bytes) -> bytes:
    """The same database as one that has no write-ahead log: a database in memory can't have it."""
    return image[:18] + b"\x01\x01" + image[20:]


def _stamp(path: str) -> Stamp:
    """What changes with the file and its log; empty where there is no file."""
    found = []
    for name in (path, f"{path}-wal"):
        try:
            about = Path(name).stat()
        except FileNotFoundError:
            continue
        found.append((about.st_mtime_ns, about.st_size))
    return tuple(found)


def _make_missing(file: apsw.Connection, kept: apsw.Connection) -> None:
    query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
    there = {name for name, _ in kept.execute(query)}
    # Tables come before what hangs on them.
    for name, sql in list(file.execute(f"{query} ORDER BY type <> 'table', rowid")):
        if name not in there:
            kept.execute(sql)
