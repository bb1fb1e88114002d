from __future__ import annotations

from actors.clock_watch import OFF_MS, ClockWatch

DAY_MS = 86_400_000


def test_clocks_that_agree_are_no_news():
    watch = ClockWatch()
    assert [watch.look(now, now + OFF_MS - 1) for now in (0, 1_000, DAY_MS)] == [None] * 3


def test_a_wall_clock_that_was_set_is_news_once_and_again_when_it_agrees():
    watch = ClockWatch()
    walls = [DAY_MS, DAY_MS + 900, 2 * DAY_MS, 500, 0, -OFF_MS]
    assert [watch.look(0, wall) for wall in walls] == [
        DAY_MS,
        None,
        2 * DAY_MS,
        0,
        None,
        -OFF_MS,
    ]
