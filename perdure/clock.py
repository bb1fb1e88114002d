"""Where a process of ours reads a clock: boot time for lengths, wall time once per boot."""

from __future__ import annotations

import time


def boottime_ms() -> int:
    """Milliseconds since the machine booted, suspend included. Never jumps, never goes back."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def wall_ms() -> int:
    """Milliseconds since the Unix epoch by the wall clock, which may jump."""
    return time.time_ns() // 1_000_000


def boot_id() -> str:
    """A name of this boot of the machine; empty where the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
