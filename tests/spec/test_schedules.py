"""Schedules through the engine: workflows start when they are due, and their ends come back."""

from __future__ import annotations

import asyncio

import pytest

from perdure import workflow
from perdure.errors import AlreadyExists, InvalidArgument, NotFound
from perdure.testing import LocalEngine, ManualClock

MINUTE_MS = 60_000


@workflow.define
async def report(region: str, *, fails: bool = False) -> str:
    await asyncio.sleep(90)
    if fails:
        raise ValueError("no data")
    return region


@pytest.fixture
def clock():
    return ManualClock(0)


@pytest.fixture
def engine(clock):
    return LocalEngine(workflows=[report], activities=[], clock=clock)


def advance(engine, clock, length_ms: int) -> None:
    for _ in range(length_ms // 30_000):
        clock.advance_ms(30_000)
        engine.run_workflow_tasks()


def test_a_schedule_starts_its_workflow_with_its_input_and_hears_how_it_ends(engine, clock):
    handle = engine.client.create_schedule("daily", report, "eu", every_ms=MINUTE_MS * 10)
    advance(engine, clock, 12 * MINUTE_MS)
    [run] = handle.describe().recent
    assert run.workflow_id == "daily-19700101T001000Z-1"
    assert run.status == "Completed"
    assert engine.client.result(run.workflow_id) == "eu"
    assert handle.describe().running == []


def test_what_it_started_can_be_found_by_the_schedule(engine, clock):
    engine.client.create_schedule("daily", report, "eu", every_ms=MINUTE_MS)
    advance(engine, clock, MINUTE_MS)
    described = engine.client.describe_workflow("daily-19700101T000100Z-1")
    assert described.status == "Running"


def test_a_restart_of_the_node_loses_no_run_and_doubles_none(engine, clock):
    engine.client.create_schedule(
        "daily", report, "eu", every_ms=MINUTE_MS, overlap="allow_all", catch_up=100
    )
    for _ in range(6):
        clock.advance_ms(MINUTE_MS)
        engine.restart()
        engine.run_workflow_tasks()
    ids = [one.workflow_id for one in engine.client.list_workflows().workflows]
    assert sorted(ids) == [f"daily-19700101T000{n}00Z-{n}" for n in range(1, 7)]


def test_of_what_fell_due_while_it_was_down_one_run_is_made_up_for(engine, clock):
    handle = engine.client.create_schedule("daily", report, "eu", every_ms=MINUTE_MS)
    clock.advance_ms(10 * MINUTE_MS + 30_000)
    engine.restart()
    engine.run_workflow_tasks()
    described = handle.describe()
    assert (described.started, described.missed) == (1, 9)
    assert described.next_ms == 11 * MINUTE_MS


def test_cancel_other_has_the_next_wait_until_the_one_before_has_ended_in_order(engine, clock):
    handle = engine.client.create_schedule(
        "daily", report, "eu", every_ms=MINUTE_MS, overlap="cancel_other"
    )
    advance(engine, clock, MINUTE_MS)
    clock.advance_ms(MINUTE_MS)
    engine.run_workflow_tasks()
    statuses = [one.status for one in handle.describe().recent]
    assert statuses == ["Cancelled", "Running"]


def test_terminate_other_ends_the_one_before_at_once(engine, clock):
    handle = engine.client.create_schedule(
        "daily", report, "eu", every_ms=MINUTE_MS, overlap="terminate_other"
    )
    advance(engine, clock, MINUTE_MS)
    clock.advance_ms(MINUTE_MS)
    engine.run_workflow_tasks()
    statuses = [one.status for one in handle.describe().recent]
    assert statuses == ["Terminated", "Running"]


def test_a_schedule_that_pauses_on_failure_says_which_run_failed(engine, clock):
    handle = engine.client.create_schedule(
        "daily", report, "eu", fails=True, every_ms=MINUTE_MS * 10, pause_on_failure=True
    )
    advance(engine, clock, 30 * MINUTE_MS)
    described = handle.describe()
    assert described.paused
    assert described.reason == "daily-19700101T001000Z-1 ended as Failed"
    assert described.started == 1
    handle.resume()
    advance(engine, clock, 10 * MINUTE_MS)
    assert handle.describe().started == 2


def test_a_run_fails_when_its_time_is_over(engine, clock):
    handle = engine.client.create_schedule(
        "daily", report, "eu", every_ms=MINUTE_MS * 10, timeout_ms=30_000
    )
    advance(engine, clock, 11 * MINUTE_MS)
    assert [one.status for one in handle.describe().recent] == ["Failed"]


def test_schedules_are_paused_triggered_backfilled_replaced_and_deleted(engine, clock):
    client = engine.client
    handle = client.create_schedule("daily", report, "eu", every_ms=MINUTE_MS, overlap="allow_all")
    handle.pause("holidays")
    advance(engine, clock, 3 * MINUTE_MS)
    assert handle.describe().started == 0
    assert client.list_schedules()[0].reason == "holidays"
    handle.trigger()
    client.backfill_schedule("daily", 1, 2 * MINUTE_MS)
    assert [one.why for one in handle.describe().recent] == ["trigger", "backfill", "backfill"]
    client.create_schedule("daily", report, "us", every_ms=2 * MINUTE_MS, replace=True)
    described = handle.describe()
    assert (described.paused, described.every_ms, described.started) == (True, 2 * MINUTE_MS, 3)
    handle.delete()
    with pytest.raises(NotFound):
        handle.describe()
    assert client.list_schedules() == []


def test_what_makes_no_schedule_is_refused_where_it_is_asked_for(engine):
    create = engine.client.create_schedule
    with pytest.raises(InvalidArgument, match=r"cron: in '61 \* \* \* \*', minute: 61"):
        create("daily", report, "eu", cron="61 * * * *")
    with pytest.raises(InvalidArgument, match="time_zone: 'Mars'"):
        create("daily", report, "eu", cron="1 * * * *", time_zone="Mars")
    with pytest.raises(InvalidArgument, match="end_ms: the schedule would never be due"):
        create("daily", report, "eu", every_ms=MINUTE_MS, end_ms=5)
    create("daily", report, "eu", cron="1 * * * *")
    with pytest.raises(AlreadyExists):
        create("daily", report, "eu", cron="1 * * * *")
