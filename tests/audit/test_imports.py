from __future__ import annotations

import json

import pytest

from perdure.audit.chain import as_data, parse_chain
from perdure.audit.delays import delays
from perdure.audit.imports import envoy
from perdure.audit.review import audit
from perdure.errors import InvalidArgument

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
    assert layer.deadline_ms == layer.per_try_timeout_ms == 3000


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
def test_a_per_try_timeout_is_judged_against_the_routes(imported, codes_in, per_try, found):
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
    assert codes_in(imported("envoy", text)) & about_time == found


def test_after_a_hang_an_ignored_per_try_timeout_leaves_one_try(imported):
    text = envoy_route("retry_policy: {retry_on: 5xx, num_retries: 2, per_try_timeout: 15s}")
    [finding] = [
        each for each in audit(imported("envoy", text)).findings if each.code == "PER_TRY_IGNORED"
    ]
    assert "never fires" in finding.detail
    assert "effective tries are 1" in finding.detail


def test_envoy_without_a_per_try_timeout_never_retries_a_hang(imported, codes_in):
    text = envoy_route("retry_policy: {retry_on: 5xx, num_retries: 2}")
    assert "NEVER_RETRIES_TIMEOUT" in codes_in(imported("envoy", text))


def test_envoys_silent_limit_of_concurrent_retries_is_told_unless_a_budget_is_set(
    imported, codes_in
):
    text = envoy_route("retry_policy: {retry_on: 5xx, num_retries: 2}")
    assert "CONCURRENT_RETRY_LIMIT" in codes_in(imported("envoy", text))
    cluster = """\
clusters:
- name: payments
  circuit_breakers:
    thresholds:
    - retry_budget: {budget_percent: {value: 10}}
"""
    found = imported("envoy", text + cluster)
    assert "CONCURRENT_RETRY_LIMIT" not in codes_in(found)
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


def test_istio_with_no_retries_or_with_a_key_is_safe(imported, codes_in):
    off = imported("istio", f"{SERVICE}    retries: {{attempts: 0}}\n")
    assert off.layers[0].attempts == 1
    assert "RETRY_UNSAFE" not in codes_in(off)
    assert "RETRY_UNSAFE" not in codes_in(imported("istio", SERVICE, idempotency_key=True))


def test_istios_attempts_are_retries(imported, codes_in):
    text = f"{SERVICE}    timeout: 2s\n    retries: {{attempts: 3, perTryTimeout: 250ms}}\n"
    found = imported("istio", text)
    [layer] = found.layers
    assert (layer.attempts, layer.per_try_timeout_ms, layer.deadline_ms) == (4, 250, 2000)
    assert "ATTEMPTS_ARE_RETRIES" in codes_in(found)


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


def test_grpcs_jitter_may_exceed_the_cap(imported, codes_in):
    text = json.dumps(grpc_config(initialBackoff="1s"))
    assert "DELAY_EXCEEDS_CAP" in codes_in(imported("grpc", text, "grpc.json"))


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


def test_hedging_needs_calls_that_may_be_made_twice(imported, codes_in):
    config = {"methodConfig": [{"hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.5s"}}]}
    assert "HEDGE_UNSAFE" in codes_in(imported("grpc", json.dumps(config), "grpc.json"))


def test_json_keeps_its_lines(imported):
    text = json.dumps(grpc_config(), indent="\t")
    [layer] = imported("grpc", text, "grpc.json").layers
    line = 1 + text[: text.index("maxAttempts")].count("\n")
    assert layer.origin["attempts"].endswith(f"grpc.json:{line} maxAttempts 5")
