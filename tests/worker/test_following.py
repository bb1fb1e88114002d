"""A worker that runs a workflow on before history knows of the result, and hires for itself."""

from __future__ import annotations

import threading

import msgspec
import pytest

from perdure import activity, values, workflow
from perdure.clock import boottime_ms
from perdure.core import commands, links, records
from perdure.policy import RetryPolicy

BASE_MS = 1_000_000
OPTIONS = records.ActivityOptions(RetryPolicy())
STARTED = records.WorkflowStarted(1, 10, "pair", "default", None, None, b"")


@activity.define
def double(x: int) -> int:
    return 2 * x


@workflow.define
async def pair() -> int:
    first = await workflow.execute_activity(double, 1, activity_id="one")
    second = await workflow.execute_activity(double, first, activity_id="two")
    return first + second


@workflow.define
async def both() -> int:
    handles = [workflow.start_activity(double, x, activity_id=f"x{x}") for x in (1, 2)]
    return sum([await handle for handle in handles])


@workflow.define
async def timed() -> int:
    handle = workflow.start_activity(double, 1, activity_id="one")
    timer = workflow.sleep_ms(1_000)
    await timer
    return await handle


def begin(
    node, task_of_workflow, kind=pair, *, base_ms: int = BASE_MS, permits: int = 0, **options
):
    """The worker with one workflow whose first task is reported and answered: its activity id."""
    node.base_ms = base_ms
    node.worker(activities=(double,), workflows=(pair, both, timed), **options)
    started = msgspec.structs.replace(STARTED, workflow_type=kind.__name__)
    task = task_of_workflow("w", kind.__name__, started)
    node.say(msgspec.structs.replace(task, permits=permits))
    return node.command(commands.CompleteWorkflowTask, commands.Done())


def activity_of(task_of, activity_id: str, x: int, token: str = "t1") -> links.ActivityTask:
    task = task_of(token, "double", x)
    return msgspec.structs.replace(task, workflow_id="w", activity_id=activity_id)


def result(x: int) -> bytes:
    return values.encode(x)


def test_a_result_comes_with_what_its_workflow_does_then(node, workflow_task, task):
    begin(node, workflow_task)
    node.say(activity_of(task, "one", 1))
    report = node.command(commands.CompleteActivity, commands.Done())
    assert report.result == result(2)
    assert BASE_MS < report.at_ms <= BASE_MS + boottime_ms()
    following = report.following
    assert (following.workflow_id, following.consumed_from, following.commands_from) == ("w", 1, 1)
    assert following.consumed == 4  # Scheduled is 2, started 3, completed 4.
    [step] = following.steps
    assert (step.activity_id, step.input) == ("two", values.encode([2]))


def test_it_goes_on_step_by_step_to_the_end(node, workflow_task, task):
    begin(node, workflow_task)
    node.say(activity_of(task, "one", 1))
    node.command(commands.CompleteActivity, commands.Done())
    node.say(activity_of(task, "two", 2, token="t2"))
    following = node.command(commands.CompleteActivity, commands.Done()).following
    assert (following.consumed_from, following.commands_from, following.consumed) == (4, 2, 7)
    assert following.steps == (commands.CompleteWorkflow(result(6)),)


@pytest.mark.parametrize("state", [commands.STEP_DROPPED, commands.REPEATED])
def test_a_step_that_does_not_surely_count_is_run_again_from_history(
    node, workflow_task, task, state
):
    begin(node, workflow_task)
    node.say(activity_of(task, "one", 1))
    node.command(commands.CompleteActivity, commands.Done(state))
    # It stands where we ran it to, by another way: at another time, for instance.
    completed = records.ActivityTaskCompleted(7, 99, "two", 1, 1, 1, result(4), 50, "other")
    events = (records.ActivityTaskScheduled(5, 99, "two", "double", None, OPTIONS), completed)
    node.say(workflow_task("w", "pair", *events, consumed=4, commands=2))
    assert node.next(links.Fetch).after == 0


def test_a_task_that_comes_before_the_answer_is_not_run_on_what_may_not_count(
    node, workflow_task, task
):
    begin(node, workflow_task)
    node.say(activity_of(task, "one", 1))
    node.command(commands.CompleteActivity)
    completed = records.ActivityTaskCompleted(4, 99, "one", 1, 1, 1, result(2), 50, "other")
    node.say(workflow_task("w", "pair", completed, consumed=4, commands=2, last_event_id=4))
    assert node.next(links.Fetch).after == 0


def test_without_the_nodes_clock_nothing_is_run_ahead(node, workflow_task, task):
    begin(node, workflow_task, base_ms=0)
    node.say(activity_of(task, "one", 1))
    assert node.command(commands.CompleteActivity, commands.Done()).following is None


@pytest.mark.parametrize("kind", [both, timed])
def test_a_workflow_that_waits_for_more_is_not_run_ahead(node, workflow_task, task, kind):
    begin(node, workflow_task, kind)
    node.say(activity_of(task, "x1" if kind is both else "one", 1))
    assert node.command(commands.CompleteActivity, commands.Done()).following is None


def test_the_last_of_several_is_run_ahead(node, workflow_task, task):
    begin(node, workflow_task, both)
    node.say(activity_of(task, "x1", 1))
    node.command(commands.CompleteActivity, commands.Done())
    completed = records.ActivityTaskCompleted(5, 99, "x1", 1, 1, 1, result(2), 50, "w1")
    node.say(
        workflow_task(
            "w",
            "both",
            records.ActivityTaskScheduled(2, 11, "x1", "double", values.encode([1]), OPTIONS),
            records.ActivityTaskScheduled(3, 11, "x2", "double", values.encode([2]), OPTIONS),
            completed,
            consumed=1,
            commands=2,
        )
    )
    node.command(commands.CompleteWorkflowTask, commands.Done())
    node.say(activity_of(task, "x2", 2, token="t2"))
    following = node.command(commands.CompleteActivity, commands.Done()).following
    assert (following.consumed_from, following.consumed) == (5, 7)
    assert following.steps == (commands.CompleteWorkflow(result(6)),)


# --- hiring -------------------------------------------------------------------
def test_with_a_permit_the_report_asks_for_the_lease(node, workflow_task):
    report = begin(node, workflow_task, permits=1)
    assert report.hire.activity_ids == ("one",)
    assert report.hire.worker_id == "w1"


def test_without_one_it_does_not(node, workflow_task):
    assert begin(node, workflow_task).hire is None


def test_no_more_are_asked_for_than_permitted(node, workflow_task):
    assert begin(node, workflow_task, both, permits=1).hire.activity_ids == ("x1",)


def test_the_next_activity_takes_the_slot_of_the_one_before(node, workflow_task, task):
    begin(node, workflow_task)
    node.say(activity_of(task, "one", 1))
    following = node.command(commands.CompleteActivity, commands.Done()).following
    assert following.hire.activity_ids == ("two",)


def test_the_slot_is_not_handed_on_while_others_wait_for_it(node, workflow_task, task):
    begin(node, workflow_task)
    node.say(links.Backlog(True))
    node.sync(lambda sync: sync.backlog)
    node.say(activity_of(task, "one", 1))
    following = node.command(commands.CompleteActivity, commands.Done()).following
    assert (following.hire, len(following.steps)) == (None, 1)


# --- a workflow that takes its time ---------------------------------------------
entered = threading.Event()
left = threading.Event()
going_on = threading.Event()


@workflow.define
async def slow() -> None:
    await workflow.execute_activity(double, 1, activity_id="one")
    entered.set()
    going_on.wait(8)
    left.set()


def test_a_result_does_not_wait_for_a_workflow_that_takes_its_time(node, workflow_task, task):
    for event in (entered, going_on, left):
        event.clear()
    node.base_ms = BASE_MS
    node.worker(activities=(double,), workflows=(slow,))
    started = msgspec.structs.replace(STARTED, workflow_type="slow")
    node.say(workflow_task("w", "slow", started))
    node.command(commands.CompleteWorkflowTask, commands.Done())
    node.say(activity_of(task, "one", 1))
    report = node.command(commands.CompleteActivity, commands.Done())
    assert entered.is_set()
    assert not left.is_set()
    assert (report.result, report.following) == (result(2), None)
    going_on.set()
    # What it did meanwhile counts for nothing: its next task begins at the beginning.
    node.say(workflow_task("w", "slow", consumed=1, commands=1, last_event_id=4, fetch=True))
    assert node.next(links.Fetch).after == 0
