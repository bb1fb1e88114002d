"""Samples about activities and their order: each does what its docstring says."""

from __future__ import annotations

import pytest

from perdure.errors import FailedPrecondition, WorkflowFailed

DAY_MS = 86_400_000


def test_the_first_answer_wins_and_the_others_are_given_up(stage):
    on = stage("pick_first")
    on.client.start_workflow("pick_first", ["aa", "bbb", "c"], workflow_id="w")
    on.engine.run_workflow_tasks()
    tasks = [on.engine.poll_activity_task() for _ in range(3)]
    on.engine.complete_activity_task(tasks[1].token, {"carrier": "bbb", "cents": 1})
    on.engine.run_workflow_tasks()
    assert on.client.result("w") == {"carrier": "bbb", "cents": 1}
    with pytest.raises(FailedPrecondition):
        on.engine.complete_activity_task(tasks[0].token, None)


def test_chain_group_and_chord(stage):
    on = stage("canvas")
    on.start("canvas", [1, 2, 3, 4, 5], 2)
    assert on.result() == {"chain": 12, "chord": 30}


def test_a_trip_that_can_not_be_booked_leaves_nothing_booked(stage):
    on = stage("trip")
    on.start("trip", "rome", workflow_id="good")
    assert on.result("good") == ["car of rome", "hotel of rome", "flight of rome"]
    on.start("trip", "overbooked")
    with pytest.raises(WorkflowFailed) as caught:
        on.result()
    assert (caught.value.failure.cause.type, caught.value.failure.cause.message) == (
        "NoSeats",
        "the flight is full",
    )
    assert sorted(on.module.trip_desk) == ["car rome", "flight rome", "hotel rome"]


def test_a_trip_that_is_cancelled_half_way_is_given_back(stage):
    on = stage("trip")
    handle = on.start("trip", "rome")
    assert list(on.module.trip_desk) == ["car rome"]
    handle.cancel("it rains")
    with pytest.raises(WorkflowFailed) as caught:
        on.result()
    assert (caught.value.status, on.module.trip_desk) == ("Cancelled", {})


def test_money_arrives_or_comes_back(stage):
    on = stage("transfer")
    bank, order = on.module.bank, on.module.Transfer
    on.start("transfer", order("a", "b", 100, "1"), workflow_id="good")
    assert on.result("good") == ["W-1", "D-1"]
    on.start("transfer", order("a", "nobody", 100, "2"))
    with pytest.raises(WorkflowFailed) as caught:
        on.result()
    assert caught.value.failure.message == "refunded: NoSuchAccount"
    assert bank.balances == {"a": 400, "b": 100}


def test_a_decision_is_made_by_a_person_days_later_and_reminded_of(stage):
    on = stage("expense")
    on.start("expense", "lunch")
    on.until(DAY_MS + 1)
    on.engine.restart()
    on.engine.complete_activity_task(on.module.asked["lunch"], "approved")
    assert on.result() == "approved"
    kinds = [one.type for one in on.client.history("w") if one.kind == "ActivityTaskScheduled"]
    assert kinds == ["decision", "remind", "pay"]


def test_a_decision_that_nobody_makes_has_an_end(stage):
    on = stage("expense")
    on.start("expense", "lunch")
    assert on.result() == "nobody decided"
    assert on.engine.clock.now_ms == 3 * DAY_MS
    with pytest.raises(FailedPrecondition):
        on.engine.complete_activity_task(on.module.asked["lunch"], "approved")


@pytest.mark.parametrize("temper", ["often", "seldom", "between"])
def test_what_does_not_call_back_is_polled(stage, temper):
    on = stage("polling")
    on.start("polling", temper, 12)
    assert on.result() == f"the {temper} thing is ready"
    assert on.module.calls == {f"the {temper} thing": 13}
    waited = {"often": 0, "seldom": 12 * 3_600_000, "between": 12 * 60_000}
    assert on.engine.clock.now_ms == waited[temper]


def test_a_recipe_is_followed(stage):
    on = stage("recipe")
    steps = {
        "in_a_row": [
            {
                "side_by_side": [
                    {"call": "fetch", "with": ["x"], "as": "left"},
                    {"call": "fetch", "with": ["y"], "as": "right"},
                ]
            },
            {"call": "join", "with": ["left", "right"], "as": "both"},
        ]
    }
    on.start("recipe", steps, {"x": "1", "y": "2"})
    assert on.result()["both"] == "<1><2>"
    on.start("recipe", {"in_a_row": [{"no": 1}]}, {}, workflow_id="bad")
    with pytest.raises(WorkflowFailed) as caught:
        on.result("bad")
    assert caught.value.failure.message == "no statement: {'no': 1}"


def test_an_import_goes_on_where_it_was(stage):
    on = stage("import_file")
    on.module.breaks_at |= {3, 7}
    on.start("import_file", 10)
    assert on.result() == 3
    assert on.module.imported == list(range(10))


def test_what_is_cancelled_is_cleaned_up(stage):
    on = stage("cleanup")
    handle = on.start("film", 3)
    assert on.result() == 3
    on.module.events.clear()
    on.client.start_workflow("film", 3, workflow_id="v")
    on.engine.run_workflow_tasks()
    on.client.cancel_workflow("v", "no")
    with pytest.raises(WorkflowFailed) as caught:
        on.result("v")
    assert (caught.value.status, on.module.events) == ("Cancelled", ["removed: cancelled"])
    assert handle.describe().status == "Completed"


def test_a_run_from_before_the_change_goes_on_as_before(stage):
    on = stage("patched")
    on.start("pay", "o")
    assert on.result() == "wallet o"
    assert "MarkerRecorded" in [one.kind for one in on.client.history("w")]


def test_a_report_is_made_every_night_and_found(stage):
    on = stage("report")
    on.module.every_night(on.client, "north")
    for day in range(1, 4):
        on.until(day * DAY_MS)
    found = on.client.list_workflows(type="report", attributes={"region": "north"})
    assert [one.status for one in found.workflows] == ["Completed"] * 3
    assert on.client.result(found.workflows[-1].workflow_id) == "north 1970-01-01: 10"
