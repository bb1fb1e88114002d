"""What a workflow's code knows of itself, what it can be found by, and what it is told is late."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from perdure import activity, errors, workflow
from perdure.cli.filters import attributes_of
from perdure.policy import RetryPolicy
from perdure.testing import LocalEngine, ManualClock

NOON = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
SAME = datetime.datetime(2026, 7, 1, 10, tzinfo=datetime.UTC)
WEST = datetime.timezone(datetime.timedelta(hours=-2))
KEPT = "2026-07-01T10:00:00.000Z"


@workflow.define
async def child() -> Any:
    return workflow.info().parent


@workflow.define
async def found() -> list[Any]:
    seen = [dict(workflow.info().search_attributes)]
    workflow.set_search_attributes({"due": NOON, "tier": None, "n": 2})
    seen.append(workflow.info().search_attributes)
    if workflow.info().run == 1:
        workflow.continue_as_new()
    return [*seen, workflow.info().parent, await workflow.execute_child(child)]


@workflow.define
async def late(how: str) -> None:
    if how == "condition":
        await workflow.wait_condition(lambda: False, timeout_ms=50)
    elif how == "box":
        await workflow.receive("go").get(timeout_ms=50)
    elif how == "asyncio":
        async with asyncio.timeout(0.05):
            await asyncio.sleep(9)
    else:
        await asyncio.wait_for(own(), 9)


async def own() -> None:
    raise TimeoutError("of the code itself")


@activity.define(retry=RetryPolicy(max_attempts=RetryPolicy.UNLIMITED))
def never() -> None:
    raise ValueError("no")


@workflow.define
async def tries() -> None:
    await workflow.execute_activity(never)


@pytest.fixture
def engine() -> LocalEngine:
    return LocalEngine([child, found, late, tries], [never], ManualClock(0))


def test_a_workflow_knows_its_parent_and_what_it_is_found_by_in_each_run(engine):
    handle = engine.client.start_workflow(
        found, workflow_id="f", search_attributes={"due": SAME, "tier": "gold"}
    )
    engine.run_until_idle()
    after = {"due": KEPT, "n": 2}
    assert handle.result() == [after, after, None, {"workflow_id": "f", "run": 2}]


@pytest.mark.parametrize("at", [NOON, SAME, KEPT])
def test_an_instant_is_found_in_whatever_zone_it_is_said(engine, at):
    engine.client.start_workflow(found, workflow_id="f", search_attributes={"due": NOON})
    engine.client.start_workflow(found, workflow_id="other", search_attributes={"due": "noon"})
    [it] = engine.client.list_workflows(attributes={"due": at})
    assert it.workflow_id == "f"
    assert attributes_of(["due=2026-07-01T12:00:00+02:00"]) == {"due": KEPT}
    assert attributes_of(["due=2026-07-01", "at=12:00"]) == {"due": "2026-07-01", "at": "12:00"}


def test_an_instant_without_a_time_zone_is_refused_by_name(engine):
    at = NOON.replace(tzinfo=None)
    with pytest.raises(errors.InvalidArgument, match="search_attributes must have a time zone"):
        engine.client.start_workflow(found, workflow_id="f", search_attributes={"due": at})


def test_the_last_instant_there_is_can_be_kept(engine):
    at = datetime.datetime.max.replace(tzinfo=NOON.tzinfo)
    handle = engine.client.start_workflow(found, workflow_id="f", search_attributes={"due": at})
    assert handle.describe().search_attributes["due"] == "9999-12-31T21:59:59.999Z"
    with pytest.raises(errors.InvalidArgument, match="out of range"):
        engine.client.list_workflows(attributes={"due": at.replace(tzinfo=WEST)})


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("condition", "the condition did not come true within 50 ms"),
        ("box", "no signal 'go' within 50 ms"),
        ("asyncio", "timed out, at "),
        ("own", "of the code itself"),
    ],
)
def test_what_is_late_is_said(engine, how, said):
    handle = engine.client.start_workflow(late, how, workflow_id="l")
    engine.run_until_idle()
    with pytest.raises(errors.WorkflowFailed, match=said) as caught:
        handle.result()
    assert caught.value.failure.type == "TimeoutError"
    if how == "asyncio":
        assert "test_what_a_workflow_is_told.py:" in caught.value.failure.message


def test_an_activity_may_be_tried_for_ever(engine):
    engine.client.start_workflow(tries, workflow_id="t")
    engine.run_workflow_tasks()
    for _ in range(20):
        engine.run_activities()
        engine.clock.advance_ms(60_000)
    found = engine.client.describe_workflow("t").pending_activities[0]
    assert (found.state, found.attempt > 10) == ("Retrying", True)
    assert engine.client.list_dead_letters() == []
