"""Measured lengths held against what they should be: a histogram, and the promise as a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import msgspec

from chaos.drill_kit import svg

WIDTH = 1_120
HEIGHT = 240
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 14, 40
BINS = 25


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """`values` that should be spread evenly from `low` to `high`.

    `axis` names them with their unit; `title` and `caption` are for the reader.
    """

    title: str
    caption: str
    axis: str
    low: float
    high: float
    values: tuple[float, ...]


def figure(measured: Measured) -> str:
    """The figure as HTML."""
    legend = (
        '<span><i class="effects"></i>measured</span>'
        '<span><i class="expected"></i>an even spread</span>'
    )
    return (
        f"<section><h2>{escape(measured.title)}</h2><figure><div class=legend>{legend}</div>"
        f"<div class=wide>{draw(measured)}</div>"
        f"<figcaption>{escape(measured.caption)}</figcaption></figure></section>"
    )


def bins(values: Sequence[float], low: float, high: float, count: int) -> list[int]:
    """How many values fall into each of `count` equal parts; those outside, into the edges."""
    found = [0] * count
    for value in values:
        at = int((value - low) / (high - low) * count)
        found[min(count - 1, max(0, at))] += 1
    return found


def draw(measured: Measured) -> str:
    """The histogram as one SVG element."""
    counts = bins(measured.values, measured.low, measured.high, BINS)
    expected = len(measured.values) / BINS
    most = max(*counts, expected, 1)
    return svg.picture(
        WIDTH, HEIGHT, measured.title, [*_grid(measured, most), *_bars(counts, expected, most)]
    )


def _bars(counts: Sequence[int], expected: float, most: float) -> Iterator[str]:
    plot, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    width = plot / len(counts)
    foot = HEIGHT - BOTTOM
    for number, count in enumerate(counts):
        tall = height * count / most
        tip = f"{count} of about {expected:.0f} expected"
        yield svg.rect(LEFT + number * width + 1, foot - tall, width - 2, tall, "effects", tip=tip)
    y = foot - height * expected / most
    yield svg.line(LEFT, y, LEFT + plot, y, "expected", tip=f"{expected:.1f} in each, on average")


def _grid(measured: Measured, most: float) -> Iterator[str]:
    plot, height, foot = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM, HEIGHT - BOTTOM
    for number in range(6):
        x = LEFT + plot * number / 5
        value = measured.low + (measured.high - measured.low) * number / 5
        yield svg.line(x, TOP, x, foot, "grid")
        yield svg.text(x, foot + 15, f"{value:g}", "tick", anchor="middle")
    for count in (0, round(most / 2), round(most)):
        y = foot - height * count / most
        yield svg.text(LEFT - 8, y + 4, str(count), "tick", anchor="end")
    yield svg.text(LEFT + plot / 2, foot + 32, measured.axis, "tick", anchor="middle")
    yield svg.line(LEFT, foot, LEFT + plot, foot, "edge")
