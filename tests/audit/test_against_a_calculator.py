"""Random chains against a second calculator, written from the definitions in exact fractions."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from perdure.audit.chain import parse_chain
from perdure.audit.review import as_json, audit

SHARES = {
    "none": (1, 1, 1),
    "full": (0, Fraction(1, 2), 1),
    "equal": (Fraction(1, 2), Fraction(3, 4), 1),
}
HOPELESS = {400, 401, 403, 404, 405, 409, 410, 422}


def random_layer(dice):
    layer = {
        "attempts": dice.choice([1, 1, 2, 3, 4, 5, 6, 8, 12]),
        "base_delay_ms": dice.choice([0, 1, 12.5, 100, 250, 3000]),
        "multiplier": dice.choice([1, 1.5, 2, 3]),
        "jitter": dice.choice(list(SHARES)),
        "retry_on": dice.sample([400, 404, 408, 409, 429, 500, 502, 503, "timeout", "network"], 3),
    }
    for key, values in (
        ("max_delay_ms", [10, 400, 5000]),
        ("per_try_timeout_ms", [1, 250, 1000, 8000.5]),
        ("deadline_ms", [200, 3000, 20_000, 100_000]),
        ("failure_rate", [0, 0.05, 0.3, 0.75, 1]),
    ):
        if dice.random() < 0.6:
            layer[key] = dice.choice(values)
    for key in ("idempotent", "idempotency_key", "respect_retry_after"):
        if dice.random() < 0.5:
            layer[key] = dice.random() < 0.5
    return layer


def random_chain(seed):
    dice = random.Random(seed)
    return {
        "failure_rate": dice.choice([0, 0.1, 0.25, 0.5, 0.9, 1]),
        "max_amplification": dice.choice([1, 10, 24, 100]),
        "layers": [random_layer(dice) for _ in range(dice.randint(1, 5))],
    }


def exact(value):
    return Fraction(str(value))


def layer_delays(layer):
    found = []
    for k in range(1, layer["attempts"]):
        d = exact(layer["base_delay_ms"]) * exact(layer["multiplier"]) ** (k - 1)
        if "max_delay_ms" in layer:
            d = min(d, exact(layer["max_delay_ms"]))
        found.append([d * share for share in SHARES[layer["jitter"]]])
    return found


def worst_case(layer):
    if "per_try_timeout_ms" in layer:
        full = layer["attempts"] * exact(layer["per_try_timeout_ms"])
        full += sum(most for _, _, most in layer_delays(layer))
        return min(full, exact(layer["deadline_ms"])) if "deadline_ms" in layer else full
    return exact(layer["deadline_ms"]) if "deadline_ms" in layer else None


def fitting(layer):
    if "per_try_timeout_ms" not in layer or "deadline_ms" not in layer:
        return None
    waits = [mean for _, mean, _ in layer_delays(layer)]
    return max(
        m
        for m in range(1, layer["attempts"] + 1)
        if (m - 1) * exact(layer["per_try_timeout_ms"]) + sum(waits[: m - 1])
        < exact(layer["deadline_ms"])
    )


def tries(p, n):
    return sum(p**k for k in range(n))


def recursion(chain, rates):
    product, below = Fraction(1), Fraction(0)
    for layer, p in zip(reversed(chain["layers"]), reversed(rates), strict=True):
        q = 1 - (1 - p) * (1 - below)
        product *= tries(q, layer["attempts"])
        below = q ** layer["attempts"]
    return product


def codes(chain, index):
    layer = chain["layers"][index]
    found = set()
    worst = worst_case(layer)
    if "per_try_timeout_ms" not in layer:
        found.add("NO_PER_TRY_TIMEOUT")
    elif "deadline_ms" in layer and layer["deadline_ms"] < layer["per_try_timeout_ms"]:
        found.add("DEADLINE_TOO_SHORT")
    caller = chain["layers"][index - 1] if index else {}
    if "per_try_timeout_ms" in caller and (
        worst is None or worst > exact(caller["per_try_timeout_ms"])
    ):
        found.add("INNER_OUTLIVES_CALLER")
    product = 1
    for each in chain["layers"]:
        product *= each["attempts"]
    if index == len(chain["layers"]) - 1 and product > chain["max_amplification"]:
        found.add("AMPLIFICATION")
    if layer["attempts"] == 1:
        return found
    statuses = set(layer["retry_on"])
    conditions = {
        "RETRY_UNSAFE": not layer.get("idempotent", True) and not layer.get("idempotency_key"),
        "HOT_LOOP": layer["base_delay_ms"] == 0,
        "NO_JITTER": layer["jitter"] == "none",
        "NO_CAP": layer["attempts"] > 3 and "max_delay_ms" not in layer,
        "RETRY_ON_4XX": bool(statuses & HOPELESS),
        "IGNORES_RETRY_AFTER": bool(statuses & {429, 503})
        and not layer.get("respect_retry_after", False),
        "NO_DEADLINE": "deadline_ms" not in layer,
        "TOO_MANY_ATTEMPTS": layer["attempts"] > 5,
    }
    return found | {code for code, holds in conditions.items() if holds}


def near(value, wanted, step):
    """Equal after rounding, a last digit either way allowed for ties."""
    assert value == pytest.approx(float(wanted), abs=step * 0.500001)


@pytest.mark.parametrize("seed", range(150))
def test_a_random_chain_comes_out_as_the_second_calculator_has_it(seed):
    chain = random_chain(seed)
    report = as_json(audit(parse_chain(chain)))
    worst, expected = 1, Fraction(1)
    own = [exact(layer.get("failure_rate", chain["failure_rate"])) for layer in chain["layers"]]
    for index, (layer, shown) in enumerate(zip(chain["layers"], report["layers"], strict=True)):
        wanted = layer_delays(layer)
        assert len(shown["delays_ms"]) == len(wanted)
        for one, other in zip(shown["delays_ms"], wanted, strict=True):
            for value, part in zip(one, other, strict=True):
                near(value, part, 0.1)
        near(shown["max_delay_total_ms"], sum(each[2] for each in wanted), 0.1)
        near(shown["expected_delay_total_ms"], sum(each[1] for each in wanted), 0.1)
        if worst_case(layer) is None:
            assert shown["worst_case_ms"] is None
        else:
            near(shown["worst_case_ms"], worst_case(layer), 0.1)
        assert shown["tries_that_fit"] == fitting(layer)
        worst *= layer["attempts"]
        expected *= tries(own[index], layer["attempts"])
        near(shown["expected_tries"], tries(own[index], layer["attempts"]), 0.001)
        assert shown["cumulative_worst_amplification"] == worst
        near(shown["cumulative_expected_amplification"], expected, 0.001)
        flags = [flag["code"] for flag in shown["flags"]]
        assert len(flags) == len(set(flags))
        assert set(flags) == codes(chain, index)
    assert report["worst_amplification"] == worst
    near(report["expected_amplification"], expected, 0.001)
    near(report["expected_amplification_cascading"], recursion(chain, own), 0.001)
    only = [Fraction(0)] * (len(own) - 1) + own[-1:]
    near(report["expected_amplification_outage"], recursion(chain, only), 0.001)
    highs = [flag for layer in report["layers"] for flag in layer["flags"]]
    assert report["high_flags"] == sum(flag["severity"] == "high" for flag in highs)
