"""What the drill `features` holds against what its people noted, and its plan."""

from __future__ import annotations

from collections import Counter

import pytest

from chaos.drill_kit import Options
from chaos.drills import features
from chaos.drills.features_notes import (
    Bell,
    Pause,
    Row,
    Stall,
    check_bells,
    check_gates,
    check_hands,
    check_rows,
    check_stall,
)


def stall(**changes):
    fields = {
        "workflow_id": "s",
        "signals": [1, 3],
        "answers": {2: "two", 4: "four"},
        "again": {2: "two", 4: "four"},
        "result": {"heard": [1, 3], "orders": [4, 2]},
    }
    return Stall(**fields | changes)


def bells(*due_ms, late_ms=5):
    return [Bell(f"b-{at_ms}", at_ms, at_ms + late_ms) for at_ms in due_ms]


def test_what_was_acknowledged_and_was_seen_once_is_right():
    assert check_stall(stall()) == []


@pytest.mark.parametrize(
    ("result", "word"),
    [
        ({"heard": [1], "orders": [2, 4]}, "3 lost"),
        ({"heard": [1, 3, 3], "orders": [2, 4]}, "3 doubled"),
        ({"heard": [3, 1], "orders": [2, 4]}, "the order is 3, 1"),
        ({"heard": [1, 3], "orders": [2]}, "updates 4 lost"),
        ({"heard": [1, 3], "orders": [2, 4, 2]}, "updates 2 doubled"),
        ({"heard": [1, 3], "orders": [2, 4, 5]}, "updates 5 not asked for"),
        (None, "no result"),
    ],
)
def test_a_signal_or_an_update_that_was_not_seen_once_is_named(result, word):
    [found] = check_stall(stall(result=result))
    assert word in found


def test_an_update_that_has_another_answer_when_it_is_asked_again_is_named():
    [found] = check_stall(stall(again={2: "two", 4: "five"}))
    assert "updates 4 have another answer" in found


def test_every_second_has_its_run():
    assert check_bells(1_000, bells(2_000, 3_000, 4_000), whole=(1_500, 4_500)) == []
    [found] = check_bells(1_000, bells(2_000, 4_000), whole=(1_500, 4_500))
    assert "due at 3000 were never started" in found


def test_a_run_that_is_doubled_early_or_due_in_a_pause_is_named():
    [found] = check_bells(1_000, bells(2_000, 2_000))
    assert "more than one run was started for 2000" in found
    [found] = check_bells(1_000, bells(2_000, late_ms=-1))
    assert "before their time: b-2000" in found
    [found] = check_bells(1_000, bells(2_000, 3_000), pauses=[Pause(2_500, 3_500)])
    assert "while the schedule was paused: b-3000" in found


def test_a_committed_row_that_did_not_complete_and_one_rolled_back_that_started_are_named():
    rows = [Row("kept", committed=True), Row("undone", committed=False)]
    assert check_rows(rows, {"kept": "Completed"}) == []
    assert len(check_rows(rows, {})) == 1
    assert len(check_rows(rows, {"kept": "Running"})) == 1
    [found] = check_rows(rows, {"kept": "Completed", "undone": "Running"})
    assert "undone" in found


def test_an_attempt_that_begins_behind_a_gate_is_named():
    pauses = [Pause(100, 200), Pause(300, 400)]
    assert check_gates(pauses, {"w": [99, 201, 299]}) == []
    [found] = check_gates(pauses, {"w": [50], "v": [350]})
    assert found.endswith(": v")


def test_what_was_completed_by_hand_twice_or_with_a_strange_answer_is_named():
    assert check_hands({"k": ["b"]}, {"k": ["a", "b"]}) == []
    assert len(check_hands({"k": ["a", "b"]}, {"k": ["a", "b"]})) == 1
    assert len(check_hands({"k": ["c"]}, {"k": ["a", "b"]})) == 1


def test_everybody_is_hit_equally_often_and_the_root_as_often_as_is_asked_for():
    for seed in range(20):
        blows = features.plan(Options(seed=seed, kills=21, server_restarts=2))
        targets = Counter(blow.target for blow in blows)
        assert targets == dict.fromkeys(features.ROLES, 3) | {"root": 2}
    assert features.plan(Options(seed=1, kills=9)) != features.plan(Options(seed=2, kills=9))
