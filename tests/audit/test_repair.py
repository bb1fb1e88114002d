from __future__ import annotations

import json
import random

import pytest

from perdure.audit.chain import parse_chain
from perdure.audit.repair import repair
from perdure.audit.report import side_by_side


def some_chain(dice):
    def maybe(value):
        return value if dice.random() < 0.6 else None

    def layer():
        return {
            "attempts": dice.choice([1, 1, 2, 3, 4, 7, 50]),
            "base_delay_ms": dice.choice([0, 10, 100, 1000, 20_000]),
            "multiplier": dice.choice([1, 1.5, 2, 10]),
            "max_delay_ms": maybe(dice.choice([0, 50, 1000, 60_000])),
            "jitter": dice.choice(["none", "full", "equal", "decorrelated"]),
            "per_try_timeout_ms": maybe(dice.choice([50, 1000, 30_000])),
            "deadline_ms": maybe(dice.choice([30, 2000, 60_000])),
            "retry_on": dice.sample([400, 404, 408, 409, 429, 500, 503, "timeout"], 4),
            "idempotent": dice.random() < 0.7,
            "idempotency_key": dice.random() < 0.3,
            "respect_retry_after": dice.random() < 0.5,
        }

    return parse_chain({"layers": [layer() for _ in range(dice.randint(1, 5))]})


@pytest.mark.parametrize("seed", range(120))
def test_a_repaired_chain_audits_clean(seed):
    found = repair(some_chain(random.Random(seed)))
    assert [each.code for each in found.after.findings] == []
    assert all(each.reason for each in found.changes)
    assert sum(layer.retries for layer in found.after.chain.layers) <= 1


@pytest.mark.parametrize("seed", range(50))
def test_what_is_repaired_needs_no_second_repair(seed):
    once = repair(some_chain(random.Random(seed))).after.chain
    assert repair(once).changes == ()


def test_the_example_is_repaired_at_one_layer(checkout):
    found = repair(parse_chain(checkout))
    assert [layer.attempts for layer in found.after.chain.layers] == [3, 1, 1]
    assert found.after.figures.worst_amplification == 3
    deadlines = [layer.deadline_ms for layer in found.after.chain.layers]
    assert deadlines == sorted(deadlines, reverse=True)
    assert found.after.chain.layers[2].retry_on == (429, 500, 503, "timeout")


def test_a_write_without_a_key_stays_unsafe_and_this_is_said(checkout):
    found = repair(parse_chain(checkout))
    [text] = [each for each in found.left if "without an idempotency key" in each]
    assert "stays unsafe" in text
    assert "payments provider" in text
    assert not found.after.chain.layers[2].idempotency_key


def test_a_lone_write_without_a_key_makes_one_try(review_of):
    found = repair(
        parse_chain({"layers": [{"attempts": 3, "idempotent": False, "per_try_timeout_ms": 10}]})
    )
    [layer] = found.after.chain.layers
    assert layer.attempts == 1
    assert found.after.findings == ()


def test_with_keys_the_write_may_be_the_layer_that_retries(checkout):
    found = repair(parse_chain(checkout), with_keys=True)
    assert [layer.attempts for layer in found.after.chain.layers] == [1, 1, 4]
    assert found.after.chain.layers[2].idempotency_key
    assert found.after.findings == ()


def test_a_guessed_timeout_is_left_to_be_measured():
    found = repair(parse_chain({"layers": [{"name": "a -> b"}]}))
    assert any("b takes to answer" in each and "guess" in each for each in found.left)


def test_a_sound_chain_is_not_changed(sound):
    found = repair(parse_chain({"layers": [sound()]}))
    assert found.changes == ()
    assert "unchanged" in side_by_side(found)


def test_the_command_shows_both_sides_and_writes_a_chain_that_checks(
    policy, chain_file, checkout, tmp_path
):
    out = tmp_path / "fixed.json"
    code, shown, err = policy("fix", chain_file(checkout), "-o", str(out))
    assert code == 0
    assert "BEFORE" in shown
    assert "because" in shown
    assert str(out) in err
    assert policy("check", str(out))[0] == 0


def test_the_repaired_chain_can_go_on_in_a_pipe(policy, chain_file, checkout):
    code, out, err = policy("fix", chain_file(checkout), "-o", "-")
    assert code == 0
    assert parse_chain(json.loads(out)).layers[1].attempts == 1
    assert "BEFORE" in err


def test_the_repair_as_json_holds_both_audits(policy, chain_file, checkout):
    data = json.loads(policy("fix", chain_file(checkout), "--json")[1])
    assert data["before"]["high_flags"] == 4
    assert data["after"]["high_flags"] == 0
    assert parse_chain(data["chain"])


def test_the_report_has_every_part_and_marks_assumptions(policy, chain_file, checkout):
    checkout["layers"][1]["assumed"] = ["attempts"]
    code, out, _ = policy("report", chain_file(checkout))
    assert code == 0
    headings = [line[3:] for line in out.splitlines() if line.startswith("## ")]
    assert headings == [
        "The chain as it is",
        "Findings",
        "Proposed policy",
        "Left to do",
        "Assumptions",
    ]
    assert "Assumed: 'api gateway -> orders service' has attempts 3 (library default)." in out
    assert "(assumed: attempts)" in out
    assert "- [ ]" in out


def test_a_report_that_cannot_be_written_is_exit_code_2(policy, chain_file, checkout, tmp_path):
    code, _, err = policy("report", chain_file(checkout), "-o", str(tmp_path / "no" / "r.md"))
    assert code == 2
    assert "can't be written" in err
