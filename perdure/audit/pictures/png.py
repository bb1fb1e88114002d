"""A scene as PNG: drawn three times too large in 8-bit grey, then averaged down, for soft edges."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise

from perdure.audit.pictures import letters
from perdure.audit.pictures.scene import ADVANCE, WHITE, Box, Label, Line, Path, Scene, Shape

OVERSAMPLED = 3
_HATCH_GREY = 119


def png(scene: Scene, scale: float = 1.0) -> bytes:
    """The picture as a PNG file, `scale` pixels per unit."""
    canvas = _Canvas(round(scene.width * scale), round(scene.height * scale), scale * OVERSAMPLED)
    for shape in scene.shapes:
        canvas.draw(shape)
    return _file(canvas.width, canvas.height, canvas.averaged())


def _file(width: int, height: int, rows: list[bytes]) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    chunks = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


class _Canvas:
    def __init__(self, width: int, height: int, zoom: float) -> None:
        self.width, self.height, self._zoom = width, height, zoom
        self._wide, self._high = width * OVERSAMPLED, height * OVERSAMPLED
        self._rows = [bytearray([WHITE]) * self._wide for _ in range(self._high)]

    def draw(self, shape: Shape) -> None:
        """Paints one shape over what is there."""
        match shape:
            case Box():
                self._box(shape)
            case Line():
                self._dashed(shape)
            case Path():
                for (x1, y1), (x2, y2) in pairwise(shape.points):
                    self._stroke(x1, y1, x2, y2, shape.width, shape.grey)
            case Label():
                self._label(shape)

    def averaged(self) -> list[bytes]:
        """The rows of the picture at its own size."""
        share = OVERSAMPLED * OVERSAMPLED
        plain = bytes([WHITE]) * self._wide
        found = []
        for y in range(0, self._high, OVERSAMPLED):
            rows = self._rows[y : y + OVERSAMPLED]
            if all(row == plain for row in rows):
                found.append(bytes([WHITE]) * self.width)
                continue
            sums = [sum(column) for column in zip(*rows, strict=True)]
            parts = (sums[offset::OVERSAMPLED] for offset in range(OVERSAMPLED))
            found.append(bytes(sum(each) // share for each in zip(*parts, strict=True)))
        return found

    def _fill(self, y: int, left: int, right: int, grey: int) -> None:
        if 0 <= y < self._high:
            left, right = max(0, left), min(self._wide, right)
            if left < right:
                self._rows[y][left:right] = bytes([grey]) * (right - left)

    def _box(self, box: Box) -> None:
        left, right = round(box.x * self._zoom), round((box.x + box.width) * self._zoom)
        top, bottom = round(box.y * self._zoom), round((box.y + box.height) * self._zoom)
        right, bottom = max(right, left + 1), max(bottom, top + 1)
        for y in range(top, bottom):
            self._fill(y, left, right, box.fill)
            if box.hatched:
                pitch, stroke = round(6 * self._zoom), round(2 * self._zoom)
                for x in range(left - (y % pitch) - pitch, right, pitch):
                    self._fill(y, max(left, x), min(right, x + stroke), _HATCH_GREY)
        if box.edge is not None:
            x2, y2 = box.x + box.width, box.y + box.height
            corners = ((box.x, box.y), (x2, box.y), (x2, y2), (box.x, y2), (box.x, box.y))
            for (ax, ay), (bx, by) in pairwise(corners):
                self._stroke(ax, ay, bx, by, 1.0, box.edge)

    def _dashed(self, line: Line) -> None:
        if not line.dash:
            self._stroke(line.x1, line.y1, line.x2, line.y2, line.width, line.grey)
            return
        length = ((line.x2 - line.x1) ** 2 + (line.y2 - line.y1) ** 2) ** 0.5
        at = 0.0
        while at < length:
            start, end = at / length, min(length, at + line.dash) / length
            self._stroke(
                line.x1 + (line.x2 - line.x1) * start,
                line.y1 + (line.y2 - line.y1) * start,
                line.x1 + (line.x2 - line.x1) * end,
                line.y1 + (line.y2 - line.y1) * end,
                line.width,
                line.grey,
            )
            at += 2 * line.dash

    def _stroke(self, x1: float, y1: float, x2: float, y2: float, width: float, grey: int) -> None:
        """A line with round ends: a disc wherever the pen passes."""
        zoom = self._zoom
        x1, y1, x2, y2 = x1 * zoom, y1 * zoom, x2 * zoom, y2 * zoom
        radius = max(0.5, width * zoom / 2)
        if y1 == y2 or x1 == x2:
            # Straight across or down: one rectangle, at whole pixels.
            half = round(radius)
            for y in range(round(min(y1, y2)) - half, round(max(y1, y2)) + max(1, half)):
                left, right = round(min(x1, x2)) - half, round(max(x1, x2)) + max(1, half)
                self._fill(y, left, right, grey)
            return
        steps = max(1, int(max(abs(x2 - x1), abs(y2 - y1))))
        reach = int(radius)
        for step in range(steps + 1):
            at_x, at_y = x1 + (x2 - x1) * step / steps, y1 + (y2 - y1) * step / steps
            for dy in range(-reach, reach + 1):
                half_chord = (radius * radius - dy * dy) ** 0.5
                left, right = round(at_x - half_chord), round(at_x + half_chord)
                self._fill(round(at_y) + dy, left, max(right, left + 1), grey)

    def _label(self, label: Label) -> None:
        advance = label.size * ADVANCE
        shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[label.anchor]
        x = label.x - shift * advance * len(label.text)
        # Capitals are 0.72 of the size high, as in most typefaces.
        unit_y = label.size * 0.72 / letters.GRID_HEIGHT
        unit_x = advance * 0.74 / letters.GRID_WIDTH
        pen = label.size * (0.13 if label.bold else 0.085)
        for letter in label.text:
            for stroke in letters.strokes(letter):
                placed = [
                    (x + px * unit_x, label.y + (py - letters.GRID_HEIGHT) * unit_y)
                    for px, py in stroke
                ]
                for (ax, ay), (bx, by) in pairwise(placed):
                    self._stroke(ax, ay, bx, by, pen, label.grey)
            x += advance
