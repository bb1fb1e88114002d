"""What a picture is made of. All in grey, so that it reads the same in black and white."""

from __future__ import annotations

from typing import Literal, NamedTuple

Anchor = Literal["start", "middle", "end"]

BLACK = 0
DARK = 70
MIDDLE = 150
LIGHT = 205
PALE = 235
WHITE = 255

# A letter's advance, as a share of the text's size: both writers use the same.
ADVANCE = 0.6


class Box(NamedTuple):
    """A filled rectangle; `edge` is the grey of its outline, None for none."""

    x: float
    y: float
    width: float
    height: float
    fill: int
    edge: int | None = None
    hatched: bool = False


class Line(NamedTuple):
    """A straight line; `dash` is the length of its dashes, 0 for a solid one."""

    x1: float
    y1: float
    x2: float
    y2: float
    grey: int = BLACK
    width: float = 1.0
    dash: float = 0.0


class Path(NamedTuple):
    """A line through several points."""

    points: tuple[tuple[float, float], ...]
    grey: int = BLACK
    width: float = 1.5


class Label(NamedTuple):
    """Text on one line; (x, y) is its anchor on the baseline."""

    x: float
    y: float
    text: str
    size: float = 12.0
    anchor: Anchor = "start"
    grey: int = BLACK
    bold: bool = False


Shape = Box | Line | Path | Label


class Scene(NamedTuple):
    """A whole picture, its shapes from back to front. `title` is said to those who can't see it."""

    width: float
    height: float
    title: str
    shapes: tuple[Shape, ...]


def text_width(text: str, size: float) -> float:
    """How wide a text is drawn."""
    return len(text) * size * ADVANCE


def clipped(text: str, size: float, width: float) -> str:
    """`text`, cut with an ellipsis if it is wider than `width`."""
    room = max(1, int(width / (size * ADVANCE)))
    return text if len(text) <= room else text[: room - 1] + "…"
