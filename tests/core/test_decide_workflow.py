"""Workflow tasks and timers: cursors, failures in a row, and steps that make no sense."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core import records as r
from perdure.core.records import ActivityOptions
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from tests.core.ledger_rig import BOOM, Rig

SCHEDULE = c.ScheduleActivity("a", "t", None, ActivityOptions(RetryPolicy()))


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.ask(rig.start())
    return rig


def code(answer: object) -> str:
    return answer.code if isinstance(answer, c.Refusal) else ""


# --- the cursor --------------------------------------------------------------
def test_a_task_moves_the_cursor_over_what_it_saw_and_did(rig):
    rig.ask(rig.step(SCHEDULE, c.StartTimer(1, 50)))
    execution = rig.execution()
    assert (execution.consumed, execution.commands, execution.last_event_id) == (1, 2, 3)
    assert not execution.task_ready


def test_the_same_result_again_is_no_error_changes_nothing_and_is_answered_as_what_it_is(rig):
    task = rig.step(SCHEDULE)
    assert rig.ask(task, task) == [c.Done(), c.Done(c.REPEATED)]
    rig.open()
    assert rig.ask(task) == c.Done(c.REPEATED)
    assert rig.records() == []
    assert rig.execution().last_event_id == 2


@pytest.mark.parametrize(("consumed", "commands"), [(0, 0), (1, 0), (0, 1), (2, 1)])
def test_a_result_from_another_cursor_is_refused(rig, consumed, commands):
    rig.ask(rig.step(SCHEDULE))
    rig.grant()
    rig.ask(c.CompleteActivity(rig.token(), b"mr"))
    stale = c.CompleteWorkflowTask("w", consumed, commands, 4, (c.StartTimer(1, 5),))
    assert code(rig.ask(stale)) == "FAILED_PRECONDITION"
    assert rig.execution().timers == {}


@pytest.mark.parametrize("consumed", [0, 2, 99])
def test_a_result_that_saw_nothing_new_or_what_is_not_there_is_refused(rig, consumed):
    task = c.CompleteWorkflowTask("w", 0, 0, consumed, ())
    assert code(rig.ask(task)) == "INVALID_ARGUMENT"
    assert rig.records() == []


def test_a_closed_workflow_takes_no_results(rig):
    rig.ask(rig.step(c.CompleteWorkflow(None)))
    task = c.CompleteWorkflowTask("w", 1, 1, 2, (c.StartTimer(1, 5),))
    assert code(rig.ask(task)) == "FAILED_PRECONDITION"


# --- steps -------------------------------------------------------------------
@pytest.mark.parametrize(
    "steps",
    [
        (SCHEDULE, SCHEDULE),
        (c.StartTimer(1, 5), c.StartTimer(1, 6)),
        (c.CompleteWorkflow(None), SCHEDULE),
        (c.FailWorkflow(BOOM), c.CompleteWorkflow(None)),
        (c.ScheduleActivity("", "t", None, SCHEDULE.options),),
        (c.ScheduleActivity("x" * 201, "t", None, SCHEDULE.options),),
    ],
)
def test_steps_that_make_no_sense_fail_the_task_and_none_is_taken(rig, steps):
    assert code(rig.ask(rig.step(*steps))) == "INVALID_ARGUMENT"
    (record,) = rig.records()
    assert isinstance(record, r.WorkflowTaskFailed)
    execution = rig.execution()
    assert (execution.task_failures, execution.task_failure.type) == (1, "BadWorkflowTask")
    assert execution.is_open
    assert (execution.activities, execution.timers, execution.consumed) == ({}, {}, 0)


def test_an_activity_id_that_was_used_before_fails_the_task(rig):
    rig.ask(rig.step(SCHEDULE))
    rig.grant()
    rig.ask(c.CompleteActivity(rig.token(), b"mr"))
    assert code(rig.ask(rig.step(SCHEDULE))) == "INVALID_ARGUMENT"
    assert rig.execution().activities == {}


def test_options_stand_in_the_log_with_their_defaults(rig):
    rig.ask(rig.step(c.ScheduleActivity("a", "t", None, ActivityOptions(RetryPolicy(), "q", 0))))
    options = rig.activity().options
    assert options.retry == RetryPolicy(1_000, 2.0, 60_000, 5)
    assert options.start_to_close_ms == 600_000


def test_cancelling_what_is_gone_is_recorded_as_nothing(rig):
    rig.ask(rig.step(c.CancelTimer(7), c.CancelActivity("z")))
    assert [record.noop for record in rig.records()[1:]] == [True, True]


def test_a_cancelled_activity_is_gone_and_its_token_stale(rig):
    rig.ask(rig.step(SCHEDULE, c.StartTimer(1, 1)))
    token = rig.token(rig.grant())
    rig.now_ms = 1
    rig.ask(c.FireTimer("w", 1))
    rig.ask(rig.step(c.CancelActivity("a")))
    assert rig.execution().activities == {}
    assert code(rig.ask(c.CompleteActivity(token, b"mr"))) == "FAILED_PRECONDITION"


# --- failures in a row -------------------------------------------------------
def failed(rig: Rig, reason: str = "mismatch") -> int:
    """How long until the task is given out again."""
    execution = rig.execution()
    cursor = (execution.consumed, execution.commands)
    rig.ask(c.FailWorkflowTask("w", *cursor, reason, Failure("NonDeterminism", "x")))
    return rig.execution().task_due_ms - rig.now_ms


def test_a_task_is_given_out_again_at_once_twice_and_then_with_growing_backoff(rig):
    waits = [failed(rig) for _ in range(13)]
    doubling = [1_000 * 2**n for n in range(10)]
    assert waits == [0, 0, *doubling, 600_000]
    assert rig.execution().is_open


def test_tasks_that_time_out_or_lose_their_worker_count_too(rig):
    for reason in ("timeout", "worker_died", "timeout"):
        rig.ask(c.TimeOutWorkflowTask("w", 0, 0, reason))
    assert rig.execution().task_failures == 3
    assert rig.execution().task_due_ms == 1_000
    assert code(rig.ask(c.TimeOutWorkflowTask("w", 1, 0, "timeout"))) == "FAILED_PRECONDITION"


def test_an_orderly_handback_counts_nothing_and_an_unknown_type_waits(rig):
    assert failed(rig, "handed_back") == 0
    assert failed(rig, "unknown_type") == 1_000
    assert rig.execution().task_failures == 0
    assert rig.execution().task_reason == "unknown_type"


def test_a_task_that_works_out_ends_the_row(rig):
    for _ in range(4):
        failed(rig)
    rig.ask(rig.step(SCHEDULE))
    execution = rig.execution()
    assert (execution.task_failures, execution.task_due_ms, execution.task_reason) == (0, 0, "")


# --- timers ------------------------------------------------------------------
def test_a_timer_fires_once_not_before_its_time(rig):
    rig.now_ms = 10
    rig.ask(rig.step(c.StartTimer(1, 50)))
    rig.now_ms = 59
    assert rig.ask(c.FireTimer("w", 1)).at_ms == 60
    rig.now_ms = 60
    assert rig.ask(c.FireTimer("w", 1)) == c.Done()
    assert code(rig.ask(c.FireTimer("w", 1))) == "NOT_FOUND"
    assert rig.execution().task_ready


@pytest.mark.parametrize("duration_ms", [2**53, 2**63])
def test_a_timer_for_ever_overflows_nothing(rig, duration_ms):
    rig.now_ms = 10**12
    rig.ask(rig.step(c.StartTimer(1, duration_ms)))
    assert rig.execution().timers[1] == 2**53
