"""A wall clock that jumps, for every Python process that has this directory in its PYTHONPATH.

Loaded by the interpreter itself at its start. `PERDURE_TEST_CLOCK` names a directory with up to
three kinds of files, which may change at any time: `all` and `<pid>`, by how many milliseconds the
wall clock is off, for all processes or in place of that for one; and `boot`, a name of the boot in
place of the machine's. What lengths are measured with (CLOCK_BOOTTIME, CLOCK_MONOTONIC) stays as it
is, as it does when somebody sets a machine's clock.

Like the kernel's, a jump also moves the instant of the boot in /proc/stat, from which start times
of processes are computed.
"""

from __future__ import annotations

import builtins
import io
import os
import time
from typing import Any

_directory = os.environ.get("PERDURE_TEST_CLOCK", "")
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_STAT = "/proc/stat"

_time, _time_ns, _open = time.time, time.time_ns, builtins.open


def _read(name: str) -> str:
    try:
        fd = os.open(f"{_directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 100).decode("ascii").strip()
    finally:
        os.close(fd)


def _shift_ms() -> int:
    return int(_read(str(os.getpid())) or _read("all") or 0)


def _shifted_open(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
    if file == _BOOT_ID and (name := _read("boot")):
        return io.BytesIO(name.encode()) if "b" in mode else io.StringIO(name)
    if file == _STAT and (shift_s := _shift_ms() // 1_000):
        with _open(file, "rb") as real:
            lines = real.read().split(b"\n")
        for number, line in enumerate(lines):
            if line.startswith(b"btime "):
                lines[number] = b"btime %d" % (int(line.split()[1]) + shift_s)
        stat = b"\n".join(lines)
        return io.BytesIO(stat) if "b" in mode else io.StringIO(stat.decode())
    return _open(file, mode, *args, **options)


if _directory:
    time.time = lambda: _time() + _shift_ms() / 1_000
    time.time_ns = lambda: _time_ns() + _shift_ms() * 1_000_000
    builtins.open = _shifted_open
