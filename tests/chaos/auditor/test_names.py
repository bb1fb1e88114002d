"""The auditor's own table of names against the engine's records.

A red test here means: the format has changed. Look at what the change means for the auditor's rules
(chaos/auditor/leases.py, endings.py, fold.py, tables.py), then bring names.py up to date.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.auditor import COVERAGE, names
from chaos.auditor.effects import key_of, parts_of, token_hash
from chaos.auditor.log import GENESIS, link
from chaos.auditor.payloads import refer
from chaos.auditor.retries import bound_ms
from chaos.auditor.source import ExecutionRow
from chaos.auditor.sqlite import FORMATS
from chaos.auditor.state import Activity
from perdure import values
from perdure.core import chain, ids, more, records, schedule_state, state
from perdure.core.limits import FORMAT_VERSION
from perdure.effects import _hashed
from perdure.policy import RetryPolicy, backoff_ms


@pytest.mark.parametrize("kind", records.AnyRecord.__args__, ids=lambda kind: kind.__name__)
def test_every_kind_of_record_is_known_with_all_its_fields(kind):
    known = names.KINDS[kind.__struct_config__.tag]
    fields = kind.__struct_fields__
    assert (known.name, known.fields) == (kind.__name__, fields)
    assert known.required <= len(fields) - len(kind.__struct_defaults__)
    assert known.is_event == (kind in records.EVENT_TYPES)
    payload = next((name for name in ("input", "result", "details") if name in fields), None)
    assert known.payload == (fields.index(payload) + 1 if payload else 0)


def test_no_kind_is_known_that_the_engine_has_not():
    assert len(names.KINDS) == len(records.AnyRecord.__args__)


def test_the_format_of_the_store_is_known():
    assert FORMATS[-1] == FORMAT_VERSION


@pytest.mark.parametrize(
    ("known", "kind"),
    [
        (names.BODY, records.CommitBody),
        (names.OPTIONS, records.ActivityOptions),
        (names.POLICY, RetryPolicy),
        (names.ACTIVITY, state.Activity),
        (names.LEASE, state.Lease),
        (names.MORE, more.More),
        (names.SCHEDULE, schedule_state.Schedule),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_every_field_of_the_other_structures_is_known(known, kind):
    assert known == kind.__struct_fields__


def test_the_auditor_keeps_every_field_of_an_activity_and_of_an_execution():
    assert set(names.ACTIVITY) <= set(Activity.__slots__)
    known = {*ExecutionRow._fields, "shard", "activities", "timers"}
    assert set(state.Execution.__struct_fields__) == known


def test_links_references_keys_and_tokens_are_computed_alike():
    assert GENESIS == chain.GENESIS
    assert link(b"\1" * 32, b"body") == chain.next_hash(b"\1" * 32, b"body")
    for length in (0, 1_024, 1_025, 5_000):
        assert refer(b"m" * length) == values.refer(b"m" * length)
    for workflow_id, activity_id in (("w", "a"), ("a/b%", "#c"), ("%2F", "%25/"), ("ü", "a#1")):
        key = ids.idempotency_key(workflow_id, activity_id)
        assert key_of(workflow_id, activity_id) == key
        assert parts_of(key) == (workflow_id, activity_id)
    token = ids.seal(ids.Address("w", "a", 2, 3), b"k" * 32)
    assert token_hash("w", "a", 2, 3, b"k" * 32) == _hashed(token)


@pytest.mark.parametrize("policy", [(100, 2.0, 1_000), (7, 1.0, 5), (1, 1.5, 10**9), (5, 3.0, 2)])
@pytest.mark.parametrize("attempt", [1, 2, 3, 10, 1_000, 2**31 - 1])
def test_the_bound_of_a_delay_is_that_of_the_policy(policy, attempt):
    expected = int(backoff_ms(RetryPolicy(*policy), attempt))
    assert bound_ms([*policy, 3, [], 0], attempt) == expected


def test_every_invariant_of_the_specification_has_its_entry():
    assert list(COVERAGE) == list(range(1, 50))


def test_the_page_on_invariants_says_what_the_auditor_does():
    page = Path(__file__).parents[3] / "docs" / "invariants.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:3] != "|--"]
    found = [line for line in rows if line.startswith("| ") and line[2].isdigit()]
    assert found == [
        f"| {number} | {one.name} | {', '.join(one.sources)} | {one.how} |"
        for number, one in COVERAGE.items()
    ]
