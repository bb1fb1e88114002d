"""Which workflows are stuck, as `wf list` says it."""

from __future__ import annotations

import pytest

from perdure import activity, workflow
from perdure.core.gates import QUEUE, Gate, Gates
from perdure.core.more import More
from perdure.core.records import ActivityOptions
from perdure.core.state import Activity, ActivityState, Execution, Status
from perdure.policy import RetryPolicy
from perdure.stuck import Judge
from perdure.testing import LocalEngine, ManualClock
from perdure.waiting import Offer

NOW_MS = 1_000
BUSY = Offer(("default",), ("charge",), ("order",))
READY = {"last_wake_id": 2, "consumed": 1}


def execution(*activities: Activity, **changes: object) -> Execution:
    fields = {
        "workflow_id": "w",
        "workflow_type": "order",
        "task_queue": "default",
        "started_ms": 0,
        "request_id": None,
        "digest": b"",
        "activities": {one.activity_id: one for one in activities},
    }
    return Execution(**{**fields, **changes})


def open_activity(kind: str = "charge", **changes: object) -> Activity:
    options = ActivityOptions(RetryPolicy(max_attempts=4))
    return Activity(
        **{
            "activity_id": "a",
            "activity_type": kind,
            "input": None,
            "options": options,
            "scheduled_event_id": 2,
            "scheduled_ms": 0,
            **changes,
        }
    )


def word(one: Execution, *gates: Gate) -> str | None:
    return Judge([BUSY], Gates(gates), NOW_MS).word(one)


PAUSED = More(paused=True)
STUCK = {
    "the code does not fit the history": (
        execution(**READY, task_reason="mismatch", task_failures=1),
        "mismatch",
    ),
    "the history may not grow": (
        execution(**READY, task_reason="history_limit", task_failures=1),
        "history_limit",
    ),
    "the code failed again and again": (
        execution(**READY, task_reason="error", task_failures=3, task_due_ms=NOW_MS + 5),
        "parked",
    ),
    "an activity is a dead letter": (
        execution(open_activity(state=ActivityState.DEAD_LETTERED)),
        "dead_letter",
    ),
    "nobody has the workflow": (execution(**READY, workflow_type="ordr"), "no_worker"),
    "the one worker that had it said that it has not": (
        execution(
            **READY, workflow_type="ordr", task_reason="unknown_type", task_due_ms=NOW_MS + 5
        ),
        "no_worker",
    ),
    "nobody serves the workflow's queue": (execution(**READY, task_queue="q"), "no_worker"),
    "nobody has the activity": (execution(open_activity("chrge")), "no_worker"),
}
GOES_ON = {
    "its code has just failed once": execution(**READY, task_reason="error", task_failures=1),
    "somebody has it": execution(open_activity(), **READY),
    "its start is delayed": execution(**READY, workflow_type="ordr", task_due_ms=NOW_MS + 5),
    "the activity waits for its backoff": execution(
        open_activity("chrge", state=ActivityState.RETRYING, due_ms=NOW_MS + 5)
    ),
    "it is paused": execution(**READY, task_reason="mismatch", task_failures=9, more=PAUSED),
    "it has ended": execution(**READY, task_reason="mismatch", status=Status.TERMINATED),
}


@pytest.mark.parametrize(("one", "expected"), STUCK.values(), ids=STUCK)
def test_a_workflow_that_waits_for_somebody_is_stuck_and_the_word_says_why(one, expected):
    assert word(one) == expected


@pytest.mark.parametrize("one", GOES_ON.values(), ids=GOES_ON)
def test_a_workflow_that_goes_on_by_itself_or_is_held_back_is_not_stuck(one):
    assert word(one) is None


def test_behind_a_paused_queue_nobody_is_missed():
    gate = Gate(QUEUE, "default", True, 0, "")
    assert word(execution(open_activity("chrge"), **READY, workflow_type="ordr"), gate) is None


# --- through an engine ----------------------------------------------------------
@activity.define(retry=RetryPolicy(max_attempts=1))
def charge() -> None:
    raise ValueError("no")


@workflow.define
async def order(dear: bool) -> None:
    if dear:
        await workflow.execute_activity(charge, activity_id="charge")


def test_a_list_says_what_is_stuck_and_finds_it():
    local = LocalEngine([order], [charge], clock=ManualClock(0))
    local.client.start_workflow(order, True, workflow_id="dead")
    local.client.start_workflow(order, False, workflow_id="fine")
    local.client.start_workflow("ordr", workflow_id="typo")
    local.run_until_idle()
    words = {it.workflow_id: it.stuck for it in local.client.list_workflows()}
    assert words == {"dead": "dead_letter", "fine": None, "typo": "no_worker"}
    found = local.client.list_workflows(stuck=True)
    assert [it.workflow_id for it in found] == ["typo", "dead"]
    assert [it.workflow_id for it in local.client.list_workflows(stuck=True, type="order")] == [
        "dead"
    ]
    assert local.client.describe_workflow("dead").stuck == "dead_letter"
    local.client.terminate_workflow("dead")
    assert [it.workflow_id for it in local.client.list_workflows(stuck=True)] == ["typo"]
