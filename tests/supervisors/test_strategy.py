from __future__ import annotations

import pytest

from supervisors.strategy import Strategy, restarted_with

IDS = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("strategy", "dead", "restarted"),
    [
        (Strategy.ONE_FOR_ONE, "b", ("b",)),
        (Strategy.ONE_FOR_ALL, "b", ("a", "b", "c", "d")),
        (Strategy.REST_FOR_ONE, "a", ("a", "b", "c", "d")),
        (Strategy.REST_FOR_ONE, "b", ("b", "c", "d")),
        (Strategy.REST_FOR_ONE, "d", ("d",)),
    ],
)
def test_a_strategy_says_who_is_restarted_with_the_dead_in_the_order_of_start(
    strategy, dead, restarted
):
    assert restarted_with(strategy, IDS, dead) == restarted
