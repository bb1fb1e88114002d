from __future__ import annotations

import math
import random
import time

import pytest

from perdure.audit.chain import Layer, parse_chain
from perdure.audit.delays import delays
from perdure.audit.figures import expected_tries, figures
from perdure.audit.review import as_json, audit


def ranges(**layer):
    return [tuple(each) for each in delays(Layer(name="x", **layer))]


def the_layer(review):
    return review.figures.layers[0]


def test_every_number_of_the_three_layer_example_comes_out(checkout):
    report = as_json(audit(parse_chain(checkout)))
    first, second, third = report["layers"]
    assert first["delays_ms"] == [[0, 100, 200], [0, 200, 400]]
    assert second["delays_ms"] == [[100, 100, 100], [200, 200, 200]]
    assert third["delays_ms"] == [[125, 187.5, 250], [250, 375, 500], [500, 750, 1000]]
    layers = report["layers"]
    assert [each["worst_case_ms"] for each in layers] == [20_000, 9_300, 9_000]
    assert [each["expected_tries"] for each in layers] == [1.39, 1.39, 1.417]
    assert [each["cumulative_worst_amplification"] for each in layers] == [3, 9, 36]
    assert [each["cumulative_expected_amplification"] for each in layers] == [1.39, 1.932, 2.738]
    assert [each["tries_that_fit"] for each in layers] == [3, None, 4]
    assert report["worst_amplification"] == 36
    assert report["expected_amplification"] == 2.738
    assert report["expected_amplification_cascading"] == 2.82
    assert report["expected_amplification_outage"] == 1.429
    assert report["high_flags"] == 4


def test_at_failure_rate_one_half_the_expected_calls_begin_1_75_and_3_062(checkout):
    layers = as_json(audit(parse_chain(checkout | {"failure_rate": 0.5})))["layers"]
    assert [each["cumulative_expected_amplification"] for each in layers][:2] == [1.75, 3.062]


@pytest.mark.parametrize(
    ("rate", "attempts", "tries"),
    [(0.3, 3, 1.39), (0.5, 3, 1.75), (1, 7, 7), (0, 7, 1), (0.5, 1, 1), (0.999999, 10_000, 9950.2)],
)
def test_expected_tries_are_the_sum_of_the_chances_to_get_there(rate, attempts, tries):
    assert expected_tries(rate, attempts) == pytest.approx(tries, rel=1e-5)
    direct = math.fsum(rate**k for k in range(attempts))
    assert expected_tries(rate, attempts) == pytest.approx(direct, rel=1e-9)


@pytest.mark.parametrize(
    ("rate", "outage"), [(0.3, 1.43), (0.9, 9.77), (0.99, 30.4), (1, 36)], ids=str
)
def test_an_outage_of_the_innermost_grows_into_a_cliff(review_of, rate, outage):
    review = review_of({"attempts": 3}, {"attempts": 3}, {"attempts": 4}, failure_rate=rate)
    assert review.figures.outage_amplification == pytest.approx(outage, abs=0.05)


def test_failures_below_are_failures_above(review_of):
    review = review_of({"attempts": 3}, {"attempts": 3}, {"attempts": 4}, failure_rate=0.3)
    assert review.figures.cascading_amplification == pytest.approx(2.82, abs=0.005)


def test_the_cascade_agrees_with_a_simulation_of_tries():
    layers = tuple(Layer(name="x", attempts=n) for n in (2, 3, 4))
    rates, dice = [0.1, 0.3, 0.6], random.Random(7)
    calls = 0

    def call(depth: int) -> bool:
        nonlocal calls
        for _ in range(layers[depth].attempts):
            calls += depth == 2
            below = depth == 2 or call(depth + 1)
            if below and dice.random() >= rates[depth]:
                return True
        return False

    for _ in range(20_000):
        call(0)
    chain = parse_chain(
        {
            "layers": [
                {"attempts": n, "failure_rate": p} for n, p in zip((2, 3, 4), rates, strict=True)
            ]
        }
    )
    assert figures(chain).cascading_amplification == pytest.approx(calls / 20_000, rel=0.02)


@pytest.mark.parametrize(
    ("attempts", "calls"), [((4, 4, 4), 64), ((3, 3, 3, 3), 81), ((3, 2, 4), 24), ((3, 3, 4), 36)]
)
def test_calls_at_the_bottom_are_the_exact_product_of_the_attempts(review_of, attempts, calls):
    review = review_of(*({"attempts": each} for each in attempts))
    assert review.figures.worst_amplification == calls


def test_the_worst_case_is_all_tries_and_the_longest_delays_cut_at_the_deadline(review_of):
    layer = {"attempts": 3, "base_delay_ms": 100, "per_try_timeout_ms": 1000}
    assert the_layer(review_of(layer)).worst_case_ms == 3300
    assert the_layer(review_of(layer | {"deadline_ms": 2000})).worst_case_ms == 2000
    del layer["per_try_timeout_ms"]
    assert the_layer(review_of(layer | {"deadline_ms": 2000})).worst_case_ms == 2000
    assert the_layer(review_of(layer)).worst_case_ms is None


def test_tries_fit_that_can_start_before_the_deadline(review_of):
    layer = {"attempts": 5, "base_delay_ms": 100, "multiplier": 1, "per_try_timeout_ms": 1000}
    fits = {
        deadline: the_layer(review_of(layer | {"deadline_ms": deadline})).tries_that_fit
        for deadline in (500, 1100, 1101, 2200, 2201, 4400, 4401, 90_000)
    }
    assert fits == {500: 1, 1100: 1, 1101: 2, 2200: 2, 2201: 3, 4400: 4, 4401: 5, 90_000: 5}


def test_hanging_tries_that_cannot_start_in_time_are_not_counted(review_of):
    outer = {"attempts": 2, "per_try_timeout_ms": 1000, "base_delay_ms": 1}
    inner = {"attempts": 9, "per_try_timeout_ms": 1000, "base_delay_ms": 1, "deadline_ms": 2500}
    review = review_of(outer, inner)
    assert review.figures.worst_amplification == 18
    # The inner layer goes on after its caller's first try has gone: 3 tries, twice.
    assert review.figures.timeouts_amplification == 6


def test_a_budget_bounds_what_is_expected_at_one_and_its_ratio(review_of):
    layer = {"attempts": 4, "retry_budget": {"ratio": 0.1}}
    review = review_of(layer, layer, failure_rate=1)
    assert the_layer(review).expected_tries == 4
    assert review.figures.expected_amplification == pytest.approx(1.1**2)
    assert review.figures.cascading_amplification == pytest.approx(1.1**2)
    assert review.figures.worst_amplification == 16


def test_jitter_ranges():
    assert ranges(attempts=3, base_delay_ms=100) == [(100, 100, 100), (200, 200, 200)]
    assert ranges(attempts=2, base_delay_ms=100, jitter="full") == [(0, 50, 100)]
    assert ranges(attempts=2, base_delay_ms=100, jitter="equal") == [(50, 75, 100)]
    assert ranges(attempts=2, base_delay_ms=8, jitter="full", min_delay_ms=1) == [(1, 4.5, 8)]
    assert ranges(attempts=2, base_delay_ms=1, jitter="full", min_delay_ms=9) == [(9, 9, 9)]


def test_the_cap_holds_whatever_the_growth():
    capped = ranges(attempts=6, base_delay_ms=1, multiplier=3, max_delay_ms=10)
    assert [most for _, _, most in capped] == [1, 3, 9, 10, 10]


@pytest.mark.parametrize("retry", [1, 2, 3, 6, 7, 1024, 1025, 2000, 9999])
def test_powers_beyond_the_floats_are_the_cap(retry):
    found = ranges(attempts=10_000, base_delay_ms=1000, multiplier=2, max_delay_ms=60_000)
    assert found[retry - 1][2] == min(1000 * 2 ** (retry - 1), 60_000)


def test_no_base_is_no_delay_however_often_it_is_multiplied():
    found = ranges(attempts=5001, base_delay_ms=0, multiplier=1e308, max_delay_ms=60_000)
    assert set(found) == {(0, 0, 0)}


def test_the_largest_multiplier_overflows_nothing(review_of):
    wild = {"attempts": 10_000, "base_delay_ms": 1e308, "multiplier": 1e308, "deadline_ms": 1e308}
    for jitter in ("none", "full", "equal", "decorrelated"):
        report = as_json(review_of(*([wild | {"jitter": jitter, "per_try_timeout_ms": 1e308}] * 3)))
        for layer in report["layers"]:
            numbers = [part for delay in layer["delays_ms"] for part in delay]
            numbers += [layer["worst_case_ms"], layer["max_delay_total_ms"]]
            assert all(math.isfinite(number) for number in numbers)


def decorrelated_means(base, cap, retries, runs=15_000):
    dice, sums = random.Random(11), [0.0] * retries
    for _ in range(runs):
        previous = base
        for k in range(retries):
            previous = min(cap, dice.uniform(base, 3 * previous))
            sums[k] += previous
    return [each / runs for each in sums]


@pytest.mark.parametrize("cap", [120, 250, 301, 1000, 5000, 100_000])
def test_decorrelated_means_under_a_cap_agree_with_draws(cap):
    found = ranges(attempts=9, base_delay_ms=100, max_delay_ms=cap, jitter="decorrelated")
    drawn = decorrelated_means(100, cap, 8)
    assert [mean for _, mean, _ in found] == pytest.approx(drawn, rel=0.03)
    assert [most for _, _, most in found] == [min(cap, 100 * 3**k) for k in range(1, 9)]


def test_decorrelated_means_are_exact_where_they_are_known():
    free = ranges(attempts=5, base_delay_ms=100, jitter="decorrelated")
    assert free == [(100, 200, 300), (100, 350, 900), (100, 575, 2700), (100, 912.5, 8100)]
    [(_, mean, _)] = ranges(attempts=2, base_delay_ms=100, max_delay_ms=250, jitter="decorrelated")
    assert mean == pytest.approx(193.75, rel=1e-9)
    # By hand, cap 250: with s = min(250, U(100, 300)), the mean of (250**2 - 100**2) / 2 / (3s -
    # 100) + 250 (3s - 250) / (3s - 100), integrated over s and with a quarter at 250.
    second = ranges(attempts=3, base_delay_ms=100, max_delay_ms=250, jitter="decorrelated")[1][1]
    parts = 200_000
    integral = sum(
        (26_250 + 250 * (3 * s - 250)) / (3 * s - 100)
        for s in (100 + 150 * (i + 0.5) / parts for i in range(parts))
    )
    by_hand = 0.75 * integral / parts + 0.25 * (26_250 + 250 * 500) / 650
    assert second == pytest.approx(by_hand, rel=1e-4)


def test_ten_thousand_attempts_are_computed_at_once():
    began = time.process_time()
    found = ranges(attempts=10_000, base_delay_ms=100, max_delay_ms=60_000, jitter="decorrelated")
    assert len(found) == 9_999
    assert time.process_time() - began < 2


def test_figures_are_rounded_to_a_tenth_and_a_thousandth(review_of):
    review = review_of(
        {"attempts": 3, "base_delay_ms": 0.123, "per_try_timeout_ms": 1.06}, failure_rate=1 / 3
    )
    [layer] = as_json(review)["layers"]
    assert layer["delays_ms"] == [[0.1, 0.1, 0.1], [0.2, 0.2, 0.2]]
    assert layer["worst_case_ms"] == 3.5
    assert layer["expected_tries"] == 1.444


def test_a_thousand_layers_have_an_exact_product(review_of):
    report = as_json(review_of(*([{"attempts": 9, "base_delay_ms": 1}] * 1000), failure_rate=1))
    assert report["worst_amplification"] == 9**1000
    assert math.isfinite(report["expected_amplification"])
