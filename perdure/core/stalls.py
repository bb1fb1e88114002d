"""How long a process stood still though there was something to do. Pure: time comes in.

What counts is the time from the end of one drain to the start of the next, less the waiting for
something to come, less `FREE_MS`. A wait that lasted longer than it was to last is no waiting: the
process was stopped, or its machine slept. Whoever is silent meanwhile may have spoken in vain.
"""

from __future__ import annotations

# So long a turn may take, and nobody is the worse for it.
FREE_MS = 250


class Stalls:
    """`sum_ms` grows by each stall. Call `waits` before each wait, `wakes` after it."""

    __slots__ = ("_until_ms", "_waits_ms", "_woke_ms", "sum_ms")

    def __init__(self, sum_ms: int = 0) -> None:
        self.sum_ms = sum_ms
        self._woke_ms: int | None = None
        self._waits_ms: int | None = None
        self._until_ms: int | None = None

    def waits(self, now_ms: int, at_most_ms: int | None) -> None:
        """The work of a turn is done; the wait for the next lasts at most so long (None: any)."""
        self._waits_ms = now_ms
        self._until_ms = None if at_most_ms is None else now_ms + at_most_ms

    def wakes(self, now_ms: int) -> int:
        """There is something to do, or the wait is over: by how much the sum has grown by now."""
        waits_ms, woke_ms = self._waits_ms, self._woke_ms
        self._waits_ms, self._woke_ms = None, now_ms
        if waits_ms is None:
            return 0  # Nobody said when the work ended: nothing is known of it.
        stood_ms = 0 if woke_ms is None else waits_ms - woke_ms
        if self._until_ms is not None and now_ms > self._until_ms:
            stood_ms += now_ms - self._until_ms
        grown_ms = max(0, stood_ms - FREE_MS)
        self.sum_ms += grown_ms
        return grown_ms
