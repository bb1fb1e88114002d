"""Telling a process from another one that has its PID later, or has it on another machine.

Its start in seconds since the epoch would not do: the system computes that from the instant of the
boot, and so it changes whenever somebody sets the wall clock.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from perdure.clock import boot_id

# /proc/<pid>/stat begins with the PID and the name in parentheses, which may hold anything.
_START_AFTER_NAME = 19


def birth_of(pid: int) -> float:
    """A whole number that this process has for all of its life, and no other; 0 where there is no
    such process.

    It goes over the wire as a number of 53 bits: compare it with ==.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    return birth(boot_id(), stat)


def birth(boot: str, stat: str) -> float:
    """The same, from the name of the machine's boot and what /proc tells of the process."""
    started = stat.rpartition(")")[2].split()[_START_AFTER_NAME]
    digest = hashlib.blake2b(f"{boot}/{started}".encode(), digest_size=8).digest()
    return float(int.from_bytes(digest, "big") >> 11)
