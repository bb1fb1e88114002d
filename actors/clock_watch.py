"""Whether the machine's clock has left history's own, and by how much. Pure.

History's clock never goes back, and within one boot of the machine it follows nobody who sets the
wall clock: nothing ends early or lasts for ever because of that. But a person who reads "at 3:00"
means the wall's, so it is said where the two part.
"""

from __future__ import annotations

OFF_MS = 60_000


class ClockWatch:
    """Tells what is news: that they have parted, by how much more or less, that they agree."""

    __slots__ = ("_said_ms",)

    def __init__(self) -> None:
        self._said_ms = 0

    def look(self, now_ms: int, wall_ms: int) -> int | None:
        """How far the wall clock is ahead of `now_ms` (negative: behind); None: that is known."""
        ahead_ms = wall_ms - now_ms
        if abs(ahead_ms) < OFF_MS:
            ahead_ms = 0
        if ahead_ms == self._said_ms or (ahead_ms and abs(ahead_ms - self._said_ms) < OFF_MS):
            return None
        self._said_ms = ahead_ms
        return ahead_ms
