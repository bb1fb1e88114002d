"""Values: what goes in comes out, by the annotations of who receives it, and nothing is guessed."""

# Not `from __future__ import annotations`: classes made inside a test are used as annotations.

import collections
import dataclasses
import datetime
import enum
import math
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import values
from perdure.errors import InvalidArgument
from perdure.values import (
    BadResult,
    BadValue,
    PayloadTooLarge,
    decode,
    digest,
    encode,
    encode_input,
    encode_result,
    from_json,
    from_json_value,
    is_reference,
    refer,
    to_json,
)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Mixed(enum.Enum):
    ONE = 1
    TEXT = "one"
    PAIR = (1, 2)


@dataclasses.dataclass
class Line:
    sku: str
    cents: int
    tags: list[bytes] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Loose:
    when: datetime.datetime | str
    color: Mixed | None = None
    lines: list[Line | int] = dataclasses.field(default_factory=list)


class Picky(msgspec.Struct):
    n: int
    x: float = 0.0


class Options(TypedDict):
    a: int
    when: NotRequired[datetime.datetime | str]


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "a lie"


UTC = datetime.UTC
WHEN = datetime.datetime(
    2026, 5, 4, 3, 2, 1, 6, tzinfo=datetime.timezone(datetime.timedelta(hours=2))
)
UserId = NewType("UserId", int)
ID = uuid.UUID(int=7)


# --- encode ------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
plain_values = st.recursive(
    scalars | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(plain_values)
def test_plain_data_comes_back_as_it_was(value):
    assert decode(encode(value)) == value


@settings(deadline=None)
@given(json_values)
def test_json_and_messagepack_of_one_value_are_one_value(value):
    as_json, as_msgpack = from_json_value(value), encode(value)
    assert as_json[:1] == b"j"
    assert as_msgpack[:1] == b"m"
    assert decode(as_json) == value
    assert digest(as_json) == digest(as_msgpack)
    assert from_json(to_json(as_msgpack)) == as_json


@settings(deadline=None)
@given(
    st.datetimes(timezones=st.none() | st.timezones()).filter(
        lambda d: d.utcoffset() is None or d.utcoffset().total_seconds() % 60 == 0
    )
)
def test_a_datetime_comes_back_with_its_offset(value):
    again = decode(encode(value), datetime.datetime)
    assert again.replace(tzinfo=None) == value.replace(tzinfo=None)
    assert again.utcoffset() == value.utcoffset()


typed = {
    datetime.date: st.dates(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    uuid.UUID: st.uuids(),
    bytes: st.binary(),
    Color: st.sampled_from(Color),
    Mixed: st.sampled_from(Mixed),
    float: st.floats(allow_nan=False, allow_infinity=False),
    frozenset[int]: st.frozensets(st.integers(0, 99)),
    tuple[int, str]: st.tuples(st.integers(0, 9), st.text()),
    Line: st.builds(Line, st.text(), st.integers(0, 9), st.lists(st.binary())),
}
any_typed = st.sampled_from(list(typed)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(typed[kind], max_size=4))
)


@settings(deadline=None)
@given(any_typed)
def test_a_typed_value_comes_back_as_its_type_over_both_roads(case):
    kind, value = case
    payload = encode(value)
    assert decode(payload, list[kind]) == value
    assert decode(from_json(to_json(payload)), list[kind]) == value


def test_equal_values_have_equal_payloads_whatever_the_order():
    assert encode({"b": 1, "a": {"d": 1, "c": 2}}) == encode({"a": {"c": 2, "d": 1}, "b": 1})
    assert encode({"x", "y", "z"}) == encode(["x", "y", "z"])
    assert encode({"x", 1, None}) == encode({None, 1, "x"})


def test_what_is_like_plain_data_is_sent_as_plain_data():
    assert decode(encode(Text("truth"))) == "truth"
    assert decode(encode([Level.LOW, Color.RED, Mixed.PAIR])) == [1, "red", [1, 2]]
    assert decode(encode(Line("a", 1, [b"x"]))) == {"sku": "a", "cents": 1, "tags": [b"x"]}
    assert decode(encode(Picky(1))) == {"n": 1, "x": 0.0}
    assert decode(encode(collections.OrderedDict(b=1))) == {"b": 1}
    assert decode(encode({Color.RED: 1})) == {"red": 1}
    assert decode(encode(collections.deque([1]))) == [1]
    assert decode(encode({"at": WHEN, "n": [Text("t")]})) == {
        "at": "2026-05-04T03:02:01.000006+02:00",
        "n": ["t"],
    }


def test_a_pydantic_model_travels_by_its_content():
    class Model:  # The two methods that pydantic's models have.
        def __init__(self, n: int) -> None:
            self.n = n

        def model_dump(self) -> dict[str, Any]:
            return {"n": self.n}

        @classmethod
        def model_validate(cls, data: Any) -> "Model":
            return cls(data["n"])

    payload = encode([Model(4)])
    assert decode(payload) == [{"n": 4}]
    assert decode(payload, list[Model])[0].n == 4
    with pytest.raises(BadValue):
        decode(encode({}), Model)


cyclic: list[Any] = [1]
cyclic.append({"again": cyclic})
deep: list[Any] = []
for _ in range(100_000):
    deep = [deep]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": [1, math.nan]}, r"\$\['a'\]\[1\].*NaN"),
        ([math.inf], r"\$\[0\]"),
        (Picky(1, -math.inf), r"\$\['x'\]"),
        ({"n": 2**64}, r"\$\['n'\].*64 bits"),
        (-(2**63) - 1, "64 bits"),
        ([{1: 2}], r"\$\[0\].*key 1"),
        ({"a": object()}, r"\$\['a'\].*object"),
        (Line("\ud800", 1), r"\$\.sku.*Unicode"),
        ({"\ud800": 1}, "Unicode"),
        ([1, {2j}], "complex"),
        (cyclic, "contains itself"),
        (deep, "too deeply"),
        ((i for i in ()), "generator"),
        (print, "builtin"),
        (Line, "type"),
    ],
)
def test_what_is_no_value_is_refused_naming_the_place(value, said):
    with pytest.raises(InvalidArgument, match=said):
        encode(value)
    with pytest.raises(BadResult, match=said):
        encode_result(value)


def test_a_float_near_the_largest_is_no_infinity():
    for value in (1.7e308, -1.7e308, 5e-324, -0.0):
        assert decode(encode(value)) == value


# --- decode ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (1, float, 1.0),
        ("1.50", Decimal, Decimal("1.50")),
        (1.5, Decimal, Decimal("1.5")),
        (2, Decimal, Decimal(2)),
        (str(ID), uuid.UUID, ID),
        ("2026-01-02", datetime.date, datetime.date(2026, 1, 2)),
        ("red", Color, Color.RED),
        (1, Level, Level.LOW),
        ([1, 2], Mixed, Mixed.PAIR),
        ("one", Mixed, Mixed.TEXT),
        ("x", Literal["x", 3], "x"),
        ([1, "a"], tuple[int, str], (1, "a")),
        ([1, 1], set[int], {1}),
        ({"a": 1}, Mapping[str, int], {"a": 1}),
        ([1], Sequence[int], [1]),
        (None, int | None, None),
        (5, UserId, 5),
        ("t", Text, Text("t")),
        ({"n": 3}, Picky, Picky(3)),
        ({"sku": "a", "cents": 1}, Line | None, Line("a", 1)),
        # What msgspec has no decoder for:
        ("2026-01-02T00:00:00", datetime.datetime | str, datetime.datetime(2026, 1, 2)),  # noqa: DTZ001
        ("tomorrow", datetime.datetime | str, "tomorrow"),
        ("1.5", str | Decimal, Decimal("1.5")),
        ({"sku": "a", "cents": 1}, Line | dict[str, Any], Line("a", 1)),
        ({"other": 1}, Line | dict[str, Any], {"other": 1}),
        (
            {"when": "soon", "color": [1, 2], "lines": [4, {"sku": "a", "cents": 1}]},
            Loose,
            Loose("soon", Mixed.PAIR, [4, Line("a", 1)]),
        ),
        ({"a": 1, "when": "soon"}, Options, {"a": 1, "when": "soon"}),
        ([["one"]], list[tuple[Mixed, ...]], [(Mixed.TEXT,)]),
        ({"k": 1}, dict[str, Mixed], {"k": Mixed.ONE}),
        ([1, "one"], set[Mixed], {Mixed.ONE, Mixed.TEXT}),
        ("one", Annotated[Mixed, "note"], Mixed.TEXT),
        (None, Optional[Mixed], None),  # noqa: UP045 - the old spelling is the case
    ],
)
def test_a_value_is_converted_by_the_annotation(value, annotation, expected):
    for payload in (encode(value), from_json_value(value)):
        got = decode(payload, annotation)
        assert got == expected
        assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("value", "annotation", "path"),
    [
        ("1", int, "$"),
        ("1.5", float, "$"),
        (1.0, int, "$"),
        (True, int, "$"),
        (1, bool, "$"),
        (1, str, "$"),
        ("green", Color, "$"),
        (True, Mixed, "$"),
        ({"sku": "a", "cents": "5"}, Line, "$.cents"),
        ({"sku": "a"}, Line, "$"),
        ([1, "x"], list[int], "$[1]"),
        ([1], tuple[int, str], "$"),
        (None, int, "$"),
        ({"when": "soon", "lines": ["x"]}, Loose, "$.lines[0]"),
        ({"color": 1}, Loose, "$"),
        ({"when": "soon"}, Options, "$"),
        ([1, [3]], list[Mixed], "$[1]"),
        (["one"], tuple[Mixed, Mixed], "$"),
        ({"a": "b"}, dict[str, Mixed], "$['a']"),
        ("x", type, "$"),
        (2, Literal[1], "$"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_path(value, annotation, path):
    for payload in (encode(value), from_json_value(value)):
        with pytest.raises(BadValue) as refusal:
            decode(payload, annotation)
        assert refusal.value.path == path


def test_base64_is_bytes_only_where_the_value_came_as_json():
    assert decode(from_json_value("aGk="), bytes) == b"hi"
    assert decode(from_json_value({"sku": "a", "cents": 1, "tags": ["aGk="]}), Line).tags == [b"hi"]
    assert decode(from_json_value("aGk="), bytes | str) == "aGk="
    for annotation in (bytes, list[bytes], bytes | Mixed):
        with pytest.raises(BadValue):
            decode(encode(["aGk="] if annotation == list[bytes] else "aGk="), annotation)


@pytest.mark.parametrize(
    "payload",
    [b"", b"m", b"j", b"x1", b"m\xc1", b"m\x01\x02", b"j{", b"jNaN", b"j1 2", b'j"\xff"',
     b"j" + b"[" * 100_000, b"m" + b"\x91" * 100_000, refer(b"m" + b"x" * 5_000)],
)  # fmt: skip
@pytest.mark.parametrize("annotation", [Any, int, Loose])
def test_what_is_no_payload_is_refused(payload, annotation):
    with pytest.raises(BadValue):
        decode(payload, annotation)


def test_a_constructor_that_raises_is_a_value_that_does_not_fit():
    @dataclasses.dataclass
    class Fussy:
        n: int

        def __post_init__(self) -> None:
            raise KeyError("never")

    with pytest.raises(BadValue, match="never"):
        decode(encode({"n": 1}), Fussy)


def test_json_of_a_payload_has_base64_for_bytes_and_null_for_nothing():
    assert to_json(encode({"b": b"hi", "a": 1})) == b'{"a":1,"b":"aGk="}'
    assert to_json(None) == b"null"
    assert values.to_builtins(None) is None
    assert values.to_builtins(encode([b"x"])) == [b"x"]


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b"123456789012345678901234567890", b'"\xff"'])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(InvalidArgument):
        from_json(text)


# --- sizes, digests, references ----------------------------------------------


def test_a_payload_up_to_the_limit_is_taken_and_one_byte_more_is_refused():
    room = values.PAYLOAD_MAX - 5  # The head of a MessagePack text of this length.
    assert len(encode_result("x" * room)) == values.PAYLOAD_MAX + 1  # The tag is not counted.
    with pytest.raises(PayloadTooLarge, match=r"result is 2097153 bytes.*2097152"):
        encode_result("x" * (room + 1))
    with pytest.raises(PayloadTooLarge, match="input"):
        encode_input(None, ("x" * room,), {})
    assert issubclass(PayloadTooLarge, InvalidArgument)


def test_a_digest_tells_values_apart_and_not_their_encodings():
    assert digest(b'j{"b": 1, "a": [true]}') == digest(encode({"a": [True], "b": 1}))
    assert len(digest(None)) == 16
    different = [
        digest(None), digest(encode(None)), digest(encode(1)), digest(encode("1")),
        digest(encode(True)), digest(encode([1])), digest(encode(1), encode(1)),
        digest(encode(1), None), digest(encode(1), "1"), digest(encode(1), 1),
        digest(b"m\xc1"), digest(None, encode(1)),
    ]  # fmt: skip
    assert len(set(different)) == len(different)


def test_a_long_payload_is_referred_to_and_a_short_one_is_itself():
    short, long = b"m" + b"x" * 1_023, b"m" + b"x" * 1_024
    assert refer(short) is short
    reference = refer(long)
    assert reference[:9] == b"#" + (1_025).to_bytes(8, "big")
    assert len(reference) == 25
    assert is_reference(reference)
    assert not is_reference(short)
    assert not is_reference(long)
    assert refer(long[:-1] + b"y") != reference
    assert refer(reference) == reference
