"""A signal or an update that starts the workflow where there is none, end to end."""

from __future__ import annotations

import pytest

from perdure import errors, workflow
from perdure.testing import LocalEngine, ManualClock


@workflow.define
async def order(start: int = 0) -> int:
    count = start

    @workflow.signal
    def add(n: int = 1) -> None:
        nonlocal count
        count += n

    @workflow.update
    def set_to(n: int) -> int:
        nonlocal count
        before, count = count, n
        return before

    await workflow.wait_condition(lambda: count >= 10)
    return count


@workflow.define
async def forever() -> None:
    await workflow.wait_condition(lambda: False)


@workflow.define
async def drains() -> list[str]:
    """Takes what is there, and waits for no more."""
    box, items = workflow.receive("item"), []

    @workflow.query(name="items")
    def shown() -> list[str]:
        return items

    while len(box):
        items.append(await box.get())
    return items


@pytest.fixture
def engine() -> LocalEngine:
    return LocalEngine([order, forever], clock=ManualClock(0))


@pytest.fixture
def client(engine):
    return engine.client


def test_a_signal_starts_the_workflow_where_there_is_none_and_reaches_it_where_there_is(
    engine, client
):
    for n in (1, 9):
        handle = client.signal_with_start(
            order, 0, workflow_id="o", signal="add", signal_args=[n], request_id=f"r{n}"
        )
        client.signal_with_start(
            order, 0, workflow_id="o", signal="add", signal_args=[n], request_id=f"r{n}"
        )
    engine.run_until_idle()
    assert handle.result() == 10
    assert [event.kind for event in handle.history()][:2] == ["WorkflowStarted", "SignalReceived"]
    # What was accepted before is so still; anything new comes too late, and starts no other.
    client.signal_with_start(
        order, 0, workflow_id="o", signal="add", signal_args=[9], request_id="r9"
    )
    with pytest.raises(errors.FailedPrecondition, match="Completed"):
        client.signal_with_start(order, 0, workflow_id="o", signal="add")


def test_the_options_of_a_start_come_with_the_signal(engine, client):
    client.signal_with_start(
        order,
        workflow_id="o",
        signal="add",
        start=9,
        start_delay_ms=5_000,
        search_attributes={"shop": "north"},
    )
    found = client.describe_workflow("o")
    assert (found.input["start"], found.search_attributes["shop"]) == (9, "north")
    engine.run_until_idle(skip_time=False)
    assert client.describe_workflow("o").status == "Running"
    engine.run_until_idle()
    assert client.result("o") == 10


@pytest.mark.parametrize("restarts", [False, True])
def test_code_that_waits_for_nothing_has_the_signal_that_it_was_started_with(restarts):
    engine = LocalEngine([drains])
    handle = engine.client.signal_with_start(
        drains, workflow_id="d", signal="item", signal_args=["lamp"]
    )
    engine.run_workflow_tasks()
    if restarts:
        engine.restart()
    assert handle.query("items") == ["lamp"]
    assert handle.result() == ["lamp"]


def test_an_id_of_another_type_is_neither_signalled_nor_started(client):
    client.start_workflow(forever, workflow_id="o")
    with pytest.raises(errors.AlreadyExists, match="forever"):
        client.signal_with_start(order, workflow_id="o", signal="add")
    with pytest.raises(errors.InvalidArgument, match="signal_args must be a list"):
        client.signal_with_start(order, workflow_id="o", signal="add", signal_args="lamp")
    with pytest.raises(errors.AlreadyExists, match="forever"):
        client.update_with_start(order, workflow_id="o", update="set_to", update_args=[1])
    assert len(client.history("o")) == 1


def test_an_update_starts_the_workflow_where_there_is_none(client):
    ask = {"workflow_id": "o", "update": "set_to"}
    assert client.update_with_start(order, 3, **ask, update_args=[5]) == 3
    assert client.update_with_start(order, 3, **ask, update_args=[7]) == 5
    again = {**ask, "update_args": [9], "request_id": "u"}
    assert [client.update_with_start(order, 3, **again) for _ in range(2)] == [7, 7]
