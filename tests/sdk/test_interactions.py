"""What workflow code and clients do to each other, through LocalEngine and its client."""

from __future__ import annotations

import asyncio

import pytest

from perdure import activity, errors, workflow
from perdure.testing import LocalEngine


@activity.define
def work(it=None):
    return it


@workflow.define
async def kid(n):
    try:
        return await workflow.receive("go").get()
    finally:
        await workflow.execute_activity(work, f"kid {n} cleans up")


@workflow.define
async def parent(mode):
    close = "terminate" if mode == "wait" else mode
    handle = await workflow.start_child(kid, 1, parent_close=close)
    if mode == "wait":
        return await handle
    await asyncio.sleep(60)


@workflow.define
async def counter(total, rounds):
    added = []

    @workflow.signal
    def add(n):
        added.append(n)

    @workflow.query
    def state():
        return [total + sum(added), workflow.info().run]

    await workflow.wait_condition(lambda: len(added) >= rounds)
    if total + sum(added) < 10:
        workflow.continue_as_new(total + sum(added), rounds)
    return total + sum(added)


@workflow.define
async def noted():
    @workflow.query
    def ready():
        return "ready"

    await workflow.receive("go").get()
    if workflow.patched("p"):
        ticket = workflow.side_effect(lambda: CALLS.append(1) or len(CALLS))
        await workflow.receive("go").get()
        return ticket


@workflow.define
async def swallows():
    try:
        await asyncio.sleep(60)
    except workflow.Cancelled:
        return "went on"


CALLS: list[int] = []


@pytest.fixture
def engine():
    CALLS.clear()
    return LocalEngine(workflows=[kid, parent, counter, noted, swallows], activities=[work])


def kinds(engine, workflow_id):
    return [event.kind for event in engine.history(workflow_id)]


def test_a_counter_goes_on_as_new_with_what_nobody_had_taken(engine):
    handle = engine.client.start_workflow(counter, 0, 2, workflow_id="w")
    for n in (1, 2, 3):
        handle.signal("add", n)
    engine.run_until_idle()
    # Two make a round; the third had come before the first round's end was known.
    assert engine.client.query_workflow("w", "state") == [6, 2]
    handle.signal("add", 4)
    engine.run_until_idle()
    assert handle.result() == 10
    assert engine.client.query_workflow("w", "state") == [10, 2]


def test_runs_follow_each_other_and_the_result_is_of_the_last(engine):
    handle = engine.client.start_workflow(counter, 0, 1, workflow_id="w")
    engine.run_until_idle()
    for n in (4, 5, 6):
        engine.client.signal_workflow("w", "add", n)
        engine.run_until_idle()
    assert engine.client.result("w") == 15
    assert handle.result() == 15
    assert engine.client.query_workflow("w", "state") == [15, 3]
    assert engine.client.query_workflow("w", "state", run=1) == [4, 1]
    assert engine.client.describe_workflow("w").run == 3


def test_a_child_is_signalled_by_its_id_and_its_result_reaches_the_parent(engine):
    engine.client.start_workflow(parent, "wait", workflow_id="p")
    engine.run_until_idle()
    engine.client.signal_workflow("p/@1", "go", "now")
    engine.run_until_idle()
    assert engine.client.result("p") == "now"


@pytest.mark.parametrize(
    ("mode", "status"),
    [("terminate", "Terminated"), ("cancel", "Cancelled"), ("abandon", "Running")],
)
def test_what_becomes_of_a_child_when_its_parent_has_ended(engine, mode, status):
    engine.client.start_workflow(parent, mode, workflow_id="p")
    engine.run_until_idle()
    assert engine.client.describe_workflow("p").status == "Completed"
    assert engine.client.describe_workflow("p/@1").status == status
    cleaned = "ActivityTaskCompleted" in kinds(engine, "p/@1")
    assert cleaned == (mode == "cancel")


def test_cancelling_a_parent_cancels_the_child_that_it_waits_for_and_waits_for_its_clean_up(engine):
    engine.client.start_workflow(parent, "wait", workflow_id="p")
    engine.run_until_idle()
    engine.client.cancel_workflow("p", "enough")
    engine.run_until_idle()
    assert engine.client.describe_workflow("p/@1").status == "Cancelled"
    with pytest.raises(errors.WorkflowFailed) as raised:
        engine.client.result("p")
    assert (raised.value.status, raised.value.failure.message) == ("Cancelled", "enough")
    order = [event.kind for event in engine.history("p")][-3:]
    assert order == ["ChildCancelRequested", "ChildWorkflowFailed", "WorkflowCancelled"]


def test_a_workflow_that_swallows_its_cancellation_goes_on(engine):
    engine.client.start_workflow(swallows, workflow_id="w")
    engine.run_workflow_tasks()
    engine.client.cancel_workflow("w")
    engine.run_until_idle(skip_time=False)
    assert engine.client.result("w") == "went on"


def test_a_query_runs_no_side_effect_that_nobody_has_recorded(engine):
    handle = engine.client.start_workflow(noted, workflow_id="w")
    with pytest.raises(errors.NotFound):
        handle.query("state")
    engine.run_until_idle()
    handle.signal("go")
    assert handle.query("ready") == "ready"
    assert CALLS == []
    engine.run_until_idle()
    assert handle.query("ready") == "ready"
    engine.restart()
    handle.signal("go")
    engine.run_until_idle()
    assert (handle.result(), CALLS) == (1, [1])


def test_after_a_restart_everything_is_known_again(engine):
    handle = engine.client.start_workflow(counter, 0, 1, workflow_id="w")
    engine.run_until_idle()
    for n in (4, 5, 6):
        engine.restart()
        handle.signal("add", n)
        engine.restart()
        engine.run_until_idle()
    assert engine.client.result("w") == 15


def test_a_history_says_whose_it_is(engine):
    engine.client.start_workflow(counter, 0, 1, workflow_id="w")
    engine.run_until_idle()
    engine.client.signal_workflow("w", "add", 1)
    engine.run_until_idle()
    assert [engine.client.history("w", run=run)[0].run for run in (1, 2)] == [1, 2]
    assert engine.history("w")[0].workflow_id == "w"
    assert "workflow_id" not in engine.client.history("w", after=1, run=1)[0]
