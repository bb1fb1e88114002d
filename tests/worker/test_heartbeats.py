from __future__ import annotations

import pytest

from perdure.worker.heartbeats import Beats, interval_ms


@pytest.mark.parametrize(
    ("heartbeat_ms", "every_ms"),
    [(0, 30_000), (1_000, 800), (10_000, 8_000), (75_000, 60_000), (10**9, 60_000), (1, 0)],
)
def test_at_most_one_heartbeat_leaves_in_four_fifths_of_the_timeout(heartbeat_ms, every_ms):
    assert interval_ms(heartbeat_ms) == every_ms


def test_the_first_leaves_at_once_and_then_the_newest_when_the_interval_is_over():
    beats = Beats(1_000, 0)
    assert beats.take(0) is None
    assert beats.record(b"1")
    assert beats.take(0) == (1, b"1")
    assert beats.record(b"2")
    assert not beats.record(b"3"), "the main loop knows already"
    assert beats.take(799) is None
    assert beats.take(800) == (2, b"3")
    assert beats.take(10_000) is None


def test_ten_thousand_calls_tell_the_main_loop_once():
    beats = Beats(10_000, 0)
    assert sum(beats.record(b"%d" % i) for i in range(10_000)) == 1


def test_beats_rise_from_the_last_that_history_knew():
    beats = Beats(0, 41)
    beats.record(b"x")
    assert beats.take(0) == (42, b"x")


def test_a_mere_sign_of_life_keeps_details_that_were_not_acknowledged():
    beats = Beats(1_000, 0)
    beats.record(b"1")
    beats.take(0)
    beats.record(None)
    assert beats.take(800) == (2, b"1")
    beats.acknowledged(2)
    beats.record(None)
    assert beats.take(1_600) == (3, None)


def test_a_report_carries_the_newest_details_that_did_not_leave():
    beats = Beats(1_000, 0)
    beats.record(b"4")
    beats.take(0)
    for details in (b"3", b"2", b"1"):
        beats.record(details)
    assert beats.unacknowledged() == (b"1", 2)


def test_a_report_carries_details_that_left_and_were_not_acknowledged():
    beats = Beats(1_000, 0)
    beats.record(b"1")
    beats.take(0)
    assert beats.unacknowledged() == (b"1", 1)
    beats.acknowledged(1)
    assert beats.unacknowledged() == (None, 0)


def test_an_acknowledgement_of_an_earlier_beat_does_not_take_newer_details_away():
    beats = Beats(1_000, 0)
    beats.record(b"1")
    beats.take(0)
    beats.record(b"2")
    beats.take(800)
    beats.acknowledged(1)
    assert beats.unacknowledged() == (b"2", 2)


def test_an_acknowledgement_does_not_take_away_what_was_recorded_since():
    beats = Beats(1_000, 0)
    beats.record(b"1")
    beats.take(0)
    beats.record(b"2")
    beats.acknowledged(1)
    assert beats.unacknowledged() == (b"2", 2)
