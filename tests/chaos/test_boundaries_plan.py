"""The drill `boundaries` forgets no crash point, and a seed repeats its journeys."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice, pairwise

import pytest

from chaos.drills.boundaries import too_busy
from chaos.drills.boundaries_plan import (
    AFTER_HISTORY,
    AFTER_WORKER,
    AT_START,
    AT_WORK,
    CLIENT,
    OUTBOX,
    ROOT,
    SUNDRY,
    Journey,
    Leg,
    boundaries,
    chains,
    journeys,
)
from perdure.crash_points import CrashPoint, parse
from perdure.crash_points import CrashPoint as P

SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_point_in_every_role_is_visited_once(seed):
    visited = Counter(leg.boundary for each in journeys(random.Random(seed)) for leg in each.legs)
    assert visited == Counter(boundaries())
    assert {point for _, point in visited} == set(CrashPoint)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_root_hears_of_a_death_and_followers_of_a_new_history_only_where_there_is_one(seed):
    before = {}
    for each in journeys(random.Random(seed)):
        for one, other in pairwise(each.legs):
            before[other.boundary] = one
    for point in AFTER_WORKER:
        assert before[ROOT, point].role == "worker"
    for point in AFTER_HISTORY:
        for role in point.roles:
            assert before[role, point].role == "history"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_leads_to_another_death_is_reached_only_when_everybody_is_there(seed):
    for each in journeys(random.Random(seed)):
        for one, other in pairwise(each.legs):
            if other.point in (*AFTER_WORKER, *AFTER_HISTORY):
                assert one.point in AT_WORK


def test_a_journey_that_is_stuck_goes_on_from_the_last_that_was_visited():
    legs = (Leg("history", P.STORE_EVENTS_WRITTEN, 2), Leg("dlq", P.PROJECTION_GAP_READ, 3))
    journey = Journey("one", legs)
    first, second = (Leg(leg.role, leg.point) for leg in legs)
    assert journey.again(0).legs == journey.again(1).legs == (first, second)
    assert journey.again(2).legs == (second,)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_reached_at_a_start_is_armed_for_the_first_time(seed):
    for each in journeys(random.Random(seed)):
        assert all(leg.nth == 1 for leg in each.legs if leg.point in AT_START)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_only_a_sundry_leads_to_is_visited_on_nodes_with_an_outbox(seed):
    found = [each for each in journeys(random.Random(seed)) if each.is_sundry]
    assert {leg.boundary for each in found for leg in each.legs} == {
        (role, point) for role, point in boundaries() if point in SUNDRY or role == OUTBOX
    }
    order = [leg for each in found for leg in each.legs if leg.role == OUTBOX]
    assert order[1].point is P.CHILD_LOCKED_NOT_BEGUN


def test_a_seed_repeats_its_journeys_and_another_does_not():
    assert journeys(random.Random(3)) == journeys(random.Random(3))
    assert journeys(random.Random(3)) != journeys(random.Random(4))


@pytest.mark.parametrize("depth", [2, 3])
def test_a_chain_is_as_long_as_the_depth_and_no_one_dies_twice_in_a_row_at_one_place(depth):
    for each in islice(chains(random.Random(1), depth), 200):
        assert len(each.legs) == depth
        assert all(leg.role not in (CLIENT, ROOT) for leg in each.legs)
        for one, other in pairwise(each.legs):
            assert one.boundary != other.boundary


def test_every_journey_can_be_armed(tmp_path):
    for each in (*journeys(random.Random(0)), *islice(chains(random.Random(0), 2), 50)):
        parse(each.armed, str(tmp_path / "once"))


def test_a_machine_that_is_too_busy_is_named_as_the_reason():
    assert too_busy(11.9, cores=2) == ""
    assert "a load of 13 on 2 cores is too much" in too_busy(13.2, cores=2)
