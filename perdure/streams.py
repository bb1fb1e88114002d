"""Standard streams that hurt nobody.

A log has nobody to tell that it can't be written: where its reader has gone, has stopped or has no
room left, lines are lost and counted, and the process goes on.
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from contextlib import suppress
from typing import Any, TextIO

from perdure.clock import boottime_ms

# What a write waits for a reader to take anything at all. One that made us wait in vain is not
# waited for again before it has taken something.
PATIENCE_MS = 200
_STANDARD = (("stdout", 1), ("stderr", 2))
_MODES = (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)


class LossyWriter(io.RawIOBase):
    """Writes to a file descriptor of this process; never raises, and never waits for long.

    `lost`: the lines that did not get through. `told`: those of them that a log line has told of.
    """

    def __init__(self, fd: int, name: str) -> None:
        super().__init__()
        self.name = name
        self.lost = 0
        self.told = 0
        self.telling = 0  # What the line that is being written tells of.
        self._fd = fd
        self._file: tuple[int, int, int] | None = None
        self._own: int | None = None
        self._is_stalled = False
        self._is_cut = False

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The descriptor that was given."""
        return self._fd

    def isatty(self) -> bool:
        """Whether a terminal shows it."""
        return os.isatty(self._fd)

    def write(self, data: Any, /) -> int:
        """All of `data`, or as much as there is room for; always says all."""
        given = bytes(data)
        # The next line must not be glued to one of which only the beginning got through.
        rest = b"\n" + given if self._is_cut else given
        length = len(rest)
        try:
            target, chunk = self._target()
            while rest:
                # Anew for each piece: a reader that goes on taking gets all of it.
                deadline_ms = boottime_ms() + (0 if self._is_stalled else PATIENCE_MS)
                rest = rest[self._write_some(target, rest[:chunk], deadline_ms) :]
        except OSError:
            # Its reader has gone (EPIPE), or stopped (EAGAIN), its disk is full (ENOSPC), ….
            self.lost += given.count(b"\n") or 1
            self.telling = self.told
            if 0 < len(rest) < length:
                self._is_cut = True
        else:
            self._is_stalled = self._is_cut = False
            self.told = max(self.told, self.telling)
        return len(given)

    def _write_some(self, target: int, data: bytes, deadline_ms: int) -> int:
        poll = select.poll()
        poll.register(target, select.POLLOUT)
        while poll.poll(max(0, deadline_ms - boottime_ms())):
            try:
                written = os.write(target, data)
            except BlockingIOError:
                if boottime_ms() >= deadline_ms:
                    break
                continue  # Another process was faster.
            self._is_stalled = False
            return written
        self._is_stalled = True
        raise BlockingIOError

    def _target(self) -> tuple[int, int]:
        """Where to write, and at most how much at a time. Raises OSError where there is nothing."""
        found = os.fstat(self._fd)
        file = (found.st_dev, found.st_ino, found.st_rdev)
        if file != self._file:
            # The first time; or somebody has redirected the descriptor.
            if self._own is not None:
                os.close(self._own)
            self._own = _own_description(self._fd, found.st_mode)
            self._file = file
        if self._own is not None:
            return self._own, sys.maxsize
        # That much there is room for in whatever a poll says can be written.
        return self._fd, sys.maxsize if stat.S_ISREG(found.st_mode) else select.PIPE_BUF


def _own_description(fd: int, mode: int) -> int | None:
    """The same pipe or terminal opened once more, for us alone and never to block on.

    O_NONBLOCK belongs to the open file, which a shell or other processes share with us: set there
    it would be theirs too. None where it can't be had, or nothing blocks.
    """
    if not (stat.S_ISFIFO(mode) or (stat.S_ISCHR(mode) and os.isatty(fd))):
        return None
    try:
        return os.open(
            f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        )
    except OSError:
        return None


def protect_streams() -> None:
    """Make standard output and standard error of this process harmless: see LossyWriter.

    What prints to them fails no more, nor does the interpreter's end. Where they were closed they
    lead nowhere, so that no other file takes their number. Streams that somebody has put in place
    of the real ones (a test) stay.
    """
    for fd, mode in enumerate(_MODES):
        _fill(fd, mode)
    for name, fd in _STANDARD:
        before: TextIO | None = getattr(sys, name)
        if before is not None and not _leads_to(before, fd):
            continue
        encoding, errors = "utf-8", "backslashreplace"
        if before is not None:
            encoding, errors = before.encoding, before.errors or errors
            with suppress(OSError, ValueError):
                before.flush()
        writer: Any = LossyWriter(fd, f"<{name}>")
        stream = io.TextIOWrapper(writer, encoding=encoding, errors=errors, line_buffering=True)
        setattr(sys, name, stream)


def _leads_to(stream: TextIO, fd: int) -> bool:
    try:
        return stream.fileno() == fd and not isinstance(stream.buffer, LossyWriter)
    except (AttributeError, OSError, ValueError):
        return False


def _fill(fd: int, mode: int) -> None:
    try:
        os.fstat(fd)
    except OSError:
        opened = os.open(os.devnull, mode)
        if opened != fd:
            os.dup2(opened, fd)
            os.close(opened)
        else:
            os.set_inheritable(fd, True)
