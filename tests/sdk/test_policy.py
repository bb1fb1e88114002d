"""Retry policies: the worked example, the defaults, jitter's promises, and what is refused."""

from __future__ import annotations

import math
import random
import statistics
import timeit

import msgspec
import pytest

from perdure.errors import InvalidArgument
from perdure.failures import Failure, failure_from_exception, qualified_name
from perdure.policy import (
    RetryPolicy,
    attempt_of,
    backoff_ms,
    jitter_ms,
    matches_non_retryable,
    ms,
    retry_delay_ms,
)

EXAMPLE = RetryPolicy(initial_ms=1_000, backoff=2, max_interval_ms=10_000, max_attempts=4)


def no_jitter(delay_ms: float, u: float) -> float:
    return delay_ms


class BadSpec(Exception):
    pass


class WorseSpec(BadSpec):
    pass


# --- backoff -----------------------------------------------------------------


def test_the_worked_example():
    delays = [backoff_ms(EXAMPLE, n) for n in range(1, 7)]
    assert delays == [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]
    assert [jitter_ms(d, 0.5) for d in delays] == [500, 1_000, 2_000, 4_000, 5_000, 5_000]
    assert [retry_delay_ms(EXAMPLE, n, 0.5) for n in range(1, 7)] == [
        500,
        1_000,
        2_000,
        4_000,
        5_000,
        5_000,
    ]


def test_an_empty_policy_has_the_defaults():
    assert RetryPolicy().resolved() == RetryPolicy(1_000, 2.0, 60_000, 5, (), 0)
    assert [backoff_ms(RetryPolicy(), n) for n in (1, 2, 6, 7)] == [1_000, 2_000, 32_000, 60_000]


def test_unset_fields_are_kept_as_given_until_resolved():
    policy = RetryPolicy(initial_ms=0, backoff=0.5, max_attempts=0)
    assert (policy.initial_ms, policy.backoff, policy.max_attempts) == (0, 0.5, 0)
    resolved = policy.resolved(dlq_after_attempts=9)
    assert (resolved.initial_ms, resolved.backoff, resolved.max_attempts) == (1_000, 2.0, 9)


def test_what_is_set_survives_resolving():
    policy = RetryPolicy(7, 1.0, 9, 3, ("A",), 2)
    assert policy.resolved(dlq_after_attempts=50) == policy


@pytest.mark.parametrize("growth", [0, 0.5, 0.999])
def test_a_growth_below_one_counts_as_unset(growth):
    assert backoff_ms(RetryPolicy(1_000, growth, 60_000), 3) == 4_000


def test_a_growth_of_one_is_a_constant_backoff():
    policy = RetryPolicy(initial_ms=1_500, backoff=1.0)
    assert {backoff_ms(policy, n) for n in (1, 2, 10**6, 2**31, 10**400)} == {1_500.0}


def test_a_growth_that_is_no_whole_number():
    policy = RetryPolicy(initial_ms=1_000, backoff=1.5, max_interval_ms=60_000)
    assert [backoff_ms(policy, n) for n in (1, 2, 3, 4)] == [1_000, 1_500, 2_250, 3_375]


def test_the_cap_holds_from_the_first_backoff_on():
    policy = RetryPolicy(initial_ms=1, backoff=3, max_interval_ms=10)
    assert [backoff_ms(policy, n) for n in range(1, 6)] == [1, 3, 9, 10, 10]
    assert backoff_ms(RetryPolicy(initial_ms=50, max_interval_ms=10), 1) == 10


@pytest.mark.parametrize("n", [7, 1_024, 1_025, 2_000, 10**6, 10**9, 2**31, 10**400])
def test_no_attempt_number_overflows(n):
    assert backoff_ms(RetryPolicy(1_000, 2.0, 60_000), n) == 60_000
    assert backoff_ms(RetryPolicy(1_000, 1e300, 60_000), n) == 60_000


def test_a_growth_barely_above_one_is_exact_for_late_attempts():
    policy = RetryPolicy(1_000, 1.000001, 60_000)
    expected = 1_000 * math.exp(10**6 * math.log(1.000001))
    assert backoff_ms(policy, 10**6 + 1) == pytest.approx(expected, rel=1e-9)


def test_a_late_backoff_costs_no_more_than_an_early_one():
    policy = RetryPolicy(1_000, 2.0, 60_000)
    for n in (1, 1_025, 10**9, 2**31):
        best = min(timeit.repeat(lambda n=n: backoff_ms(policy, n), number=500, repeat=5)) / 500
        assert best < 20e-6


@pytest.mark.parametrize("n", [0, -1, True, 1.0, None])
def test_attempts_are_counted_from_one(n):
    with pytest.raises(InvalidArgument, match="n must"):
        backoff_ms(RetryPolicy(), n)


# --- jitter ------------------------------------------------------------------


def test_jitter_is_full_and_never_on_top_of_the_backoff():
    dice, policy, draws = random.Random(5), RetryPolicy(8_000, 2.0, 8_000), 20_000
    delays = [jitter_ms(backoff_ms(policy, 1), dice.random()) for _ in range(draws)]
    assert all(0 <= delay < 8_000 for delay in delays)
    sd_of_mean = 8_000 / math.sqrt(12 * draws)
    assert abs(statistics.fmean(delays) - 4_000) < 4 * sd_of_mean
    assert statistics.stdev(delays) == pytest.approx(8_000 / math.sqrt(12), rel=0.03)


def test_the_largest_draw_stays_below_the_backoff():
    largest = math.nextafter(1.0, 0.0)
    for bound in (1.0, 3.0, 1_000.0, 60_000.0, 59_999.0, 2.0**53 - 1):
        assert jitter_ms(bound, largest) < bound


def test_a_floor_lies_under_the_jittered_delay():
    policy = RetryPolicy(8_000, 2.0, 8_000, min_interval_ms=1_000)
    dice = random.Random(6)
    delays = [retry_delay_ms(policy, 1, dice.random()) for _ in range(2_000)]
    assert min(delays) == 1_000
    assert max(delays) < 8_000


def test_a_floor_above_the_backoff_makes_the_delay_the_backoff():
    policy = RetryPolicy(1_000, 2.0, 60_000, min_interval_ms=3_000)
    assert [retry_delay_ms(policy, n, 0.0) for n in (1, 2, 3)] == [1_000, 2_000, 3_000]


def test_delays_are_rounded_down():
    assert retry_delay_ms(RetryPolicy(1_000), 1, 0.9999) == 999


def test_a_test_may_replace_the_jitter():
    assert retry_delay_ms(EXAMPLE, 3, 0.1, no_jitter) == 4_000
    assert retry_delay_ms(EXAMPLE, 3, 0.5, None) == 2_000


@pytest.mark.parametrize("drawn", [-1.0, math.nan, math.inf])
def test_a_jitter_that_gives_no_delay_is_refused(drawn):
    with pytest.raises(InvalidArgument, match="jitter"):
        retry_delay_ms(EXAMPLE, 1, 0.5, lambda delay, u: drawn)


def test_a_failure_may_ask_for_more_time_but_not_for_less():
    assert retry_delay_ms(EXAMPLE, 1, 0.5, retry_after_ms=30_000) == 30_000
    assert retry_delay_ms(EXAMPLE, 1, 0.5, retry_after_ms=1) == 500


# --- what is refused ---------------------------------------------------------

DURATIONS = ["initial_ms", "max_interval_ms", "min_interval_ms"]
NO_NUMBERS = [-1, -0.5, math.nan, math.inf, -math.inf, True, False, None, "5"]


@pytest.mark.parametrize("field", [*DURATIONS, "backoff", "max_attempts"])
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_is_refused_naming_the_field(field, value):
    with pytest.raises(InvalidArgument, match=field) as refusal:
        RetryPolicy(**{field: value})
    assert refusal.value.field == field


@pytest.mark.parametrize("field", [*DURATIONS, "max_attempts"])
def test_what_must_be_whole_is_refused_with_a_fraction_and_taken_without(field):
    with pytest.raises(InvalidArgument, match=field):
        RetryPolicy(**{field: 1.5})
    kept = getattr(RetryPolicy(**{field: 3.0}), field)
    assert (kept, type(kept)) == (3, int)


def test_attempts_have_a_limit_and_the_refusal_says_how_they_count():
    assert RetryPolicy(max_attempts=2**31 - 1).max_attempts == 2**31 - 1
    for wrong in (2**31, -1, 10**5_000):
        with pytest.raises(InvalidArgument, match="attempts include the first"):
            RetryPolicy(max_attempts=wrong)
    with pytest.raises(InvalidArgument, match="dlq_after_attempts"):
        RetryPolicy().resolved(dlq_after_attempts=0)


@pytest.mark.parametrize("entries", ["BadSpec", BadSpec, (1,), ("",), (int,), None])
def test_what_names_no_failures_is_refused(entries):
    with pytest.raises(InvalidArgument, match="non_retryable"):
        RetryPolicy(non_retryable=entries)


def test_a_policy_can_be_given_in_the_order_of_the_page():
    policy = RetryPolicy(1, 2.5, 3, 4, ("E",), 5)
    assert msgspec.structs.astuple(policy) == (1, 2.5, 3, 4, ("E",), 5)


# --- on the wire -------------------------------------------------------------


@pytest.mark.parametrize("codec", [msgspec.msgpack, msgspec.json])
def test_a_policy_survives_the_wire(codec):
    policy = RetryPolicy(1, 2.5, 3, 4, (BadSpec, "Other"), 5)
    assert codec.decode(codec.encode(policy), type=RetryPolicy) == policy


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ((-1, 2.0, 3, 4, (), 0), "initial_ms"),
        ((1, math.nan, 3, 4, (), 0), "backoff"),
        ((1, math.inf, 3, 4, (), 0), "backoff"),
        ((1, 2.0, 3, 2**31, (), 0), "max_attempts"),
        ((1, 2.0, 3, 4, ("",), 0), "non_retryable"),
        ((1, 2.0, 3, 4, (), -5), "min_interval_ms"),
    ],
)
def test_a_policy_is_checked_when_it_is_decoded(sent, field):
    with pytest.raises(InvalidArgument, match=field):
        msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=RetryPolicy)


# --- listed failures ---------------------------------------------------------


def test_a_class_is_kept_as_its_qualified_name():
    assert RetryPolicy(non_retryable=[BadSpec]).non_retryable == (qualified_name(BadSpec),)
    assert qualified_name(BadSpec) == f"{__name__}.BadSpec"


def test_a_listed_class_matches_itself_its_subclasses_and_what_was_raised_from_it():
    policy = RetryPolicy(non_retryable=(BadSpec,))
    wrapped = RuntimeError("outer")
    wrapped.__cause__ = WorseSpec("inner")
    for exc in (BadSpec("x"), WorseSpec("x"), wrapped):
        assert matches_non_retryable(policy, failure_from_exception(exc))


def test_an_unrelated_class_of_the_same_short_name_does_not_match_a_listed_class():
    other = type("BadSpec", (Exception,), {"__module__": "somewhere.else"})
    failure = failure_from_exception(other("x"))
    assert not matches_non_retryable(RetryPolicy(non_retryable=(BadSpec,)), failure)
    assert matches_non_retryable(RetryPolicy(non_retryable=("BadSpec",)), failure)


def test_a_listed_subclass_does_not_match_its_base():
    policy = RetryPolicy(non_retryable=(WorseSpec,))
    assert not matches_non_retryable(policy, failure_from_exception(BadSpec("x")))


def test_a_name_is_compared_with_the_type_and_the_short_names():
    policy = RetryPolicy(non_retryable=("BadSpec",))
    assert matches_non_retryable(policy, Failure("BadSpec", "x"))
    assert matches_non_retryable(policy, failure_from_exception(WorseSpec("x")))
    assert not matches_non_retryable(policy, Failure("BadSpecial", "x"))


def test_the_message_is_never_looked_at():
    policy = RetryPolicy(non_retryable=("BadSpec", BadSpec))
    message = f"BadSpec {qualified_name(BadSpec)}"
    assert not matches_non_retryable(policy, Failure("Other", message))
    assert not matches_non_retryable(policy, failure_from_exception(RuntimeError("BadSpec")))


def test_an_implicit_context_does_not_match():
    try:
        try:
            raise BadSpec("first")  # noqa: TRY301
        except BadSpec:
            raise RuntimeError("new")  # noqa: B904 - the implicit context is the point
    except RuntimeError as caught:
        failure = failure_from_exception(caught)
    assert not matches_non_retryable(RetryPolicy(non_retryable=(BadSpec,)), failure)


def test_a_group_matches_what_all_its_leaves_are():
    policy = RetryPolicy(non_retryable=(BadSpec,))
    every = ExceptionGroup("all", [BadSpec("a"), WorseSpec("b")])
    some = ExceptionGroup("some", [BadSpec("a"), OSError("b")])
    assert matches_non_retryable(policy, failure_from_exception(every))
    assert not matches_non_retryable(policy, failure_from_exception(some))


# --- ms ----------------------------------------------------------------------


def test_lengths_are_added_up_in_milliseconds():
    assert ms(minutes=5) == 300_000
    assert ms(days=1, hours=1, minutes=1, seconds=1, milliseconds=1) == 90_061_001
    assert ms() == 0


def test_a_fraction_counts_as_the_decimal_that_was_written():
    assert [ms(seconds=1.005), ms(minutes=0.5), ms(seconds=4.35)] == [1_005, 30_000, 4_350]
    assert type(ms(seconds=0.1)) is int


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, "1", None])
def test_what_is_no_length_is_refused_naming_the_part(value):
    with pytest.raises(InvalidArgument, match="hours"):
        ms(hours=value)


def test_a_length_below_a_millisecond_is_not_rounded_away():
    with pytest.raises(InvalidArgument, match="whole"):
        ms(milliseconds=0.5)


def test_attempts_without_end_have_a_name_and_are_told_without_a_limit():
    policy = RetryPolicy(max_attempts=RetryPolicy.UNLIMITED)
    assert policy.resolved(5).max_attempts == RetryPolicy.UNLIMITED
    assert attempt_of(7, policy.max_attempts) == "attempt 7"
    assert attempt_of(7, 9) == "attempt 7 of 9"
