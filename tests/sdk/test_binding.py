"""Arguments: bound to the function that receives them, by position or by name, and converted."""

# Not `from __future__ import annotations`: classes made inside a test are used as annotations.

import dataclasses
import datetime
import functools
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import values
from perdure.errors import InvalidArgument
from perdure.values import BadInput, bind_input, decode, encode, encode_input

WHEN = datetime.datetime(2026, 5, 4, 3, 2, tzinfo=datetime.UTC)


@dataclasses.dataclass
class Line:
    sku: str
    cents: int


def charge(order: str, cents: int, when: datetime.datetime | None = None) -> Line:
    raise NotImplementedError


def gather(first: int, /, second: int = 2, *rest: Decimal, note: str = "", **more: float) -> None:
    raise NotImplementedError


def test_an_array_is_the_positional_and_an_object_the_keyword_arguments():
    assert bind_input(charge, encode(["o", 5])) == (("o", 5), {})
    assert bind_input(charge, encode({"cents": 5, "order": "o"})) == (
        (),
        {"cents": 5, "order": "o"},
    )
    assert bind_input(lambda x: x, encode("one")) == (("one",), {})
    assert bind_input(lambda x: x, encode(None)) == ((None,), {})
    assert bind_input(lambda: 0, None) == ((), {})
    assert bind_input(lambda: 0, encode({})) == ((), {})


def test_arguments_are_converted_by_the_annotations():
    (order, cents, when), _ = bind_input(charge, encode(["o", 5, WHEN]))
    assert (order, cents, when) == ("o", 5, WHEN)
    args, kwargs = bind_input(gather, encode([1, 2, "3.5", "4"]))
    assert (args, kwargs) == ((1, 2, Decimal("3.5"), Decimal(4)), {})
    args, kwargs = bind_input(gather, encode({"first": 1, "note": "n", "other": 2}))
    assert (args, kwargs) == ((1,), {"note": "n", "other": 2.0})
    assert type(kwargs["other"]) is float


@pytest.mark.parametrize(
    ("function", "value", "argument"),
    [
        (charge, ["o"], "cents"),
        (charge, None, "order"),
        (charge, {"order": "o"}, "cents"),
        (charge, ["o", "5"], "cents"),
        (charge, {"order": 1, "cents": 5}, "order"),
        (charge, ["o", 5, None, 1], "3"),
        (charge, {"order": "o", "cents": 5, "tip": 1}, "tip"),
        (gather, [1, 2, "x"], "rest"),
        (gather, {"first": 1, "other": "x"}, "other"),
        (gather, {"second": 1}, "first"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_naming_the_one(function, value, argument):
    with pytest.raises(BadInput) as refusal:
        bind_input(function, None if value is None else encode(value))
    assert refusal.value.argument == argument
    assert repr(argument) in refusal.value.message
    assert refusal.value.failure_type == "BadInput"


def test_the_place_inside_an_argument_is_named_too():
    def take(line: Line) -> None: ...

    with pytest.raises(BadInput, match=r"'line'.*\$\.cents") as refusal:
        bind_input(take, encode([{"sku": "a", "cents": "5"}]))
    assert refusal.value.path == "$.cents"


def test_an_input_that_can_not_be_read_is_a_bad_input():
    with pytest.raises(BadInput):
        bind_input(charge, b"m\xc1")


def test_annotations_in_text_are_resolved_one_by_one():
    def take(a: "int", b: "NoSuchThing", c: "list[Line]") -> "Line": ...  # noqa: F821

    with pytest.raises(BadInput, match="'a'"):
        bind_input(take, encode(["1", 2, []]))
    args, _ = bind_input(take, encode([1, {"anything": 1}, [{"sku": "a", "cents": 1}]]))
    assert args == (1, {"anything": 1}, [Line("a", 1)])
    payload = encode({"sku": "a", "cents": 1})
    assert values.decode_result(take, payload) == Line("a", 1)
    assert values.decode_result(None, payload) == {"sku": "a", "cents": 1}


def test_methods_partials_wrapped_functions_and_callables_are_functions():
    class Shop:
        def sell(self, cents: "int") -> None: ...

        def __call__(self, cents: "int") -> None: ...

    @functools.wraps(charge)
    def outer(*args: Any, **kwargs: Any) -> Any: ...

    for function in (Shop().sell, Shop()):
        assert bind_input(function, encode([5])) == ((5,), {})
        with pytest.raises(BadInput, match="cents"):
            bind_input(function, encode(["5"]))
    with pytest.raises(BadInput, match="cents"):
        bind_input(functools.partial(charge, "o"), encode(["5"]))
    with pytest.raises(BadInput, match="cents"):
        bind_input(outer, encode(["o", "5"]))


def test_arguments_are_sent_as_an_array_or_with_names_as_one_object():
    assert encode_input(charge, (), {}) is None
    assert decode(encode_input(charge, ("o", 5), {})) == ["o", 5]
    assert decode(encode_input(None, ({"a": 1},), {})) == [{"a": 1}]
    assert decode(encode_input(charge, ("o",), {"cents": 5})) == {"order": "o", "cents": 5}
    assert decode(encode_input(None, (), {"cents": 5})) == {"cents": 5}


@settings(deadline=None)
@given(
    st.integers(0, 9), st.integers(0, 9), st.text(), st.dictionaries(st.just("k"), st.floats(0, 1))
)
def test_what_was_sent_is_what_the_function_gets(first, second, note, more):
    payload = encode_input(gather, (first, second), {"note": note, **more})
    args, kwargs = bind_input(gather, payload)
    assert args == (first,)
    assert kwargs == {"second": second, "note": note, **more}


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "said"),
    [
        (None, (1,), {"a": 1}, "function"),
        (charge, ("o",), {"order": "p", "cents": 1}, "twice"),
        (charge, ("o",), {"tip": 1}, "'tip' is unexpected"),
        (charge, (), {"order": "o"}, "'cents' is missing"),
        (gather, (1, 2, 3), {"note": "n"}, "have a name"),
    ],
)
def test_arguments_that_can_not_be_bound_are_refused(function, args, kwargs, said):
    with pytest.raises(InvalidArgument, match=said):
        encode_input(function, args, kwargs)
