"""What a seed makes of each drill."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from chaos.drill_kit import Options
from chaos.drill_kit.lanes import CORE
from chaos.drills import DRILLS, actors, disk, hang, node
from chaos.workload import HEARTBEAT_MS, LEASE_MS

SEEDS = range(20)


@pytest.mark.parametrize("plan", [actors.plan, node.plan])
def test_a_seed_repeats_its_plan_and_another_does_not(plan):
    options = [Options(seed=seed, kills=10, server_restarts=9) for seed in (5, 5, 6)]
    first, again, other = (plan(each) for each in options)
    assert first == again != other


def test_every_actor_is_hit_equally_often_and_some_blows_follow_the_one_before_closely():
    for seed in SEEDS:
        blows = actors.plan(Options(seed=seed, kills=30))
        assert Counter(blow.role for blow in blows) == dict.fromkeys((*CORE, "worker"), 5)
        assert any(blow.after_s < 2 * actors.CLOSE_S for blow in blows)


def test_a_soak_of_the_actors_lasts_about_its_minutes():
    blows = actors.plan(Options(seed=1, kills=600, minutes=60))
    assert 0.9 * 3_600 < sum(blow.after_s for blow in blows) < 1.1 * 3_600


def test_a_node_dies_in_every_way_equally_often():
    for seed in SEEDS:
        kinds = Counter(blow.kind for blow in node.plan(Options(seed=seed, server_restarts=9)))
        assert kinds == dict.fromkeys(node.KINDS, 3)


def test_a_worker_stands_still_past_every_lease_and_each_actor_for_one_to_six_seconds():
    plans = [hang.plan(seed) for seed in SEEDS]
    assert plans[0] == hang.plan(0)
    assert plans[0] != plans[1]
    for stops in plans:
        assert {stop.role for stop in stops} == {hang.WORKER, "node", *CORE}
        for stop in stops:
            if stop.role in CORE:
                assert 1 <= stop.length_s <= 6
            else:
                assert stop.length_s * 1_000 > max(HEARTBEAT_MS, LEASE_MS)


def test_every_drill_has_its_row_in_the_documents():
    text = (Path(__file__).parents[2] / "docs" / "drills.md").read_text(encoding="utf-8")
    for name in DRILLS:
        assert f"\n| `{name}` | " in text


def test_a_disk_fails_in_every_way_whatever_the_seed():
    plans = [disk.plan(seed) for seed in SEEDS]
    assert plans[0] == disk.plan(0)
    assert plans[0] != plans[1]
    for troubles in plans:
        assert Counter(each.kind for each in troubles) == {"EIO": 5, "ENOSPC": 2, "slow sync": 2}
        assert {each.order for each in troubles} >= {
            "no_room",
            "grow_bytes",
            "fail_sync",
            "fail_write",
            "fail_read",
        }
        # Closer together they could be a crash loop, which is something else.
        assert min(each.after_s for each in troubles) > 1


def test_every_drill_says_what_it_does_when_it_proves_nothing_and_what_it_takes():
    for name, drill in DRILLS.items():
        assert drill.name == name
        assert drill.does
        assert drill.inconclusive
        assert set(drill.takes) <= set(Options.__struct_fields__) - {"seed"}
        assert drill.defaults.time_s <= 115


def test_the_kills_of_a_soak_follow_from_its_minutes_where_they_are_not_given():
    found = DRILLS["flaky"].options({"minutes": 5})
    assert (found.kills, found.server_restarts) == (60, 5)
    found = DRILLS["flaky"].options({"minutes": 5, "kills": 7})
    assert (found.kills, found.server_restarts) == (7, 5)
    assert DRILLS["actors"].options({"minutes": 5}).server_restarts == 0
    assert DRILLS["flaky"].options({"seed": 3}) == Options(
        seed=3, workflows=20, kills=8, server_restarts=2
    )
