"""spec/activities.md, "Retry policy": when the next attempt is, to the millisecond."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest

from perdure import RetryPolicy, activity
from perdure.errors import InvalidArgument
from perdure.failures import Failure
from perdure.policy import backoff_ms, jitter_ms, retry_delay_ms
from tests.spec.conftest import BOOM, WORKED, Scene, begun, no_jitter


def delays(scene: Scene, attempts: int) -> list[int]:
    """How long after each of the first failures the next attempt is due."""
    found = []
    for _ in range(attempts):
        assert scene.fail() == "Retrying"
        due_ms = scene.pending().due_ms
        found.append(due_ms - scene.clock.now_ms)
        scene.at(due_ms)
    return found


# --- the worked example ------------------------------------------------------
def test_the_worked_example_to_the_millisecond():
    scene = begun(retry=WORKED)
    assert scene.take().attempt == 1
    scene = begun(retry=WORKED)
    assert scene.fail() == "Retrying"
    scene.at(999)
    assert scene.poll() is None
    scene.at(1_000)
    task = scene.take()
    assert task.attempt == 2
    assert scene.engine.fail_activity_task(task.token, BOOM) == "Retrying"
    scene.at(2_999)
    assert scene.poll() is None
    scene.at(3_000)
    task = scene.take()
    assert task.attempt == 3
    assert scene.engine.fail_activity_task(task.token, BOOM) == "Retrying"
    scene.at(6_999)
    assert scene.poll() is None
    scene.at(7_000)
    task = scene.take()
    assert task.attempt == 4
    assert scene.engine.fail_activity_task(task.token, BOOM) == "DeadLettered"
    assert scene.engine.run_workflow_tasks() == 0
    scene.at(100_000_000)
    assert scene.poll() is None
    scene.engine.redrive_dead_letter("w", "a")
    assert scene.take().attempt == 1


@pytest.mark.parametrize(
    ("n", "d_n"), [(1, 1_000), (2, 2_000), (3, 4_000), (4, 8_000), (5, 10_000), (6, 10_000)]
)
def test_the_table_of_the_worked_example(n, d_n):
    assert backoff_ms(WORKED, n) == d_n
    assert retry_delay_ms(WORKED, n, 0.5) == d_n // 2
    assert retry_delay_ms(WORKED, n, 0.5, no_jitter) == d_n


def test_six_failures_of_an_engine_wait_what_the_table_says():
    policy = RetryPolicy(1_000, 2.0, 10_000, 100)
    assert delays(begun(retry=policy), 6) == [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]
    halved = begun(retry=policy, jitter=lambda delay_ms, u: delay_ms / 2)
    assert delays(halved, 6) == [500, 1_000, 2_000, 4_000, 5_000, 5_000]


# --- defaults ----------------------------------------------------------------
def test_an_empty_policy_waits_1_2_4_and_8_seconds_and_then_is_dead_lettered():
    scene = begun()
    assert delays(scene, 4) == [1_000, 2_000, 4_000, 8_000]
    assert scene.fail() == "DeadLettered"
    assert scene.clock.now_ms == 15_000


def test_the_default_cap_is_a_minute():
    scene = begun(retry=RetryPolicy(max_attempts=100))
    assert delays(scene, 9)[5:] == [32_000, 60_000, 60_000, 60_000]


def test_a_policy_without_max_attempts_takes_the_servers():
    scene = begun(dlq=2)
    assert scene.pending().max_attempts == 2
    assert delays(scene, 1) == [1_000]
    assert scene.fail() == "DeadLettered"


def test_a_policys_own_max_attempts_wins_over_the_servers():
    scene = begun(dlq=2, retry=RetryPolicy(max_attempts=3))
    assert scene.pending().max_attempts == 3
    delays(scene, 2)
    assert scene.fail() == "DeadLettered"


def test_max_attempts_includes_the_first():
    scene = begun(retry=RetryPolicy(max_attempts=1))
    assert scene.fail() == "DeadLettered"
    assert scene.dead().attempts == 1


@pytest.mark.parametrize(
    "unset",
    [
        RetryPolicy(initial_ms=0, backoff=0, max_interval_ms=0, max_attempts=0),
        RetryPolicy(backoff=0.999),
        RetryPolicy(min_interval_ms=0),
        RetryPolicy(),
    ],
)
def test_fields_that_count_as_unset_have_their_defaults(unset):
    scene = begun(retry=unset)
    assert delays(scene, 3) == [1_000, 2_000, 4_000]
    assert scene.pending().max_attempts == 5


def test_an_empty_policy_shows_the_defaults():
    assert RetryPolicy() == RetryPolicy(1_000, 2.0, 60_000, 0, (), 0)
    assert RetryPolicy().resolved() == RetryPolicy(max_attempts=5)
    assert RetryPolicy(0, 0, 0).resolved() == RetryPolicy().resolved()


def test_a_growth_factor_of_one_does_not_count_as_unset():
    assert delays(begun(retry=RetryPolicy(700, 1.0, max_attempts=9)), 3) == [700, 700, 700]


def test_a_growth_factor_that_is_no_whole_number():
    policy = RetryPolicy(1_000, 1.5, 1_000_000, 9)
    assert delays(begun(retry=policy), 5) == [1_000, 1_500, 2_250, 3_375, 5_062]


def test_an_initial_backoff_above_the_cap_is_capped():
    assert delays(begun(retry=RetryPolicy(90_000, 2.0, 500, 9)), 2) == [500, 500]


# --- what is refused ---------------------------------------------------------
@pytest.mark.parametrize(
    "field", ["initial_ms", "backoff", "max_interval_ms", "max_attempts", "min_interval_ms"]
)
@pytest.mark.parametrize("bad", [-1, -0.5, math.nan, math.inf, -math.inf, True, False, "1", None])
def test_bad_numbers_are_refused_where_the_policy_is_built(field, bad):
    with pytest.raises(InvalidArgument, match=field) as caught:
        RetryPolicy(**{field: bad})
    assert caught.value.field == field


@pytest.mark.parametrize("bad", [1.5, 2**31, 2**31 + 0.5])
def test_max_attempts_is_a_whole_number_below_2_to_the_31(bad):
    with pytest.raises(InvalidArgument, match="max_attempts"):
        RetryPolicy(max_attempts=bad)
    assert RetryPolicy(max_attempts=2**31 - 1).max_attempts == 2**31 - 1


def test_a_policy_given_to_define_is_checked_there():
    with pytest.raises(InvalidArgument, match="retry"):
        activity.define(retry={"max_attempts": 3})


# --- far out -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("n", "seconds"),
    [
        *[(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (1024, 60), (1025, 60), (2000, 60)],
        *[(10**6, 60), (10**9, 60), (2**31, 60)],
    ],
)
def test_no_attempt_number_overflows(n, seconds):
    assert backoff_ms(RetryPolicy(), n) == seconds * 1_000


@pytest.mark.parametrize("growth", [1.0, 1.0000001, 1.5, 10.0, 1e300])
def test_no_growth_factor_overflows(growth):
    policy = RetryPolicy(1, growth, 60_000)
    assert 1 <= backoff_ms(policy, 10**6) <= backoff_ms(policy, 2**31) <= 60_000


# --- jitter ------------------------------------------------------------------
def test_the_delay_is_the_seeds_draw_times_the_backoff_rounded_down():
    scene = begun(retry=WORKED, jitter=None, seed=7)
    draws = random.Random(7)
    for d_n in (1_000, 2_000, 4_000):
        scene.fail()
        delay_ms = scene.pending().due_ms - scene.clock.now_ms
        assert delay_ms == math.floor(draws.random() * d_n)
        scene.clock.advance_ms(delay_ms)


def test_the_same_seed_draws_the_same_delays_and_another_seed_others():
    def drawn(seed: int) -> list[int]:
        return delays(begun(retry=WORKED, jitter=None, seed=seed), 3)

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_a_jitter_of_ones_own_is_given_the_backoff_and_a_draw():
    seen: list[tuple[float, float]] = []

    def own(delay_ms: float, u: float) -> float:
        seen.append((delay_ms, u))
        return 17.9

    assert delays(begun(retry=WORKED, jitter=own, seed=3), 2) == [17, 17]
    draws = random.Random(3)
    assert seen == [(1_000, draws.random()), (2_000, draws.random())]


def test_20_000_draws_are_uniform_below_the_backoff():
    draws = random.Random(5)
    d = 8_000
    drawn = [jitter_ms(d, draws.random()) for _ in range(20_000)]
    assert all(0 <= delay < d for delay in drawn)
    assert abs(statistics.fmean(drawn) - d / 2) <= 4 * d / math.sqrt(12 * 20_000)
    assert abs(statistics.stdev(drawn) - d / math.sqrt(12)) <= 70


def test_a_thousand_activities_that_fail_at_once_do_not_come_back_together():
    policy = RetryPolicy(8_000, 1.0, 8_000, 3)
    scene = Scene(retry=policy, jitter=None)
    for number in range(1_000):
        scene.client.start_workflow("one", workflow_id=f"w{number}")
    scene.engine.run_workflow_tasks()
    buckets = [0] * 80
    for _ in range(1_000):
        task = scene.take()
        scene.engine.fail_activity_task(task.token, BOOM)
        due_ms = scene.pending(task.workflow_id).due_ms
        assert 0 <= due_ms < 8_000
        buckets[due_ms // 100] += 1
    assert max(buckets) <= 35


def test_a_delay_of_nothing_is_due_at_once():
    scene = begun(retry=WORKED, jitter=lambda delay_ms, u: 0.0)
    scene.fail()
    assert scene.take().attempt == 2


# --- the floor ---------------------------------------------------------------
@pytest.mark.parametrize(
    ("u", "delay_ms"), [(0.0, 300), (0.299, 300), (0.3005, 300), (0.5, 500), (0.9999, 999)]
)
def test_a_floor_lifts_the_jittered_delay(u, delay_ms):
    policy = RetryPolicy(1_000, 2.0, 10_000, 4, min_interval_ms=300)
    scene = begun(retry=policy, jitter=lambda d, _: u * d)
    assert delays(scene, 1) == [delay_ms]


def test_a_floor_above_the_backoff_makes_the_delay_the_backoff():
    policy = RetryPolicy(1_000, 2.0, 10_000, 9, min_interval_ms=3_000)
    scene = begun(retry=policy, jitter=lambda delay_ms, u: 0.0)
    assert delays(scene, 4) == [1_000, 2_000, 3_000, 3_000]


# --- what a failure asks for -------------------------------------------------
def asked(retry_after_ms: Any, **options: Any) -> int:
    scene = begun(**options)
    scene.fail(Failure("Busy", "later", retry_after_ms=retry_after_ms))
    due_ms: int = scene.pending().due_ms
    return due_ms


def test_a_failure_may_ask_for_more_time_than_the_cap():
    assert asked(30_000, retry=WORKED) == 30_000


def test_a_failure_that_asks_for_less_waits_the_backoff():
    assert asked(400, retry=WORKED) == 1_000
    assert asked(0, retry=WORKED) == 1_000
    assert asked(None, retry=WORKED) == 1_000


def test_what_a_failure_asks_for_is_not_jittered():
    assert asked(30_000, retry=WORKED, jitter=None) == 30_000
    assert asked(400, retry=WORKED, jitter=lambda delay_ms, u: 0.0) == 400
