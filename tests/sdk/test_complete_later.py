"""Attempts that somebody else completes, under LocalEngine."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Failure, RetryPolicy, activity, workflow
from perdure.errors import FailedPrecondition
from perdure.testing import LocalEngine, ManualClock

tokens: list[str] = []


@activity.define(
    start_to_close_ms=10_000, retry=RetryPolicy(initial_ms=1_000, backoff=1.0, max_attempts=2)
)
def ask(how: str) -> bool:
    tokens.append(activity.task_token())
    if how == "return":
        return activity.CompleteLater()  # type: ignore[return-value]
    raise activity.CompleteLater


@workflow.define
async def asks(how: str, **options: Any) -> Any:
    try:
        return await workflow.execute_activity(ask, how, activity_id="ask", **options)
    except workflow.ActivityFailed as problem:
        return problem.failure.type


@pytest.fixture(autouse=True)
def no_tokens():
    tokens.clear()


def engine_of(*args: Any, **options: Any) -> tuple[LocalEngine, ManualClock]:
    clock = ManualClock(0)
    engine = LocalEngine(
        workflows=[asks], activities=[ask], clock=clock, jitter=lambda delay_ms, u: delay_ms
    )
    engine.client.start_workflow(asks, *(args or ("raise",)), workflow_id="w", **options)
    engine.run_until_idle()
    return engine, clock


@pytest.mark.parametrize("how", ["raise", "return"])
def test_whoever_has_the_token_completes_it_across_a_restart(how):
    engine, _ = engine_of(how)
    engine.restart()
    engine.run_until_idle()
    assert engine.describe_workflow("w").pending_activities[0].state == "Leased"
    engine.client.complete_activity_task(tokens[0], True)
    engine.run_until_idle()
    assert engine.client.result("w") is True
    assert len(tokens) == 1


def test_whoever_has_the_token_fails_it_and_the_next_attempt_has_another():
    engine, _ = engine_of()
    engine.client.fail_activity_task(tokens[0], Failure("Away", "nobody there"))
    engine.run_until_idle()
    first, second = tokens
    assert first != second
    with pytest.raises(FailedPrecondition):
        engine.client.complete_activity_task(first, False)
    engine.client.complete_activity_task(second, True)
    engine.run_until_idle()
    assert engine.client.result("w") is True


def test_it_ends_with_its_time_unless_heartbeats_keep_it():
    engine, clock = engine_of("raise", heartbeat_ms=4_000)
    clock.advance_ms(3_000)
    assert engine.client.record_heartbeat(tokens[0], "asked") == 7_000
    clock.advance_ms(3_999)
    held = engine.describe_workflow("w").pending_activities[0]
    assert (held.attempt, held.heartbeat_details) == (1, "asked")
    clock.advance_ms(1)
    held = engine.describe_workflow("w").pending_activities[0]
    assert (held.attempt, held.last_failure.type) == (2, "HeartbeatTimeout")
    with pytest.raises(FailedPrecondition):
        engine.client.record_heartbeat(tokens[0])
