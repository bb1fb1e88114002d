from __future__ import annotations

import io
import json
import sys

import pytest

LAYER = {"attempts": 2}


def layers(**keys):
    return {"layers": [LAYER, LAYER | keys]}


BAD = [
    ({}, "layers"),
    ({"layers": []}, "layers"),
    ({"layers": {}}, "layers"),
    ([], "a chain is an object"),
    ({"layers": [LAYER, 7]}, "layer 2: must be an object"),
    ({"layers": [LAYER, {"name": "api", "atempts": 3}]}, "layer 2 (api): unknown key"),
    (layers(atempts=3), "did you mean attempts?"),
    (layers(per_try_timout=3), "did you mean per_try_timeout_ms?"),
    ({"layers": [{"attempts": 10_000}] * 26}, "250000 attempts in all"),
    ({"layers": [{}] * 1_001}, "at most 1000 layers"),
    ({"layers": [LAYER], "failure_rat": 1}, "did you mean failure_rate?"),
    (layers(retry_budget={"rati": 1}), "did you mean ratio?"),
    *((layers(attempts=wrong), "layer 2, attempts") for wrong in (0, 2.5, True, "3", None, -1)),
    (layers(attempts=10_001), "from 1 to 10000"),
    (layers(base_delay_ms=-1), "layer 2, base_delay_ms"),
    (layers(base_delay_ms="100"), "layer 2, base_delay_ms"),
    (layers(base_delay_ms=10**400), "layer 2, base_delay_ms"),
    (layers(multiplier=0.5), "layer 2, multiplier"),
    (layers(per_try_timeout_ms=0), "layer 2, per_try_timeout_ms"),
    (layers(deadline_ms=0.5), "layer 2, deadline_ms"),
    (layers(jitter="ful"), "none, full, equal, decorrelated"),
    (layers(jitter=None), "layer 2, jitter"),
    (layers(retry_on="503"), "layer 2, retry_on: must be a list"),
    (layers(retry_on=[True]), "layer 2, retry_on"),
    (layers(retry_on=[99]), "layer 2, retry_on"),
    (layers(idempotent=1), "layer 2, idempotent: must be true or false"),
    (layers(name=""), "layer 2, name"),
    (layers(retry_budget=0.1), "layer 2, retry_budget"),
    (layers(circuit_breaker={"failure_ratio": 2}), "circuit_breaker.failure_ratio"),
    (layers(circuit_breaker={"min_calls": 0}), "circuit_breaker.min_calls"),
    ({"layers": [LAYER], "failure_rate": 1.01}, "chain, failure_rate"),
    ({"layers": [LAYER], "failure_rate": -0.1}, "chain, failure_rate"),
    ({"layers": [LAYER], "failure_rate": True}, "chain, failure_rate"),
    ({"layers": [LAYER], "max_amplification": 0}, "chain, max_amplification"),
    ("", "is empty"),
    ("  \n", "is empty"),
    ('{"layers": [', "is not JSON"),
    ("hello", "is not JSON"),
    ('{"layers": [{"attempts": NaN}]}', "attempts"),
    ('{"layers": [{"base_delay_ms": Infinity}]}', "infinity"),
    ('{"layers": [{"base_delay_ms": 1e999}]}', "infinity"),
    (
        '{"layers": [{},\n{"attempts": 1, "attempts": 9}]}',
        'the key "attempts" (line 2, layer 2) is given twice',
    ),
    ("[" * 100_000, "nested too deeply"),
    ('{"layers": [{"base_delay_ms": ' + "9" * 5000 + "}]}", "is not JSON"),
]


@pytest.mark.parametrize(("data", "message"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_input_is_exit_code_2_and_one_line_that_names_the_place(
    policy, chain_file, data, message
):
    code, out, err = policy("check", chain_file(data))
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layers: [\n", "is not YAML"),
        ("layers:\n- attempts: 1\n  attempts: 9\n", "given twice"),
        ("layers:\n- base_delay_ms: .nan\n", "NaN"),
        ("layers:\n- base_delay_ms: .inf\n", "infinity"),
        ("layers:\n- {attempts: 2}\n---\nlayers: []\n", "more than one document"),
        ("just text", "a chain is an object"),
        ("layers:\n- {attempts: !!python/object:os.system 1}\n", "is not YAML"),
        ("? [a]\n: 1\n", "is not YAML"),
    ],
)
def test_bad_yaml_is_exit_code_2_and_one_line(policy, chain_file, text, message):
    code, out, err = policy("check", chain_file(text, "chain.yaml"))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


def test_a_file_that_is_not_there_or_is_no_text_is_said_to_be_so(policy, tmp_path):
    assert "there is no file" in policy("check", str(tmp_path / "none.json"))[2]
    assert policy("check", str(tmp_path))[0] == 2
    (tmp_path / "latin.json").write_bytes(b'{"name": "caf\xe9"}')
    code, _, err = policy("check", str(tmp_path / "latin.json"))
    assert code == 2
    assert "is not UTF-8" in err


def test_a_failure_rate_on_the_command_line_is_checked_alike(policy, chain_file):
    file = chain_file({"layers": [LAYER]})
    for wrong in ("1.5", "-0.1", "nan"):
        code, _, err = policy("check", file, "--failure-rate", wrong)
        assert code == 2
        assert "--failure-rate" in err.splitlines()[0]


def test_a_chain_comes_from_standard_input_too(policy, monkeypatch):
    text = json.dumps({"layers": [{"attempts": 1, "per_try_timeout_ms": 5}]})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    code, out, _ = policy("check", "-", "--json")
    assert code == 0
    assert json.loads(out)["name"] == "chain"


def test_yaml_says_the_same_as_json(policy, chain_file, checkout):
    text = """\
name: checkout
failure_rate: 0.3
layers:
- &first {name: a, attempts: 3, base_delay_ms: 100, retry_on: [timeout, 503]}
- {<<: *first, name: b}
"""
    code, out, _ = policy("check", chain_file(text, "chain.yml"), "--json")
    assert code == 1
    assert [each["attempts"] for each in json.loads(out)["layers"]] == [3, 3]


def test_null_is_no_limit(policy, chain_file):
    nulls = dict.fromkeys(("max_delay_ms", "deadline_ms", "retry_budget", "circuit_breaker"))
    file = chain_file({"layers": [LAYER | nulls | {"per_try_timeout_ms": 5}]})
    assert json.loads(policy("check", file, "--json")[1])["layers"][0]["deadline_ms"] is None


def test_a_lone_surrogate_in_a_name_does_not_break_the_output(policy, chain_file):
    file = chain_file('{"layers": [{"name": "a\\ud800b"}]}')
    code, out, err = policy("check", file)
    assert code == 1, err
    assert "a?b" in out


BOMB = "a0: &a0 [1]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30)
)


def test_a_small_file_that_stands_for_a_huge_one_is_refused_at_once(policy, chain_file):
    assert policy("check", chain_file(BOMB, "bomb.yaml"))[0] == 2
    assert policy("import", "envoy", chain_file(BOMB, "bomb.yaml"))[0] == 2
    assert policy("check", chain_file("a: &a [*a]\n", "loop.yaml"))[0] == 2
