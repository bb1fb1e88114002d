"""What a relay does to messages: decided by a seed, countable, and over when it is healed."""

from __future__ import annotations

import pytest

from chaos.faults.link_faults import (
    DOUBLE_MS,
    KINDS,
    REORDER_MS,
    ROUTES,
    Cut,
    Mangler,
    Plan,
    Rates,
    swarm,
    thorough,
)

ROUTE = "worker>gateway"


def mangler(**rates: float) -> Mangler:
    made = Mangler(seed=1)
    made.set_plan(Plan({ROUTE: Rates(**rates)}), now_ms=0)
    return made


def take(it: Mangler, message: str, now_ms: int = 0, pair: str = "w1", **more: bool) -> list[str]:
    return it.take(ROUTE, pair, message, now_ms, **more)


def test_without_a_plan_everything_passes_in_order():
    it = Mangler(seed=1)
    assert [take(it, each) for each in "abc"] == [["a"], ["b"], ["c"]]
    assert it.fired == {(ROUTE, "passed"): 3}


def test_a_dropped_message_never_comes():
    it = mangler(drop=1.0)
    assert take(it, "a") == []
    assert it.due(10**9) == []
    assert it.fired == {(ROUTE, "drop"): 1}


def test_a_doubled_message_comes_at_once_and_again_soon():
    it = mangler(double=1.0)
    assert take(it, "a") == ["a"]
    assert it.due(DOUBLE_MS) == ["a"]


def test_a_delayed_message_comes_once_and_within_its_bound():
    it = mangler(delay=1.0, delay_max_ms=40)
    assert take(it, "a") == []
    assert it.next_ms() is not None
    assert 1 <= it.next_ms() <= 40
    assert it.due(0) == []
    assert it.due(40) == ["a"]
    assert it.due(10**9) == []


def test_a_message_out_of_order_goes_right_behind_the_next_one_of_the_same_two():
    it = mangler(reorder=1.0)
    assert take(it, "a") == []
    assert take(it, "x", pair="w2") == []
    assert take(it, "b") == ["b", "a"]
    assert it.due(REORDER_MS) == ["x"]


def test_a_message_out_of_order_that_none_follows_comes_in_the_end():
    it = mangler(reorder=1.0)
    take(it, "a", now_ms=5)
    assert it.next_ms() == 5 + REORDER_MS
    assert it.due(5 + REORDER_MS - 1) == []
    assert it.due(5 + REORDER_MS) == ["a"]


def test_only_answers_are_swallowed():
    it = mangler(swallow=1.0)
    assert take(it, "a") == ["a"]
    assert take(it, "b", is_answer=True) == []


def test_a_cut_holds_for_its_time_and_its_direction_only():
    it = Mangler(seed=1)
    it.set_plan(Plan(cuts=(Cut(ROUTE, 100, 200),)), now_ms=1_000)
    assert take(it, "a", now_ms=1_099) == ["a"]
    assert take(it, "b", now_ms=1_100) == []
    assert it.take("gateway>worker", "w1", "c", 1_150) == ["c"]
    assert take(it, "d", now_ms=1_200) == ["d"]


def test_after_a_heal_what_was_late_still_comes_and_nothing_else_is_hurt():
    it = mangler(delay=1.0, delay_max_ms=40)
    take(it, "a")
    it.set_plan(Plan(), now_ms=1)
    assert take(it, "b", now_ms=1) == ["b"]
    assert it.due(40) == ["a"]


def test_the_same_seed_makes_the_same_plan_and_another_seed_another():
    assert swarm(3, 20_000) == swarm(3, 20_000)
    assert swarm(3, 20_000) != swarm(4, 20_000)


def test_the_same_seed_does_the_same_to_the_same_messages():
    plan = swarm(7, 20_000)
    outcomes = []
    for _ in range(2):
        it = Mangler(seed=7)
        it.set_plan(plan, now_ms=0)
        outcomes.append([tuple(take(it, str(n), now_ms=n)) for n in range(300)])
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("kind", KINDS)
def test_over_a_few_seeds_every_kind_of_fault_is_planned_on_every_route(kind):
    plans = [swarm(seed, 60_000) for seed in range(30)]
    for route in ROUTES:
        if kind == "cut":
            assert any(cut.route == route for plan in plans for cut in plan.cuts)
        else:
            assert any(getattr(plan.rates[route], kind) > 0 for plan in plans)
            assert any(getattr(plan.rates[route], kind) == 0 for plan in plans)


def test_a_thorough_plan_leaves_out_no_kind_on_any_route():
    plan = thorough(1, 6_000)
    assert set(plan.rates) == set(ROUTES)
    assert all(getattr(rates, kind) > 0 for rates in plan.rates.values() for kind in KINDS[:-1])
    assert plan.cuts
