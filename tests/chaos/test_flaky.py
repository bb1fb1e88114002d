from __future__ import annotations

import pytest

from chaos.drill_kit import Options
from chaos.drills.flaky_plan import ACTIVITIES, plan, soak_plan


def test_a_seed_repeats_its_plan_and_another_does_not():
    options = Options(seed=5, workflows=20, kills=8, server_restarts=2)
    other = Options(seed=6, workflows=20, kills=8, server_restarts=2)
    assert plan(options) == plan(options)
    assert plan(options) != plan(other)


@pytest.mark.parametrize("kills", [1, 2, 7, 8])
def test_a_plan_has_every_kill_half_of_them_in_the_gap_and_all_before_the_work_is_done(kills):
    options = Options(seed=3, workflows=20, kills=kills, server_restarts=2)
    blows = plan(options)
    kinds = [blow.kind for blow in blows]
    assert len(kinds) == kills + 2
    assert kinds.count("node") == 2
    assert kinds.count("gap") * 2 >= kills
    at = [blow.at_effects for blow in blows]
    assert at == sorted(at)
    assert at[-1] <= 0.75 * options.workflows * ACTIVITIES


def test_a_soak_has_every_kill_within_its_minutes_in_order():
    options = Options(seed=3, kills=20, server_restarts=2, minutes=2)
    at_s = [blow.delay_s for blow in soak_plan(options)]
    assert len(at_s) == 22
    assert at_s == sorted(at_s)
    assert 0 <= at_s[0] < at_s[-1] < 120
