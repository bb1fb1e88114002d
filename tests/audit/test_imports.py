from __future__ import annotations

import json

import pytest

from perdure.audit.chain import as_data, parse_chain
from perdure.audit.delays import delays
from perdure.audit.imports import envoy
from perdure.audit.imports.kinds import Said, chain
from perdure.audit.review import audit
from perdure.errors import InvalidArgument


@pytest.fixture
def imported(tmp_path):
    """The chain of a text of some kind, and its audit."""

    def read(kind, text, name="settings.yaml", **said):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        found = chain(kind, str(path), Said(**said))
        # What is written must be what check reads.
        assert parse_chain(json.loads(json.dumps(as_data(found)))) == found
        return found

    return read


def codes(found, index=0):
    return {each.code for each in audit(found).of(index)}


# --- Envoy -------------------------------------------------------------------

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


def test_envoy_counts_retries_and_has_defaults_of_its_own(imported):
    text = envoy_route("retry_policy: {retry_on: 5xx}")
    [layer] = imported("envoy", text).layers
    assert layer.attempts == 2
    assert layer.deadline_ms == 15_000
    assert (layer.base_delay_ms, layer.max_delay_ms, layer.jitter) == (25, 250, "full")
    assert {"attempts", "deadline_ms", "base_delay_ms", "max_delay_ms"} <= set(layer.assumed)
    assert layer.origin["retry_on"].endswith("settings.yaml:7 retry_on")


def test_envoy_without_retry_on_does_not_retry(imported):
    [layer] = imported("envoy", envoy_route("timeout: 3s")).layers
    assert layer.attempts == 1
    assert layer.deadline_ms == 3000


@pytest.mark.parametrize(
    ("per_try", "found"),
    [
        ("15s", {"PER_TRY_IGNORED"}),
        ("20s", {"PER_TRY_IGNORED", "DEADLINE_TOO_SHORT"}),
        ("4s", {"LAST_TRY_CUT"}),
        ("6s", {"TRIES_DO_NOT_FIT"}),
        ("3s", set()),
    ],
)
def test_a_per_try_timeout_is_judged_against_the_routes(imported, per_try, found):
    text = envoy_route(
        "timeout: 15s",
        f"retry_policy: {{retry_on: 5xx, num_retries: 3, per_try_timeout: {per_try}}}",
    )
    about_time = {
        "PER_TRY_IGNORED",
        "TRIES_DO_NOT_FIT",
        "LAST_TRY_CUT",
        "DEADLINE_TOO_SHORT",
        "NEVER_RETRIES_TIMEOUT",
    }
    assert codes(imported("envoy", text)) & about_time == found


def test_after_a_hang_an_ignored_per_try_timeout_leaves_one_try(imported):
    text = envoy_route("retry_policy: {retry_on: 5xx, num_retries: 2, per_try_timeout: 15s}")
    [finding] = [
        each for each in audit(imported("envoy", text)).findings if each.code == "PER_TRY_IGNORED"
    ]
    assert "never fires" in finding.detail
    assert "effective tries are 1" in finding.detail


def test_envoy_without_a_per_try_timeout_never_retries_a_hang(imported):
    text = envoy_route("retry_policy: {retry_on: 5xx, num_retries: 2}")
    assert "NEVER_RETRIES_TIMEOUT" in codes(imported("envoy", text))


def test_envoys_silent_limit_of_concurrent_retries_is_told_unless_a_budget_is_set(imported):
    text = envoy_route("retry_policy: {retry_on: 5xx, num_retries: 2}")
    assert "CONCURRENT_RETRY_LIMIT" in codes(imported("envoy", text))
    cluster = """\
clusters:
- name: payments
  circuit_breakers:
    thresholds:
    - retry_budget: {budget_percent: {value: 10}}
"""
    found = imported("envoy", text + cluster)
    assert "CONCURRENT_RETRY_LIMIT" not in codes(found)
    assert found.layers[0].retry_budget.ratio == pytest.approx(0.1)


@pytest.mark.parametrize(("active", "allowed"), [(25, 5), (2, 3), (0, 3), (100, 20), (14, 3)])
def test_envoys_budget_allows_a_share_and_never_less_than_its_minimum(active, allowed):
    assert envoy.allowed_retries(active, 20, 3) == allowed


def test_a_budget_bounds_the_steady_load_where_the_product_would_not(imported):
    cluster = """\
clusters:
- {name: payments, circuit_breakers: {thresholds: [{retry_budget: {budget_percent: {value: 10}}}]}}
"""
    text = envoy_route("retry_policy: {retry_on: 5xx, num_retries: 9}") + cluster
    found = imported("envoy", text)
    data = as_data(found) | {"failure_rate": 1}
    assert audit(parse_chain(data)).figures.expected_amplification == pytest.approx(1.1)


def test_a_virtual_hosts_policy_holds_for_routes_without_one(imported):
    text = """\
virtual_hosts:
- name: shop
  retry_policy: {retry_on: connect-failure, num_retries: 4}
  routes:
  - {match: {prefix: /a}, route: {cluster: a}}
  - {match: {prefix: /b}, route: {cluster: b, retry_policy: {retry_on: 5xx, num_retries: 1}}}
"""
    found = imported("envoy", text)
    assert [layer.attempts for layer in found.layers] == [5, 2]
    assert found.alternatives


# --- Istio -------------------------------------------------------------------

SERVICE = """\
kind: VirtualService
metadata: {name: payouts}
spec:
  http:
  - match: [{method: {exact: POST}}]
    route: [{destination: {host: payouts}}]
"""


def test_istio_retries_a_post_three_times_without_being_asked(imported):
    found = imported("istio", SERVICE)
    [layer] = found.layers
    assert layer.attempts == 3
    assert "attempts" in layer.assumed
    assert layer.methods == ("POST",)
    review = audit(found)
    assert review.figures.worst_amplification == 3
    [unsafe] = [each for each in review.findings if each.code == "RETRY_UNSAFE"]
    assert unsafe.severity == "high"


def test_istio_with_no_retries_or_with_a_key_is_safe(imported):
    off = imported("istio", f"{SERVICE}    retries: {{attempts: 0}}\n")
    assert off.layers[0].attempts == 1
    assert "RETRY_UNSAFE" not in codes(off)
    assert "RETRY_UNSAFE" not in codes(imported("istio", SERVICE, idempotency_key=True))


def test_istios_attempts_are_retries(imported):
    text = f"{SERVICE}    timeout: 2s\n    retries: {{attempts: 3, perTryTimeout: 250ms}}\n"
    found = imported("istio", text)
    [layer] = found.layers
    assert (layer.attempts, layer.per_try_timeout_ms, layer.deadline_ms) == (4, 250, 2000)
    assert "ATTEMPTS_ARE_RETRIES" in codes(found)


def test_a_mesh_default_under_an_application_policy_is_a_hidden_layer(imported, sound):
    mesh = as_data(imported("istio", SERVICE))["layers"]
    review = audit(parse_chain({"layers": [sound(attempts=4), *mesh]}))
    assert review.figures.worst_amplification == 12
    assert "HIDDEN_LAYER" in {each.code for each in review.of(1)}


# --- gRPC --------------------------------------------------------------------


def grpc_config(**over):
    policy = {
        "maxAttempts": 5,
        "initialBackoff": "0.1s",
        "maxBackoff": "1s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    } | over
    return {"methodConfig": [{"name": [{"service": "shop.Pay"}], "retryPolicy": policy}]}


def test_grpc_cuts_attempts_to_five_and_says_nothing(imported):
    found = imported("grpc", json.dumps(grpc_config(maxAttempts=8)), "grpc.json")
    [layer] = found.layers
    assert layer.attempts == 5
    [finding] = [each for each in audit(found).findings if each.code == "CAPPED_BY_CLIENT"]
    assert "8 configured, 5 in effect" in finding.detail


def test_grpcs_jitter_is_twenty_percent_either_way(imported):
    [layer] = imported("grpc", json.dumps(grpc_config()), "grpc.json").layers
    each = delays(layer)
    assert sum(delay.expected for delay in each) == pytest.approx(1500)
    assert sum(delay.least for delay in each) == pytest.approx(1200)
    assert sum(delay.most for delay in each) == pytest.approx(1800)


def test_grpcs_jitter_may_exceed_the_cap(imported):
    text = json.dumps(grpc_config(initialBackoff="1s"))
    assert "DELAY_EXCEEDS_CAP" in codes(imported("grpc", text, "grpc.json"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"maxAttempts": 1},
        {"maxAttempts": None},
        {"initialBackoff": "0s"},
        {"initialBackoff": 1},
        {"backoffMultiplier": 0},
        {"retryableStatusCodes": []},
        {"retryableStatusCodes": ["BUSY"]},
    ],
)
def test_what_grpc_would_refuse_is_refused(imported, wrong):
    with pytest.raises(InvalidArgument, match=r"grpc\.json:1"):
        imported("grpc", json.dumps(grpc_config(**wrong)), "grpc.json")


def test_grpcs_throttle_is_shared_and_trips_at_the_fifth_failure(imported):
    config = grpc_config() | {"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}}
    found = imported("grpc", json.dumps(config), "grpc.json")
    [finding] = [each for each in audit(found).findings if each.code == "SHARED_THROTTLE"]
    assert "after 5 failures in a row" in finding.detail
    assert "9.1%" in finding.detail
    assert "50 successes" in finding.detail
    assert found.layers[0].retry_budget.ratio == pytest.approx(0.1)


def test_hedging_needs_calls_that_may_be_made_twice(imported):
    config = {"methodConfig": [{"hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.5s"}}]}
    assert "HEDGE_UNSAFE" in codes(imported("grpc", json.dumps(config), "grpc.json"))


def test_json_keeps_its_lines(imported):
    text = json.dumps(grpc_config(), indent="\t")
    [layer] = imported("grpc", text, "grpc.json").layers
    line = 1 + text[: text.index("maxAttempts")].count("\n")
    assert layer.origin["attempts"].endswith(f"grpc.json:{line} maxAttempts 5")


# --- Python ------------------------------------------------------------------


def test_urllib3s_delays_begin_at_once(imported):
    found = imported(
        "urllib3", "from urllib3 import Retry\nRetry(total=4, backoff_factor=0.5)\n", "c.py"
    )
    [layer] = found.layers
    assert layer.attempts == 5
    assert [each.most for each in delays(layer)] == [0, 1000, 2000, 4000]
    assert {"FIRST_RETRY_IMMEDIATE", "RETRY_AFTER_TOO_LONG", "ATTEMPTS_ARE_RETRIES"} <= codes(found)


def test_urllib3_without_a_factor_is_a_hot_loop_and_every_default_is_marked(imported):
    found = imported("urllib3", "import urllib3\nurllib3.Retry()\n", "c.py")
    assert found.layers[0].attempts == 11
    assert "HOT_LOOP" in codes(found)
    assert {"attempts", "base_delay_ms", "max_delay_ms"} <= set(found.layers[0].assumed)


def test_urllib3_without_a_total_never_stops(imported):
    found = imported("urllib3", "import urllib3\nurllib3.Retry(total=None, read=3)\n", "c.py")
    assert found.layers[0].unbounded
    assert "UNBOUNDED_RETRY" in codes(found)
    assert audit(found).figures.layers[0].worst_case_ms is None


def test_urllib3_with_every_method_is_unsafe(imported):
    text = "import urllib3\nurllib3.Retry(3, backoff_factor=1, allowed_methods=None)\n"
    assert "RETRY_UNSAFE" in codes(imported("urllib3", text, "c.py"))


def test_urllib3s_additive_jitter_is_lost_at_its_cap(imported):
    text = (
        "from urllib3 import Retry\nRetry(9, backoff_factor=1, backoff_jitter=1, backoff_max=8)\n"
    )
    assert "JITTER_LOST_AT_CAP" in codes(imported("urllib3", text, "c.py"))


def test_bare_tenacity_is_found_for_what_it_is(imported):
    found = imported("tenacity", "import tenacity\n@tenacity.retry\ndef f(): ...\n", "c.py")
    assert {"UNBOUNDED_RETRY", "HOT_LOOP", "RETRY_UNSAFE"} <= codes(found)


def test_a_stop_by_time_overshoots_and_its_last_try_is_counted(imported):
    head = "from tenacity import retry, stop_after_delay, wait_exponential\n"
    text = f"{head}@retry(stop=stop_after_delay(5), wait=wait_exponential(1))\ndef f(): ...\n"
    found = imported("tenacity", text, "c.py")
    # Tries at 0, 1, 3 and 7 s.
    assert found.layers[0].attempts == 4
    assert "DEADLINE_OVERSHOOTS" in codes(found)
    assert audit(found).figures.layers[0].worst_case_ms is None


def test_what_only_running_the_code_would_show_is_said_and_not_guessed(imported):
    head = "from tenacity import retry, stop_after_attempt\nimport os\n"
    text = f"{head}@retry(stop=stop_after_attempt(int(os.environ['N'])))\ndef f(): ...\n"
    found = imported("tenacity", text, "c.py")
    [layer] = found.layers
    assert "NOT_STATICALLY_KNOWN" in codes(found)
    assert "not statically known" in layer.origin["attempts"]
    assert "attempts" in layer.assumed


def test_constants_of_the_module_are_read(imported):
    text = (
        "from datetime import timedelta\nfrom tenacity import Retrying, wait_fixed\n"
        "from tenacity import stop_after_attempt as stop\nTRIES = 2 * 2\n"
        "loop = Retrying(stop=stop(TRIES), wait=wait_fixed(timedelta(minutes=1)))\n"
    )
    [layer] = imported("tenacity", text, "c.py").layers
    assert (layer.attempts, layer.base_delay_ms) == (4, 60_000)


def test_source_is_never_run(imported, tmp_path):
    text = f"open({str(tmp_path / 'ran')!r}, 'w')\nimport tenacity\n@tenacity.retry\ndef f(): ...\n"
    imported("tenacity", text, "c.py")
    assert not (tmp_path / "ran").exists()


def test_a_folder_is_read_file_by_file(tmp_path):
    policy = "import tenacity\n@tenacity.retry\ndef {}(): ...\n"
    (tmp_path / "a.py").write_text(policy.format("one"))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.py").write_text(policy.format("two"))
    (tmp_path / "old.py").write_text("print 'no'")
    found = chain("tenacity", str(tmp_path))
    assert [layer.name for layer in found.layers] == ["tenacity one", "tenacity two"]


def test_perdures_own_activities_are_read_from_source(imported):
    text = """\
from perdure import RetryPolicy, activity, ms

@activity.define(
    retry=RetryPolicy(max_attempts=4, initial_ms=500, backoff=3),
    start_to_close_ms=ms(seconds=30),
    heartbeat_ms=5_000,
)
def render(path):
    activity.record_heartbeat()

@activity.define
def charge(cents):
    pay(cents, key=activity.idempotency_key())
"""
    found = imported("perdure", text, "shop.py")
    render, charge = found.layers
    assert (render.attempts, render.base_delay_ms, render.multiplier) == (4, 500, 3)
    assert (render.per_try_timeout_ms, render.heartbeat_ms) == (30_000, 5_000)
    assert render.origin["attempts"].endswith("shop.py:4 max_attempts")
    assert "RETRY_UNSAFE" in codes(found, 0)
    assert (charge.attempts, charge.per_try_timeout_ms) == (5, 600_000)
    assert charge.idempotency_key
    assert "RETRY_UNSAFE" not in codes(found, 1)


# --- botocore ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "attempts"),
    [
        ("{'max_attempts': 0}", 1),
        ("{'max_attempts': 2}", 3),
        ("{'total_max_attempts': 2}", 2),
        ("{'total_max_attempts': 2, 'max_attempts': 9}", 2),
    ],
)
def test_in_code_max_attempts_counts_retries(imported, options, attempts):
    text = f"from botocore.config import Config\nConfig(retries={options})\n"
    assert imported("botocore", text, "c.py").layers[0].attempts == attempts


@pytest.mark.parametrize(
    ("version", "mode", "expected"),
    [
        ("1.43.11", "", (5, 1000, None)),
        ("1.43.11", "standard", (3, 1000, 20_000)),
        ("1.44.0", "", (3, 50, 20_000)),
        ("1.44.8", "legacy", (5, 1000, None)),
        ("2.0", "adaptive", (3, 50, 20_000)),
    ],
)
def test_the_version_decides_the_defaults(imported, version, mode, expected):
    text = f"[default]\n{f'retry_mode = {mode}' if mode else 'region = x'}\n"
    [layer] = imported("botocore", text, "config", library_version=version).layers
    assert (layer.attempts, layer.base_delay_ms, layer.max_delay_ms) == expected
    assert version in layer.origin["base_delay_ms"]


def test_a_config_as_json_is_read_like_code(imported):
    text = json.dumps({"retries": {"mode": "standard", "max_attempts": 2}, "read_timeout": 5})
    [layer] = imported("botocore", text, "config.json").layers
    assert (layer.attempts, layer.per_try_timeout_ms) == (3, 5000)


def test_the_quota_is_a_budget_per_object(imported):
    text = "[default]\nretry_mode = standard\n"
    found = imported("botocore", text, "config", library_version="1.43.11")
    assert found.layers[0].retry_budget.ratio == pytest.approx(0.2)
    assert "BUDGET_PER_OBJECT" in codes(found)


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
