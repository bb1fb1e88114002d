"""The newest whole line of a file that another process writes."""

from __future__ import annotations

import os
from pathlib import Path

LINE_BYTES_MAX = 64 * 1024


class NewestLine:
    """Looks at the file from now on: what it holds already was written by somebody earlier.

    The file may be appended to, written anew, or replaced by a rename; it need not exist yet. A
    line counts once its line break is there, or its writer has ended by itself: what is torn by a
    crash is no checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first = self._seen = self._mark()
        self._taken: str | None = None

    def take(self, *, is_over: bool = False) -> str | None:
        """The newest line, if there is one that was not taken yet. Longer ones are cut off at
        64 KiB, counted from their end; empty lines do not count. `is_over`: nobody writes any more,
        and whoever did was not interrupted.
        """
        mark = self._mark()
        if mark == self._first or (mark == self._seen and not is_over):
            return None
        line = self._newest(is_over)
        self._seen = mark  # As it was before the reading: what was added since shows next time.
        if line is None or line == self._taken:
            return None
        self._taken = line
        return line

    def _mark(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _newest(self, is_over: bool) -> str | None:
        try:
            with open(self._path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - LINE_BYTES_MAX))
                end = file.read(LINE_BYTES_MAX)
        except OSError:  # Between two renames, or not readable yet.
            return None
        whole = (end if is_over else end[: end.rfind(b"\n") + 1]).rstrip()
        line = whole.rpartition(b"\n")[2].strip()
        return line.decode(errors="replace") if line else None
