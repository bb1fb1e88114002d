from __future__ import annotations

import json

import pytest

from perdure.audit.delays import delays
from perdure.audit.imports.kinds import chain
from perdure.audit.review import audit

# --- Python ------------------------------------------------------------------


def test_urllib3s_delays_begin_at_once(imported, codes_in):
    found = imported(
        "urllib3", "from urllib3 import Retry\nRetry(total=4, backoff_factor=0.5)\n", "c.py"
    )
    [layer] = found.layers
    assert layer.attempts == 5
    assert [each.most for each in delays(layer)] == [0, 1000, 2000, 4000]
    assert {"FIRST_RETRY_IMMEDIATE", "RETRY_AFTER_TOO_LONG", "ATTEMPTS_ARE_RETRIES"} <= codes_in(
        found
    )


def test_urllib3_without_a_factor_is_a_hot_loop_and_every_default_is_marked(imported, codes_in):
    found = imported("urllib3", "import urllib3\nurllib3.Retry()\n", "c.py")
    assert found.layers[0].attempts == 11
    assert "HOT_LOOP" in codes_in(found)
    assert {"attempts", "base_delay_ms", "max_delay_ms"} <= set(found.layers[0].assumed)


def test_urllib3_without_a_total_never_stops(imported, codes_in):
    found = imported("urllib3", "import urllib3\nurllib3.Retry(total=None, read=3)\n", "c.py")
    assert found.layers[0].unbounded
    assert "UNBOUNDED_RETRY" in codes_in(found)
    assert audit(found).figures.layers[0].worst_case_ms is None


def test_urllib3_with_every_method_is_unsafe(imported, codes_in):
    text = "import urllib3\nurllib3.Retry(3, backoff_factor=1, allowed_methods=None)\n"
    assert "RETRY_UNSAFE" in codes_in(imported("urllib3", text, "c.py"))


def test_urllib3s_additive_jitter_is_lost_at_its_cap(imported, codes_in):
    text = (
        "from urllib3 import Retry\nRetry(9, backoff_factor=1, backoff_jitter=1, backoff_max=8)\n"
    )
    assert "JITTER_LOST_AT_CAP" in codes_in(imported("urllib3", text, "c.py"))


def test_bare_tenacity_is_found_for_what_it_is(imported, codes_in):
    found = imported("tenacity", "import tenacity\n@tenacity.retry\ndef f(): ...\n", "c.py")
    assert {"UNBOUNDED_RETRY", "HOT_LOOP", "RETRY_UNSAFE"} <= codes_in(found)


def test_a_stop_by_time_overshoots_and_its_last_try_is_counted(imported, codes_in):
    head = "from tenacity import retry, stop_after_delay, wait_exponential\n"
    text = f"{head}@retry(stop=stop_after_delay(5), wait=wait_exponential(1))\ndef f(): ...\n"
    found = imported("tenacity", text, "c.py")
    # Tries at 0, 1, 3 and 7 s.
    assert found.layers[0].attempts == 4
    assert "DEADLINE_OVERSHOOTS" in codes_in(found)
    assert audit(found).figures.layers[0].worst_case_ms is None


def test_what_only_running_the_code_would_show_is_said_and_not_guessed(imported, codes_in):
    head = "from tenacity import retry, stop_after_attempt\nimport os\n"
    text = f"{head}@retry(stop=stop_after_attempt(int(os.environ['N'])))\ndef f(): ...\n"
    found = imported("tenacity", text, "c.py")
    [layer] = found.layers
    assert "NOT_STATICALLY_KNOWN" in codes_in(found)
    assert "not statically known" in layer.origin["attempts"]
    assert "attempts" in layer.assumed


def test_the_timeout_inside_a_retried_function_is_the_per_try_timeout(imported):
    text = """\
import requests, tenacity
LIMIT = 3
@tenacity.retry(stop=tenacity.stop_after_attempt(3))
def a():
    requests.get("https://x", timeout=LIMIT)
@tenacity.retry(stop=tenacity.stop_after_attempt(3))
def b(limit):
    requests.get("https://x", timeout=limit)
@tenacity.retry(stop=tenacity.stop_after_attempt(3))
def c():
    requests.get("https://x")
"""
    a, b, c = imported("tenacity", text, "c.py").layers
    assert a.per_try_timeout_ms == 3000
    assert b.per_try_timeout_ms is None
    assert "not statically known" in b.origin["per_try_timeout_ms"]
    assert "gives none" in c.origin["per_try_timeout_ms"]


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


def test_perdures_own_activities_are_read_from_source(imported, codes_in):
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
    assert "RETRY_UNSAFE" in codes_in(found, 0)
    assert (charge.attempts, charge.per_try_timeout_ms) == (5, 600_000)
    assert charge.idempotency_key
    assert "RETRY_UNSAFE" not in codes_in(found, 1)


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


@pytest.mark.parametrize(
    ("options", "attempts"),
    [
        ({"retries": {"total_max_attempts": 2}}, 2),
        ({"retries": {"max_attempts": 0}}, 1),
        ({"retry_mode": "standard", "max_attempts": 2}, 2),
        ({"AWS_RETRY_MODE": "standard", "AWS_MAX_ATTEMPTS": "4"}, 4),
    ],
)
def test_as_json_each_place_counts_attempts_its_own_way(imported, options, attempts):
    assert imported("botocore", json.dumps(options), "c.json").layers[0].attempts == attempts


def test_the_quota_is_a_budget_per_object(imported, codes_in):
    text = "[default]\nretry_mode = standard\n"
    found = imported("botocore", text, "config", library_version="1.43.11")
    assert found.layers[0].retry_budget.ratio == pytest.approx(0.2)
    assert "BUDGET_PER_OBJECT" in codes_in(found)
