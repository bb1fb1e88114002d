"""The test of Kolmogorov and Smirnov: do these values look as if they were drawn evenly from a
range? Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

TERMS_MAX = 100


class Fit(msgspec.Struct, frozen=True):
    """`distance`: the largest between the share of values below a point and the share there should
    be. `p`: how often evenly drawn values are at least that far away.
    """

    distance: float
    p: float


def evenly(values: Sequence[float], low: float, high: float) -> Fit:
    """How well the values fit an even spread from `low` to `high`. ValueError for no values."""
    if not values:
        raise ValueError("values must hold one value at least")
    count, distance = len(values), 0.0
    for number, value in enumerate(sorted(values)):
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        distance = max(distance, (number + 1) / count - share, share - number / count)
    return Fit(distance, _p(distance, count))


def _p(distance: float, count: int) -> float:
    """The asymptotic distribution, with the correction of Stephens for small counts."""
    root = math.sqrt(count)
    scaled = (root + 0.12 + 0.11 / root) * distance
    if scaled < 0.2:
        return 1.0  # The series converges slowly there, to a sum that differs from 1 by nothing.
    total = 0.0
    for term in range(1, TERMS_MAX):
        part = math.exp(-2 * (term * scaled) ** 2)
        total += part if term % 2 else -part
        if part < 1e-12:
            break
    return min(1.0, max(0.0, 2 * total))
