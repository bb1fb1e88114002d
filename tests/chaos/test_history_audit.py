from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from chaos.history_audit import compare, key_of, read
from chaos.ledger_audit import Effect, Run
from perdure.core.ids import Address, idempotency_key, seal

EVENTS = [
    {"kind": "WorkflowStarted", "event_id": 1},
    {"kind": "ActivityTaskScheduled", "event_id": 2, "activity_id": "a"},
    {"kind": "ActivityTaskStarted", "event_id": 3, "activity_id": "a", "attempt": 2},
    {
        "kind": "ActivityTaskCompleted",
        "event_id": 4,
        "activity_id": "a",
        "attempt": 2,
        "result": "receipt",
    },
    {"kind": "WorkflowCompleted", "event_id": 5, "result": ["receipt"]},
]
TOLD = read("w", EVENTS)
EFFECT = Effect("w/a", 1, "receipt")
RUNS = [
    Run(1, "w/a", 1, 10, "t1", 0, 5, None, None),
    Run(2, "w/a", 2, 11, "t2", 20, 21, 22, "returned"),
]
ASKED = Counter({"w/a": 2})


def test_two_sources_that_agree_are_counted_and_violate_nothing():
    counts = compare([TOLD], [EFFECT], RUNS, ASKED)
    assert counts.violations == ()
    assert (counts.keys, counts.applied_once, counts.delivered_more_than_once) == (1, 1, 1)
    assert (counts.lost, counts.doubled) == (0, 0)


@pytest.mark.parametrize(
    ("told", "effects", "runs", "word"),
    [
        (EVENTS, [], RUNS, "without its effect"),
        (EVENTS, [EFFECT, EFFECT], RUNS, "more than once"),
        (EVENTS, [EFFECT, Effect("w/other", 1, "x")], RUNS, "never scheduled"),
        (EVENTS, [Effect("w/a", 1, "other")], RUNS, "not the receipt"),
        (EVENTS, [EFFECT], RUNS[:1], "never returned"),
        ([*EVENTS, EVENTS[3]], [EFFECT], RUNS, "completed twice"),
        ([*EVENTS, {"kind": "ActivityDeadLettered", "activity_id": "b"}], [EFFECT], RUNS, "parked"),
        ([*EVENTS[:4], {**EVENTS[4], "result": ["x"]}], [EFFECT], RUNS, "not the receipt"),
    ],
)
def test_each_disagreement_is_a_violation_that_names_the_key(told, effects, runs, word):
    counts = compare([read("w", told)], effects, runs, ASKED)
    assert any(word in each and "w" in each for each in counts.violations)


def test_lost_and_doubled_effects_are_counted():
    assert compare([TOLD], [], RUNS, ASKED).lost == 1
    assert compare([TOLD], [EFFECT, EFFECT], RUNS, ASKED).doubled == 1


@pytest.mark.parametrize(
    ("workflow_id", "activity_id"), [("w", "a"), ("a/b", "c%2F"), ("x#2", "/")]
)
def test_keys_are_built_as_the_engine_builds_them(workflow_id, activity_id):
    assert key_of(workflow_id, activity_id) == idempotency_key(workflow_id, activity_id)


def test_a_run_is_in_the_gap_from_its_effect_to_its_end():
    assert RUNS[0].in_the_gap
    assert not RUNS[1].in_the_gap
    assert not msgspec.structs.replace(RUNS[0], applied_ms=None).in_the_gap


def test_what_may_be_parked_is_no_violation_and_anything_else_that_was_parked_is():
    parked = [*EVENTS, {"kind": "ActivityDeadLettered", "activity_id": "a"}]
    told, effects = [read("w", parked)], [EFFECT]
    assert compare(told, effects, RUNS, ASKED, parks={"w/a"}).violations == ()
    assert compare(told, effects, RUNS, ASKED, parks={"w/b"}).violations != ()


def test_a_result_that_is_no_list_of_receipts_is_held_against_nothing_where_none_is_promised():
    events = [*EVENTS[:4], {**EVENTS[4], "result": {"sum": 3}}]
    counts = compare([read("w", events)], [EFFECT], RUNS, ASKED, returns_receipts=False)
    assert counts.violations == ()


def test_a_run_tells_its_grant_by_its_token_and_one_without_a_readable_token_tells_none():
    token = seal(Address("w/1", "a", 2, 7), b"k" * 32)
    assert msgspec.structs.replace(RUNS[0], token=token).grant == 7
    for token in ("t1", "AAAA", "!"):
        assert msgspec.structs.replace(RUNS[0], token=token).grant == 0


def test_what_an_operator_has_taken_back_does_not_count():
    again = [
        {"event_id": 9, "kind": "WorkflowReset", "to_event": 1},
        {"event_id": 10, "kind": "ActivityTaskScheduled", "activity_id": "a"},
    ]
    numbered = [{**event, "event_id": at} for at, event in enumerate(EVENTS, start=1)]
    told = read("w", [*numbered, *again])
    assert (told.status, told.done, told.result) == ("Running", (), None)
    assert told.scheduled == ("w/a",)
