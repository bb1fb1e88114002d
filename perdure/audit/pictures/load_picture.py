"""A simulated outage in one picture: calls per second, a panel for every variant, one scale."""

from __future__ import annotations

from perdure.audit import words
from perdure.audit.experiment import Experiment, Variant
from perdure.audit.pictures.axes import Scale, length_ticks, scale, short, value_axis
from perdure.audit.pictures.scene import (
    BLACK,
    DARK,
    PALE,
    Box,
    Label,
    Line,
    Path,
    Scene,
    Shape,
    clipped,
)
from perdure.audit.simulation import BUCKET_MS

WIDTH = 920.0
LEFT = 80.0
INNER = WIDTH - LEFT - 30
PANEL = 92.0
GAP = 34.0
POINTS_MAX = 600


def picture(found: Experiment) -> Scene:
    """Calls per second at the innermost dependency over time, in every variant."""
    name = found.variants[0].chain.name
    title = f"{name}: calls per second at the innermost dependency"
    load = found.load
    note = (
        f"{words.whole(load.clients)} clients, {words.count(load.requests_per_s)} requests/s each; "
        f"grey: outage of {words.length(load.outage_ms)}; all panels on one scale; "
        f"seed {found.seed}"
    )
    shapes: list[Shape] = [
        Label(20, 30, clipped(title, 17, WIDTH - 40), 17, bold=True),
        Label(20, 50, clipped(note, 11, WIDTH - 40), 11, grey=DARK),
    ]
    start, end = _window(found)
    most = max(max(_series(each, start, end), default=0.0) for each in found.variants)
    y = 88.0
    for variant in found.variants:
        shapes += _panel(found, variant, scale(most * 1.05, y + PANEL, -PANEL), (start, end))
        y += PANEL + GAP
    shapes += _times(scale(end - start, LEFT, INNER), start, y - GAP)
    return Scene(WIDTH, y + 4, title, tuple(shapes))


def _window(found: Experiment) -> tuple[float, float]:
    """The outage with as much on both sides, as far as it was simulated."""
    load = found.load
    around = max(30_000.0, load.outage_ms)
    start = max(0.0, load.outage_start_ms - around / 2)
    end = min(load.duration_ms, load.outage_start_ms + load.outage_ms + around)
    return (start, end) if end > start else (0.0, load.duration_ms)


def _series(variant: Variant, start: float, end: float) -> list[float]:
    """Calls per second in steps of 100 ms or more, as many as can be told apart."""
    part = variant.measured.calls[int(start / BUCKET_MS) : int(end / BUCKET_MS)]
    size = max(1, -(-len(part) // POINTS_MAX))
    return [
        max(part[index : index + size]) * 1_000 / BUCKET_MS for index in range(0, len(part), size)
    ]


def _panel(
    found: Experiment, variant: Variant, vertical: Scale, window: tuple[float, float]
) -> list[Shape]:
    start, end = window
    bottom, top = vertical.start, vertical.start + vertical.length
    across = scale(end - start, LEFT, INNER)
    load = found.load
    left = across.at(max(0.0, load.outage_start_ms - start))
    right = across.at(max(0.0, load.outage_start_ms + load.outage_ms - start))
    shapes: list[Shape] = [Box(left, top, right - left, bottom - top, PALE)]
    shapes += value_axis(vertical, LEFT, LEFT + INNER, short, 3)
    values = _series(variant, start, end)
    step = (end - start) / max(1, len(values))
    points = []
    for index, value in enumerate(values):
        y = vertical.at(value)
        points += [(across.at(step * index), y), (across.at(step * (index + 1)), y)]
    if points:
        shapes.append(Path(tuple(points), BLACK, 1.2))
    peak = variant.measured.peak_per_s(start, end)
    label = f"{variant.name}: peak {words.count(peak)}/s, failed "
    label += f"{variant.measured.failed / max(1, variant.measured.requests):.1%}"
    shapes.append(Label(LEFT, top - 7, label, 12, bold=True))
    return shapes


def _times(across: Scale, start: float, y: float) -> list[Shape]:
    step = across.ticks(8)[1]
    first = -(-start // step) * step
    ticks = [first + step * index for index in range(int((start + across.most - first) / step) + 1)]
    shapes: list[Shape] = []
    for value, text in zip(ticks, length_ticks(ticks), strict=True):
        x = across.at(value - start)
        shapes.append(Line(x, y, x, y + 4))
        shapes.append(Label(x, y + 18, text, 11, "middle"))
    return shapes
