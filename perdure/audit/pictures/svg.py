"""A scene as SVG."""

from __future__ import annotations

from perdure.audit.pictures.scene import ADVANCE, Box, Label, Line, Path, Scene, Shape

FONT = "'DejaVu Sans Mono', Menlo, Consolas, monospace"


def svg(scene: Scene) -> str:
    """The picture as an SVG document."""
    width, height = _number(scene.width), _number(scene.height)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" font-family="{FONT}">',
        f"<title>{_escaped(scene.title)}</title>",
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" stroke="#777" '
        'stroke-width="2"/></pattern></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *(_shape(shape) for shape in scene.shapes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _shape(shape: Shape) -> str:
    match shape:
        case Box():
            return _box(shape)
        case Line():
            dash = f' stroke-dasharray="{_number(shape.dash)}"' if shape.dash else ""
            ends = " ".join(
                f'{name}="{_number(getattr(shape, name))}"' for name in ("x1", "y1", "x2", "y2")
            )
            return (
                f'<line {ends} stroke="{_grey(shape.grey)}" stroke-width="{shape.width:g}"{dash}/>'
            )
        case Path():
            points = " ".join(f"{_number(x)},{_number(y)}" for x, y in shape.points)
            return (
                f'<polyline points="{points}" fill="none" stroke="{_grey(shape.grey)}" '
                f'stroke-width="{shape.width:g}"/>'
            )
        case Label():
            weight = ' font-weight="bold"' if shape.bold else ""
            length = _number(len(shape.text) * shape.size * ADVANCE)
            return (
                f'<text x="{_number(shape.x)}" y="{_number(shape.y)}" '
                f'font-size="{shape.size:g}" text-anchor="{shape.anchor}" textLength="{length}" '
                f'fill="{_grey(shape.grey)}"{weight}>{_escaped(shape.text)}</text>'
            )


def _box(box: Box) -> str:
    edge = "" if box.edge is None else f' stroke="{_grey(box.edge)}"'
    place = (
        f'x="{_number(box.x)}" y="{_number(box.y)}" width="{_number(box.width)}" '
        f'height="{_number(box.height)}"'
    )
    text = f'<rect {place} fill="{_grey(box.fill)}"{edge}/>'
    return f'{text}<rect {place} fill="url(#hatch)"/>' if box.hatched else text


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _grey(value: int) -> str:
    return f"#{value:02x}{value:02x}{value:02x}"


def _escaped(text: str) -> str:
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, name)
    return text
