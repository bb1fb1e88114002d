from __future__ import annotations

import struct
import xml.etree.ElementTree as ElementTree
import zlib

import pytest

from perdure.audit.chain import parse_chain
from perdure.audit.experiment import experiment
from perdure.audit.pictures import chain_picture, letters, load_picture
from perdure.audit.pictures.axes import length_ticks, scale
from perdure.audit.pictures.png import png
from perdure.audit.pictures.scene import Box, Label, Line, Path, Scene, text_width
from perdure.audit.pictures.svg import svg
from perdure.audit.repair import repair
from perdure.audit.review import audit
from perdure.audit.simulation import Load

LEFT_OF = {"start": 0.0, "middle": 0.5, "end": 1.0}


def edges(label):
    """(left, right, top, bottom) of a label as it is drawn."""
    width = text_width(label.text, label.size)
    left = label.x - LEFT_OF[label.anchor] * width
    return left, left + width, label.y - 0.72 * label.size, label.y + 0.1 * label.size


def overlaps(scene):
    labels = [shape for shape in scene.shapes if isinstance(shape, Label)]
    found = []
    for index, one in enumerate(labels):
        for other in labels[index + 1 :]:
            a, b = edges(one), edges(other)
            if a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]:
                found.append((one.text, other.text))
    return found


def crossed(scene):
    """Labels that a strong upright line passes through."""
    strong = [each for each in scene.shapes if isinstance(each, Line) and each.width >= 2]
    found = []
    for label in (shape for shape in scene.shapes if isinstance(shape, Label)):
        left, right, top, bottom = edges(label)
        for line in strong:
            if left < line.x1 < right and line.x1 == line.x2 and line.y1 < bottom and top < line.y2:
                found.append(label.text)
    return found


def outside(scene):
    found = []
    for shape in scene.shapes:
        if isinstance(shape, Label):
            left, right, top, bottom = edges(shape)
            if left < 0 or right > scene.width or top < 0 or bottom > scene.height:
                found.append(shape)
    return found


WILD = [
    {"layers": [{"attempts": 1}]},
    {"layers": [{"attempts": 10_000, "base_delay_ms": 1, "multiplier": 1e308}]},
    {"layers": [{"attempts": 9, "per_try_timeout_ms": 5, "jitter": "decorrelated"}] * 15},
    {
        "name": "a chain whose name is so long that no picture could hold it on a single line " * 2,
        "layers": [
            {"name": f"{'caller ' * 20}-> {'callee ' * 20}", "attempts": 3, "deadline_ms": 7e9}
        ],
    },
    {"layers": [{"name": "a <b> & 'c'", "attempts": 4, "base_delay_ms": 0.5, "jitter": "full"}]},
]


@pytest.fixture(params=[*range(len(WILD)), "checkout", "repaired"])
def chain_scene(request, checkout):
    data = WILD[request.param] if isinstance(request.param, int) else checkout
    chain = parse_chain(data)
    return chain_picture.picture(
        repair(chain).after if request.param == "repaired" else audit(chain)
    )


@pytest.fixture(scope="module")
def load_scene():
    chain = parse_chain({"layers": [{"attempts": 3, "base_delay_ms": 100}] * 2})
    load = Load(clients=50, duration_ms=60_000, outage_start_ms=20_000, outage_ms=20_000)
    return load_picture.picture(experiment(chain, load, 1))


def test_no_label_of_a_chains_picture_lies_on_another_or_outside(chain_scene):
    assert overlaps(chain_scene) == []
    assert crossed(chain_scene) == []
    assert outside(chain_scene) == []


def test_no_label_of_a_simulations_picture_lies_on_another_or_outside(load_scene):
    assert overlaps(load_scene) == []
    assert outside(load_scene) == []


def test_every_picture_is_valid_svg_with_a_title(chain_scene, load_scene):
    for scene in (chain_scene, load_scene):
        root = ElementTree.fromstring(svg(scene))
        assert root.tag.endswith("svg")
        assert root[0].text == scene.title


def test_axes_say_their_units(checkout):
    scene = chain_picture.picture(audit(parse_chain(checkout)))
    texts = {shape.text for shape in scene.shapes if isinstance(shape, Label)}
    assert {"0 ms", "400 ms", "20 s", "9.3 s", "100%", "36"} <= texts


def pixels(data):
    """(width, height, rows) of a grey PNG."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    width = height = 0
    while at < len(data):
        length, name = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        [checksum] = struct.unpack(">I", data[at + 8 + length : at + 12 + length])
        assert checksum == zlib.crc32(name + body)
        if name == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        elif name == b"IDAT":
            packed += body
        at += 12 + length
    raw = zlib.decompress(packed)
    rows = [raw[y * (width + 1) + 1 : (y + 1) * (width + 1)] for y in range(height)]
    return width, height, rows


def test_a_png_holds_the_shapes_where_they_belong():
    scene = Scene(
        40,
        30,
        "t",
        (Box(10, 10, 10, 10, 100), Line(0, 25, 40, 25, 0, 2), Path(((30, 2), (38, 12)), 0, 2)),
    )
    width, height, rows = pixels(png(scene))
    assert (width, height) == (40, 30)
    assert rows[15][15] == 100
    assert rows[15][5] == 255
    assert rows[25][20] < 60
    assert min(rows[7][32:37]) < 60


def test_a_png_grows_with_its_scale(load_scene):
    small, _, _ = pixels(png(load_scene, 0.5))
    assert small == round(load_scene.width / 2)


def test_text_is_drawn_in_a_png():
    _, _, rows = pixels(png(Scene(60, 20, "t", (Label(2, 15, "Ab9", 14),))))
    assert sum(value < 128 for row in rows for value in row) > 30


def test_every_letter_stays_on_its_grid_and_every_printable_sign_is_there():
    for letter, drawn in letters.LETTERS.items():
        assert all(part.isdigit() and len(part) % 2 == 0 for part in drawn.split(",") if part), (
            letter
        )
        for stroke in letters.strokes(letter):
            assert all(0 <= x <= 4 and 0 <= y <= 8 for x, y in stroke), letter
            assert len(stroke) > 1, letter
    missing = {chr(code) for code in range(32, 127)} - letters.LETTERS.keys()
    assert missing <= set("$^`{}")


def test_ticks_are_round_and_reach_over_the_whole_scale():
    assert scale(1000, 0, 1).ticks() == [0, 200, 400, 600, 800, 1000]
    assert scale(7, 0, 1).ticks(5) == [0, 2, 4, 6]
    assert length_ticks([0, 30_000, 60_000, 120_000]) == ["0 min", "0.5 min", "1 min", "2 min"]
    assert length_ticks([110_000, 130_000]) == ["110 s", "130 s"]


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_command_draws_what_the_files_name_says(policy, chain_file, checkout, tmp_path, ending):
    out = tmp_path / f"chain.{ending}"
    code, _, err = policy("plot", chain_file(checkout), "-o", str(out), "--scale", "0.5")
    assert code == 0
    assert str(out) in err
    assert out.read_bytes()[:4] in (b"<svg", b"\x89PNG")


def test_another_ending_is_refused(policy, chain_file, checkout, tmp_path):
    code, _, err = policy("plot", chain_file(checkout), "-o", str(tmp_path / "chain.gif"))
    assert code == 2
    assert ".svg or .png" in err.splitlines()[0]
