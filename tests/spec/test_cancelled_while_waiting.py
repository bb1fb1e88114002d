"""A workflow that is cancelled while it waits for something that ends well all the same."""

from __future__ import annotations

import asyncio

import pytest

from perdure import activity, workflow
from perdure.errors import WorkflowFailed
from perdure.failures import Failure
from perdure.testing import LocalEngine, ManualClock

seen: list[str] = []


@activity.define(cancellation="wait", heartbeat_ms=60_000)
def upload() -> str:
    return "uploaded"


@workflow.define
async def endless() -> None:
    seen.append(await workflow.execute_activity(upload, activity_id="u"))
    while True:
        await asyncio.sleep(60)


@workflow.define
async def short() -> str:
    return await workflow.execute_activity(upload, activity_id="u")


@workflow.define
async def child() -> str:
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        return "tidied up"
    return "slept"


@workflow.define
async def parent() -> None:
    seen.append(await workflow.execute_child(child, workflow_id="c"))
    while True:
        await asyncio.sleep(60)


@activity.define
def tidy(what: str) -> str:
    return f"{what} is gone"


@workflow.define
async def tidies() -> None:
    try:
        await workflow.execute_activity(upload, activity_id="u")
    except asyncio.CancelledError:
        seen.append("told")
        raise
    finally:
        seen.append(await workflow.execute_activity(tidy, "it", activity_id="t"))


@workflow.define
async def clumsy() -> None:
    try:
        await asyncio.sleep(600)
    finally:
        raise ValueError("it fell")


@workflow.define
async def patient() -> None:
    try:
        await workflow.execute_child(clumsy, workflow_id="c")
    finally:
        seen.append(await workflow.execute_activity(tidy, "it", activity_id="t"))


@pytest.fixture
def engine():
    seen.clear()
    return LocalEngine(
        workflows=[endless, short, child, parent, tidies, clumsy, patient],
        activities=[upload, tidy],
        clock=ManualClock(0),
    )


def cancel_while_it_uploads(engine, workflow_type):
    client = engine.client
    client.start_workflow(workflow_type, workflow_id="w")
    engine.run_workflow_tasks()
    task = engine.poll_activity_task()
    client.cancel_workflow("w")
    engine.run_workflow_tasks()
    return task


@pytest.mark.parametrize("restarts", [False, True])
def test_it_has_the_result_and_is_cancelled_where_it_waits_next(engine, restarts):
    task = cancel_while_it_uploads(engine, endless)
    engine.complete_activity_task(task.token, "uploaded")
    if restarts:
        engine.restart()
    engine.run_workflow_tasks()
    assert seen[-1] == "uploaded"
    with pytest.raises(WorkflowFailed) as ended:
        engine.client.result("w")
    assert ended.value.status == "Cancelled"


def test_one_that_returns_what_it_waited_for_has_ended_well(engine):
    task = cancel_while_it_uploads(engine, short)
    engine.complete_activity_task(task.token, "uploaded")
    engine.run_workflow_tasks()
    assert engine.client.result("w") == "uploaded"


def test_a_child_that_ends_well_all_the_same_does_not_swallow_its_parents_cancellation(engine):
    client = engine.client
    client.start_workflow(parent, workflow_id="w")
    engine.run_workflow_tasks()
    client.cancel_workflow("w")
    engine.run_workflow_tasks()
    assert seen == ["tidied up"]
    with pytest.raises(WorkflowFailed) as ended:
        client.result("w")
    assert ended.value.status == "Cancelled"


@pytest.mark.parametrize("restarts", [False, True])
def test_an_attempt_that_ends_unheard_once_it_was_to_end_is_cancelled_and_the_code_tidies_up(
    engine, restarts
):
    cancel_while_it_uploads(engine, tidies)
    if restarts:
        engine.restart()
    engine.clock.advance_ms(600_000)  # As when its worker has died: nobody reports.
    engine.run_until_idle(skip_time=False)
    assert seen[-1] == "it is gone"
    assert "told" in seen
    with pytest.raises(WorkflowFailed) as ended:
        engine.client.result("w")
    assert ended.value.status == "Cancelled"


def test_an_attempt_that_fails_once_it_was_to_end_lets_the_code_tidy_up(engine):
    task = cancel_while_it_uploads(engine, tidies)
    engine.fail_activity_task(task.token, Failure("Broken", "the line went down"))
    engine.run_until_idle(skip_time=False)
    assert seen == ["it is gone"]
    with pytest.raises(WorkflowFailed) as ended:
        engine.client.result("w")
    assert ended.value.status == "Failed"


def test_a_child_that_fails_once_it_was_to_end_lets_its_parent_tidy_up(engine):
    client = engine.client
    client.start_workflow(patient, workflow_id="w")
    engine.run_workflow_tasks()
    client.cancel_workflow("w")
    engine.run_until_idle(skip_time=False)
    assert seen == ["it is gone"]
    with pytest.raises(WorkflowFailed) as ended:
        client.result("w")
    assert ended.value.status == "Failed"
