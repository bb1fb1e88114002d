"""Updates that come when a run has said that it goes on as new are the next run's."""

from __future__ import annotations

import asyncio

import pytest

from perdure import values, workflow
from perdure.core import commands as c
from perdure.core import records as r
from perdure.core.ids import execution_id
from perdure.errors import FailedPrecondition, UpdateFailed, UpdateRejected
from perdure.testing import LocalEngine
from tests.core.ledger_rig import Rig


@workflow.define
async def counter(value: int = 0, calls_max: int = 2) -> None:
    calls = 0
    stuck = False

    @workflow.update
    def add(amount: int) -> int:
        nonlocal value, calls
        calls += 1
        value += amount
        return value

    @add.validator
    def check(amount: int) -> None:
        if amount < 0:
            raise ValueError("never less")

    @workflow.update
    async def wait() -> None:
        nonlocal stuck
        stuck = True
        await asyncio.Event().wait()

    await workflow.wait_condition(lambda: stuck or calls >= calls_max)
    workflow.continue_as_new(value, calls_max)


def sent(engine: LocalEngine, *updates: tuple[str, str, bytes | None]) -> None:
    """Updates that all come before the workflow can do one of them."""
    for update_id, name, payload in updates:
        engine._core.ask(c.UpdateWorkflow("w", name, payload, update_id))
    engine.run_workflow_tasks()


def answer(engine: LocalEngine, update_id: str, name: str = "add", amount: int = 1):
    return engine.client.update_workflow("w", name, amount, request_id=update_id)


ONE, LESS = values.encode([1]), values.encode([-1])


def test_more_updates_than_a_run_takes_are_done_by_the_runs_after_it_each_once():
    engine = LocalEngine([counter])
    engine.client.start_workflow(counter, workflow_id="w")
    engine.run_workflow_tasks()
    sent(engine, *((f"u{number}", "add", ONE) for number in range(7)))
    engine.restart()
    assert [answer(engine, f"u{number}") for number in range(7)] == list(range(1, 8))
    assert engine.client.describe_workflow("w").run == 4
    with pytest.raises(FailedPrecondition):
        answer(engine, "u6", amount=2)  # The id is taken, in whichever run it came.


def test_the_next_run_looks_at_what_it_is_handed_as_at_any_update():
    engine = LocalEngine([counter])
    engine.client.start_workflow(counter, workflow_id="w")
    engine.run_workflow_tasks()
    ids = ("a", "b", "c")
    sent(engine, *((one, "add", ONE) for one in ids), ("less", "add", LESS), ("x", "no", None))
    assert answer(engine, "c") == 3
    with pytest.raises(UpdateRejected, match="never less"):
        answer(engine, "less", amount=-1)
    with pytest.raises(UpdateRejected, match="no update 'no'"):
        engine.client.update_workflow("w", "no", request_id="x")


def test_an_update_that_had_begun_is_not_done_again():
    engine = LocalEngine([counter])
    engine.client.start_workflow(counter, workflow_id="w")
    engine.run_workflow_tasks()
    sent(engine, ("stuck", "wait", None), ("after", "add", ONE))
    assert answer(engine, "after") == 1
    with pytest.raises(UpdateFailed, match="ended before it answered"):
        engine.client.update_workflow("w", "wait", request_id="stuck")


def test_a_run_hands_on_only_what_is_open_and_only_once():
    rig = Rig()
    rig.ask(rig.start())
    rig.ask(c.UpdateWorkflow("w", "add", ONE, "u"))
    one = ("u", "add", ONE)
    for wrong in ([("v", "add", ONE)], [one, one]):
        step = c.ContinueAsNew("T", "default", None, updates=tuple(wrong))
        refused = rig.ask(rig.step(step))
        assert "is not open" in refused.message
    assert rig.ask(rig.step(c.ContinueAsNew("T", "default", None, updates=(one,)))) == c.Done()
    second = rig.execution(execution_id("w", 2))
    assert list(second.more.updates) == ["u"]
    assert [type(it) for it in rig.records()][-1] is r.UpdateReceived
    assert rig.ask(c.UpdateWorkflow("w", "add", ONE, "u")) == c.Done()  # Sent again, at last heard.
    assert list(second.more.updates) == ["u"]
