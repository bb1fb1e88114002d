"""What explain says of workflows that have ended, or that their own code keeps from going on."""

from __future__ import annotations

import pytest

from perdure import activity, explaining, workflow
from perdure.core.admission import Admission
from perdure.core.state import Execution
from perdure.core.task_queues import TaskQueues
from perdure.failures import Failure
from perdure.testing import LocalEngine, ManualClock


@activity.define
def charge() -> str:
    return "paid"


@workflow.define
async def order() -> str:
    return await workflow.execute_activity(charge, activity_id="charge")


@workflow.define
async def breaks() -> None:
    try:
        await workflow.execute_activity(charge, activity_id="charge", on_exhausted="fail")
    except workflow.ActivityFailed as problem:
        raise KeyError("no price") from problem


def test_a_failed_workflow_says_why_it_failed_and_where():
    local = LocalEngine([breaks], [], clock=ManualClock(0), jitter=lambda d, u: d)
    local.client.start_workflow(breaks, workflow_id="b")
    local.run_workflow_tasks()
    said = Failure("Boom", "declined", non_retryable=True, stack='File "/a.py", line 6, in pay')
    local.fail_activity_task(local.poll_activity_task().token, said)
    local.run_workflow_tasks()
    why = local.explain("b")
    assert (why.state, why.details["gate"]) == ("Failed", "closed")
    assert why.reason.startswith("it failed with KeyError: 'no price', at ")
    assert "test_explaining.py:" in why.reason
    assert " in breaks; the cause: Boom: declined, at /a.py:6 in pay" in why.reason
    assert "KeyError" in why.details["failure"]["stack"]
    assert "perdure wf reset b --to EVENT" in why.next


@workflow.define
async def parent() -> str:
    return await workflow.execute_child(order)


def test_who_waits_for_a_child_is_told_where_to_look_on():
    local = LocalEngine([order, parent], [], clock=ManualClock(0))
    local.client.start_workflow(parent, workflow_id="p")
    local.run_workflow_tasks()
    why = local.explain("p")
    assert why.reason == "it waits for a child workflow: 'p/@1'"
    assert why.next == "the child's end; `perdure wf explain p/@1` says what that waits for"


def test_other_ends_are_told_as_what_they_are():
    local = LocalEngine([order], [charge], clock=ManualClock(0))
    for one in ("done", "stopped"):
        local.client.start_workflow(order, workflow_id=one)
    local.client.terminate_workflow("stopped", "no more")
    local.run_until_idle()
    assert local.explain("done").reason == "it has completed"
    assert local.explain("stopped").reason == "it was terminated: no more"
    assert local.explain("stopped").next == "nothing: it is over"


PARKED = {
    "mismatch": ("does not fit its history: at 3", "in vain unless the code"),
    "history_limit": ("may not grow any more (at 3)", "unless the limit under [limits] is raised"),
    "timeout": ("took too long, 4 times in a row", "`perdure wf retry o` tries it at once"),
    "worker_died": ("the worker that ran its workflow task died, 4 times", "`perdure wf retry o`"),
    "error": ("failed 4 times in a row with NonDeterminism: at 3", "it is tried again"),
}


@pytest.mark.parametrize(("reason", "said"), PARKED.items(), ids=PARKED)
def test_what_is_parked_says_what_is_wrong_and_whether_trying_again_is_of_use(reason, said):
    execution = Execution("o", "order", "default", 0, None, b"", last_wake_id=1)
    execution.task_reason, execution.task_failures, execution.task_due_ms = reason, 4, 9_000
    execution.task_failure = Failure("NonDeterminism", "at 3")
    queues = TaskQueues()
    queues.load([execution], 0)
    look = explaining.Look(queues, Admission(queues), [], 1_000)
    why = explaining.explain(look, "o")
    assert why["at_ms"] == 9_000
    assert said[0] in why["reason"]
    assert said[1] in why["next"]
