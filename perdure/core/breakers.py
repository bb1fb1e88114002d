"""A circuit breaker of one activity type: after many failures nothing begins for a while, then one
attempt at a time, until it is known that they succeed again. No clock.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum

from perdure.core.rules import BreakerRule

Probe = tuple[str, str]  # Workflow id, activity id.


class BreakerState(StrEnum):
    """As explain names it."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """Closed: all goes. Open: nothing until `until_ms`. Half-open: one probe at a time.

    What began before it opened says nothing once it has.
    """

    __slots__ = ("_failed_ms", "_is_open", "_passed", "probe", "rule", "until_ms")

    def __init__(self, rule: BreakerRule) -> None:
        self.rule = rule
        self.probe: Probe | None = None
        self.until_ms = 0
        self._is_open = False
        self._passed = 0  # Probes in a row that succeeded.
        self._failed_ms: deque[int] = deque(maxlen=rule.failures)

    def state(self, now_ms: int) -> BreakerState:
        """What it is at this moment."""
        if not self._is_open:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now_ms < self.until_ms else BreakerState.HALF_OPEN

    def begin_half_open(self) -> None:
        """Nothing is known but that there were many failures lately."""
        self._is_open = True
        self.until_ms = 0

    def began(self, probe: Probe, now_ms: int) -> None:
        """An attempt is on its way."""
        if self._is_open and self.probe is None and now_ms >= self.until_ms:
            self.probe = probe

    def ended(self, which: Probe, now_ms: int, *, failed: bool | None) -> None:
        """An attempt is over; None: it says nothing about what the type depends on."""
        if self._is_open:
            if which == self.probe:
                self.probe = None
                self._probed(now_ms, failed)
            return
        if not failed:
            return
        failures = self._failed_ms
        failures.append(now_ms)
        if len(failures) == self.rule.failures and failures[0] > now_ms - self.rule.window_ms:
            self._open(now_ms)

    def _probed(self, now_ms: int, failed: bool | None) -> None:
        if failed is None:
            return
        if failed:
            self._open(now_ms)
            return
        self._passed += 1
        if self._passed >= self.rule.probes:
            self._is_open = False
            self._failed_ms.clear()

    def _open(self, now_ms: int) -> None:
        self._is_open = True
        self._passed = 0
        self.until_ms = now_ms + self.rule.open_ms
