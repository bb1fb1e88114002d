"""Which time counts for retention."""

from __future__ import annotations

import pytest

from perdure.store.leaps import LEAP_MS, LEAPS_KEPT, Leap, decode, due_ms, encode, grown
from perdure.store.protocol import StoreError

DAY_MS = LEAP_MS


def test_what_lies_between_two_boots_and_is_longer_than_a_day_is_a_leap_but_for_that_day():
    assert grown((), 5, 5 + DAY_MS, is_same_boot=False) == ()
    assert grown((), 5, 6 + DAY_MS, is_same_boot=False) == (Leap(6 + DAY_MS, 1),)


def test_a_clock_does_not_leap_within_a_boot_nor_at_the_first_epoch_of_a_store():
    assert grown((), 5, 9 * DAY_MS, is_same_boot=True) == ()
    assert grown((), 0, 9 * DAY_MS, is_same_boot=False) == ()


def test_a_leap_counts_for_what_was_before_it_only():
    leaps = (Leap(100 * DAY_MS, 90 * DAY_MS),)
    assert due_ms(leaps, 9 * DAY_MS, 7 * DAY_MS) == (9 + 7 + 90) * DAY_MS
    assert due_ms(leaps, 100 * DAY_MS, 7 * DAY_MS) == 107 * DAY_MS


def test_what_was_over_before_a_leap_was_over_then():
    leaps = (Leap(100 * DAY_MS, 90 * DAY_MS),)
    assert due_ms(leaps, DAY_MS, 9 * DAY_MS) == 10 * DAY_MS
    assert due_ms(leaps, DAY_MS, 9 * DAY_MS + 1) == 100 * DAY_MS + 1


def test_leaps_add_up():
    leaps = (Leap(20 * DAY_MS, 5 * DAY_MS), Leap(50 * DAY_MS, 25 * DAY_MS))
    assert due_ms(leaps, 14 * DAY_MS, 10 * DAY_MS) == (14 + 10 + 5 + 25) * DAY_MS


def test_of_very_many_leaps_the_oldest_become_one_and_nothing_is_due_earlier():
    leaps = ()
    for number in range(1, LEAPS_KEPT + 6):
        at_ms = number * 10 * DAY_MS
        before, leaps = leaps, grown(leaps, at_ms - 3 * DAY_MS, at_ms, is_same_boot=False)
        assert len(leaps) <= LEAPS_KEPT
        for from_ms in range(DAY_MS, at_ms, 7 * DAY_MS):
            assert due_ms(leaps, from_ms, 2 * at_ms) >= due_ms(before, from_ms, 2 * at_ms)


def test_leaps_survive_being_kept_and_what_makes_no_sense_is_said():
    leaps = (Leap(6, 1), Leap(10, 2))
    assert decode(encode(leaps)) == leaps
    assert decode(None) == ()
    with pytest.raises(StoreError, match="leaps"):
        decode(b"\xc1")
