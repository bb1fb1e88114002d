from __future__ import annotations

import json
import random
import time

import pytest
from msgspec.structs import replace

from perdure.audit.chain import Breaker, Budget, parse_chain
from perdure.audit.delays import delays
from perdure.audit.experiment import experiment
from perdure.audit.figures import cascading, expected_tries
from perdure.audit.limits import RunningBreaker, RunningBudget
from perdure.audit.simulation import Load, _Call, _Waits, simulate
from perdure.errors import InvalidArgument

STEADY = Load(clients=100, requests_per_s=1, duration_ms=200_000, outage_ms=0, latency_ms=0)


def chain_of(*layers, **over):
    return parse_chain({"layers": list(layers), **over})


@pytest.mark.parametrize("rate", [0, 0.1, 0.5, 0.9, 1])
@pytest.mark.parametrize("attempts", [1, 3, 5])
def test_one_layer_makes_the_tries_of_the_closed_form(attempts, rate):
    chain = chain_of({"attempts": attempts}, failure_rate=rate)
    measured = simulate(chain, STEADY, seed=attempts)
    wanted = expected_tries(rate, attempts)
    assert abs(measured.calls_per_request - wanted) <= 4 * measured.standard_error + 1e-9
    share = measured.failed / measured.requests
    assert share == pytest.approx(rate**attempts, abs=4 * (0.25 / measured.requests) ** 0.5)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("every", [False, True])
def test_a_chain_makes_the_calls_of_the_recursion(rate, every):
    chain = chain_of({"attempts": 3}, {"attempts": 2}, {"attempts": 4}, failure_rate=rate)
    measured = simulate(chain, replace(STEADY, every_layer_fails=every), seed=3)
    rates = [rate] * 3 if every else [0, 0, rate]
    wanted = cascading(chain.layers, rates)
    assert measured.standard_error < 0.05
    assert abs(measured.calls_per_request - wanted) <= 4 * measured.standard_error


def test_in_an_outage_every_request_becomes_the_product_of_the_attempts():
    chain = chain_of({"attempts": 3}, {"attempts": 3}, {"attempts": 4})
    load = replace(STEADY, duration_ms=20_000, outage_start_ms=0, outage_ms=20_000)
    measured = simulate(chain, load, seed=1)
    assert measured.calls_per_request == 36
    assert measured.standard_error == 0
    assert measured.failed == measured.requests


@pytest.mark.parametrize(
    "wait",
    [
        {"jitter": "none"},
        {"jitter": "full"},
        {"jitter": "equal"},
        {"jitter": "full", "min_delay_ms": 40},
        {"jitter": "decorrelated", "max_delay_ms": 100_000},
        {"jitter": "decorrelated", "max_delay_ms": 250},
        {"jitter": "symmetric", "jitter_spread": 0.2},
        {"jitter": "additive", "jitter_ms": 150},
        {"jitter": "additive", "jitter_ms": 150, "max_delay_ms": 180},
    ],
)
def test_waits_are_drawn_with_the_means_that_are_told(wait):
    [layer] = chain_of({"attempts": 4, "base_delay_ms": 100} | wait).layers
    waits, dice = _Waits(layer), random.Random(3)
    count = 8_000
    drawn = [[], [], []]
    for _ in range(count):
        call = _Call(0, None, 0, 0, 0.0)
        for attempt in (1, 2, 3):
            call.attempt = attempt
            drawn[attempt - 1].append(waits.draw(call, dice))
    for values, told in zip(drawn, delays(layer), strict=True):
        mean = sum(values) / count
        error = (sum((each - mean) ** 2 for each in values) / count / count) ** 0.5
        assert abs(mean - told.expected) <= 4 * error + 0.001 * told.expected
        assert told.least - 1e-9 <= min(values)
        assert max(values) <= told.most + 1e-9


def test_poisson_arrivals_come_at_the_rate_that_is_asked_for():
    measured = simulate(chain_of({"attempts": 1}), STEADY, seed=5)
    wanted = 100 * 200
    assert abs(measured.requests - wanted) < 4 * wanted**0.5


def test_a_deadline_ends_the_retries():
    layer = {"attempts": 50, "base_delay_ms": 100, "multiplier": 1, "deadline_ms": 450}
    load = replace(STEADY, duration_ms=20_000, outage_start_ms=0, outage_ms=20_000)
    # Tries at 0, 100, 200, 300 and 400 ms.
    assert simulate(chain_of(layer), load, seed=1).calls_per_request == pytest.approx(5, abs=0.1)


def test_a_try_whose_caller_has_gone_goes_on():
    outer = {"attempts": 2, "per_try_timeout_ms": 1000, "base_delay_ms": 1}
    inner = {"attempts": 3, "per_try_timeout_ms": 1000, "base_delay_ms": 1}
    load = replace(
        STEADY, requests_per_s=0.01, duration_ms=100_000, outage_start_ms=0, outage_ms=60_000
    )
    measured = simulate(chain_of(outer, inner), replace(load, hangs=True), seed=1)
    during = sum(measured.calls[:600])
    begun = measured.requests * 0.6
    assert during / begun > 4  # Two tries times three, though the caller waits for one each.


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(checkout):
    chain = parse_chain(checkout)
    load = Load(clients=50, duration_ms=60_000, outage_start_ms=10_000, outage_ms=10_000)
    first, second, third = (simulate(chain, load, seed) for seed in (7, 7, 8))
    assert first == second
    assert first.calls != third.calls


def test_without_jitter_clients_that_failed_together_come_back_together():
    layer = {"attempts": 4, "base_delay_ms": 2000}
    load = Load(
        clients=1000,
        requests_per_s=0,
        duration_ms=30_000,
        outage_start_ms=0,
        outage_ms=30_000,
        together=True,
    )
    plain = simulate(chain_of(layer), load, seed=1)
    spread = simulate(chain_of(layer | {"jitter": "full"}), load, seed=1)
    later = slice(1, None)  # The first 100 ms are the failure itself.
    assert max(plain.calls[later]) == 1000
    # 1 000 over 2 s are 50 in 100 ms.
    assert max(spread.calls[later]) < 120


def test_a_budget_bounds_the_load_of_an_outage():
    layer = {"attempts": 4, "base_delay_ms": 10, "jitter": "full"}
    load = Load(clients=100, requests_per_s=1, duration_ms=120_000, outage_start_ms=0)
    load = replace(load, outage_ms=120_000)
    budget = {"ratio": 0.1, "min_per_s": 0}
    assert simulate(chain_of(layer), load, seed=1).calls_per_request > 3.9
    bounded = simulate(chain_of(layer | {"retry_budget": budget}), load, seed=1)
    assert bounded.calls_per_request == pytest.approx(1.1, abs=0.01)


def test_a_breaker_lets_only_probes_through_and_closes_again():
    layer = {
        "attempts": 1,
        "circuit_breaker": {"min_calls": 20, "open_ms": 5000, "half_open_calls": 3},
    }
    load = Load(
        clients=100,
        requests_per_s=1,
        duration_ms=120_000,
        outage_start_ms=20_000,
        outage_ms=40_000,
    )
    measured = simulate(chain_of(layer, failure_rate=0), load, seed=1)
    assert measured.per_s(25_000, 60_000) < 5
    assert measured.per_s(70_000, 120_000) == pytest.approx(100, rel=0.1)
    assert measured.breaker_opened >= 2


def test_the_budget_counts_requests_when_they_are_sent():
    budget = RunningBudget(Budget(ratio=0.1, min_per_s=0))
    for _ in range(20):
        budget.sent(0)
    assert [budget.allows(1) for _ in range(3)] == [True, True, False]
    # After the window all is forgotten.
    assert not budget.allows(20_000)


def test_a_breaker_opens_at_its_share_of_enough_calls_and_reopens_on_a_failed_probe():
    breaker = RunningBreaker(
        Breaker(failure_ratio=0.5, min_calls=4, open_ms=100, half_open_calls=2)
    )
    for is_success in (True, False, False):
        breaker.record(0, is_success)
    assert breaker.allows(0)
    breaker.record(0, False)
    assert not breaker.allows(99)
    assert [breaker.allows(100) for _ in range(3)] == [True, True, False]
    breaker.record(101, False)
    assert not breaker.allows(150)
    assert breaker.allows(201)
    assert breaker.allows(201)
    breaker.record(202, True)
    breaker.record(202, True)
    assert breaker.allows(203)
    assert breaker.opened == 2


def test_an_experiment_agrees_with_the_formulas_and_orders_the_variants(checkout):
    chain = replace(parse_chain(checkout), failure_rate=0.02)
    load = Load(clients=200, duration_ms=60_000, outage_start_ms=20_000, outage_ms=20_000)
    found = experiment(chain, load, seed=2)
    assert all(each.holds for each in found.agreements)
    during = {each.name: each.measured.per_s(20_000, 40_000) for each in found.variants}
    assert during["full jitter, breaker"] < during["full jitter, budget 10 %"] < 40
    assert during["full jitter"] > 10 * during["full jitter, budget 10 %"]


def test_a_thousand_clients_for_ten_minutes_take_seconds(sound):
    chain = chain_of(sound(), sound(attempts=2), failure_rate=0.05)
    began = time.process_time()
    measured = simulate(chain, Load(), seed=1)
    assert measured.requests > 55_000
    assert time.process_time() - began < 15


def test_the_command_prints_variants_and_agreement(policy, chain_file, sound):
    args = ["--clients", "20", "--duration-ms", "30000", "--outage-start-ms", "5000"]
    args += ["--outage-ms", "5000", "--seed", "4"]
    file = chain_file({"layers": [sound()]})
    code, out, _ = policy("simulate", file, *args)
    assert code == 0
    assert "full jitter, budget 10 %" in out
    assert out.count(": agree") == 2
    data = json.loads(policy("simulate", file, *args, "--json")[1])
    assert data == json.loads(policy("simulate", file, *args, "--json")[1])
    assert len(data["variants"][0]["calls_per_bucket"]) == 300


def test_a_breaker_with_too_little_traffic_is_told(policy, chain_file, sound):
    breaker = {"circuit_breaker": {"min_calls": 20}}
    file = chain_file({"layers": [sound(**breaker)]})
    short = ["--duration-ms", "10000", "--clients", "10"]
    assert "BREAKER_CANNOT_TRIP" in policy("simulate", file, *short)[1]
    assert "BREAKER_CANNOT_TRIP" not in policy("simulate", file, *short, "--rate", "5")[1]


def test_layers_side_by_side_can_t_be_simulated(policy, chain_file, sound):
    code, _, err = policy("simulate", chain_file({"layers": [sound()], "alternatives": True}))
    assert code == 2
    assert "--only" in err


def test_more_calls_than_can_be_simulated_are_refused_and_not_cut(monkeypatch):
    from perdure.audit import simulation

    monkeypatch.setattr(simulation, "CALLS_MAX", 1_000)
    with pytest.raises(InvalidArgument, match="more than 1000 calls"):
        simulate(chain_of({"attempts": 5}, failure_rate=1), STEADY, seed=1)


def test_a_load_that_would_take_for_ever_is_refused(policy, chain_file, sound):
    file = chain_file({"layers": [sound()]})
    code, _, err = policy("simulate", file, "--clients", "1000000", "--rate", "10")
    assert code == 2
    assert "--clients" in err.splitlines()[0]
