"""Bugs of what holds work back: rates, concurrency, circuit breakers, retry budgets."""

from __future__ import annotations

from typing import Any

from chaos.sim.bugs.patches import Patches
from perdure.core.admission import Admission
from perdure.core.breakers import BreakerState
from perdure.core.rates import RetryShare, TokenBucket
from perdure.core.rules import Rules


def rate_saved_up(patches: Patches) -> None:
    """What a rate allowed while nobody wanted it may be had all at once."""

    def fill(self: TokenBucket, now_ms: int) -> None:
        passed_ms = max(0, now_ms - self._at_ms)
        self._at_ms += passed_ms
        self._level = round(self._level + passed_ms * self._rate_ms, 9)

    patches.set(TokenBucket, "_fill", fill)


def promised_not_counted(patches: Patches) -> None:
    """A limit counts what runs, and not what has just been asked for."""

    def running(self: Admission, of: str, name: str) -> int:
        at = 0 if of == "queue" else 1
        return sum(n for key, n in self._queues.index.count.items() if key[at] == name)

    patches.set(Admission, "_running", running)


def leased_past_the_limit(patches: Patches) -> None:
    """A worker that asks for a lease in its report gets it, whatever is limited."""
    patches.nothing(Rules, "limits_starts", False)


def probes_unlimited(patches: Patches) -> None:
    """An open breaker lets everything through once its rest is over, not one after the other."""

    def wrap(held: Any) -> Any:
        def half_open(self: Admission, kind: str, now_ms: int) -> Any:
            breaker = self.breakers.get(kind)
            if breaker is not None and breaker.state(now_ms) is BreakerState.HALF_OPEN:
                return None
            return held(self, kind, now_ms)

        return half_open

    patches.around(Admission, "_breaker", wrap)


def retries_not_counted(patches: Patches) -> None:
    """Retries have a share, and nobody adds up what they had of it."""
    patches.nothing(RetryShare, "retry")
