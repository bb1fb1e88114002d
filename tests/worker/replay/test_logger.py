"""workflow.logger says each line once, whatever is replayed; handlers are known to be under way."""

from __future__ import annotations

import logging

import pytest

from perdure import activity, workflow
from perdure.errors import DeadlineExceeded
from perdure.testing import LocalEngine


@activity.define
def work() -> None:
    return None


@workflow.define
async def says() -> None:
    @workflow.query
    def state() -> str:
        workflow.logger.info("asked")
        return "fine"

    workflow.logger.info("100%% %s", "begun")
    await workflow.execute_activity(work)
    workflow.logger.info("100% done", extra={"more": 1})


@workflow.define
async def ends_when_told() -> list[str]:
    done: list[str] = []
    over = False

    @workflow.signal
    def end() -> None:
        nonlocal over
        over = True

    @workflow.signal
    async def note(what: str) -> None:
        await workflow.execute_activity(work)
        done.append(what)

    @workflow.update
    async def change(what: str) -> str:
        await workflow.execute_activity(work)
        done.append(what)
        return what

    await workflow.wait_condition(lambda: over)
    await workflow.wait_condition(workflow.all_handlers_finished)
    return done


def test_a_line_is_said_once_however_often_it_is_replayed(caplog):
    caplog.set_level(logging.INFO, "perdure.workflow")
    engine = LocalEngine([says], [work])
    engine.client.start_workflow(says, workflow_id="w%d")
    engine.run_workflow_tasks()
    engine.restart()
    assert engine.client.query_workflow("w%d", "state") == "fine"
    engine.run_until_idle()
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["w%d: 100% begun", "w%d: 100% done"]
    last = caplog.records[-1]
    assert (last.workflow_id, last.run, last.more) == ("w%d", 1, 1)
    assert last.funcName == "says"


def test_outside_of_a_workflow_it_is_a_logger_like_any_other(caplog):
    caplog.set_level(logging.INFO, "perdure.workflow")
    workflow.logger.info("100%")
    assert [record.getMessage() for record in caplog.records] == ["100%"]


def test_a_workflow_can_wait_for_the_handlers_that_are_under_way(caplog):
    engine = LocalEngine([ends_when_told])  # Its activity is done by hand.
    handle = engine.client.start_workflow(ends_when_told, workflow_id="w")
    engine.run_workflow_tasks()
    handle.signal("note", "a")
    with pytest.raises(DeadlineExceeded):
        engine.client.update_workflow("w", "change", "b", request_id="r")
    handle.signal("end")
    engine.run_workflow_tasks()
    engine.restart()
    assert handle.describe().status == "Running"
    while task := engine.poll_activity_task():
        engine.complete_activity_task(task.token, None)
    engine.run_until_idle()
    assert handle.result() == ["a", "b"]
    assert engine.client.update_workflow("w", "change", "b", request_id="r") == "b"
