"""A workflow is forgotten when its time is over, and its id is not."""

from __future__ import annotations

import pytest

from perdure import workflow
from perdure.errors import AlreadyExists, FailedPrecondition, NotFound
from perdure.testing import LocalEngine, ManualClock

KEEP_MS = 7 * 86_400_000


@workflow.define(name="echo")
async def echo(what: str) -> str:
    return what


@pytest.fixture
def engine() -> LocalEngine:
    found = LocalEngine([echo], [], ManualClock(1_000), retention_ms=KEEP_MS)
    found.client.start_workflow("echo", "hello", workflow_id="w", request_id="r")
    found.run_until_idle()
    return found


def test_until_then_everything_is_there(engine):
    engine.clock.advance_ms(KEEP_MS - 1)
    assert engine.client.result("w") == "hello"
    assert len(engine.history("w")) == 2


def test_after_it_every_question_is_answered_that_it_was_removed(engine):
    engine.clock.advance_ms(KEEP_MS)
    for ask in (engine.describe_workflow, engine.history, engine.client.result):
        with pytest.raises(NotFound, match="'w' has ended, and its history was removed"):
            ask("w")
    assert engine.client.list_workflows().workflows == []


def test_its_id_stays_taken_over_a_restart_too(engine):
    engine.clock.advance_ms(KEEP_MS)
    for _ in range(2):
        with pytest.raises(AlreadyExists, match="closed and removed by retention"):
            engine.client.start_workflow("echo", "hello", workflow_id="w", request_id="other")
        engine.restart()


def test_the_same_request_is_answered_as_the_first_time(engine):
    engine.clock.advance_ms(KEEP_MS)
    handle = engine.client.start_workflow("echo", "hello", workflow_id="w", request_id="r")
    assert handle.workflow_id == "w"
    engine.run_until_idle()
    with pytest.raises(NotFound):
        handle.result()
    with pytest.raises(FailedPrecondition, match="other arguments"):
        engine.client.start_workflow("echo", "another", workflow_id="w", request_id="r")


def test_an_engine_that_is_told_no_time_forgets_nothing():
    engine = LocalEngine([echo], [], ManualClock(0))
    engine.client.start_workflow("echo", "hello", workflow_id="w")
    engine.run_until_idle()
    engine.clock.advance_ms(100 * KEEP_MS)
    engine.client.start_workflow("echo", "hello", workflow_id="v")
    engine.run_until_idle()
    assert engine.client.result("w") == "hello"
