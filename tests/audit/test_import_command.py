from __future__ import annotations

import json

import pytest

ROUTE = """\
virtual_hosts:
- name: shop
  routes:
  - match: {prefix: /pay}
    route:
      cluster: payments
      %s
"""


def envoy_route(*lines):
    return ROUTE % "\n      ".join(lines)


SERVICE = """\
kind: VirtualService
metadata: {name: payouts}
spec:
  http:
  - match: [{method: {exact: POST}}]
    route: [{destination: {host: payouts}}]
"""


# --- the command -------------------------------------------------------------


def test_the_command_writes_a_chain_that_check_takes(policy, chain_file, tmp_path):
    out = tmp_path / "chain.json"
    code, _, _ = policy("import", "istio", chain_file(SERVICE, "vs.yaml"), "-o", str(out))
    assert code == 0
    code, report, _ = policy("check", str(out), "--json")
    assert code == 1
    assert json.loads(report)["layers"][0]["attempts"] == 3


def test_several_policies_stand_side_by_side_and_do_not_multiply(policy, chain_file):
    text = "import tenacity as t\n"
    text += "".join(
        f"@t.retry(stop=t.stop_after_attempt(3), wait=t.wait_fixed(1))\ndef f{i}(): ...\n"
        for i in range(4)
    )
    code, out, err = policy("import", "tenacity", chain_file(text, "c.py"))
    assert code == 0
    assert "4 policies" in err
    report = json.loads(policy("check", chain_file(out), "--json")[1])
    assert report["worst_amplification"] == 3
    one = json.loads(policy("import", "tenacity", chain_file(text, "c.py"), "--only", "f2")[1])
    assert [layer["name"] for layer in one["layers"]] == ["tenacity f2"]


def test_what_the_user_knows_can_be_said(policy, chain_file):
    file = chain_file("import tenacity\n@tenacity.retry\ndef f(): ...\n", "c.py")
    [layer] = json.loads(policy("import", "tenacity", file, "--idempotent")[1])["layers"]
    assert layer["idempotent"] is True
    assert "idempotent" not in layer["assumed"]
    [layer] = json.loads(policy("import", "tenacity", file, "--method", "POST")[1])["layers"]
    assert layer["idempotent"] is False


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("tenacty", "x", "did you mean tenacity?"),
        ("tenacity", "x = (", "this is no Python"),
        ("tenacity", "x = 1", "no tenacity policy"),
        ("urllib3", "x = 1", "no urllib3 retry policy"),
        ("perdure", "x = 1", "no @activity.define"),
        ("envoy", "a: 1", "no Envoy route"),
        ("envoy", "a: [", "is not YAML"),
        ("envoy", envoy_route("timeout: soon"), "must be a duration"),
        ("envoy", envoy_route("retry_policy: {retry_on: 5xx, num_retries: -1}"), "num_retries"),
        ("istio", "a: 1", "no HTTP route"),
        ("grpc", "{}", "no methodConfig"),
        ("botocore", "[default]\nretry_mode = fast\n", "must be one of legacy"),
        ("botocore", "[default]\nmax_attempts = many\n", "max_attempts"),
        ("botocore", "nothing", "no AWS"),
        ("envoy", "", "is empty"),
    ],
)
def test_bad_input_is_exit_code_2_and_one_line(policy, chain_file, kind, text, message):
    code, out, err = policy("import", kind, chain_file(text, "settings"))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


# --- snippets ----------------------------------------------------------------

EXPRESSIBLE = ("attempts", "base_delay_ms", "multiplier", "max_delay_ms", "per_try_timeout_ms")
FILES = {"envoy": "s.yaml", "istio": "s.yaml", "grpc": "s.json"}


@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        ("envoy", set()),
        ("istio", {"max_delay_ms"}),
        ("grpc", {"per_try_timeout_ms"}),
        ("urllib3", set()),
        ("requests", set()),
        ("tenacity", {"per_try_timeout_ms"}),
        ("botocore", {"base_delay_ms", "max_delay_ms"}),
        ("perdure", set()),
    ],
)
def test_a_snippet_says_what_was_asked_and_is_read_back_alike(policy, chain_file, kind, lost):
    wanted = {
        "attempts": 4,
        "base_delay_ms": 150,
        "multiplier": 2,
        "max_delay_ms": 900,
        "jitter": "full",
        "per_try_timeout_ms": 700,
        "deadline_ms": 4000,
        "retry_on": [503, "timeout"],
    }
    code, text, err = policy("snippet", kind, chain_file({"layers": [wanted]}))
    assert code == 0
    code, out, _ = policy("import", kind, chain_file(text, FILES.get(kind, "s.py")))
    [layer] = json.loads(out)["layers"]
    kept = [key for key in EXPRESSIBLE if key not in lost]
    assert {key: layer[key] for key in kept} == {key: wanted[key] for key in kept}
    # What is lost is said.
    assert not lost or err


def test_a_snippet_without_a_chain_is_the_advised_policy(policy):
    code, out, _ = policy("snippet", "tenacity")
    assert code == 0
    assert "stop_after_attempt(3) | stop_before_delay(5)" in out


def test_a_repaired_import_can_be_written_back(policy, chain_file):
    text = envoy_route("retry_policy: {retry_on: '5xx,retriable-4xx', num_retries: 9}")
    imported = policy("import", "envoy", chain_file(text, "r.yaml"), "--idempotent")[1]
    fixed = policy("fix", chain_file(imported), "-o", "-")[1]
    out = policy("snippet", "envoy", chain_file(fixed))[1]
    assert "num_retries: 2" in out
    assert "retriable-4xx" not in out
