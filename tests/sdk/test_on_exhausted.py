"""on_exhausted="fail": the last attempt's failure goes to the workflow, and nothing is parked."""

from __future__ import annotations

from typing import Any

from perdure import RetryPolicy, activity, workflow
from perdure.core import commands as c
from perdure.core.state import ActivityState
from perdure.failures import WORKER_DIED, Failure
from perdure.testing import LocalEngine, ManualClock
from tests.core.ledger_rig import Rig

TWICE = RetryPolicy(initial_ms=1_000, max_attempts=2)


@activity.define(retry=TWICE, on_exhausted="fail")
def never() -> None:
    raise activity.Error("Busy", f"attempt {activity.attempt()}")


@workflow.define
async def tries(**options: Any) -> str:
    try:
        await workflow.execute_activity(never, activity_id="a", **options)
    except workflow.ActivityFailed as problem:
        return f"{problem.failure.type}: {problem.failure.message}"
    return "no failure"


def engine_of(**options: Any) -> LocalEngine:
    engine = LocalEngine(workflows=[tries], activities=[never], clock=ManualClock(0))
    engine.client.start_workflow(tries, workflow_id="w", **options)
    return engine


def test_the_failure_of_the_last_attempt_is_raised_where_the_activity_is_awaited():
    engine = engine_of()
    engine.run_until_idle()
    assert engine.client.result("w") == "Busy: attempt 2"
    assert engine.list_dead_letters() == []
    kinds = [event.kind for event in engine.history("w")]
    assert kinds.count("ActivityTaskFailed") == 1
    assert "ActivityDeadLettered" not in kinds


def test_the_call_may_ask_for_the_park_all_the_same():
    engine = engine_of(on_exhausted="park")
    engine.run_until_idle()
    assert [letter.activity_id for letter in engine.list_dead_letters()] == ["a"]


def test_a_timeout_of_the_last_attempt_fails_it_too():
    clock = ManualClock(0)
    engine = LocalEngine(workflows=[tries], activities=[never], clock=clock)
    engine.client.start_workflow(tries, workflow_id="w", start_to_close_ms=50)
    engine.run_workflow_tasks()
    for _ in range(2):
        assert engine.poll_activity_task() is not None
        clock.advance_ms(50)
        engine.describe_workflow("w")
        clock.advance_ms(2_000)
    engine.run_workflow_tasks()
    assert engine.client.result("w").startswith("StartToCloseTimeout: ")


def test_the_death_of_its_worker_at_the_last_attempt_fails_it_too():
    rig = Rig()
    rig.schedule(retry=TWICE, on_exhausted="fail")
    rig.grant()
    assert rig.end("worker_died") == c.Done(ActivityState.RETRYING.value)
    rig.now_ms = max(rig.now_ms, rig.activity().due_ms)
    rig.grant()
    assert rig.end("worker_died") == c.Done("Dropped")
    event = rig.records()[-1]
    assert (event.attempt, event.failure.type) == (2, WORKER_DIED)


def test_whoever_reports_the_last_failure_hears_that_it_is_over_however_often_it_asks():
    rig = Rig()
    rig.schedule(retry=RetryPolicy(max_attempts=1), on_exhausted="fail")
    report = c.FailActivity(rig.token(rig.grant()), Failure("Busy"))
    assert rig.ask(report) == rig.ask(report) == c.Done("Dropped")
