"""Kinds of values, there and back by the annotation of who receives them, over either form."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict

import msgspec
import pytest

from perdure import values
from perdure.values import BadInput

NOW = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC)


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Tree:
    top: Point
    below: list[Tree] = dataclasses.field(default_factory=list)


class Options(TypedDict):
    size: int
    since: NotRequired[datetime.datetime]


class Loose(TypedDict, total=False):
    at: Point
    when: datetime.datetime | str


class Pair(NamedTuple):
    x: int
    when: datetime.date = datetime.date(2020, 1, 1)


class OddPair(NamedTuple):
    """One whose union msgspec does not take."""

    x: int
    when: datetime.datetime | str = "never"


class Cat(msgspec.Struct, tag="cat"):
    name: str


class Dog(msgspec.Struct, tag="dog"):
    name: str
    at: Point | None = None


KINDS: list[tuple[Any, Any]] = [
    (None, Optional[int]),  # noqa: UP045 - as people write it
    (1, int | None),
    (b"\0\xff", bytes),
    (NOW, datetime.datetime),
    (NOW.date(), datetime.date),
    (datetime.timedelta(seconds=90), datetime.timedelta),
    (decimal.Decimal("1.10"), decimal.Decimal),
    (uuid.UUID(int=5), uuid.UUID),
    (pathlib.Path("a/b"), pathlib.Path),
    (Color.RED, Color),
    (Color.BLUE, Literal[Color.BLUE, "green"]),
    ("a", Literal["a", "b"]),
    (1, Annotated[int, msgspec.Meta(ge=0)]),
    (Point(1, 2.5), Point),
    (Tree(Point(1), [Tree(Point(2))]), Tree),
    ([Point(1), Point(2)], list[Point]),
    ({"a": Point(1)}, dict[str, Point]),
    ({"a": [Point(1)]}, dict[str, list[Point]]),
    ({"a": None}, dict[str, Point | None]),
    ((1, "a"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    ({1, 2}, set[int]),
    (frozenset({"a"}), frozenset[str]),
    (collections.deque([Point(1)]), collections.deque[Point]),
    (collections.OrderedDict(a=2, b=1), collections.OrderedDict[str, int]),
    (collections.Counter("aab"), collections.Counter[str]),
    (collections.defaultdict(list, {"a": [1]}), collections.defaultdict[str, list[int]]),
    ({"size": 1, "since": NOW}, Options),
    ({"at": Point(1), "when": "soon"}, Loose),
    (Pair(1), Pair),
    ([OddPair(1, NOW), OddPair(2)], list[OddPair]),
    ([Cat("c"), Dog("d", Point(1))], list[Cat | Dog]),
    (NOW, datetime.datetime | str),
    ("soon", datetime.datetime | str),
    (Point(1), Point | str),
]


@pytest.mark.parametrize(("value", "annotation"), KINDS, ids=lambda one: str(one)[:40])
def test_a_value_comes_back_as_its_annotation_has_it(value, annotation):
    payload = values.encode(value)
    for one in (payload, values.from_json(values.to_json(payload))):
        found = values.decode(one, annotation)
        assert found == value
        assert type(found) is type(value)


def test_a_defaultdict_goes_on_making_what_it_is_a_dict_of():
    found = values.decode(values.encode({}), collections.defaultdict[str, list[int]])
    found["new"].append(1)
    assert found == {"new": [1]}


def takes(
    order: str = "",
    tree: Tree | None = None,
    points: dict[str, list[Point]] | None = None,
    options: Options | None = None,
    loose: Loose | None = None,
    pair: Pair | None = None,
    odd: OddPair | None = None,
    odds: dict[str, OddPair] | None = None,
    pets: list[Cat | Dog] | None = None,
    color: Literal[Color.RED] = Color.RED,
    queue: dict[str, collections.deque[Point]] | None = None,
) -> None:
    """A function of many parameters."""


MISFITS: list[tuple[str, Any, str, str]] = [
    ("order", 5, "$", "str"),
    ("tree", {"top": {"x": 1}, "below": [{"top": {"x": "1"}}]}, "$.below[0].top.x", "int"),
    ("points", {"a": [], "b": [{"x": 1}, {"x": None}]}, "$['b'][1].x", "null"),
    ("options", {"size": "1"}, "$.size", "int"),
    ("options", {}, "$", "size"),
    ("loose", {"at": {"x": "1"}}, "$.at.x", "int"),
    ("loose", {"when": 1}, "$.when", "an int fits none of datetime, str"),
    ("pair", ["1"], "$[0]", "int"),
    ("odd", [1, 2], "$[1]", "datetime, str"),
    ("odd", [], "$", "array of 2"),
    ("odds", {"k": [None]}, "$['k'][0]", "null"),
    ("pets", [{"type": "cat", "name": "c"}, {"type": "dog"}], "$[1]", "name"),
    ("color", "b", "$", "Color.RED"),
    ("queue", {"q": [{"x": 1}, {"x": []}]}, "$['q'][1].x", "int"),
]


@pytest.mark.parametrize(("argument", "value", "path", "text"), MISFITS)
def test_what_does_not_fit_is_refused_with_the_argument_and_the_place_in_it(
    argument, value, path, text
):
    with pytest.raises(BadInput, match=argument) as caught:
        values.bind_input(takes, values.encode({argument: value}))
    assert (caught.value.field, caught.value.path) == (argument, path)
    assert text in caught.value.message
    assert "\0" not in caught.value.message


# --- pydantic, where it is installed -----------------------------------------------------


@pytest.fixture(scope="module")
def models():
    pydantic = pytest.importorskip("pydantic")

    class Line(pydantic.BaseModel):
        sku: str
        count: int = pydantic.Field(alias="howMany", ge=1)

    class Order(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        lines: list[Line]
        when: datetime.datetime | None = None
        price: decimal.Decimal = decimal.Decimal("0.10")
        color: Color = Color.RED

    return Order, Line


def test_a_model_comes_back_as_a_model_wherever_it_stands(models):
    order_type, line_type = models
    order = order_type(lines=[line_type(sku="a", howMany=2)], when=NOW, color=Color.BLUE)
    holder = dataclasses.make_dataclass("Holder", [("order", order_type), ("n", int, 1)])
    for value, annotation in (
        (order, order_type),
        (order, order_type | None),
        ([order], list[order_type]),
        ({"a": order}, dict[str, order_type]),
        ((order, 1), tuple[order_type, int]),
        (holder(order), holder),
    ):
        payload = values.encode(value)
        assert values.decode(payload, annotation) == value
        assert values.decode(values.from_json(values.to_json(payload)), annotation) == value


def test_a_model_is_taken_by_the_aliases_of_its_fields_too(models):
    _, line_type = models
    payload = values.from_json('{"sku": "a", "howMany": 3}')
    assert values.decode(payload, line_type).count == 3


def test_where_a_model_does_not_fit_is_said_in_one_line(models):
    order_type, _ = models

    def takes_models(orders: dict[str, order_type]) -> None:
        """Of models."""

    takes_models.__annotations__["orders"] = dict[str, order_type]
    lines = [{"sku": "a", "count": 1}, {"sku": "b", "count": 0}]
    payload = values.encode({"orders": {"may": {"lines": lines}}})
    with pytest.raises(BadInput) as caught:
        values.bind_input(takes_models, payload)
    assert caught.value.field == "orders"
    assert caught.value.path.startswith("$['may'].lines[1].")
    assert "greater than or equal to 1" in caught.value.message
    assert "\n" not in caught.value.message
