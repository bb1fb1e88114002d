from __future__ import annotations

import pytest

from supervisors.intensity import Intensity, delay_ms, is_crash_loop, is_kill_loop


@pytest.mark.parametrize(
    ("ready_at_ms", "died_at_ms", "counts"),
    [
        (None, 5_000, True),
        (5_000, 5_000, True),
        (5_000, 6_000, True),
        (5_000, 6_001, False),
        (5_000, 500_000, False),
    ],
)
def test_only_a_death_before_readiness_or_within_a_second_after_it_counts(
    ready_at_ms, died_at_ms, counts
):
    assert is_crash_loop(ready_at_ms=ready_at_ms, died_at_ms=died_at_ms) is counts


@pytest.mark.parametrize(
    ("ready_at_ms", "again_unready", "waits"),
    [(None, True, True), (None, False, False), (5_000, True, False), (5_000, False, False)],
)
def test_a_restart_after_a_kill_waits_only_where_the_life_before_ended_unready_too(
    ready_at_ms, again_unready, waits
):
    assert is_kill_loop(ready_at_ms=ready_at_ms, again_unready=again_unready) is waits


def test_five_crashes_in_the_period_are_borne_and_the_sixth_is_too_many():
    intensity = Intensity(restarts_max=5, period_ms=10_000)
    window: tuple[int, ...] = ()
    verdicts = []
    for at_ms in (0, 100, 200, 300, 400, 10_000):
        window, too_many = intensity.record(window, at_ms)
        verdicts.append(too_many)
    assert verdicts == [False, False, False, False, False, True]


def test_a_crash_older_than_the_period_is_forgotten():
    intensity = Intensity(restarts_max=1, period_ms=10_000)
    window, _ = intensity.record((), 0)
    assert intensity.record(window, 10_000) == ((0, 10_000), True)
    assert intensity.record(window, 10_001) == ((10_001,), False)


def test_crashes_in_a_row_are_restarted_ever_slower_up_to_five_seconds():
    assert [delay_ms(n) for n in range(10)] == [0, 0, 50, 100, 200, 400, 800, 1_600, 3_200, 5_000]
    assert delay_ms(10_000) == 5_000
