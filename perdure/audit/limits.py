"""Retry budget and circuit breaker as they run: pure state machines on simulated time."""

from __future__ import annotations

from perdure.audit.chain import Breaker, Budget

WINDOW_SLOTS = 10
SLOT_MS = 1_000.0


class Window:
    """Two counts over the last ten seconds, kept second by second."""

    __slots__ = ("_first", "_second", "_slot", "first", "second")

    def __init__(self) -> None:
        self._first = [0] * WINDOW_SLOTS
        self._second = [0] * WINDOW_SLOTS
        self._slot = 0
        self.first = self.second = 0

    def at(self, now_ms: float) -> None:
        """Forgets what is older than the window."""
        slot = int(now_ms / SLOT_MS)
        for each in range(self._slot + 1, min(slot, self._slot + WINDOW_SLOTS) + 1):
            place = each % WINDOW_SLOTS
            self.first -= self._first[place]
            self.second -= self._second[place]
            self._first[place] = self._second[place] = 0
        self._slot = max(slot, self._slot)

    def add(self, first: int, second: int) -> None:
        """Counts in the newest second."""
        place = self._slot % WINDOW_SLOTS
        self._first[place] += first
        self._second[place] += second
        self.first += first
        self.second += second

    def clear(self) -> None:
        """Forgets everything."""
        self._first = [0] * WINDOW_SLOTS
        self._second = [0] * WINDOW_SLOTS
        self.first = self.second = 0


class RunningBudget:
    """Allows retries up to a share of the requests of the last ten seconds, and a few always.

    Requests count when they are sent, not when they are answered.
    """

    __slots__ = ("_always", "_ratio", "_window")

    def __init__(self, budget: Budget) -> None:
        self._ratio = budget.ratio
        self._always = budget.min_per_s * WINDOW_SLOTS * SLOT_MS / 1_000
        self._window = Window()

    def sent(self, now_ms: float) -> None:
        """A request, no retry, is sent."""
        self._window.at(now_ms)
        self._window.add(1, 0)

    def allows(self, now_ms: float) -> bool:
        """Whether one more retry may be made; it counts as made then."""
        self._window.at(now_ms)
        if self._window.second + 1 > self._ratio * self._window.first + self._always:
            return False
        self._window.add(0, 1)
        return True


class RunningBreaker:
    """Closed, open, or half open; first count of its window: calls, second: failures."""

    __slots__ = ("_breaker", "_open_until_ms", "_probes", "_successes", "_window", "opened")

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self._window = Window()
        self._open_until_ms: float | None = None
        self._probes = self._successes = 0
        self.opened = 0

    def allows(self, now_ms: float) -> bool:
        """Whether a call may be made; of probes there are only so many."""
        if self._open_until_ms is None:
            return True
        if now_ms < self._open_until_ms or self._probes >= self._breaker.half_open_calls:
            return False
        self._probes += 1
        return True

    def record(self, now_ms: float, is_success: bool) -> None:
        """A call that was allowed has ended."""
        if self._open_until_ms is not None:
            if now_ms >= self._open_until_ms and self._probes:
                self._probed(now_ms, is_success)
            return
        self._window.at(now_ms)
        self._window.add(1, 0 if is_success else 1)
        calls, failures = self._window.first, self._window.second
        if calls >= self._breaker.min_calls and failures >= self._breaker.failure_ratio * calls:
            self._open(now_ms)

    def _probed(self, now_ms: float, is_success: bool) -> None:
        if not is_success:
            self._open(now_ms)
            return
        self._successes += 1
        if self._successes >= self._breaker.half_open_calls:
            self._open_until_ms = None
            self._window.clear()

    def _open(self, now_ms: float) -> None:
        self._open_until_ms = now_ms + self._breaker.open_ms
        self._probes = self._successes = 0
        self.opened += 1
