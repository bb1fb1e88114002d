"""A receiver in a file system: what an activity writes appears whole, once, under its key."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import inspect
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from perdure import effects, values
from perdure.clock import wall_ms
from perdure.errors import InvalidArgument

NOTE = ".perdure"
"""The file in each directory that says which key it belongs to, and keeps the result."""

WORK = ".perdure-work"
NAME_BYTES_MAX = 200
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Whose directory it is, of which attempt, since when, and the payload of its result."""

    key: str
    attempt: int
    at_ms: int
    result: bytes


class DirectoryEffects:
    """A receiver in the directory `root`, which is made where it is not there: one directory a key.

    Any number of threads and processes may use one root, on one file system that has renames and
    locks as POSIX has them. Nothing is opened between two calls.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, now_ms: Callable[[], int] = wall_ms
    ) -> None:
        self._root = Path(root)
        self._now_ms = now_ms

    def apply_once(
        self,
        key: str | None = None,
        fn: Callable[..., Any] | None = None,
        *,
        attempt: int | None = None,
    ) -> Any:
        """The result of the first application of `key`: `fn` is called only if there was none.

        `fn(directory)`, or `fn()` if it can be called without arguments, writes its files into an
        empty directory, which then becomes `path_of(key)` by one rename, when all of it is on the
        disk. If it raises, or its process dies, nothing of it is ever visible. Of two attempts that
        write at once the first to finish counts; what the other wrote is thrown away, and it gets
        the result of the first. Inside an activity `key` and `attempt` default to its own.
        """
        key, attempt = effects.identity(key, attempt)
        if effects.watch is not None:
            return self._verified(key, attempt, fn)
        work = self._root / WORK
        work.mkdir(parents=True, exist_ok=True)
        path = self.path_of(key)
        note = _note(path)
        if note is None:
            self._sweep(work)
            note = self._write(path, work, key, attempt, fn)
        # Also where it was found: whoever renamed it may have died before this.
        _sync(self._root)
        return values.decode(note.result)

    def path_of(self, key: str | None = None) -> Path:
        """The directory of `key`, by default of the activity that runs; it need not be there."""
        key, _ = effects.identity(key, None)
        return self._root / _name(key)

    def applied(self) -> dict[str, int]:
        """Every key that has its directory; 1 for each, since a second can't be there."""
        found: dict[str, int] = {}
        if self._root.is_dir():
            for path in sorted(self._root.iterdir()):
                note = None if path.name == WORK else _note(path)
                if note is not None:
                    found[note.key] = 1
        return found

    def _write(
        self, path: Path, work: Path, key: str, attempt: int, fn: Callable[..., Any] | None
    ) -> Note:
        with _own_directory(work) as directory:
            result = values.check_size(values.encode(_call(fn, directory)), "result")
            note = Note(key=key, attempt=attempt, at_ms=self._now_ms(), result=result)
            (directory / NOTE).write_bytes(msgspec.msgpack.encode(note))
            _sync_all(directory)
            try:
                os.rename(directory, path)
            except OSError as problem:
                if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                found = _note(path)
                if found is None:
                    raise
                return found
        return note

    def _verified(self, key: str, attempt: int, fn: Callable[..., Any] | None) -> Any:
        """In a verification nothing stays on the disk: the key is kept where those of the other
        receivers are.
        """

        def discarded() -> Any:
            with tempfile.TemporaryDirectory() as directory:
                return _call(fn, Path(directory))

        self._root.mkdir(parents=True, exist_ok=True)
        # No key's directory has a ":" in its name.
        with effects.SqliteEffects(self._root / f"{self._root.name}:keys") as stand_in:
            return stand_in.apply_once(key, discarded, attempt=attempt)

    @staticmethod
    def _sweep(work: Path) -> None:
        """Remove what attempts left behind whose process has died."""
        for path in work.iterdir():
            try:
                fd = os.open(path, _DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):
                continue  # Renamed just now, or nothing of ours.
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            except BlockingIOError:
                continue  # Its attempt is alive.
            finally:
                os.close(fd)


@contextlib.contextmanager
def _own_directory(work: Path) -> Iterator[Path]:
    """A new directory, locked while this process lives; removed at the end if it is there."""
    while True:
        directory = work / secrets.token_hex(8)
        directory.mkdir()
        fd = -1
        try:
            fd = os.open(directory, _DIRECTORY)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink and directory.exists():
                break
        except (FileNotFoundError, BlockingIOError):
            pass  # Somebody took it for a dead one's, before it was locked: another one, then.
        if fd >= 0:
            os.close(fd)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(fd)


def _call(fn: Callable[..., Any] | None, directory: Path) -> Any:
    if fn is None:
        return None
    result = fn(directory) if effects.takes_an_argument(fn) else fn()
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise InvalidArgument("fn must be a plain function", field="fn")
    return result


def _note(path: Path) -> Note | None:
    try:
        return msgspec.msgpack.decode((path / NOTE).read_bytes(), type=Note)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _name(key: str) -> str:
    """The name of a key's directory: another one for every key, where capitals count."""
    raw = key.encode()
    name = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > NAME_BYTES_MAX:
        # "~" is in no other name.
        name = f"{name[:100]}~{hashlib.blake2b(raw, digest_size=16).hexdigest()}"
    return name


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_all(directory: Path) -> None:
    for folder, _, names in os.walk(directory, topdown=False):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                _sync(path)
        _sync(Path(folder))
