"""A chain in one picture: delay bands per retry, the worst case as a timeline, and the cliff."""

from __future__ import annotations

from perdure.audit import words
from perdure.audit.chain import Layer
from perdure.audit.delays import Delay
from perdure.audit.figures import LayerFigures, cascading
from perdure.audit.pictures.axes import Scale, scale, short, time_axis, value_axis
from perdure.audit.pictures.scene import (
    BLACK,
    DARK,
    LIGHT,
    MIDDLE,
    WHITE,
    Box,
    Label,
    Line,
    Path,
    Scene,
    Shape,
    clipped,
    text_width,
)
from perdure.audit.review import Review

WIDTH = 920.0
LEFT = 190.0
RIGHT = 70.0
INNER = WIDTH - LEFT - RIGHT
ROW = 22.0
RETRIES_SHOWN_MAX = 8
TRIES_SHOWN_MAX = 40
LAYERS_SHOWN_MAX = 12


def picture(review: Review) -> Scene:
    """The picture of an audited chain; of a long one its first layers."""
    title = f"{review.chain.name}: retries, waits and the worst case"
    shapes: list[Shape] = [Label(20, 30, clipped(title, 17, WIDTH - 40), 17, bold=True)]
    y = 62.0
    for part in (_bands, _timeline, _cliff):
        more, y = part(review, y)
        shapes += more
    return Scene(WIDTH, y, title, tuple(shapes))


def _pairs(review: Review) -> list[tuple[Layer, LayerFigures]]:
    pairs = list(zip(review.chain.layers, review.figures.layers, strict=True))
    return pairs[:LAYERS_SHOWN_MAX]


def _heading(text: str, note: str, y: float) -> list[Shape]:
    return [Label(20, y, text, 14, bold=True), Label(20, y + 17, note, 11, grey=DARK)]


# --- delay bands -------------------------------------------------------------


def _bands(review: Review, y: float) -> tuple[list[Shape], float]:
    shapes = _heading(
        "Delay before each retry",
        "bar: least to most; black tick: expected",
        y,
    )
    y += 34
    for layer, its in _pairs(review):
        if its.delays_ms:
            more, y = _band(layer, its, y)
            shapes += more
    if not any(its.delays_ms for _, its in _pairs(review)):
        shapes.append(Label(LEFT, y + 6, "no layer retries", 12))
        y += 20
    return shapes, y + 14


def _band(layer: Layer, its: LayerFigures, y: float) -> tuple[list[Shape], float]:
    shown = _shown_delays(its.delays_ms)
    axis = scale(max(delay.most for _, delay in shown) * 1.02, LEFT, INNER)
    name = f"{layer.name} ({'no' if layer.jitter == 'none' else layer.jitter} jitter)"
    shapes: list[Shape] = [Label(20, y + 10, clipped(name, 12, WIDTH - 40), 12)]
    top = y + 18
    bottom = top + ROW * len(shown)
    shapes += time_axis(axis, top, bottom)
    for index, (number, delay) in enumerate(shown):
        middle = top + ROW * index + ROW / 2
        shapes.append(Label(LEFT - 8, middle + 4, f"retry {number}", 11, "end"))
        left, right = axis.at(delay.least), axis.at(delay.most)
        shapes.append(Box(left, middle - 6, max(2.0, right - left), 12, MIDDLE, DARK))
        at = axis.at(delay.expected)
        shapes.append(Line(at, middle - 9, at, middle + 9, BLACK, 3))
    return shapes, bottom + 34


def _shown_delays(each: tuple[Delay, ...]) -> list[tuple[int, Delay]]:
    """The first retries and the last, with their numbers."""
    numbered = list(enumerate(each, 1))
    if len(numbered) <= RETRIES_SHOWN_MAX:
        return numbered
    return [*numbered[: RETRIES_SHOWN_MAX - 1], numbered[-1]]


# --- the worst case ----------------------------------------------------------


def _timeline(review: Review, y: float) -> tuple[list[Shape], float]:
    shapes = _heading(
        "The worst case of one call, layer by layer",
        "grey: a try until its timeout; hatched: the longest wait; dashed: the caller gives up",
        y,
    )
    y += 34
    pairs = _pairs(review)
    lengths = [its.worst_case_ms for _, its in pairs if its.worst_case_ms is not None]
    axis = scale(max(lengths, default=1_000.0) * 1.04, LEFT, INNER)
    bottom = y + 34 * len(pairs)
    if lengths:
        shapes += time_axis(axis, y, bottom)
    for index, (layer, its) in enumerate(pairs):
        caller = pairs[index - 1][0] if index and not review.chain.alternatives else None
        shapes += _call(layer, its, caller, axis, y + 34 * index)
    return shapes, bottom + 48


def _call(
    layer: Layer, its: LayerFigures, caller: Layer | None, axis: Scale, top: float
) -> list[Shape]:
    name = clipped(layer.callee, 11, LEFT - 28)
    shapes: list[Shape] = [Label(LEFT - 8, top + 20, name, 11, "end")]
    if its.worst_case_ms is None:
        end = axis.start + axis.length
        shapes.append(Box(axis.start, top + 8, axis.length, 16, LIGHT, DARK))
        shapes.append(Label((axis.start + end) / 2, top + 20, "nothing ends it", 11, "middle"))
    else:
        limit_x = axis.at(caller.per_try_timeout_ms) if caller and caller.per_try_timeout_ms else 0
        shapes += _tries(layer, its, its.worst_case_ms, axis, (top, limit_x))
        text = words.length(its.worst_case_ms)
        x = axis.at(its.worst_case_ms) + 5
        if x - 5 <= limit_x <= x + text_width(text, 11) + 3:
            x = limit_x + 5  # Beside the line that would cross it.
        shapes.append(Label(x, top + 20, text, 11, bold=True))
    limit = caller.per_try_timeout_ms if caller is not None else None
    if limit is not None and limit <= axis.most:
        x = axis.at(limit)
        shapes.append(Line(x, top + 1, x, top + 31, BLACK, 2, 4))
    return shapes


def _tries(
    layer: Layer, its: LayerFigures, worst_ms: float, axis: Scale, place: tuple[float, float]
) -> list[Shape]:
    """Boxes for tries and waits. `place`: the row's top, and where a line crosses it."""
    top, crossed = place
    shapes: list[Shape] = []
    at = 0.0
    per_try = layer.per_try_timeout_ms
    if per_try is None or layer.attempts > TRIES_SHOWN_MAX:
        width = axis.at(worst_ms) - axis.start
        return [Box(axis.start, top + 8, max(2.0, width), 16, MIDDLE, DARK)]
    for attempt in range(layer.attempts):
        if at >= worst_ms:
            break
        end = min(at + per_try, worst_ms)
        left, right = axis.at(at), axis.at(end)
        shapes.append(Box(left, top + 8, max(1.0, right - left), 16, MIDDLE, DARK))
        places = [x for x in ((left + right) / 2, left + 9, right - 9) if abs(x - crossed) > 9]
        if right - left > 14 and places:
            shapes.append(Label(places[0], top + 20, str(attempt + 1), 11, "middle"))
        at = end
        if attempt < len(its.delays_ms) and at < worst_ms:
            wait = min(worst_ms, at + its.delays_ms[attempt].most)
            left, right = axis.at(at), axis.at(wait)
            if right - left > 0.5:
                shapes.append(Box(left, top + 8, right - left, 16, WHITE, DARK, hatched=True))
            at = wait
    return shapes


# --- the cliff ---------------------------------------------------------------


def _cliff(review: Review, y: float) -> tuple[list[Shape], float]:
    """Calls per request over the failure rate of the innermost dependency alone."""
    chain = review.chain
    if chain.alternatives:
        return [], y
    rates = [index / 100 for index in range(101)]
    outer = [0.0] * (len(chain.layers) - 1)
    values = [cascading(chain.layers, [*outer, rate]) for rate in rates]
    shapes = _heading(
        "Calls per request while only the innermost dependency fails",
        "over its failure rate; dashed: the limit of this chain",
        y,
    )
    top, bottom = y + 40, y + 190
    most = max(*values, chain.max_amplification) * 1.08
    vertical = scale(most, bottom, top - bottom)
    across = scale(1.0, LEFT, INNER)
    shapes += value_axis(vertical, LEFT, LEFT + INNER, short, 5)
    for rate in across.ticks(5):
        x = across.at(rate)
        shapes.append(Line(x, bottom, x, bottom + 4))
        shapes.append(Label(x, bottom + 18, f"{rate:.0%}", 11, "middle"))
    limit = vertical.at(chain.max_amplification)
    shapes.append(Line(LEFT, limit, LEFT + INNER, limit, DARK, 1.5, 6))
    points = [(across.at(r), vertical.at(v)) for r, v in zip(rates, values, strict=True)]
    shapes.append(Path(tuple(points), BLACK, 2.5))
    end = short(round(values[-1], 2))
    shapes.append(Label(LEFT + INNER + 6, points[-1][1] + 4, end, 12, bold=True))
    return shapes, bottom + 40
