"""Where the attempts of a timeline are drawn: a lane a process, and rows within a lane. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush

import msgspec

from chaos.drill_kit.timeline import NODE, Attempt, Timeline

ENDINGS = ("returned", "failed", "killed", "open")
LAST = ("worker-", "quarantine-", "pid ")
CORE = ("history", "lease_keeper", "scheduler", "dlq", "gateway")


class Bar(msgspec.Struct, frozen=True):
    """An attempt and the row of its lane that it stands in, from 0."""

    attempt: Attempt
    row: int


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One process over all of its lives: its attempts, and how many rows they need."""

    name: str
    bars: tuple[Bar, ...] = ()
    rows: int = 0


def lanes(timeline: Timeline) -> list[Lane]:
    """A lane for everything that was hurt or worked: the core's actors first, workers in order."""
    by_lane: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in timeline.attempts:
        by_lane[attempt.lane].append(attempt)
    names = {fault.target for fault in timeline.faults if fault.target != NODE} | by_lane.keys()
    return [_lane(name, by_lane[name], timeline.ended_ms) for name in sorted(names, key=_order)]


def _order(name: str) -> tuple[int, int, str, int]:
    if name in CORE:
        return (0, CORE.index(name), "", 0)
    word = name.rstrip("0123456789")
    number = int(name[len(word) :] or 0)
    return (LAST.index(word) + 2 if word in LAST else 1, 0, word, number)


def _lane(name: str, attempts: Sequence[Attempt], ended_ms: int) -> Lane:
    """Each attempt goes to the lowest row that is free when it begins."""
    ordered = sorted(attempts, key=lambda it: it.began_ms)
    busy: list[tuple[int, int]] = []  # (free again at, row), by the instant
    free: list[int] = []
    bars, rows = [], 0
    for attempt in ordered:
        end_ms = ended_ms if attempt.ended_ms is None else attempt.ended_ms
        while busy and busy[0][0] <= attempt.began_ms:
            heappush(free, heappop(busy)[1])
        if free:
            row = heappop(free)
        else:
            row, rows = rows, rows + 1
        heappush(busy, (end_ms, row))
        bars.append(Bar(attempt, row))
    return Lane(name=name, bars=tuple(bars), rows=rows)


def running(
    attempts: Sequence[Attempt], *, began_ms: int, ended_ms: int, bins: int
) -> list[dict[str, int]]:
    """For each of `bins` equal parts of the time, how many attempts ran at its middle, by ending:
    what is drawn where there are too many attempts to draw each.
    """
    width_ms = (ended_ms - began_ms) / bins
    counts = [dict.fromkeys(ENDINGS, 0) for _ in range(bins)]
    for attempt in attempts:
        end_ms = ended_ms if attempt.ended_ms is None else attempt.ended_ms
        first = _bin(attempt.began_ms - began_ms, width_ms, bins)
        last = _bin(end_ms - began_ms, width_ms, bins)
        for number in range(first, last):
            counts[number][attempt.ending] += 1
    return counts


def _bin(at_ms: float, width_ms: float, bins: int) -> int:
    """The first part whose middle is not before `at_ms`."""
    return max(0, min(bins, -int(-(at_ms / width_ms - 0.5) // 1)))


def thinned(points: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """At most about `most` of the points, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    step = len(points) / most
    kept = [points[int(number * step)] for number in range(most)]
    return [*kept, points[-1]]
