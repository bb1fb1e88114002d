"""Failures: whatever can be raised can be reported, and what was marked stays marked."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
import threading
from decimal import Decimal

import msgspec
import pytest

from perdure import failures, values
from perdure.errors import InvalidArgument, NotFound
from perdure.failures import (
    Cancelled,
    CompleteLater,
    Error,
    Failure,
    NonRetryable,
    failure_from_exception,
    is_non_retryable,
    qualified_name,
)

KIB_64 = 64 * 1024


class KeywordOnly(Exception):
    def __init__(self, *, a: int, b: int) -> None:
        super().__init__(f"a={a} b={b}")


class SilentStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class Hostile(Exception):
    @property
    def __cause__(self):
        raise RuntimeError("not even this")


class Declined(NonRetryable):
    """A subclass with a constructor of its own that knows nothing of ours."""

    def __init__(self, card: str) -> None:
        Exception.__init__(self, card)


def raised(exc: BaseException) -> BaseException:
    try:
        raise exc  # noqa: TRY301
    except BaseException as caught:  # noqa: BLE001 - whatever it is, it is wanted
        return caught


def wrapped(exc: BaseException, times: int = 1) -> BaseException:
    for i in range(times):
        try:
            raise RuntimeError(f"layer {i}") from exc  # noqa: TRY301
        except RuntimeError as caught:
            exc = caught
    return exc


def causes(failure: Failure) -> list[Failure]:
    found, link = [], failure.cause
    while link is not None:
        found.append(link)
        link = link.cause
    return found


# --- the message -------------------------------------------------------------


@pytest.mark.parametrize("codec", [msgspec.json, msgspec.msgpack])
def test_a_failure_survives_the_wire(codec):
    failure = Failure(
        "T", "m", True, 5, {"a": [1]}, "stack", Failure("Inner", "n"), ("mod.T", "mod.Base")
    )
    assert codec.decode(codec.encode(failure), type=Failure) == failure


def test_a_failure_in_json_has_the_names_of_the_page():
    assert msgspec.json.encode(Failure("T", "m")) == b'{"type":"T","message":"m"}'
    sent = b'{"type":"T","message":"m","non_retryable":true,"retry_after_ms":9,"details":{"a":1}}'
    assert msgspec.json.decode(sent, type=Failure) == Failure("T", "m", True, 9, {"a": 1})


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"type": ""}, "type"),
        ({"type": "x" * 257}, "type"),
        ({"type": 5}, "type"),
        ({"message": None}, "message"),
        ({"non_retryable": 1}, "non_retryable"),
        ({"retry_after_ms": -1}, "retry_after_ms"),
        ({"retry_after_ms": True}, "retry_after_ms"),
        ({"retry_after_ms": 1.5}, "retry_after_ms"),
        ({"retry_after_ms": float("nan")}, "retry_after_ms"),
        ({"details": object()}, "details"),
        ({"details": float("inf")}, "details"),
        ({"stack": 5}, "stack"),
        ({"cause": "x"}, "cause"),
        ({"type_chain": (1,)}, "type_chain"),
    ],
)
def test_what_is_no_failure_is_refused_naming_the_field(fields, name):
    with pytest.raises(InvalidArgument) as refusal:
        Failure(**{"type": "T", "message": "m", **fields})
    assert refusal.value.field == name


def test_a_failure_is_checked_when_it_is_decoded():
    with pytest.raises(InvalidArgument, match="type"):
        msgspec.json.decode(b'{"type":"","message":"m"}', type=Failure)


def test_details_are_plain_data_from_the_start():
    assert Failure("T", "m", details={"price": Decimal("1.5")}).details == {"price": "1.5"}


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600", "\ud800"])
@pytest.mark.parametrize("field", ["message", "stack"])
def test_texts_are_cut_to_64_kib_and_say_so(letter, field):
    text = "begin" + letter * 1_000_000 + "end"
    kept = getattr(Failure("T", **{"message": "m", field: text}), field)
    assert len(kept.encode()) <= KIB_64
    assert len(kept.encode()) > KIB_64 - 100
    assert kept.startswith("begin")
    assert kept.endswith("end")
    assert "cut, 1000008 characters" in kept


@pytest.mark.parametrize("text", ["x" * KIB_64, "é" * (KIB_64 // 2), "", "short"])
def test_a_text_that_fits_is_left_alone(text):
    assert Failure("T", text).message == text
    assert "cut" in Failure("T", text + "y" * (KIB_64 + 1)).message


def test_of_many_causes_the_nearest_and_the_first_one_are_kept():
    failure = Failure("T0", "m")
    for i in range(1, 30):
        failure = Failure(f"T{i}", "m", cause=failure)
    kept = [cause.type for cause in causes(failure)]
    assert len(kept) == 10
    assert (kept[0], kept[-1]) == ("T28", "T0")


def test_of_a_long_type_chain_both_ends_are_kept():
    chain = Failure("T", "m", type_chain=tuple(f"m.C{i}" for i in range(100))).type_chain
    assert len(chain) == 64
    assert (chain[0], chain[-1]) == ("m.C0", "m.C99")


# --- from an exception -------------------------------------------------------
ROOTS = ("builtins.Exception", "builtins.BaseException")


def test_an_ordinary_exception_is_reported_by_its_class_its_text_and_its_stack():
    failure = failure_from_exception(raised(ValueError("bad cents")))
    assert (failure.type, failure.message, failure.non_retryable) == (
        "ValueError",
        "bad cents",
        False,
    )
    assert failure.type_chain == ("builtins.ValueError", *ROOTS)
    assert "in raised" in (failure.stack or "")
    assert "ValueError: bad cents" in (failure.stack or "")


def test_the_chain_has_all_bases_also_those_that_every_exception_has():
    chain = failure_from_exception(UnicodeError("x")).type_chain
    assert chain == ("builtins.UnicodeError", "builtins.ValueError", *ROOTS)


def test_an_error_has_the_type_it_was_given_and_its_class_in_the_chain():
    failure = failure_from_exception(Error("Busy", "later", retry_after_ms=900, details={"q": 7}))
    assert (failure.type, failure.message, failure.non_retryable) == ("Busy", "later", False)
    assert (failure.retry_after_ms, failure.details) == (900, {"q": 7})
    assert failure.type_chain == ("Busy", qualified_name(Error), *ROOTS)


def test_a_marked_error_ends_the_activity_at_any_depth():
    assert failure_from_exception(NonRetryable("T", "m")).non_retryable
    assert failure_from_exception(Error("T", "m", non_retryable=True)).non_retryable
    for depth in (1, 2, 50, 3_000):
        deep = wrapped(NonRetryable("Root", "m"), depth)
        failure = failure_from_exception(deep)
        assert is_non_retryable(deep)
        assert failure.non_retryable
        assert failure.type == "RuntimeError"
        assert "Root" in failure.type_chain
        assert qualified_name(NonRetryable) in failure.type_chain
        assert causes(failure)[-1].type == "Root"


def test_an_implicit_context_does_not_mark():
    try:
        try:
            raise NonRetryable("T", "old")  # noqa: TRY301
        except NonRetryable:
            raise RuntimeError("new")  # noqa: B904 - the implicit context is the point
    except RuntimeError as caught:
        failure = failure_from_exception(caught)
    assert not failure.non_retryable
    assert failure.cause is None
    assert failure.type_chain == ("builtins.RuntimeError", *ROOTS)
    assert "old" in (failure.stack or "")  # It is still there for who looks for the reason.


def test_the_wait_that_was_asked_for_survives_wrapping():
    assert failure_from_exception(wrapped(Error("T", retry_after_ms=70), 5)).retry_after_ms == 70
    group = ExceptionGroup("g", [Error("A", retry_after_ms=5), Error("B", retry_after_ms=9)])
    assert failure_from_exception(wrapped(group)).retry_after_ms == 9
    assert failure_from_exception(wrapped(ValueError())).retry_after_ms is None


def test_a_group_is_marked_when_every_leaf_is():
    marked, plain = NonRetryable("A"), ValueError("b")
    nested = ExceptionGroup("in", [marked, wrapped(NonRetryable("C"))])
    assert is_non_retryable(ExceptionGroup("g", [marked, nested]))
    assert is_non_retryable(wrapped(ExceptionGroup("g", [marked])))
    assert not is_non_retryable(ExceptionGroup("g", [marked, plain]))
    assert not is_non_retryable(ExceptionGroup("g", [nested, ExceptionGroup("h", [plain])]))


def test_circles_of_causes_and_groups_end():
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one
    assert [cause.message for cause in causes(failure_from_exception(one))] == ["2"]
    leaf = ValueError("leaf")
    group = ExceptionGroup("g", [leaf])
    leaf.__cause__ = group
    assert not is_non_retryable(group)
    assert failure_from_exception(group).type == "ExceptionGroup"
    assert failure_from_exception(leaf).type == "ValueError"


def test_the_explicit_causes_are_reported_with_their_texts():
    failure = failure_from_exception(wrapped(KeyError("cents"), 2))
    assert [(c.type, c.message) for c in causes(failure)] == [
        ("RuntimeError", "layer 0"),
        ("KeyError", "'cents'"),
    ]


def test_a_subclass_with_its_own_constructor_keeps_its_meaning():
    failure = failure_from_exception(Declined("4242"))
    assert (failure.type, failure.message, failure.non_retryable) == ("Declined", "4242", True)


def test_failures_of_the_engine_have_their_type_and_their_meaning():
    for kind in (values.BadResult, values.PayloadTooLarge):
        failure = failure_from_exception(kind("too much"))
        assert (failure.type, failure.non_retryable) == (kind.__name__, True)
    failure = failure_from_exception(values.BadInput("cents", "missing"))
    assert (failure.type, failure.non_retryable) == ("BadInput", True)
    assert not failure_from_exception(NotFound("x")).non_retryable
    assert failures.engine_failure("BadInput", "x").non_retryable
    assert not failures.engine_failure("WorkerDied", "x").non_retryable
    assert failures.engine_failure("ScheduleToCloseTimeout", "x").non_retryable


def test_cancellation_is_not_taken_for_a_failure():
    assert not issubclass(Cancelled, Exception)
    assert issubclass(Cancelled, asyncio.CancelledError)
    assert not issubclass(CompleteLater, Exception)
    assert failure_from_exception(Cancelled()).type == "Cancelled"
    assert failure_from_exception(asyncio.CancelledError()).type == "Cancelled"


# --- whatever it is, it is reported ------------------------------------------


@pytest.mark.parametrize(
    ("exc", "type_name", "part"),
    [
        (KeywordOnly(a=1, b=2), "KeywordOnly", "a=1 b=2"),
        (ValueError(threading.Lock()), "ValueError", "lock"),
        (SilentStr(), "SilentStr", "its __str__ raised RuntimeError"),
        (type("Main", (Exception,), {"__module__": "__main__"})("m"), "Main", "m"),
        (type("N" * 1_000, (Exception,), {})("m"), "N" * 256, "m"),
        (ValueError("x" * 2_000_000), "ValueError", "cut"),
        (ValueError("\ud800"), "ValueError", "\\ud800"),
        (Error("T\ud800", "m"), "T\\ud800", "m"),
        (Hostile("m"), "Hostile", ""),
        (SystemExit(3), "SystemExit", "3"),
        (Error("T", "m", details=threading.Lock()), "T", "m"),
    ],
)
def test_any_exception_makes_a_failure_that_travels(exc, type_name, part):
    failure = failure_from_exception(raised(exc))
    assert failure.type == type_name
    assert part in failure.message
    sent = msgspec.msgpack.encode(failure)
    assert msgspec.msgpack.decode(sent, type=Failure) == failure
    assert len(sent) < 3 * KIB_64


def test_details_that_can_not_be_sent_do_not_hide_the_failure():
    failure = failure_from_exception(Error("T", "m", details={"lock": threading.Lock()}))
    assert failure.message == "m"
    assert failure.details.startswith("<details left out: ")
    big = failure_from_exception(Error("T", "m", details="x" * 3_000_000))
    assert "details left out" in big.details


def test_a_recursion_error_is_reported_bounded():
    def down(n: int) -> int:
        return down(n + 1) + 1

    try:
        down(0)
    except RecursionError as caught:
        failure = failure_from_exception(caught)
    assert failure.type == "RecursionError"
    assert len((failure.stack or "").encode()) <= KIB_64


def test_ten_long_causes_stay_below_the_limit_of_a_message():
    exc: BaseException = ValueError("x" * 1_000_000)
    for _ in range(20):
        try:
            raise ValueError("y" * 1_000_000) from exc  # noqa: TRY301
        except ValueError as caught:
            exc = caught
    assert len(msgspec.msgpack.encode(failure_from_exception(exc))) < 512 * 1024


def test_an_error_refuses_what_no_policy_could_name():
    for wrong in ("", "x" * 257, 5):
        with pytest.raises(InvalidArgument, match="type"):
            Error(wrong, "m")
    with pytest.raises(InvalidArgument, match="retry_after_ms"):
        Error("T", "m", retry_after_ms=-1)


def test_an_error_can_be_rebuilt_in_another_process():
    error = Error("T", "m", retry_after_ms=4, details=[1], non_retryable=True)
    again = pickle.loads(pickle.dumps(error))
    assert failure_from_exception(again) == failure_from_exception(error)
    assert str(again) == "m"


def test_details_may_be_a_dataclass():
    @dataclasses.dataclass
    class Where:
        line: int

    assert failure_from_exception(Error("T", "m", details=Where(4))).details == {"line": 4}
