"""The test of fit, against values from the literature and against itself."""

from __future__ import annotations

import random

import pytest

from chaos.drill_kit.kolmogorov import evenly


def drawn(seed, count, low=0.0, high=1.0):
    dice = random.Random(seed)
    return [dice.uniform(low, high) for _ in range(count)]


def test_the_distance_is_the_largest_gap_between_both_shares_on_either_side_of_a_step():
    assert evenly([0.5], 0, 1).distance == 0.5
    assert evenly([0.1, 0.2], 0, 1).distance == pytest.approx(0.8)
    assert evenly([0.25, 0.75], 0, 1).distance == pytest.approx(0.25)


@pytest.mark.parametrize(("scaled", "p"), [(1.22385, 0.10), (1.35810, 0.05), (1.62762, 0.01)])
def test_p_is_that_of_the_tables_for_large_counts(scaled, p):
    # Evenly spaced values, shifted by the distance wanted.
    count = 40_000
    shift = scaled / count**0.5
    values = [(number + 0.5) / count + shift for number in range(count)]
    assert evenly(values, 0, 1).p == pytest.approx(p, rel=0.05)


def test_what_is_drawn_evenly_passes_nearly_always_and_p_itself_is_spread_evenly():
    found = [evenly(drawn(seed, 300, 0, 8_000), 0, 8_000).p for seed in range(300)]
    assert min(found) > 1e-4
    assert evenly(found, 0, 1).p > 1e-3


@pytest.mark.parametrize(
    "bend",
    [
        lambda share: share / 2,  # Half of the range is never used.
        lambda share: 0.5 + share / 2,  # Equal jitter.
        lambda share: share**2,
        lambda share: 1.0,  # No jitter at all.
    ],
)
def test_what_is_not_drawn_evenly_is_found(bend):
    assert evenly([bend(share) for share in drawn(1, 1_000)], 0, 1).p < 1e-9


def test_values_outside_of_the_range_count_at_its_edges():
    assert evenly([-5, 5], 0, 1).distance == pytest.approx(0.5)


def test_no_values_are_refused():
    with pytest.raises(ValueError, match="values must hold"):
        evenly([], 0, 1)
