"""LocalEngine and ManualClock themselves: what a test of a user's may rely on."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from perdure import RetryPolicy, activity, workflow
from perdure.errors import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PerdureError,
    WorkflowFailed,
)
from perdure.failures import Failure
from perdure.testing import LocalEngine, ManualClock


@activity.define(name="double")
def double(x: int) -> int:
    return x * 2


@workflow.define(name="doubling")
async def doubling(x: int) -> int:
    return await workflow.execute_activity(double, x, activity_id="a")


@workflow.define(name="sleeping")
async def sleeping(length_ms: int) -> int:
    await workflow.sleep_ms(length_ms)
    return workflow.now_ms()


# --- the clock ---------------------------------------------------------------
def test_the_clock_stands_still_until_it_is_told_to_go_on():
    clock = ManualClock(5)
    assert clock.now_ms == 5
    clock.advance_ms(10)
    clock.advance_ms(0)
    assert clock.now_ms == 15
    with pytest.raises(AttributeError):
        clock.now_ms = 3  # type: ignore[misc]


@pytest.mark.parametrize("bad", [-1, True, 1.5, "1", None])
def test_the_clock_never_goes_back(bad: Any):
    with pytest.raises(InvalidArgument):
        ManualClock(0).advance_ms(bad)
    with pytest.raises(InvalidArgument):
        ManualClock(bad)


def test_an_engine_without_a_clock_begins_at_zero():
    engine = LocalEngine([doubling], [double])
    assert engine.clock.now_ms == 0
    engine.client.start_workflow(doubling, 1, workflow_id="w")
    assert engine.describe_workflow("w").started_ms == 0


# --- running -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("workflows", doubling),
        ("activities", 5),
        ("clock", 0),
        ("jitter", 0.5),
        ("seed", "x"),
        ("seed", True),
        ("dlq_after_attempts", 0),
        ("dlq_after_attempts", True),
        ("retention_ms", -1),
        ("recovery_grace_ms", 1.5),
    ],
)
def test_an_engine_is_refused_naming_what_does_not_fit(field: str, bad: Any):
    with pytest.raises(InvalidArgument, match=field) as caught:
        LocalEngine(**{field: bad})
    assert caught.value.field == field


def test_nothing_runs_before_it_is_told_to():
    engine = LocalEngine([doubling], [double])
    handle = engine.client.start_workflow(doubling, 4, workflow_id="w")
    assert engine.poll_activity_task() is None
    assert [event.kind for event in handle.history()] == ["WorkflowStarted"]
    assert engine.run_workflow_tasks() == 1
    assert engine.run_workflow_tasks() == 0
    assert handle.describe().pending_activities[0].state == "Scheduled"
    assert engine.run_activities() == 1
    assert engine.run_activities() == 0
    assert engine.run_workflow_tasks() == 1
    assert handle.result() == 8


def test_result_never_runs_anything_and_never_waits():
    engine = LocalEngine([doubling], [double])
    handle = engine.client.start_workflow(doubling, 4, workflow_id="w")
    began = time.monotonic()
    for timeout_ms in (None, 0, 60_000):
        with pytest.raises(DeadlineExceeded):
            handle.result(timeout_ms=timeout_ms)
    assert time.monotonic() - began < 30
    assert [event.kind for event in handle.history()] == ["WorkflowStarted"]


def test_run_until_idle_runs_all_and_jumps_over_timers_and_backoffs():
    calls = []

    @activity.define(name="flaky", retry=RetryPolicy(max_attempts=3))
    def flaky() -> str:
        calls.append(engine.clock.now_ms)
        if len(calls) < 3:
            raise ValueError("again")
        return "done"

    @workflow.define(name="long")
    async def long() -> str:
        await asyncio.sleep(3_600)
        return await workflow.execute_activity(flaky)

    engine = LocalEngine([long], [flaky], jitter=lambda delay_ms, u: delay_ms)
    handle = engine.client.start_workflow(long, workflow_id="w")
    engine.run_until_idle()
    assert handle.result() == "done"
    assert calls == [3_600_000, 3_601_000, 3_603_000]


def test_run_until_idle_can_be_told_not_to_skip_time():
    engine = LocalEngine([sleeping])
    handle = engine.client.start_workflow(sleeping, 50, workflow_id="w")
    engine.run_until_idle(skip_time=False)
    assert engine.clock.now_ms == 0
    assert handle.describe().status == "Running"
    engine.run_until_idle()
    assert (engine.clock.now_ms, handle.result()) == (50, 50)


@pytest.mark.parametrize("field", ["start_to_close_ms", "schedule_to_close_ms", "heartbeat_ms"])
def test_run_until_idle_waits_for_no_deadline(field: str):
    @activity.define(name="by_hand", **{field: 5_000})
    def by_hand() -> None: ...

    @workflow.define(name="waits")
    async def waits() -> None:
        await workflow.execute_activity(by_hand)

    engine = LocalEngine([waits])
    engine.client.start_workflow(waits, workflow_id="w")
    engine.run_until_idle()
    task = engine.poll_activity_task()
    assert task is not None
    engine.run_until_idle()
    assert engine.clock.now_ms == 0
    engine.complete_activity_task(task.token)


def test_what_falls_due_is_done_in_order_each_at_its_own_time():
    @workflow.define(name="two_timers")
    async def two_timers() -> Any:
        later = asyncio.ensure_future(workflow.sleep_ms(200))
        await workflow.sleep_ms(100)
        first = workflow.now_ms()
        await later
        return [first, workflow.now_ms()]

    engine = LocalEngine([two_timers, sleeping])
    handle = engine.client.start_workflow(two_timers, workflow_id="w")
    other = engine.client.start_workflow(sleeping, 150, workflow_id="v")
    engine.run_workflow_tasks()
    engine.clock.advance_ms(1_000)
    fired = [event.at_ms for event in handle.history() if event.kind == "TimerFired"]
    assert fired == [100, 200]
    assert [e.at_ms for e in other.history() if e.kind == "TimerFired"] == [150]
    engine.run_workflow_tasks()
    assert (handle.result(), other.result()) == ([100, 200], 150)


def test_a_workflow_that_loops_for_ever_is_reported(monkeypatch: pytest.MonkeyPatch):
    from perdure import testing

    monkeypatch.setattr(testing.local, "ROUNDS_MAX", 50)

    @workflow.define(name="for_ever")
    async def for_ever() -> None:
        while True:
            await workflow.sleep_ms(10)

    engine = LocalEngine([for_ever])
    engine.client.start_workflow(for_ever, workflow_id="w")
    with pytest.raises(PerdureError, match="idle"):
        engine.run_until_idle()


def test_async_activities_run_too():
    @activity.define(name="async_double")
    async def async_double(x: int) -> int:
        await asyncio.sleep(0)
        return x * 2

    @workflow.define(name="w")
    async def one(x: int) -> int:
        return await workflow.execute_activity(async_double, x)

    engine = LocalEngine([one], [async_double])
    handle = engine.client.start_workflow(one, 4, workflow_id="w")
    engine.run_until_idle()
    assert handle.result() == 8


def test_a_replay_that_does_not_match_is_recorded_and_not_raised():
    steps = ["a", "b"]

    @workflow.define(name="changing")
    async def changing() -> None:
        await workflow.execute_activity(double, 1, activity_id=steps.pop(0))

    engine = LocalEngine([changing], [double])
    engine.client.start_workflow(changing, workflow_id="w")
    engine.run_workflow_tasks()
    engine.run_activities()
    engine.restart()
    engine.run_workflow_tasks()
    task = engine.describe_workflow("w").workflow_task
    assert task.reason == "mismatch"
    assert task.failure.type == "NonDeterminism"
    assert engine.describe_workflow("w").status == "Running"


def test_a_type_without_a_function_waits():
    engine = LocalEngine([doubling])
    handle = engine.client.start_workflow("unknown", workflow_id="w")
    engine.client.start_workflow(doubling, 4, workflow_id="v")
    engine.run_until_idle()
    assert handle.describe().status == "Running"
    assert engine.poll_activity_task().workflow_id == "v"


# --- construction ------------------------------------------------------------
def test_functions_that_are_not_defined_are_refused():
    with pytest.raises(InvalidArgument):
        LocalEngine([double])
    with pytest.raises(InvalidArgument):
        LocalEngine([], [doubling])
    with pytest.raises(InvalidArgument):
        LocalEngine([lambda: None])


def test_two_functions_of_one_name_are_refused():
    @activity.define(name="double")
    def other(x: int) -> int:
        return x

    with pytest.raises(InvalidArgument, match="double"):
        LocalEngine([], [double, other])
    LocalEngine([], [double, double])


# --- the client --------------------------------------------------------------
def test_errors_are_those_of_perdure_errors():
    engine = LocalEngine([doubling], [double])
    client = engine.client
    with pytest.raises(NotFound):
        client.describe_workflow("nobody")
    with pytest.raises(NotFound):
        client.history("nobody")
    with pytest.raises(NotFound):
        client.result("nobody")
    with pytest.raises(NotFound):
        engine.redrive_dead_letter("nobody", "a")
    client.start_workflow(doubling, 1, workflow_id="w")
    with pytest.raises(AlreadyExists):
        client.start_workflow(doubling, 1, workflow_id="w")
    with pytest.raises(FailedPrecondition):
        engine.complete_activity_task("nonsense", 1)
    for bad in ("", "x" * 201, "a\nb"):
        with pytest.raises(InvalidArgument, match="workflow_id"):
            client.start_workflow(doubling, 1, workflow_id=bad)


def test_a_workflow_that_failed_raises_with_status_and_failure():
    @workflow.define(name="fails")
    async def fails() -> None:
        raise KeyError("gone")

    engine = LocalEngine([fails])
    handle = engine.client.start_workflow(fails, workflow_id="w")
    engine.run_until_idle()
    with pytest.raises(WorkflowFailed, match="KeyError") as caught:
        handle.result()
    assert caught.value.status == "Failed"
    assert caught.value.failure.type == "KeyError"
    assert handle.describe().failure.type == "KeyError"


def test_a_long_history_comes_whole_and_in_parts():
    @workflow.define(name="many")
    async def many(count: int) -> int:
        for _ in range(count):
            await workflow.execute_activity(double, 1)
        return count

    engine = LocalEngine([many], [double])
    handle = engine.client.start_workflow(many, 400, workflow_id="w")
    engine.run_until_idle()
    ids = [event.event_id for event in handle.history()]
    assert ids == list(range(1, 1_203))
    history = engine.client.history
    assert [e.event_id for e in history("w", limit=5)] == [1, 2, 3, 4, 5]
    assert [e.event_id for e in history("w", after=5, limit=3)] == [6, 7, 8]
    # In the middle of a pair that is stored as one.
    assert [e.kind for e in history("w", after=2, limit=1)] == ["ActivityTaskStarted"]
    assert [e.kind for e in history("w", after=3, limit=1)] == ["ActivityTaskCompleted"]
    assert history("w", after=1_202) == []
    engine.restart()
    assert handle.result() == 400


def test_a_list_of_workflows_comes_page_by_page_newest_first():
    engine = LocalEngine([doubling])
    for number in range(5):
        engine.client.start_workflow(doubling, 1, workflow_id=f"w{number}")
    first = engine.client.list_workflows(limit=2)
    assert [one.workflow_id for one in first] == ["w4", "w3"]
    second = engine.client.list_workflows(limit=2, page=first.next_page)
    assert [one.workflow_id for one in second.workflows] == ["w2", "w1"]
    third = engine.client.list_workflows(limit=2, page=second.next_page)
    assert ([one.workflow_id for one in third], third.next_page) == (["w0"], None)


def test_large_values_pass_whole():
    text = "x" * 100_000

    @activity.define(name="echo")
    def echo(what: str) -> str:
        activity.record_heartbeat(what)
        return what

    @workflow.define(name="echoing")
    async def echoing(what: str) -> str:
        return await workflow.execute_activity(echo, what)

    engine = LocalEngine([echoing], [echo])
    handle = engine.client.start_workflow(echoing, text, workflow_id="w")
    engine.run_until_idle()
    assert handle.result() == text
    assert handle.describe().input == [text]


def test_a_hand_made_failure_reaches_the_workflow():
    @workflow.define(name="catches")
    async def catches() -> Any:
        try:
            await workflow.execute_activity(double, 1)
        except workflow.ActivityFailed as error:
            return [error.failure.type, error.failure.message, error.failure.details]

    engine = LocalEngine([catches])
    handle = engine.client.start_workflow(catches, workflow_id="w")
    engine.run_workflow_tasks()
    token = engine.poll_activity_task().token
    failure = Failure("Bad", "text", non_retryable=True, details={"a": 1})
    assert engine.fail_activity_task(token, failure) == "Dropped"
    engine.run_workflow_tasks()
    assert handle.result() == ["Bad", "text", {"a": 1}]


# --- restart -----------------------------------------------------------------
def test_a_restart_forgets_everything_but_the_store():
    engine = LocalEngine([doubling, sleeping], [double])
    handle = engine.client.start_workflow(doubling, 4, workflow_id="w")
    sleeper = engine.client.start_workflow(sleeping, 500, workflow_id="s")
    for _ in range(3):
        engine.restart()
        engine.run_workflow_tasks()
    task = engine.poll_activity_task()
    engine.restart()
    assert engine.poll_activity_task() is None
    engine.complete_activity_task(task.token, 9)
    engine.restart()
    engine.run_until_idle()
    assert (handle.result(), sleeper.result()) == (9, 500)


def test_two_engines_know_nothing_of_each_other():
    one, other = LocalEngine([doubling]), LocalEngine([doubling])
    one.client.start_workflow(doubling, 1, workflow_id="w")
    other.client.start_workflow(doubling, 2, workflow_id="w")
    assert one.describe_workflow("w").input == [1]
    assert other.describe_workflow("w").input == [2]


def test_an_engine_that_is_dropped_with_open_workflows_complains_of_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    import gc

    engine = LocalEngine([doubling, sleeping])
    engine.client.start_workflow(doubling, 1, workflow_id="w")
    engine.client.start_workflow(sleeping, 1_000, workflow_id="s")
    engine.run_workflow_tasks()
    del engine
    gc.collect()
    assert capfd.readouterr().err == ""
    assert caplog.records == []
