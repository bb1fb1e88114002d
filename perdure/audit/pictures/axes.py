"""Scales with round ticks, and lengths for labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from perdure.audit import words
from perdure.audit.pictures.scene import BLACK, LIGHT, Label, Line, Shape

Shown = Callable[[float], str]


class Scale(NamedTuple):
    """Values from 0 to `most` on a stretch from `start` on, `length` long (negative: upwards)."""

    most: float
    start: float
    length: float

    def at(self, value: float) -> float:
        """Where a value stands."""
        return self.start + self.length * min(1.0, value / self.most)

    def ticks(self, count_max: int = 6) -> list[float]:
        """Round values from 0 to `most`, at most `count_max` steps."""
        rough = self.most / count_max
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= rough * 0.999)
        return [step * index for index in range(int(self.most / step + 1e-9) + 1)]


def scale(most: float, start: float, length: float) -> Scale:
    """A scale that holds `most`, whatever it is."""
    return Scale(most if 0 < most < math.inf else 1.0, start, length)


def length_ticks(values: list[float]) -> list[str]:
    """Labels of instants, all in the largest unit in which they are short."""
    most = max(values, default=0.0)
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        are_short = all(abs(value / size * 2 - round(value / size * 2)) < 1e-9 for value in values)
        if most >= 2 * size and (are_short or size == 1_000):
            return [f"{words.count(value / size)} {unit}" for value in values]
    return [f"{words.count(value)} ms" for value in values]


def short(value: float) -> str:
    """A number that has room beside an axis."""
    return words.count(value) if value < 1e6 else f"{value:.3g}"


def time_axis(axis: Scale, top: float, bottom: float) -> list[Shape]:
    """Grid lines from `top` to `bottom`, with labelled ticks below."""
    shapes: list[Shape] = []
    ticks = axis.ticks()
    for value, text in zip(ticks, length_ticks(ticks), strict=True):
        x = axis.at(value)
        shapes.append(Line(x, top, x, bottom, LIGHT))
        shapes.append(Label(x, bottom + 15, text, 11, "middle"))
    shapes.append(Line(axis.start, bottom, axis.start + axis.length, bottom, BLACK))
    return shapes


def value_axis(axis: Scale, left: float, right: float, shown: Shown, ticks: int) -> list[Shape]:
    """Grid lines from `left` to `right`, with labelled ticks on the left."""
    shapes: list[Shape] = []
    for value in axis.ticks(ticks):
        y = axis.at(value)
        shapes.append(Line(left, y, right, y, LIGHT))
        shapes.append(Label(left - 6, y + 4, shown(value), 11, "end"))
    shapes.append(Line(left, axis.start, left, axis.start + axis.length, BLACK))
    return shapes
