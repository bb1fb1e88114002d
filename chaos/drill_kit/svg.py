"""The few shapes that reports are drawn of, as SVG text; colours come from the page's style."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

TICKS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400)
TICKS_MAX = 12
NAMESPACE = "http://www.w3.org/2000/svg"


def px(value: float) -> str:
    """A coordinate: short, and never in scientific notation."""
    return f"{value:.1f}".removesuffix(".0")


def rect(
    x: float,
    y: float,
    width: float,
    height: float,
    style: str,
    *,
    tip: str = "",
    round_px: float = 0,
) -> str:
    """A rectangle of the class `style`; `tip` is shown under the pointer."""
    corner = f' rx="{px(round_px)}"' if round_px else ""
    head = (
        f'<rect class="{style}" x="{px(x)}" y="{px(y)}" width="{px(width)}" height="{px(height)}"'
    )
    return f"{head}{corner}>{title(tip)}</rect>" if tip else f"{head}{corner}/>"


def line(x1: float, y1: float, x2: float, y2: float, style: str, *, tip: str = "") -> str:
    """A line of the class `style`."""
    head = f'<line class="{style}" x1="{px(x1)}" y1="{px(y1)}" x2="{px(x2)}" y2="{px(y2)}"'
    return f"{head}>{title(tip)}</line>" if tip else f"{head}/>"


def text(x: float, y: float, words: str, style: str, *, anchor: str = "start") -> str:
    """Words at a point of their baseline."""
    return (
        f'<text class="{style}" x="{px(x)}" y="{px(y)}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def path(points: Iterable[tuple[float, float]], style: str, *, closed: bool, tip: str = "") -> str:
    """A line through the points, or the area within."""
    body = " ".join(f"{px(x)},{px(y)}" for x, y in points)
    name = "polygon" if closed else "polyline"
    return f'<{name} class="{style}" points="{body}">{title(tip) if tip else ""}</{name}>'


def cross(x: float, y: float, size: float, style: str, *, tip: str = "") -> str:
    """A mark of two crossed strokes about a point."""
    strokes = (
        f"M{px(x - size)} {px(y - size)}L{px(x + size)} {px(y + size)}"
        f"M{px(x - size)} {px(y + size)}L{px(x + size)} {px(y - size)}"
    )
    return f'<path class="{style}" d="{strokes}">{title(tip) if tip else ""}</path>'


def diamond(x: float, y: float, size: float, style: str, *, tip: str = "") -> str:
    """A small square on its corner about a point."""
    points = [(x, y - size), (x + size, y), (x, y + size), (x - size, y)]
    return path(points, style, closed=True, tip=tip)


def title(words: str) -> str:
    """What browsers show under the pointer."""
    return f"<title>{escape(words)}</title>"


def picture(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    """The whole picture; `label` is what a screen reader says of it."""
    size, name = f"0 0 {px(width)} {px(height)}", escape(label)
    head = f'<svg xmlns="{NAMESPACE}" viewBox="{size}" role="img" aria-label="{name}">'
    return f"{head}{''.join(parts)}</svg>"


def ticks(length_s: float) -> tuple[float, ...]:
    """Round instants from 0 to `length_s`, a dozen at most."""
    step = next((it for it in TICKS_S if length_s / it <= TICKS_MAX), 86_400.0)
    count = int(length_s / step + 1e-9)
    return tuple(round(step * number, 3) for number in range(count + 1))


def tick_text(at_s: float, length_s: float) -> str:
    """An instant on the axis of a run that takes `length_s`."""
    if length_s > 600:
        return f"{at_s / 60:g} min"
    return f"{at_s:g} s"
