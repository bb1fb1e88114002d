"""Workflows for tests of the wire: one that answers, one that fails, one that waits for a hand."""

from __future__ import annotations

from typing import Any

from perdure import RetryPolicy, activity, workflow


@activity.define(retry=RetryPolicy(initial_ms=1, max_attempts=2), task_queue="hand")
def by_hand(value: Any) -> Any:
    """No worker serves its queue: whoever polls for it does it."""
    raise AssertionError("done by hand only")


@activity.define
def twice(value: Any) -> Any:
    return [value, value]


@workflow.define
async def echo(value: Any = None) -> Any:
    return value


@workflow.define
async def double(value: Any) -> Any:
    return await workflow.execute_activity(twice, value, activity_id="a")


@workflow.define
async def hand(value: Any) -> Any:
    return await workflow.execute_activity(by_hand, value, activity_id="a")


@workflow.define
async def fails() -> None:
    raise ValueError("on purpose")
