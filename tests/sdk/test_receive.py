"""workflow.receive with a type; what a query sees of its workflow's context."""

from __future__ import annotations

import contextvars
import dataclasses
import logging

from perdure import workflow
from perdure.testing import LocalEngine

tenant = contextvars.ContextVar("tenant", default="nobody")


@dataclasses.dataclass
class Payment:
    cents: int
    by: str = "card"


@workflow.define
async def paid() -> list[str]:
    box = workflow.receive("payment", Payment)
    found = [await box.get(), await box.get(timeout_ms=1_000)]
    try:
        await box.get(timeout_ms=1_000)
    except TimeoutError:
        return [f"{one.cents} by {one.by}" for one in found]
    return []


@workflow.define
async def of_tenant() -> None:
    tenant.set("ann")

    @workflow.query
    def who() -> str:
        seen = tenant.get()
        tenant.set("changed by a query")
        return seen

    await workflow.wait_condition(lambda: False)


def test_a_typed_box_converts_and_drops_what_does_not_fit(caplog):
    caplog.set_level(logging.ERROR, "perdure.workflow")
    engine = LocalEngine([paid])
    handle = engine.client.start_workflow(paid, workflow_id="w")
    engine.run_workflow_tasks()
    handle.signal("payment", "no payment")
    handle.signal("payment", {"cents": 5})
    handle.signal("payment", Payment(7, "cash"))
    handle.signal("payment", {"cents": "many"})
    engine.restart()
    engine.run_until_idle()
    assert handle.result() == ["5 by card", "7 by cash"]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert all(line.startswith("w: a signal 'payment' was dropped: ") for line in said)


def test_a_query_sees_the_context_in_which_it_was_defined_and_changes_it_for_nobody():
    engine = LocalEngine([of_tenant])
    handle = engine.client.start_workflow(of_tenant, workflow_id="w")
    engine.run_workflow_tasks()
    assert [handle.query("who"), handle.query("who"), tenant.get()] == ["ann", "ann", "nobody"]
