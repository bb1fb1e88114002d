"""Calls that are due later, in the order of their instants, then of their planning."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from perdure.clock import boottime_ms


class Timers:
    """The main thread's own timers; it waits `timeout_ms()` and then calls `run()`."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Plan a call."""
        self._count += 1
        heapq.heappush(self._heap, (boottime_ms() + delay_ms, self._count, call))

    def timeout_ms(self) -> int | None:
        """How long there is nothing to do; None: for ever."""
        return max(0, self._heap[0][0] - boottime_ms()) if self._heap else None

    def run(self) -> None:
        """Make the calls that are due by now."""
        now_ms = boottime_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            heapq.heappop(self._heap)[2]()
