"""What may happen to messages between two actors, decided by a seed. Pure: no socket, no clock.

A route is one direction of one link, "sender>receiver" by role: "gateway>history",
"history>gateway". Clients are "client", workers of any number "worker".
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.core.links import CORE_ROLES

# A message that is put out of order waits for one behind it, or this long.
REORDER_MS = 100
DOUBLE_MS = 50
SHORT_DELAY_MS, LONG_DELAY_MS = 50, 3_000

LINKS = (
    ("worker", "gateway"),
    ("worker", "history"),
    ("worker", "scheduler"),
    ("client", "gateway"),
    ("gateway", "history"),
    ("scheduler", "history"),
    ("lease_keeper", "history"),
    ("dlq", "history"),
    ("gateway", "scheduler"),
    ("gateway", "lease_keeper"),
    ("gateway", "dlq"),
    ("root", "worker"),
    *(("root", role) for role in CORE_ROLES),
)
ROUTES = tuple(route for a, b in LINKS for route in (f"{a}>{b}", f"{b}>{a}"))
KINDS = ("drop", "double", "delay", "reorder", "swallow", "cut")


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """How likely each thing happens to one message of a route, in [0, 1]; lengths in ms."""

    drop: float = 0.0
    double: float = 0.0
    delay: float = 0.0
    reorder: float = 0.0
    swallow: float = 0.0  # Of answers only: what was asked is done, and nobody learns of it.
    delay_max_ms: int = SHORT_DELAY_MS


class Cut(msgspec.Struct, frozen=True):
    """Nothing passes on `route` from `from_ms` until `to_ms`, counted from the plan's start."""

    route: str
    from_ms: int
    to_ms: int


class Plan(msgspec.Struct, frozen=True):
    """What happens on which route; nothing on those that are not named."""

    rates: dict[str, Rates] = {}
    cuts: tuple[Cut, ...] = ()


def swarm(seed: int, length_ms: int) -> Plan:
    """A plan in which each route has its own few faults, so that no two seeds test the same mix."""
    dice = random.Random(seed)
    rates = {}
    for route in ROUTES:
        chosen = {kind: dice.random() < 0.5 for kind in KINDS[:-1]}
        rates[route] = Rates(
            drop=dice.uniform(0.01, 0.2) if chosen["drop"] else 0.0,
            double=dice.uniform(0.02, 0.4) if chosen["double"] else 0.0,
            delay=dice.uniform(0.02, 0.3) if chosen["delay"] else 0.0,
            reorder=dice.uniform(0.02, 0.3) if chosen["reorder"] else 0.0,
            swallow=dice.uniform(0.01, 0.2) if chosen["swallow"] else 0.0,
            delay_max_ms=LONG_DELAY_MS if dice.random() < 0.15 else SHORT_DELAY_MS,
        )
    return Plan(rates, tuple(_cuts(dice, length_ms)))


def thorough(seed: int, length_ms: int) -> Plan:
    """A plan in which everything happens on every route, for what a swarm did too little of."""
    dice = random.Random(seed)
    rates = Rates(drop=0.05, double=0.1, delay=0.1, reorder=0.1, swallow=0.3)
    return Plan(dict.fromkeys(ROUTES, rates), tuple(_cuts(dice, length_ms)))


def _cuts(dice: random.Random, length_ms: int) -> Iterator[Cut]:
    """Every second or so a link is cut, one way or both, or flaps for a while."""
    at_ms = dice.randint(500, 1_500)
    while at_ms < length_ms:
        a, b = dice.choice(LINKS)
        routes = dice.choice([(f"{a}>{b}",), (f"{b}>{a}",), (f"{a}>{b}", f"{b}>{a}")])
        if dice.random() < 0.25:
            spans = [(at_ms + each, at_ms + each + 50) for each in range(0, 1_000, 100)]
        else:
            spans = [(at_ms, at_ms + dice.choice([100, 500, 2_500]))]
        for route in routes:
            for from_ms, to_ms in spans:
                yield Cut(route, from_ms, to_ms)
        at_ms += dice.randint(500, 1_500)


class Mangler:
    """Takes each message of every route, and gives them back as they are to go on, if they do.

    `fired` counts what was done, by (route, kind); kind "passed" are those left alone.
    """

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._plan = Plan()
        self._began_ms = 0
        self._cuts: dict[str, list[Cut]] = {}
        self._late: list[tuple[int, int, str, Any]] = []  # (due_ms, number, route, message)
        self._behind: dict[tuple[str, Any], tuple[int, Any]] = {}  # Wait for one behind them.
        self._number = 0
        self.fired: Counter[tuple[str, str]] = Counter()

    def set_plan(self, plan: Plan, now_ms: int) -> None:
        """From now on this happens. What is on its way late stays so."""
        self._plan = plan
        self._began_ms = now_ms
        self._cuts = {}
        for cut in plan.cuts:
            self._cuts.setdefault(cut.route, []).append(cut)

    def take(
        self, route: str, pair: Any, message: Any, now_ms: int, *, is_answer: bool = False
    ) -> list[Any]:
        """What goes on at once, in order, now that `message` has come. `pair` names the two ends:
        only messages of the same two can change places.
        """
        rates = self._plan.rates.get(route)
        kind = self._cut_or(route, now_ms) or self._lot(rates, is_answer)
        self.fired[route, kind] += 1
        now: list[Any] = []
        match kind:
            case "cut" | "drop" | "swallow":
                return now
            case "delay":
                assert rates is not None
                self._later(route, message, now_ms + self._dice.randint(1, rates.delay_max_ms))
                return now
            case "double":
                self._later(route, message, now_ms + self._dice.randint(0, DOUBLE_MS))
            case "reorder" if (route, pair) not in self._behind:
                self._number += 1
                self._behind[route, pair] = (now_ms + REORDER_MS, message)
                return now
        now.append(message)
        waiting = self._behind.pop((route, pair), None)
        if waiting is not None:
            now.append(waiting[1])
        return now

    def _cut_or(self, route: str, now_ms: int) -> str:
        at_ms = now_ms - self._began_ms
        cuts = self._cuts.get(route, ())
        return "cut" if any(cut.from_ms <= at_ms < cut.to_ms for cut in cuts) else ""

    def _lot(self, rates: Rates | None, is_answer: bool) -> str:
        if rates is None:
            return "passed"
        if is_answer and self._dice.random() < rates.swallow:
            return "swallow"
        for kind in ("drop", "double", "delay", "reorder"):
            if self._dice.random() < getattr(rates, kind):
                return kind
        return "passed"

    def _later(self, route: str, message: Any, due_ms: int) -> None:
        self._number += 1
        heapq.heappush(self._late, (due_ms, self._number, route, message))

    def due(self, now_ms: int) -> list[Any]:
        """What was late and goes on now."""
        out = []
        while self._late and self._late[0][0] <= now_ms:
            out.append(heapq.heappop(self._late)[3])
        for key in [key for key, (due_ms, _) in self._behind.items() if due_ms <= now_ms]:
            out.append(self._behind.pop(key)[1])
        return out

    def next_ms(self) -> int | None:
        """When `due` has something."""
        times = [due_ms for due_ms, _ in self._behind.values()]
        if self._late:
            times.append(self._late[0][0])
        return min(times, default=None)
