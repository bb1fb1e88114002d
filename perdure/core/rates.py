"""How many attempts may begin: so many a second, and retries as a share of first attempts.

No clock: every call says what time it is, in whole milliseconds.
"""

from __future__ import annotations

import math

from perdure.core.rules import RetryBudget

# A bucket holds this part of a second's starts, and one at least.
BURST_S = 0.1
SLICES = 10


class TokenBucket:
    """`rate` starts a second, never more than max(1, rate / 10) at once. It begins empty."""

    __slots__ = ("_at_ms", "_burst", "_level", "_rate_ms")

    def __init__(self, rate: float, now_ms: int) -> None:
        self._rate_ms = rate / 1_000
        self._burst = max(1.0, rate * BURST_S)
        self._level = 0.0
        self._at_ms = now_ms

    def ready_ms(self, now_ms: int) -> int:
        """When the next start is possible; `now_ms` or before: at once."""
        self._fill(now_ms)
        missing = 1.0 - self._level
        return now_ms if missing <= 0 else now_ms + math.ceil(missing / self._rate_ms)

    def take(self, now_ms: int) -> None:
        """One has started."""
        self._fill(now_ms)
        self._level -= 1.0

    def give_back(self) -> None:
        """It has not after all."""
        self._level = min(self._burst, self._level + 1.0)

    def _fill(self, now_ms: int) -> None:
        passed_ms = now_ms - self._at_ms
        if passed_ms <= 0:
            return
        self._at_ms = now_ms
        # What many small steps lose in the last binary digit must not cost a whole millisecond.
        level = round(self._level + passed_ms * self._rate_ms, 9)
        self._level = min(self._burst, level)


class RetryShare:
    """What a retry budget allows, over a window that moves on by a tenth of its length."""

    __slots__ = ("_first", "_firsts", "_retries", "_rule", "_slice_ms", "firsts", "retries")

    def __init__(self, rule: RetryBudget) -> None:
        self._rule = rule
        self._slice_ms = max(1, rule.window_ms // SLICES)
        self._first = 0  # The oldest slice that counts.
        self._firsts: dict[int, int] = {}
        self._retries: dict[int, int] = {}
        self.firsts = 0
        self.retries = 0

    @property
    def allowed(self) -> int:
        """How many retries may begin in the window."""
        return max(self._rule.minimum, int(self._rule.ratio * self.firsts + 1e-9))

    def ready_ms(self, now_ms: int) -> int:
        """When a retry may begin, if no first attempt begins meanwhile."""
        self._move(now_ms)
        if self.retries < self.allowed:
            return now_ms
        # Counts fall with the oldest slices; what the firsts among them allowed falls as well.
        return (min(self._retries, default=self._first) + SLICES) * self._slice_ms

    def first(self, now_ms: int) -> None:
        """A first attempt has begun."""
        at = self._move(now_ms)
        self._firsts[at] = self._firsts.get(at, 0) + 1
        self.firsts += 1

    def retry(self, now_ms: int) -> None:
        """A retry has begun."""
        at = self._move(now_ms)
        self._retries[at] = self._retries.get(at, 0) + 1
        self.retries += 1

    def give_back(self, retry_ms: int, now_ms: int) -> None:
        """That of `retry_ms` has not after all; nothing, where it counts no more by now."""
        self._move(now_ms)
        at = retry_ms // self._slice_ms
        if at not in self._retries:
            return
        self._retries[at] -= 1
        self.retries -= 1
        if not self._retries[at]:
            del self._retries[at]

    def _move(self, now_ms: int) -> int:
        at = now_ms // self._slice_ms
        oldest = at - SLICES + 1
        if oldest > self._first:
            self._first = oldest
            for slices in (self._firsts, self._retries):
                for old in [one for one in slices if one < oldest]:
                    del slices[old]
            self.firsts = sum(self._firsts.values())
            self.retries = sum(self._retries.values())
        return at
