from __future__ import annotations

import json
import sys

import pytest

SHOP = """\
import uuid

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from perdure import RetryPolicy, activity

session = requests.Session()
session.mount("https://", HTTPAdapter(max_retries=Retry(total=3, backoff_factor=2)))


@activity.define(retry=RetryPolicy(max_attempts=4), start_to_close_ms=5_000)
def charge(cents: int) -> str:
    key = f"charge-{uuid.uuid4()}"
    session.post("https://pay", headers={"Idempotency-Key": key}, timeout=10)
    return key


@activity.define
def mail(to: str) -> None:
    headers = {"Idempotency-Key": activity.idempotency_key()}
    requests.post("https://mail", headers=headers, timeout=5)


@activity.define(start_to_close_ms=300_000, schedule_to_close_ms=600_000,
                 retry=RetryPolicy(max_attempts=2, initial_ms=5_000))
def report() -> None:
    open("report").read()
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """An application in the working directory, loaded afresh."""
    pytest.importorskip("requests")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    name = f"shop_{tmp_path.name}".replace("-", "_")

    def write(text: str = SHOP) -> str:
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return name

    yield write
    sys.modules.pop(name, None)


def audited(policy, *args):
    code, out, err = policy("app", *args, "--json")
    assert err == "", err
    report = json.loads(out)
    flags = {
        each["name"]: {flag["code"]: flag for layer in each["layers"] for flag in layer["flags"]}
        for each in report["activities"]
    }
    return code, report, flags


def test_every_activity_is_audited_with_the_client_inside_it(policy, shop):
    code, report, flags = audited(policy, shop())
    assert code == 1
    charge, mail, _ = report["activities"]
    assert [each["name"] for each in report["activities"]] == ["charge", "mail", "report"]
    assert [layer["attempts"] for layer in charge["layers"]] == [4, 4]
    assert charge["worst_amplification"] == 16
    assert len(mail["layers"]) == 1
    assert {"LEASE_TOO_SHORT", "RETRY_TOWER", "KEY_NOT_STABLE"} <= flags["charge"].keys()
    assert all(
        flags["charge"][code]["severity"] == "high"
        for code in ("LEASE_TOO_SHORT", "RETRY_TOWER", "KEY_NOT_STABLE")
    )
    assert not {"LEASE_TOO_SHORT", "RETRY_TOWER", "KEY_NOT_STABLE"} & flags["mail"].keys()
    assert "RETRY_UNSAFE" not in flags["mail"]


def test_the_lease_is_compared_with_the_longest_call_inside(policy, shop):
    _, _, flags = audited(policy, shop())
    # 4 tries of 10 s; waits of 0, 4 and 8 s.
    assert "52 s" in flags["charge"]["LEASE_TOO_SHORT"]["detail"]
    assert "start_to_close_ms is 5 s" in flags["charge"]["LEASE_TOO_SHORT"]["detail"]


def test_the_last_attempt_that_cannot_use_its_full_time_is_named(policy, shop):
    _, _, flags = audited(policy, shop())
    detail = flags["report"]["LAST_TRY_CUT"]["detail"]
    assert "second attempt cannot use its full time" in detail
    assert "605 s" in detail or "10.083 min" in detail


def test_five_attempts_at_the_default_wait_15_s_at_most_and_7_5_s_on_average(policy, shop):
    _, _, flags = audited(policy, shop())
    detail = flags["mail"]["DLQ_BEFORE_OUTAGE_ENDS"]["detail"]
    assert "5 attempts wait at most 15 s in all, mean 7.5 s" in detail
    assert "assumed" in detail


def test_a_short_outage_is_waited_out(policy, shop):
    _, _, flags = audited(policy, shop(), "--outage-ms", "7000")
    assert "DLQ_BEFORE_OUTAGE_ENDS" not in flags["mail"]
    _, _, flags = audited(policy, shop(), "--outage-ms", "8000")
    assert "assumed" not in flags["mail"]["DLQ_BEFORE_OUTAGE_ENDS"]["detail"]


def test_the_nodes_own_limit_of_attempts_counts(policy, shop):
    _, report, _ = audited(policy, shop(), "--dlq-after-attempts", "9")
    assert [each["layers"][0]["attempts"] for each in report["activities"]] == [4, 9, 2]


def test_the_nodes_configuration_is_read_where_nothing_is_said(policy, shop, tmp_path):
    (tmp_path / "perdure.toml").write_text("[durable]\ndlq_after_attempts = 7\n")
    _, report, _ = audited(policy, shop())
    assert [each["layers"][0]["attempts"] for each in report["activities"]] == [4, 7, 2]


def test_clients_can_be_declared_in_a_file(policy, shop, chain_file):
    layer = {"name": "sdk", "attempts": 3, "per_try_timeout_ms": 1_000_000}
    clients = chain_file({"mail": [layer]}, "clients.json")
    _, report, flags = audited(policy, shop(), "--clients", clients)
    assert report["activities"][1]["worst_amplification"] == 15
    assert {"LEASE_TOO_SHORT", "RETRY_TOWER"} <= flags["mail"].keys()


def test_a_client_of_an_unknown_activity_is_refused(policy, shop, chain_file):
    clients = chain_file({"mial": {"attempts": 1}}, "clients.json")
    code, _, err = policy("app", shop(), "--clients", clients)
    assert code == 2
    assert "'mial'" in err


@pytest.mark.parametrize(
    "key",
    [
        "f'{activity.info().workflow_id}-{activity.attempt()}'",
        "str(time.time())",
        "activity.info().attempt",
        "datetime.now().isoformat()",
        "f'{os.getpid()}-7'",
    ],
)
def test_a_key_that_changes_from_try_to_try_is_found(policy, shop, key):
    text = (
        "import os, time\nfrom datetime import datetime\nfrom perdure import activity\n"
        f"@activity.define\ndef pay():\n    send(idempotency_key={key})\n"
    )
    _, _, flags = audited(policy, shop(text))
    assert "KEY_NOT_STABLE" in flags["pay"]


@pytest.mark.parametrize(
    "key",
    ["activity.idempotency_key()", "f'{activity.info().workflow_id}-pay'", "'order-' + order"],
)
def test_a_key_that_stays_is_not_found(policy, shop, key):
    text = (
        "from perdure import activity\n"
        f"@activity.define\ndef pay(order):\n    send(idempotency_key={key})\n"
    )
    _, _, flags = audited(policy, shop(text))
    assert "KEY_NOT_STABLE" not in flags["pay"]


def test_a_retry_loop_around_a_helper_is_part_of_the_tower(policy, shop):
    text = """\
import tenacity
from perdure import activity

@tenacity.retry(stop=tenacity.stop_after_attempt(5), wait=tenacity.wait_fixed(1))
def post(): ...

@activity.define
def pay():
    post()
"""
    _, report, flags = audited(policy, shop(text))
    assert [layer["attempts"] for layer in report["activities"][0]["layers"]] == [5, 5]
    assert "RETRY_TOWER" in flags["pay"]


def test_a_client_is_found_behind_the_names_that_lead_to_it(policy, shop):
    text = """\
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry
from perdure import activity

retry = Retry(total=4, backoff_factor=1)
adapter = HTTPAdapter(max_retries=retry)
session = requests.Session()
session.mount("http://", adapter)
session.mount("https://", adapter)
other = HTTPAdapter(max_retries=9)

@activity.define
def pay():
    session.post("https://pay", timeout=1)
"""
    _, report, _ = audited(policy, shop(text))
    assert [layer["attempts"] for layer in report["activities"][0]["layers"]] == [5, 5]


def test_an_sdk_that_retries_by_itself_below_an_activity_is_a_hidden_layer(policy, shop):
    pytest.importorskip("botocore")
    text = """\
from perdure import activity

class boto3:
    client = staticmethod(lambda name: None)

s3 = boto3.client("s3")

@activity.define
def store():
    s3.put_object()
"""
    _, report, flags = audited(policy, shop(text))
    assert len(report["activities"][0]["layers"]) == 2
    assert "HIDDEN_LAYER" in flags["store"]


def test_a_module_that_is_not_there_is_exit_code_2(policy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = policy("app", "no_such_module")
    assert code == 2
    assert "no_such_module" in err


@pytest.mark.parametrize("form", [[], ["--markdown"], ["--sarif"]])
def test_an_application_is_shown_in_every_form(policy, shop, form):
    code, out, _ = policy("app", shop(), *form)
    assert code == 1
    assert "RETRY_TOWER" in out
