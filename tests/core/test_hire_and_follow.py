"""Two shapes for speed: a lease in the commit that schedules, and a result with the step after it.

Each must be what the long way would have led to, or count only in part.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.core import commands as c
from perdure.core import records as r
from perdure.core.records import ActivityOptions
from perdure.policy import RetryPolicy
from tests.core.ledger_rig import LOCAL, Rig

HIRE = c.Hire("w1", LOCAL, ("a",))


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.now_ms = 1_000
    return rig


def schedules(activity_id: str = "a", **fields: Any) -> c.ScheduleActivity:
    options = ActivityOptions(RetryPolicy(max_attempts=4), **fields)
    return c.ScheduleActivity(activity_id, "t", None, options)


def hired(rig: Rig, *steps: c.Step, hire: c.Hire = HIRE) -> Any:
    rig.ask(rig.start())
    cursor = (0, 0, 1)
    return rig.ask(c.CompleteWorkflowTask("w", *cursor, steps or (schedules(),), hire))


def ends(rig: Rig, at_ms: int, *steps: c.Step, consumed: int = 4, hire: c.Hire | None = None):
    following = c.CompleteWorkflowTask("w", 1, 1, consumed, steps, hire)
    return c.CompleteActivity(rig.token(), b"mr", at_ms, following)


# --- hire ---------------------------------------------------------------------
def test_a_hired_activity_is_leased_in_the_commit_that_schedules_it(rig):
    assert hired(rig, schedules(heartbeat_ms=500, schedule_to_close_ms=2_000)) == c.Done()
    kinds = [type(record) for record in rig.records()]
    assert kinds == [r.WorkflowTaskCompleted, r.ActivityTaskScheduled, r.LeaseGranted]
    lease = rig.activity().lease
    assert (lease.session, lease.worker_id) == (LOCAL, "w1")
    assert (lease.deadline_ms, lease.attempt_deadline_ms) == (1_500, 3_000)
    assert (rig.activity().grant, rig.activity().attempt) == (1, 1)


def test_the_lease_is_the_one_that_a_proposal_would_have_led_to(rig):
    rig.ledger.stall_ms = 70
    hired(rig, schedules(heartbeat_ms=500))
    other = Rig()
    other.ledger.stall_ms = 70
    other.now_ms = 1_000
    other.ask(other.start())
    other.ask(other.step(schedules(heartbeat_ms=500)))
    other.grant()
    one, two = rig.activity().lease, other.activity().lease
    assert msgspec.structs.replace(one, granted_n=0) == msgspec.structs.replace(two, granted_n=0)


def test_only_what_is_scheduled_now_can_be_hired(rig):
    hired(rig, schedules("b"), hire=c.Hire("w1", LOCAL, ("a", "b", "ghost")))
    assert set(rig.execution().activities) == {"b"}
    assert rig.activity("b").lease is not None


def test_a_hired_activity_waits_for_nobody_in_the_count_of_what_is_ready(rig):
    hired(rig)
    assert rig.ledger.ready == 0
    rig.open()
    assert rig.ledger.ready == 0


def test_a_repeated_report_hires_nobody_again(rig):
    hired(rig)
    n = rig.ledger.n
    assert rig.ask(c.CompleteWorkflowTask("w", 0, 0, 1, (schedules(),), HIRE)) == c.Done(c.REPEATED)
    assert (rig.ledger.n, rig.activity().grant) == (n, 1)


# --- follow -------------------------------------------------------------------
def test_a_result_and_the_step_after_it_are_one_commit(rig):
    hired(rig)
    rig.now_ms = 1_050
    assert rig.ask(ends(rig, 1_020, c.CompleteWorkflow(b"md"))) == c.Done()
    completed, task, closed = rig.records()
    assert isinstance(completed, r.ActivityTaskCompleted)
    assert (completed.event_id, completed.at_ms) == (4, 1_020)
    assert task == r.WorkflowTaskCompleted(4, 2)
    assert isinstance(closed, r.WorkflowCompleted)
    assert (closed.event_id, closed.at_ms) == (5, 1_050)


def test_the_step_may_hire_the_next_activity_on_the_slot_that_comes_free(rig):
    hired(rig)
    hire = c.Hire("w1", LOCAL, ("b",))
    assert rig.ask(ends(rig, 1_000, schedules("b"), hire=hire)) == c.Done()
    assert set(rig.execution().activities) == {"b"}
    assert rig.activity("b").lease.session == LOCAL


@pytest.mark.parametrize("opened_again", [False, True])
@pytest.mark.parametrize("step", [c.CompleteWorkflow(b"md"), c.StartTimer(1, 10)])
def test_the_same_report_again_changes_nothing_and_is_answered_as_a_repeat(rig, step, opened_again):
    hired(rig)
    report = ends(rig, 1_000, step)
    assert rig.ask(report) == c.Done()
    n = rig.ledger.n
    if opened_again:
        rig.open()
        n = rig.ledger.n
    assert rig.ask(report) == c.Done(c.REPEATED)
    assert rig.ledger.n == n


@pytest.mark.parametrize(
    ("at_ms", "consumed"),
    [(1_000, 3), (1_000, 5), (999, 4), (1_051, 4), (0, 4)],
    ids=["event before", "event after", "before the grant", "in the future", "no time"],
)
def test_a_step_from_an_event_that_is_not_to_be_is_dropped_and_the_result_counts(
    rig, at_ms, consumed
):
    hired(rig)
    rig.now_ms = 1_050
    report = ends(rig, at_ms, c.CompleteWorkflow(None), consumed=consumed)
    assert rig.ask(report) == c.Done(c.STEP_DROPPED)
    [completed] = rig.records()
    assert isinstance(completed, r.ActivityTaskCompleted)
    assert completed.at_ms == 1_050
    assert rig.execution().task_ready
    n = rig.ledger.n
    assert rig.ask(report) == c.Done(c.STEP_DROPPED)  # Its answer got lost: it comes again.
    assert (rig.ledger.n, rig.execution().is_open) == (n, True)


def test_what_came_in_between_is_not_skipped(rig):
    hired(rig, schedules(), c.StartTimer(1, 10))
    rig.now_ms = 1_010
    rig.ask(c.FireTimer("w", 1))
    following = c.CompleteWorkflowTask("w", 1, 2, 5, (c.CompleteWorkflow(None),))
    report = c.CompleteActivity(rig.token(), b"mr", 1_000, following)
    assert rig.ask(report) == c.Done(c.STEP_DROPPED)
    assert rig.execution().is_open


def test_a_step_from_another_cursor_is_dropped(rig):
    hired(rig)
    following = c.CompleteWorkflowTask("w", 0, 1, 4, (c.CompleteWorkflow(None),))
    report = c.CompleteActivity(rig.token(), b"mr", 1_000, following)
    assert rig.ask(report) == c.Done(c.STEP_DROPPED)
    assert rig.execution().is_open


def test_a_stale_token_brings_no_step_with_it(rig):
    hired(rig)
    report = ends(rig, 1_000, c.CompleteWorkflow(None))
    rig.end("worker_died")
    n = rig.ledger.n
    answer = rig.ask(report)
    assert isinstance(answer, c.Refusal)
    assert answer.code == "FAILED_PRECONDITION"
    assert (rig.ledger.n, rig.execution().is_open) == (n, True)


def test_a_step_for_another_workflow_is_dropped(rig):
    rig.ask(rig.start("other"))
    hired(rig)
    following = c.CompleteWorkflowTask("other", 0, 0, 4, (c.CompleteWorkflow(None),))
    report = c.CompleteActivity(rig.token(), b"mr", 1_000, following)
    assert rig.ask(report) == c.Done(c.STEP_DROPPED)
    assert rig.execution("other").is_open


def test_a_bad_step_is_dropped_and_shown_and_the_result_counts(rig):
    hired(rig)
    report = ends(rig, 1_000, schedules("b"), schedules("b"))
    assert rig.ask(report) == c.Done(c.STEP_DROPPED)
    kinds = [type(record) for record in rig.records()]
    assert kinds == [r.ActivityTaskCompleted, r.WorkflowTaskFailed]
