"""What other engines were reported to get wrong about workflows, done to this one."""

from __future__ import annotations

import pytest

from perdure import RetryPolicy, activity, workflow
from perdure.core import commands as c
from perdure.core import records as r
from perdure.core.ids import execution_id
from perdure.errors import WorkflowFailed
from perdure.store.retention import Retention
from perdure.testing import LocalEngine, ManualClock
from tests.core.ledger_rig import BOOM, Rig

calls: list[str] = []


@activity.define(retry=RetryPolicy(max_attempts=5, non_retryable=("Rejected",)))
def rejects() -> None:
    calls.append("activity")
    raise activity.Error("Rejected", "no")


@workflow.define
async def passes_up() -> None:
    calls.append("workflow")
    await workflow.execute_activity(rejects)


@workflow.define
async def grows(upto: int, done: int = 0) -> int:
    """Makes 100 events at a time, and goes on as new when it is told to."""
    while done < upto:
        for _ in range(99):
            workflow.side_effect(lambda: 1)
        await workflow.sleep_ms(1)
        done += 100
        if workflow.info().continue_as_new_suggested:
            workflow.continue_as_new(upto, done)
    return done


def test_a_failure_whose_retry_could_not_be_written_is_neither_lost_nor_doubled() -> None:
    rig = Rig()
    rig.schedule("a")
    token = rig.token(rig.grant("a"))
    rig.judge(c.FailActivity(token, BOOM))  # And the write of it fails: nothing of it is there.
    rig.open()
    assert rig.activity("a").state == "Leased"
    assert rig.ask(c.FailActivity(token, BOOM)) == c.Done("Retrying")
    assert [type(one) for one in rig.records()] == [r.RetryScheduled]
    assert rig.ask(c.FailActivity(token, BOOM)) == c.Done("Retrying")  # Sent again, at last heard.
    assert rig.activity("a").failures_count == 1


def test_what_is_not_retryable_is_not_tried_again_by_the_workflow_either() -> None:
    calls.clear()
    engine = LocalEngine([passes_up], [rejects], ManualClock(0))
    engine.client.start_workflow(passes_up, workflow_id="w")
    engine.run_until_idle()
    with pytest.raises(WorkflowFailed) as caught:
        engine.client.result("w")
    assert caught.value.failure.type == "ActivityFailed"
    assert (calls.count("activity"), calls.count("workflow")) == (1, 1)
    assert engine.client.describe_workflow("w").run == 1


def test_a_loop_that_heeds_the_advice_never_has_a_long_history_and_loses_nothing() -> None:
    engine = LocalEngine([grows], [], ManualClock(0))
    engine.client.start_workflow(grows, 9_000, workflow_id="w")
    engine.run_until_idle()
    assert engine.client.result("w") == 9_000
    described = engine.client.describe_workflow("w")
    assert described.run == 3
    first = engine.client.describe_workflow("w", run=1)
    assert (first.status, 4_096 <= first.history_length < 4_400) == ("ContinuedAsNew", True)


def test_a_loop_that_does_not_is_told_in_time_and_parked_but_not_ended() -> None:
    rig = Rig()
    rig.ask(rig.start())
    long: list[str] = []
    for number in range(0, 60_000, 500):
        markers = [c.RecordMarker("side_effect", str(number + at), None) for at in range(498)]
        rig.ask(c.SignalWorkflow("w", "s", None))
        answer = rig.ask(rig.step(*markers, c.StartTimer(number, 1)))
        long += rig.batches[-1].long
        if isinstance(answer, c.Refusal):
            break
    assert long == ["w"]
    assert "limits.history_events_max" in answer.message
    execution = rig.execution()
    assert (execution.is_open, execution.task_reason) == (True, "history_limit")
    assert 49_000 < execution.last_event_id < 50_000
    assert rig.ask(rig.step(c.ContinueAsNew("T", "default", None))) == c.Done()


def test_the_newest_run_is_found_when_retention_has_removed_the_first() -> None:
    rig = Rig()
    rig.writer.retain(Retention(retention_ms=1_000))
    rig.ask(rig.start())
    again = c.ContinueAsNew("T", "default", None)
    for run in (1, 2):
        rig.ask(rig.step(again, workflow_id=execution_id("w", run)))
    rig.now_ms = 5_000
    while rig.writer.tidy(rig.now_ms):
        pass
    assert rig.execution("w").status == "Removed"
    assert rig.ask(c.SignalWorkflow("w", "s", None)) == c.Done()
    assert rig.execution(execution_id("w", 3)).more.signals == 1
    assert rig.ask(rig.start()).code == "ALREADY_EXISTS"
