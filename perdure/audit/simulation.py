"""A chain under load, event by event: calls at the innermost dependency before, during and after an
outage.

One heap of events on simulated time; the seed decides everything, so the same seed gives the same
numbers. A try whose caller has given up goes on: nothing tells it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.audit.chain import Chain, Layer
from perdure.audit.delays import delays, nominal_ms
from perdure.audit.limits import RunningBreaker, RunningBudget
from perdure.errors import InvalidArgument

BUCKET_MS = 100.0
CALLS_MAX = 5_000_000


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How many clients send how much for how long, and when the innermost dependency is down.

    `every_layer_fails`: every layer's tries fail with its failure rate, not the innermost's only.
    `hangs`: during the outage a try is not refused but never answered. `together`: when the outage
    begins every client sends one request more, all at the same instant.
    """

    clients: int = 1_000
    requests_per_s: float = 0.1
    duration_ms: float = 600_000.0
    outage_start_ms: float = 120_000.0
    outage_ms: float = 60_000.0
    latency_ms: float = 20.0
    every_layer_fails: bool = False
    hangs: bool = False
    together: bool = False


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one run; `calls` at the innermost dependency per 100 ms."""

    calls: tuple[int, ...]
    requests: int
    failed: int
    calls_per_request: float
    standard_error: float
    breaker_opened: int

    def per_s(self, start_ms: float, end_ms: float) -> float:
        """Mean calls per second between two instants."""
        part = self.calls[int(start_ms / BUCKET_MS) : max(1, int(end_ms / BUCKET_MS))]
        return sum(part) * 1_000 / (BUCKET_MS * max(1, len(part)))

    def peak_per_s(self, start_ms: float, end_ms: float) -> float:
        """Calls in the fullest 100 ms between two instants, as calls per second."""
        part = self.calls[int(start_ms / BUCKET_MS) : max(1, int(end_ms / BUCKET_MS))]
        return max(part, default=0) * 1_000 / BUCKET_MS


def simulate(chain: Chain, load: Load, seed: int) -> Measured:
    """Runs `chain` under `load`. InvalidArgument if that takes more than CALLS_MAX calls."""
    return _World(chain, load, seed).run()


class _Call:
    """One call of one layer, and where its caller's try stands."""

    __slots__ = (
        "attempt",
        "caller",
        "caller_attempt",
        "done",
        "layer",
        "previous",
        "root",
        "start",
        "waiting",
    )

    def __init__(
        self, layer: int, caller: _Call | None, caller_attempt: int, root: int, start: float
    ) -> None:
        self.layer = layer
        self.caller = caller
        self.caller_attempt = caller_attempt
        self.root = root
        self.start = start
        self.attempt = 0
        self.previous = 0.0
        self.done = False
        self.waiting = False


Event = tuple[float, int, Callable[..., None], Any, Any]


class _World:
    def __init__(self, chain: Chain, load: Load, seed: int) -> None:
        self.layers = chain.layers
        self.load = load
        self.last = len(chain.layers) - 1
        own = [chain.rate(layer) for layer in chain.layers]
        self.rates = own if load.every_layer_fails else [0.0] * self.last + own[-1:]
        self.waits = [_Waits(layer) for layer in chain.layers]
        self.budgets = [
            RunningBudget(layer.retry_budget) if layer.retry_budget else None
            for layer in chain.layers
        ]
        self.breakers = [
            RunningBreaker(layer.circuit_breaker) if layer.circuit_breaker else None
            for layer in chain.layers
        ]
        self.dice = random.Random(f"{seed}/world")
        self.arrivals = random.Random(f"{seed}/arrivals")
        self.heap: list[Event] = []
        self.serial = 0
        self.now = 0.0
        self.buckets = [0] * (int(load.duration_ms / BUCKET_MS) + 1)
        self.made: list[int] = []
        self.total = self.failed = 0

    def run(self) -> Measured:
        self._arrive_next()
        if self.load.together:
            for _ in range(self.load.clients):
                self._at(self.load.outage_start_ms, self._request, None)
        heap, end = self.heap, self.load.duration_ms
        while heap:
            self.now, _, act, first, second = heapq.heappop(heap)
            if self.now > end:
                break
            act(first, second)
            if self.total > CALLS_MAX:
                raise InvalidArgument(
                    f"these are more than {CALLS_MAX} calls: simulate fewer clients, a lower rate "
                    "or a shorter outage"
                )
        return self._measured()

    def _at(self, at: float, act: Callable[..., None], first: Any, second: Any = None) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (at, self.serial, act, first, second))

    # --- requests

    def _arrive_next(self) -> None:
        rate_per_ms = self.load.clients * self.load.requests_per_s / 1_000
        if rate_per_ms > 0:
            self._at(self.now + self.arrivals.expovariate(rate_per_ms), self._arrive, None)

    def _arrive(self, _first: Any, _second: Any) -> None:
        self._arrive_next()
        self._request(None, None)

    def _request(self, _first: Any, _second: Any) -> None:
        self.made.append(0)
        self._call(0, None, 0, len(self.made) - 1)

    def _call(self, layer: int, caller: _Call | None, caller_attempt: int, root: int) -> None:
        budget = self.budgets[layer]
        if budget is not None:
            budget.sent(self.now)
        self._try(_Call(layer, caller, caller_attempt, root, self.now), None)

    # --- tries

    def _try(self, call: _Call, _second: Any) -> None:
        breaker = self.breakers[call.layer]
        if breaker is not None and not breaker.allows(self.now):
            self._end(call, False)
            return
        call.waiting = False
        call.attempt += 1
        layer = self.layers[call.layer]
        left = None if layer.deadline_ms is None else call.start + layer.deadline_ms - self.now
        limit = layer.per_try_timeout_ms
        if limit is None or (left is not None and left < limit):
            limit = left
        if call.layer == self.last:
            self._ask_the_dependency(call, limit)
            return
        if limit is not None:
            self._at(self.now + limit, self._timed_out, call, call.attempt)
        self._call(call.layer + 1, call, call.attempt, call.root)

    def _ask_the_dependency(self, call: _Call, limit: float | None) -> None:
        load = self.load
        self.total += 1
        self.made[call.root] += 1
        self.buckets[int(self.now / BUCKET_MS)] += 1
        is_down = load.outage_start_ms <= self.now < load.outage_start_ms + load.outage_ms
        lasts = load.latency_ms
        if is_down and load.hangs:
            if limit is None:
                return  # It hangs for ever, and so does its caller.
            lasts = limit
        is_success = not is_down and self.dice.random() >= self.rates[self.last]
        if limit is not None and lasts >= limit:
            self._at(self.now + limit, self._failed, call, call.attempt)
        elif is_success:
            self._at(self.now + lasts, self._succeeded, call, call.attempt)
        else:
            self._at(self.now + lasts, self._failed, call, call.attempt)

    def _is_over(self, call: _Call, attempt: int) -> bool:
        """Whether nobody waits for this try any more."""
        return call.done or call.waiting or call.attempt != attempt

    def _succeeded(self, call: _Call, attempt: int) -> None:
        if self._is_over(call, attempt):
            return
        if call.layer != self.last and self.dice.random() < self.rates[call.layer]:
            self._failed(call, attempt)
            return
        breaker = self.breakers[call.layer]
        if breaker is not None:
            breaker.record(self.now, True)
        self._end(call, True)

    def _timed_out(self, call: _Call, attempt: int) -> None:
        self._failed(call, attempt)

    def _failed(self, call: _Call, attempt: int) -> None:
        if self._is_over(call, attempt):
            return
        breaker, budget = self.breakers[call.layer], self.budgets[call.layer]
        if breaker is not None:
            breaker.record(self.now, False)
        layer = self.layers[call.layer]
        if call.attempt >= layer.attempts:
            self._end(call, False)
            return
        wait = self.waits[call.layer].draw(call, self.dice)
        is_late = layer.deadline_ms is not None and (
            self.now + wait >= call.start + layer.deadline_ms
        )
        if is_late or (budget is not None and not budget.allows(self.now)):
            self._end(call, False)
            return
        call.waiting = True
        self._at(self.now + wait, self._try, call)

    def _end(self, call: _Call, is_success: bool) -> None:
        call.done = True
        caller = call.caller
        if caller is None:
            self.failed += not is_success
        elif is_success:
            self._succeeded(caller, call.caller_attempt)
        else:
            self._failed(caller, call.caller_attempt)

    def _measured(self) -> Measured:
        count = len(self.made)
        mean = sum(self.made) / count if count else 0.0
        spread = sum((each - mean) ** 2 for each in self.made) / max(1, count - 1)
        return Measured(
            calls=tuple(self.buckets[: int(self.load.duration_ms / BUCKET_MS)]),
            requests=count,
            failed=self.failed,
            calls_per_request=mean,
            standard_error=(spread / count) ** 0.5 if count else 0.0,
            breaker_opened=sum(each.opened for each in self.breakers if each is not None),
        )


class _Waits:
    """Draws the wait before each retry of one layer."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._ranges = delays(layer)
        self._cap = float("inf") if layer.max_delay_ms is None else layer.max_delay_ms

    def draw(self, call: _Call, dice: random.Random) -> float:
        """Milliseconds before the retry that follows the try that just failed."""
        least, _, most = self._ranges[call.attempt - 1]
        if least == most:
            return most
        if self._layer.jitter == "decorrelated":
            previous = call.previous or self._layer.base_delay_ms
            call.previous = min(self._cap, dice.uniform(self._layer.base_delay_ms, 3 * previous))
            return call.previous
        if self._layer.jitter == "additive":
            drawn = nominal_ms(self._layer, call.attempt) + dice.random() * self._layer.jitter_ms
            return max(self._layer.min_delay_ms, min(self._cap, drawn))
        return least + dice.random() * (most - least)
