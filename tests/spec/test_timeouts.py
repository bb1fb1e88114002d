"""spec/activities.md, "Timeouts": four bounds, each to the millisecond."""

from __future__ import annotations

import math

import pytest

from perdure import RetryPolicy, activity, workflow
from perdure.errors import InvalidArgument
from perdure.failures import Failure
from perdure.testing import LocalEngine
from tests.spec.conftest import BOOM, WORKED, begun, code_of

FIELDS = ("start_to_close_ms", "heartbeat_ms", "schedule_to_start_ms", "schedule_to_close_ms")


# --- options -----------------------------------------------------------------
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("bad", [-1, -0.5, 0.5, math.nan, math.inf, True, False, "5"])
def test_bad_lengths_are_refused_where_the_options_are_built(field, bad):
    with pytest.raises(InvalidArgument, match=field) as caught:
        activity.define(**{field: bad})(lambda: None)
    assert caught.value.field == field


@pytest.mark.parametrize("field", FIELDS)
def test_bad_lengths_are_refused_at_the_call_too(field):
    @activity.define
    def step() -> None: ...

    @workflow.define
    async def one() -> None:
        await workflow.execute_activity(step, **{field: -1})

    engine = LocalEngine([one], [step])
    engine.client.start_workflow(one, workflow_id="w")
    engine.run_until_idle()
    described = engine.describe_workflow("w")
    assert described.status == "Failed"
    assert field in described.failure.message


# --- start to close ----------------------------------------------------------
def test_an_attempt_lasts_600_seconds_by_default():
    scene = begun()
    assert scene.take().lease_deadline_ms == 600_000
    scene.at(599_999)
    assert scene.pending().state == "Leased"
    scene.at(600_000)
    pending = scene.pending()
    assert (pending.state, pending.attempt, pending.due_ms) == ("Retrying", 2, 601_000)
    assert pending.last_failure.type == "StartToCloseTimeout"
    assert not pending.last_failure.non_retryable


def test_zero_is_the_default_not_no_time():
    assert begun(start_to_close_ms=0).take().lease_deadline_ms == 600_000


def test_an_attempt_that_is_not_reported_in_time_fails_and_is_retried():
    scene = begun(retry=WORKED, start_to_close_ms=30_000)
    scene.at(5_000)
    task = scene.take()
    assert task.lease_deadline_ms == 35_000
    scene.at(34_999)
    assert scene.pending().state == "Leased"
    scene.at(35_000)
    assert scene.pending().state == "Retrying"
    assert scene.pending().due_ms == 36_000
    assert code_of(scene.engine.complete_activity_task, task.token, 1) == "FAILED_PRECONDITION"
    assert scene.kinds() == ["WorkflowStarted", "ActivityTaskScheduled"]


def test_each_attempt_has_the_whole_time():
    scene = begun(retry=WORKED, start_to_close_ms=2_000)
    scene.take()
    scene.at(2_000)
    scene.at(3_000)
    assert scene.take().lease_deadline_ms == 5_000


def test_what_fell_due_is_done_at_its_own_time_however_late_one_asks():
    scene = begun(retry=WORKED, start_to_close_ms=2_000)
    scene.take()
    scene.at(1_000_000)
    assert scene.pending().due_ms == 3_000
    assert scene.take().attempt == 2


def test_it_is_so_whatever_is_asked_first():
    for look in (
        lambda client: client.list_workflows(),
        lambda client: client.list_dead_letters(),
        lambda client: client.explain_workflow("w"),
        lambda client: client.history("w"),
        lambda client: client.list_schedules(),
    ):
        scene = begun(retry=WORKED, start_to_close_ms=2_000)
        scene.take()
        scene.at(1_000_000)
        look(scene.client)
        assert scene.pending().due_ms == 3_000


def test_four_attempts_that_time_out_are_a_dead_letter_with_four_timeouts():
    scene = begun(retry=WORKED, start_to_close_ms=100)
    scene.take()
    for due_ms in (1_100, 3_200, 7_300):
        scene.at(due_ms - 1)
        assert scene.poll() is None
        scene.at(due_ms)
        scene.take()
    scene.at(7_400)
    whole = scene.dead()
    assert whole.dead_ms == 7_400
    assert [f.failure.type for f in whole.failures] == ["StartToCloseTimeout"] * 4
    assert [f.at_ms for f in whole.failures] == [100, 1_200, 3_300, 7_400]


# --- heartbeat ---------------------------------------------------------------
def test_silence_for_longer_than_heartbeat_ms_fails_the_attempt():
    scene = begun(retry=WORKED, heartbeat_ms=5_000)
    assert scene.take().lease_deadline_ms == 5_000
    scene.at(4_999)
    assert scene.pending().state == "Leased"
    scene.at(5_000)
    pending = scene.pending()
    assert (pending.state, pending.attempt, pending.due_ms) == ("Retrying", 2, 6_000)
    assert pending.last_failure.type == "HeartbeatTimeout"
    assert not pending.last_failure.non_retryable


def test_no_heartbeat_is_expected_where_none_is_declared():
    scene = begun(heartbeat_ms=0, start_to_close_ms=100_000)
    scene.take()
    scene.at(99_999)
    assert scene.pending().state == "Leased"


def test_heartbeats_do_not_keep_an_attempt_past_its_whole_time():
    scene = begun(retry=WORKED, heartbeat_ms=5_000, start_to_close_ms=12_000)
    token = scene.take().token
    for now_ms, deadline_ms in ((4_000, 9_000), (8_000, 12_000), (11_999, 12_000)):
        scene.at(now_ms)
        assert scene.engine.record_heartbeat(token) == deadline_ms
    scene.at(12_000)
    assert scene.pending().last_failure.type == "StartToCloseTimeout"


def test_a_lease_is_never_longer_than_the_attempt():
    assert begun(heartbeat_ms=50_000, start_to_close_ms=8_000).take().lease_deadline_ms == 8_000


# --- schedule to start -------------------------------------------------------
def test_an_activity_that_nobody_takes_in_time_fails_and_is_not_retried():
    scene = begun(retry=WORKED, schedule_to_start_ms=5_000)
    scene.at(4_999)
    assert scene.pending().state == "Scheduled"
    scene.at(5_000)
    assert not scene.is_pending()
    assert scene.poll() is None
    assert scene.kinds() == ["WorkflowStarted", "ActivityTaskScheduled", "ActivityTaskFailed"]
    event = scene.last("ActivityTaskFailed")
    assert (event.at_ms, event.failure.type) == (5_000, "ScheduleToStartTimeout")
    assert event.failure.non_retryable
    assert scene.result()[0] == "ScheduleToStartTimeout"
    assert scene.engine.list_dead_letters() == []


def test_once_taken_it_no_longer_counts():
    scene = begun(retry=WORKED, schedule_to_start_ms=5_000)
    scene.at(4_999)
    scene.fail()
    scene.at(500_000)
    assert scene.pending().state == "Retrying"
    assert scene.take().attempt == 2


# --- schedule to close -------------------------------------------------------
def test_there_are_exactly_6_attempts_in_60_seconds_and_it_ends_at_31():
    policy = RetryPolicy(1_000, 2.0, 1_000_000, 100)
    scene = begun(retry=policy, schedule_to_close_ms=60_000)
    for attempt, at_ms in enumerate((0, 1_000, 3_000, 7_000, 15_000), 1):
        scene.at(at_ms)
        task = scene.take()
        assert task.attempt == attempt
        assert scene.engine.fail_activity_task(task.token, Failure("Real", "why")) == "Retrying"
    scene.at(30_999)
    assert scene.poll() is None
    scene.at(31_000)
    assert scene.fail(Failure("Real", "the sixth", stack="line 6")) == "Dropped"
    assert not scene.is_pending()
    event = scene.last("ActivityTaskFailed")
    assert (event.at_ms, event.attempt, event.failure.type) == (31_000, 6, "ScheduleToCloseTimeout")
    cause = event.failure.cause
    assert (cause.type, cause.message, cause.stack) == ("Real", "the sixth", "line 6")
    assert "60000" in event.failure.message
    assert event.failure.non_retryable
    assert scene.engine.list_dead_letters() == []
    assert scene.result()[0] == "ScheduleToCloseTimeout"


@pytest.mark.parametrize(("close_ms", "state"), [(1_000, "Dropped"), (1_001, "Retrying")])
def test_a_retry_must_be_able_to_start_before_the_deadline(close_ms, state):
    assert begun(retry=WORKED, schedule_to_close_ms=close_ms).fail() == state


def test_a_budget_of_5_seconds_has_attempts_at_0_1_and_3():
    scene = begun(retry=RetryPolicy(1_000, 2.0, max_attempts=9), schedule_to_close_ms=5_000)
    for at_ms, state in ((0, "Retrying"), (1_000, "Retrying"), (3_000, "Dropped")):
        scene.at(at_ms)
        assert scene.fail() == state


def test_no_attempt_starts_after_the_deadline_even_without_waits():
    policy = RetryPolicy(max_attempts=10**6)
    scene = begun(retry=policy, schedule_to_close_ms=1_000, jitter=lambda delay_ms, u: 0.0)
    scene.at(999)
    assert scene.fail() == "Retrying"
    scene.at(1_000)
    assert scene.poll() is None
    failure = scene.last("ActivityTaskFailed").failure
    assert (failure.type, failure.cause.type) == ("ScheduleToCloseTimeout", "Boom")


def test_a_failure_that_asks_for_more_time_than_is_left_ends_it_now():
    scene = begun(retry=WORKED, schedule_to_close_ms=60_000)
    failure = Failure("Busy", "come back tomorrow", retry_after_ms=86_400_000)
    assert scene.fail(failure) == "Dropped"
    shown = scene.last("ActivityTaskFailed").failure
    assert (shown.type, shown.cause.type) == ("ScheduleToCloseTimeout", "Busy")
    assert scene.result()[0] == "ScheduleToCloseTimeout"


def test_the_deadline_ends_an_attempt_that_runs():
    scene = begun(retry=WORKED, schedule_to_close_ms=10_000, start_to_close_ms=60_000)
    scene.at(4_000)
    task = scene.take()
    assert task.lease_deadline_ms == 10_000
    scene.at(10_000)
    assert scene.result()[0] == "ScheduleToCloseTimeout"
    event = scene.last("ActivityTaskFailed")
    assert (event.at_ms, event.failure.cause) == (10_000, None)
    assert code_of(scene.engine.complete_activity_task, task.token, 1) == "FAILED_PRECONDITION"


def test_the_deadline_ends_an_activity_that_waits_for_a_worker():
    scene = begun(retry=WORKED, schedule_to_close_ms=10_000)
    scene.at(1_000)
    scene.engine.fail_activity_task(scene.take(worker_id="w7").token, BOOM)
    scene.at(10_000)
    assert scene.result()[0] == "ScheduleToCloseTimeout"
    started, failed = scene.last("ActivityTaskStarted"), scene.last("ActivityTaskFailed")
    # Of the one attempt that there was, not of the second that never began.
    assert (started.at_ms, started.attempt, started.worker_id) == (1_000, 1, "w7")
    assert (failed.attempt, failed.failure.cause.type) == (1, "Boom")


def test_the_deadline_ends_an_activity_that_was_never_taken():
    scene = begun(schedule_to_close_ms=10_000)
    scene.at(10_000)
    assert scene.result()[0] == "ScheduleToCloseTimeout"
    assert "ActivityTaskStarted" not in scene.kinds()


def test_of_two_deadlines_of_the_caller_the_earlier_counts():
    scene = begun(schedule_to_start_ms=10_000, schedule_to_close_ms=9_000)
    scene.at(50_000)
    assert scene.result()[0] == "ScheduleToCloseTimeout"
    scene = begun(schedule_to_start_ms=9_000, schedule_to_close_ms=10_000)
    scene.at(50_000)
    assert scene.result()[0] == "ScheduleToStartTimeout"


def test_without_a_total_a_hung_attempt_is_retried():
    scene = begun(retry=RetryPolicy(max_attempts=3), start_to_close_ms=2_000)
    scene.take()
    scene.at(3_000)
    assert scene.take().attempt == 2


def test_a_redrive_has_the_whole_time_again():
    scene = begun(retry=RetryPolicy(max_attempts=1), schedule_to_close_ms=10_000)
    scene.fail()
    scene.at(50_000)
    scene.engine.redrive_dead_letter("w", "a")
    scene.at(59_999)
    assert scene.take().lease_deadline_ms == 60_000
    scene.at(60_000)
    failure = scene.last("ActivityTaskFailed").failure
    # The failure of the earlier generation is not the cause of this one's end.
    assert (failure.type, failure.cause) == ("ScheduleToCloseTimeout", None)


def test_a_redrive_waits_for_a_worker_as_long_as_the_first_time():
    scene = begun(retry=RetryPolicy(max_attempts=1), schedule_to_start_ms=5_000)
    scene.fail()
    scene.at(50_000)
    scene.engine.redrive_dead_letter("w", "a")
    scene.at(54_999)
    assert scene.pending().state == "Scheduled"
    scene.at(55_000)
    assert scene.last("ActivityTaskFailed").failure.type == "ScheduleToStartTimeout"
    # Nobody began anything in this generation.
    assert "ActivityTaskStarted" not in scene.kinds()
