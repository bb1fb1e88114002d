"""Cancelling a workflow, a scope of it, or an activity; and clean-up that still does work."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from perdure import activity, values, workflow
from perdure.core import commands, records
from perdure.failures import Failure


@activity.define(cancellation="wait")
def patient():
    return 1


def same_again(run):
    replayer = run.replay()
    assert replayer.take_steps() == ()
    assert replayer.matched == len(run.steps)
    replayer.close()
    return run


def named(run):
    return [type(step).__name__ for step in run.steps]


def slow(step):
    return (10, step.activity_id) if step.activity_id == "cleanup" else (500, step.activity_id)


# --- a workflow ------------------------------------------------------------------------


async def cleans_up():
    try:
        await workflow.execute_activity("work", activity_id="work")
    except workflow.Cancelled as problem:
        if problem.args != ("enough",):
            raise ValueError(problem.args) from None
        await workflow.execute_activity("work", activity_id="cleanup")
        raise
    finally:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("late", [False, True])
def test_a_cancelled_workflow_cleans_up_with_activities_and_ends_cancelled(history, late):
    outside = [(5, "cancel"), (7, "cancel")]
    run = same_again(history(cleans_up, answers=slow, outside=outside, late=late).run())
    assert named(run) == [
        "ScheduleActivity",
        "CancelActivity",
        "ScheduleActivity",
        "StartTimer",
        "CancelWorkflowStep",
    ]
    assert run.steps[-1].reason == "enough"
    assert isinstance(run.events[-1], records.WorkflowCancelled)


def test_a_workflow_that_swallows_its_cancellation_goes_on_and_ends_as_it_ends(history):
    async def flow():
        with contextlib.suppress(workflow.Cancelled):
            await asyncio.sleep(60)
        return await workflow.execute_activity("work", activity_id="cleanup")

    run = same_again(history(flow, answers=slow, outside=[(5, "cancel"), (8, "cancel")]).run())
    assert run.result == "cleanup"


def test_except_exception_does_not_swallow_a_cancellation(history):
    async def flow():
        try:
            await asyncio.sleep(60)
        except Exception:  # noqa: BLE001
            return "swallowed"

    run = same_again(history(flow, outside=[(5, "cancel")]).run())
    assert named(run) == ["StartTimer", "CancelTimer", "CancelWorkflowStep"]


def test_cancelled_that_nobody_asked_for_fails_a_workflow(history):
    async def flow():
        raise workflow.Cancelled("my own idea")

    assert history(flow).run().failure.type == "Cancelled"


@pytest.mark.parametrize("late", [False, True])
def test_every_task_of_a_group_is_cancelled_with_the_workflow(history, late):
    async def branch(n):
        await workflow.execute_activity("work", activity_id=f"a{n}")

    async def flow():
        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(branch(n))

    run = same_again(history(flow, answers=slow, outside=[(5, "cancel")], late=late).run())
    gone = [s.activity_id for s in run.steps if isinstance(s, commands.CancelActivity)]
    assert sorted(gone) == ["a0", "a1", "a2"]
    assert named(run)[-1] == "CancelWorkflowStep"


def test_a_workflow_is_cancelled_at_its_condition_and_its_box(history):
    async def flow():
        try:
            await workflow.receive("box").get()
        except workflow.Cancelled:
            await workflow.wait_condition(lambda: False, timeout_ms=10)

    run = same_again(history(flow, outside=[(5, "cancel")]).run())
    assert run.failure.type == "TimeoutError"


def test_a_workflow_that_is_terminated_says_nothing_more(history):
    run = history(cleans_up, answers=slow, outside=[(5, "terminate")]).run()
    assert named(run) == ["ScheduleActivity"]
    replayer = run.replay()
    assert replayer.is_finished
    assert replayer.take_steps() == ()
    replayer.close()


def test_a_workflow_whose_time_was_over_replays_to_its_end(history):
    run = history(cleans_up, answers=slow, outside=[(5, "terminate")]).run()
    last = run.events.pop()
    failure = Failure("WorkflowTimeout", "the workflow did not end within its timeout_ms")
    run.events.append(records.WorkflowFailed(last.event_id, last.at_ms, failure))
    replayer = run.replay()
    assert replayer.is_finished
    replayer.close()


# --- an activity -------------------------------------------------------------------------


async def gives_up(mode):
    handle = workflow.start_activity("work", activity_id="work", cancellation=mode)
    try:
        async with asyncio.timeout(0.05):
            await handle
    except TimeoutError:
        at = workflow.now_ms() - 1_000
        await asyncio.sleep(1)
        return [at, handle.cancelled()]
    return "in time"


@pytest.mark.parametrize(("mode", "at_ms"), [("try", 50), ("wait", 500), ("abandon", 50)])
@pytest.mark.parametrize("late", [False, True])
def test_giving_an_activity_up_raises_at_once_or_when_its_attempt_has_ended(
    history, mode, at_ms, late
):
    answers = lambda step: (500, Failure("Cancelled", "given up"))  # noqa: E731
    run = same_again(history(gives_up, mode, answers=answers, late=late).run())
    assert run.result == [at_ms, True]
    (gone,) = [s for s in run.steps if isinstance(s, commands.CancelActivity)]
    assert (gone.activity_id, gone.mode) == ("work", mode)


def test_waiting_for_a_cancelled_activity_that_ends_well_gives_its_result(history):
    run = same_again(history(gives_up, "wait", answers=lambda step: (500, 7)).run())
    assert run.result == "in time"


def test_waiting_for_a_cancelled_activity_that_fails_raises_that(history):
    async def flow():
        handle = workflow.start_activity(patient)
        assert handle.cancel()
        assert handle.cancel()
        try:
            await handle
        except workflow.ActivityFailed as problem:
            return problem.failure.type

    answers = lambda step: (500, Failure("Broken", "it"))  # noqa: E731
    run = same_again(history(flow, answers=answers).run())
    assert run.result == "Broken"
    assert named(run) == ["ScheduleActivity", "CancelActivity", "CompleteWorkflow"]


def test_an_activity_that_has_no_attempt_is_cancelled_without_waiting(history):
    run = same_again(history(gives_up, "wait", answers=lambda s: (500, 7), leased=False).run())
    assert run.result == [50, True]


def test_what_an_abandoned_activity_ends_with_reaches_nobody(history):
    run = same_again(history(gives_up, "abandon", answers=lambda step: (100, 7)).run())
    assert run.result == [50, True]
    assert any(isinstance(event, records.ActivityTaskCompleted) for event in run.events)


def test_the_option_is_taken_from_define_and_from_the_call(history):
    async def flow():
        workflow.start_activity(patient)
        workflow.start_activity(patient, cancellation="abandon")
        return [values.encode(1)[:0]]

    one, two, _ = history(flow).run().steps
    assert (one.options.cancellation, two.options.cancellation) == ("wait", "abandon")


def test_an_activity_that_fails_as_cancelled_by_itself_has_failed(history):
    async def flow():
        try:
            await workflow.execute_activity("work")
        except workflow.ActivityFailed as problem:
            return problem.failure.type

    assert history(flow, answers=lambda s: (1, Failure("Cancelled", ""))).run().result == (
        "Cancelled"
    )
