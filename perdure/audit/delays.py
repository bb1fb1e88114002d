"""How long a layer waits before each retry: least, expected, most. Pure arithmetic.

A number that leaves the floats is held at their largest: nothing overflows.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

from perdure.audit.chain import Layer

LARGEST = sys.float_info.max

# Points per factor of 3 of the grid on which a capped decorrelated jitter is computed; a cap
# that is astronomically far thins it out to so many points in all.
_POINTS_PER_FACTOR = 96
_POINTS_MAX = 1_600
_SETTLED = 1e-8

# A cap this many times the base (a year for a millisecond is 3e10) is taken as out of reach of the
# mean's growth, and only clips it.
_CAP_IN_REACH = 1e18


class Delay(NamedTuple):
    """Milliseconds before one retry."""

    least: float
    expected: float
    most: float


def bounded(value: float) -> float:
    """`value`, at most the largest float."""
    return min(value, LARGEST)


def total(values: list[float]) -> float:
    """The sum of these, none of which is negative; at most the largest float."""
    try:
        return bounded(math.fsum(values))
    except OverflowError:
        return LARGEST


def nominal_ms(layer: Layer, retry: int) -> float:
    """d(k) before jitter and cap, for retry k (from 1)."""
    if layer.steps_ms:
        return layer.steps_ms[min(retry, len(layer.steps_ms)) - 1]
    grown = layer.base_delay_ms
    if grown and layer.multiplier != 1:
        try:
            grown = bounded(grown * layer.multiplier ** (retry - 1))
        except OverflowError:
            grown = LARGEST
    return bounded(grown + layer.increment_ms * (retry - 1))


def delays(layer: Layer) -> list[Delay]:
    """The delay before each retry of `layer`, in order; empty for one attempt."""
    retries = layer.attempts - 1
    if layer.jitter == "decorrelated":
        found = _decorrelated(layer, retries)
    else:
        found = [_delay(layer, retry) for retry in range(1, retries + 1)]
    if layer.first_retry_immediate and found:
        found[0] = Delay(0.0, 0.0, 0.0)
    return found


def _delay(layer: Layer, retry: int) -> Delay:
    cap = math.inf if layer.max_delay_ms is None else layer.max_delay_ms
    raw = nominal_ms(layer, retry)
    most = min(cap, raw)
    floor = layer.min_delay_ms
    match layer.jitter:
        case "full":
            # A floor above the window makes the delay the floor.
            most = max(floor, most)
            return Delay(floor, floor + (most - floor) / 2, most)
        case "equal":
            return Delay(*(max(floor, share * most) for share in (0.5, 0.75, 1.0)))
        case "symmetric":
            # Applied to the capped delay, as gRPC does: it may exceed the cap.
            spread = layer.jitter_spread
            return Delay(most * (1 - spread), most, bounded(most * (1 + spread)))
        case "additive":
            return _additive(raw, layer.jitter_ms, cap, floor)
        case _:
            most = max(floor, most)
            return Delay(most, most, most)


def _additive(raw: float, jitter_ms: float, cap: float, floor: float) -> Delay:
    """max(floor, min(cap, raw + U(0, jitter_ms)))."""
    least, most = (max(floor, min(cap, bounded(raw + add))) for add in (0.0, jitter_ms))
    room = min(max(cap - raw, 0.0), jitter_ms)
    if not room or floor > raw:
        return Delay(least, (least + most) / 2, most)
    # Uniform up to the cap, and all that is drawn above it is the cap.
    share = room / jitter_ms
    return Delay(least, share * (raw + room / 2) + (1 - share) * most, most)


# --- decorrelated ------------------------------------------------------------


def _decorrelated(layer: Layer, retries: int) -> list[Delay]:
    """s(k) = min(cap, U(base, 3 s(k-1))), s(0) = base."""
    base = layer.base_delay_ms
    cap = math.inf if layer.max_delay_ms is None else layer.max_delay_ms
    if base == 0 or base >= cap:
        fixed = min(cap, base)
        return [Delay(fixed, fixed, fixed)] * retries
    means = _decorrelated_means(cap / base, retries)
    most = base
    found = []
    for mean in means:
        most = min(cap, bounded(most * 3))
        found.append(Delay(base, min(most, bounded(mean * base)), most))
    return found


def _decorrelated_means(cap: float, retries: int) -> list[float]:
    """E[s(k)] for k = 1 … retries, with base 1 and `cap` > 1."""
    means: list[float] = []
    mean, reach = 1.0, 1.0
    while len(means) < retries and (reach := reach * 3) <= cap and reach < LARGEST:
        mean = (1 + 3 * mean) / 2  # The cap is out of reach: exact.
        means.append(mean)
    missing = retries - len(means)
    if missing and cap < _CAP_IN_REACH:
        return means + _capped_means(cap, retries)[len(means) :]
    for _ in range(missing):
        mean = min(cap, bounded((1 + 3 * mean) / 2))
        means.append(mean)
    return means


def _capped_means(cap: float, retries: int) -> list[float]:
    """E[s(k)] by quadrature: h_k(s), the mean of s(k) that starts from s, is the mean of
    h_{k-1}(min(cap, U(1, 3 s))), computed on a grid and read off at s = 1.

    The grid is geometric and anchored at the cap, so that 3 s of a point is a point and the kink
    at cap / 3 falls on one. h is close to a straight line below the cap, where the trapezoidal
    rule is exact.
    """
    factors = math.log(cap, 3)
    per_factor = max(4, min(_POINTS_PER_FACTOR, int(_POINTS_MAX / factors)))
    step = 3 ** (-1 / per_factor)
    count = math.floor(factors * per_factor)
    points = [cap * step**index for index in range(count, -1, -1)]
    if points[0] > 1:
        points.insert(0, 1.0)
    points[0], points[-1] = 1.0, cap
    last = len(points) - 1
    widths = [0.0, *(points[i] - points[i - 1] for i in range(1, last + 1))]
    # 3 s of the last `per_factor` points is at or beyond the cap.
    targets = [min(last, index + per_factor) for index in range(last + 1)]
    values = points[:]  # h_0(s) = s.
    means: list[float] = []
    for _ in range(retries):
        areas = [widths[i] * (values[i - 1] + values[i]) / 2 for i in range(1, last + 1)]
        sums = [0.0, *accumulate(areas)]
        first = _integral_to(3.0, cap, points, values, sums) / 2
        top = values[last]
        values = [
            (sums[target] + max(0.0, 3 * s - cap) * top) / (3 * s - 1)
            for s, target in zip(points, targets, strict=True)
        ]
        # 1 is no power of the step below the cap, so 3 lies between two points.
        values[0] = first
        means.append(first)
        if len(means) > 8 and abs(first - means[-8]) <= _SETTLED * first:
            break
    return means + [means[-1]] * (retries - len(means))


def _integral_to(
    end: float, cap: float, points: list[float], values: list[float], sums: list[float]
) -> float:
    """The integral of `values` over `points` from the first up to `end`; beyond the cap the value
    at the cap goes on.
    """
    if end >= cap:
        return sums[-1] + (end - cap) * values[-1]
    right = bisect_right(points, end)
    left = right - 1
    part = end - points[left]
    slope = (values[right] - values[left]) / (points[right] - points[left])
    return sums[left] + part * (values[left] + slope * part / 2)
