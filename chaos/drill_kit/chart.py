"""The picture of a drill: faults, attempts in a lane a worker, and effects, over one axis of time.

What is drawn is decided by the data alone, so that a picture can be made again from report.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chaos.drill_kit import svg, words
from chaos.drill_kit.lanes import ENDINGS, Lane, lanes, running, thinned
from chaos.drill_kit.style import CHART, COLOURS
from chaos.drill_kit.timeline import NODE, Fault, Timeline

WIDTH = 1_120
LEFT = 112
RIGHT = 20
PLOT = WIDTH - LEFT - RIGHT
FAULTS_HEIGHT = 58
LABEL_ROWS = 3
LABEL_PX = 15
CHAR_PX = 6.3
LANE_GAP = 14
LANE_MIN = 18
ROW_PX = 6
LANE_MAX = 132
EFFECTS_HEIGHT = 96
AXIS_HEIGHT = 34
BARS_MAX = 4_000
BINS = 400
CURVE_POINTS = 600
REPEATS_MAX = 400
MARKS_MAX = 60


class Scale:
    """From instants to places on the axis."""

    def __init__(self, timeline: Timeline) -> None:
        self.began_ms = timeline.began_ms
        self.length_ms = max(1, timeline.ended_ms - timeline.began_ms)

    def x(self, at_ms: float) -> float:
        """Where the instant is; outside of the run, at the edge."""
        share = (at_ms - self.began_ms) / self.length_ms
        return LEFT + PLOT * min(1.0, max(0.0, share))

    def at(self, at_ms: int) -> str:
        """The instant in words, counted from the begin."""
        return f"{(at_ms - self.began_ms) / 1_000:.2f} s"


def alone(timeline: Timeline) -> str:
    """The picture as a file of its own, with its colours."""
    head, body = draw(timeline).split(">", 1)
    paper = '<rect width="100%" height="100%" style="fill:var(--paper)"/>'
    font = "svg{font-family:system-ui,DejaVu Sans,sans-serif}"
    return f"{head}><style>{COLOURS}{CHART}{font}</style>{paper}{body}\n"


def draw(timeline: Timeline) -> str:
    """The picture as one SVG element."""
    scale, found = Scale(timeline), lanes(timeline)
    crowded = len(timeline.attempts) > BARS_MAX
    parts: list[str] = []
    y: float = FAULTS_HEIGHT
    tops: dict[str, tuple[float, float]] = {}
    for lane in found:
        height = lane_height(lane)
        tops[lane.name] = (y, height)
        parts.append(svg.rect(LEFT, y - 3, PLOT, height + 6, "ground", round_px=2))
        parts.append(svg.text(LEFT - 10, y + height / 2 + 4, lane.name, "name", anchor="end"))
        parts += (
            _density(lane, scale, timeline, y, height)
            if crowded
            else _bars(lane, scale, timeline, y, height)
        )
        y += height + LANE_GAP
    if timeline.effects:
        parts += _effects(timeline, scale, y)
        y += EFFECTS_HEIGHT + LANE_GAP
    back = list(_axis(scale, y - LANE_GAP + 4))
    front = list(_faults(timeline.faults, scale, tops, y - LANE_GAP + 4))
    label = f"{len(timeline.faults)} faults, {len(timeline.attempts)} attempts over time"
    return svg.picture(WIDTH, y - LANE_GAP + AXIS_HEIGHT, label, [*back, *parts, *front])


def lane_height(lane: Lane) -> float:
    """In pixels: as many rows as attempts ran at a time, narrower ones where these are many."""
    return float(min(LANE_MAX, max(LANE_MIN, lane.rows * ROW_PX)))


def _bars(lane: Lane, scale: Scale, timeline: Timeline, y: float, height: float) -> Iterator[str]:
    pitch = min(ROW_PX, height / max(1, lane.rows))
    thick = max(0.8, pitch - 1)
    for bar in lane.bars:
        it = bar.attempt
        end_ms = timeline.ended_ms if it.ended_ms is None else it.ended_ms
        x = scale.x(it.began_ms)
        tip = (
            f"{it.label}, {scale.at(it.began_ms)} to {scale.at(end_ms)} ({end_ms - it.began_ms} ms)"
        )
        width = max(1.2, scale.x(end_ms) - x)
        yield svg.rect(x, y + bar.row * pitch, width, thick, it.ending, tip=tip)


def _density(
    lane: Lane, scale: Scale, timeline: Timeline, y: float, height: float
) -> Iterator[str]:
    """How many attempts ran, by how they ended, where each alone would not be seen."""
    if not lane.bars:
        return
    attempts = [bar.attempt for bar in lane.bars]
    counts = running(attempts, began_ms=timeline.began_ms, ended_ms=timeline.ended_ms, bins=BINS)
    most = max(1, *(sum(each.values()) for each in counts))
    base = [0] * BINS
    for ending in ENDINGS:
        tops = [low + each[ending] for low, each in zip(base, counts, strict=True)]
        if tops == base:
            continue
        upper = _steps(tops, y + height, height / most)
        lower = _steps(base, y + height, height / most)
        tip = f"{lane.name}: attempts that {WORDS[ending]}; at most {most} at a time"
        yield svg.path([*upper, *reversed(lower)], ending, closed=True, tip=tip)
        base = tops


WORDS = {
    "returned": "returned",
    "failed": "failed",
    "killed": "were cut off by a kill",
    "open": "had no end yet",
}


def _steps(levels: Sequence[int], foot: float, unit: float) -> list[tuple[float, float]]:
    width = PLOT / BINS
    points = []
    for number, level in enumerate(levels):
        height = foot - level * unit
        points += [(LEFT + number * width, height), (LEFT + (number + 1) * width, height)]
    return points


def _effects(timeline: Timeline, scale: Scale, y: float) -> Iterator[str]:
    """How many effects there are by when; a repeat that was ignored does not raise the line."""
    foot = y + EFFECTS_HEIGHT
    total = max(1, sum(1 for it in timeline.effects if it.first))
    unit = (EFFECTS_HEIGHT - 12) / total
    curve, repeats, count = [(timeline.began_ms, 0)], [], 0
    for effect in timeline.effects:
        if effect.first:
            curve.append((effect.at_ms, count := count + 1))
        else:
            repeats.append((effect, count))
    curve.append((timeline.ended_ms, count))
    points: list[tuple[float, float]] = []
    for at_ms, level in thinned(curve, CURVE_POINTS):
        if points:
            points.append((scale.x(at_ms), points[-1][1]))
        points.append((scale.x(at_ms), foot - level * unit))
    yield svg.rect(LEFT, y - 3, PLOT, EFFECTS_HEIGHT + 6, "ground", round_px=2)
    yield svg.text(LEFT - 10, y + 12, "effects", "name", anchor="end")
    yield svg.text(LEFT - 10, y + 26, f"{words.number(count)} applied", "small", anchor="end")
    again = f"{words.number(len(repeats))} repeats"
    yield svg.text(LEFT - 10, y + 40, again, "small", anchor="end")
    area = [(float(LEFT), foot), *points, (float(LEFT + PLOT), foot)]
    yield svg.path(area, "effects", closed=True, tip=f"{count} effects applied")
    yield svg.path(points, "curve", closed=False)
    step = max(1, len(repeats) // REPEATS_MAX)
    for effect, level in repeats[::step]:
        tip = f"{effect.label} asked again at {scale.at(effect.at_ms)}: ignored"
        yield svg.diamond(scale.x(effect.at_ms), foot - level * unit, 3, "repeat", tip=tip)


def _axis(scale: Scale, foot: float) -> Iterator[str]:
    length_s = scale.length_ms / 1_000
    for at_s in svg.ticks(length_s):
        x = scale.x(scale.began_ms + at_s * 1_000)
        yield svg.line(x, FAULTS_HEIGHT - 6, x, foot, "grid")
        yield svg.text(x, foot + 16, svg.tick_text(at_s, length_s), "tick", anchor="middle")


def _faults(
    faults: Sequence[Fault], scale: Scale, tops: dict[str, tuple[float, float]], foot: float
) -> Iterator[str]:
    """A mark at the top for each, and a line through what it hit."""
    yield svg.text(LEFT - 10, FAULTS_HEIGHT - 12, "faults", "name", anchor="end")
    ordered = sorted(faults, key=lambda it: it.at_ms)
    for fault in ordered:
        x, tip = scale.x(fault.at_ms), describe(fault, scale)
        top, height = FAULTS_HEIGHT - 8.0, foot - FAULTS_HEIGHT + 8
        if fault.target != NODE and fault.target in tops:
            top, height = tops[fault.target][0] - 3, tops[fault.target][1] + 6
        if fault.until_ms is not None:
            width = max(1.0, scale.x(fault.until_ms) - x)
            yield svg.rect(x, top, width, height, "outage", tip=tip)
        yield svg.line(x, top, x, top + height, "strike", tip=tip)
        size = 4 if len(faults) <= MARKS_MAX else 2.5
        yield svg.cross(x, FAULTS_HEIGHT - 14, size, "mark", tip=tip)
    yield from _labels(ordered, scale)


def _labels(faults: Sequence[Fault], scale: Scale) -> Iterator[str]:
    """The names of what was hit, where there is room for them."""
    ends = [float(LEFT - 6)] * LABEL_ROWS
    for fault in faults:
        x, width = scale.x(fault.at_ms), CHAR_PX * len(fault.target)
        left = min(max(x - width / 2, LEFT), LEFT + PLOT - width)
        for row in range(LABEL_ROWS):
            if left > ends[row] + 4:
                ends[row] = left + width
                height = FAULTS_HEIGHT - 22 - row * (LABEL_PX - 3)
                yield svg.text(left, height, fault.target, "hit")
                break


def named(fault: Fault) -> str:
    """A fault without its instant: "SIGKILL: worker-1 (at random), over after 20 ms"."""
    until = ""
    if fault.until_ms is not None:
        until = f", over after {fault.until_ms - fault.at_ms} ms"
    note = f" ({fault.note})" if fault.note else ""
    return f"{fault.kind}: {fault.target}{note}{until}"


def describe(fault: Fault, scale: Scale) -> str:
    """A fault in a line."""
    return f"{named(fault)}, at {scale.at(fault.at_ms)}"
