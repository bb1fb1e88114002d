"""One surface: the client, its twin for asyncio, the engine's client, and handles."""

from __future__ import annotations

import asyncio
import inspect
import itertools

import pytest

from perdure import wire, wire_schedules
from perdure.async_client import AsyncClient
from perdure.client import Client
from perdure.errors import InvalidArgument
from perdure.handles import AsyncScheduleHandle, AsyncWorkflowHandle, WorkflowHandle
from perdure.local_client import LocalClient
from perdure.operations import Operations
from perdure.schedule_operations import ScheduleHandle
from perdure.testing import LocalEngine

newest = itertools.count(100, 10)


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}


def test_every_method_of_the_client_is_one_of_the_asynchronous_client():
    assert public(AsyncClient) == public(Client)


def test_every_operation_is_one_of_the_engines_client():
    assert public(Operations) <= public(LocalClient)


def shape(function):
    parameters = inspect.signature(function).parameters.values()
    return [(it.name, it.kind, it.default) for it in parameters]


TWINS = [(AsyncWorkflowHandle, WorkflowHandle), (AsyncScheduleHandle, ScheduleHandle)]


@pytest.mark.parametrize(("twin", "handle"), TWINS, ids=lambda kind: kind.__name__)
def test_handles_have_the_same_methods_with_the_same_parameters_each_awaited(twin, handle):
    assert public(twin) == public(handle)
    for name in public(twin):
        assert inspect.iscoroutinefunction(getattr(twin, name))
        assert shape(getattr(twin, name)) == shape(getattr(handle, name))


ASK_NOTHING = {"events", "handle", "schedule_handle", "close"}


@pytest.mark.parametrize("name", sorted(public(AsyncClient) - ASK_NOTHING))
def test_what_asks_a_node_is_awaited(name):
    assert inspect.iscoroutinefunction(getattr(AsyncClient, name))


def test_every_operation_of_the_protocol_is_answered_by_an_engine():
    from perdure import local_client

    of_a_node_only = {"Ping", "RestartWorker", "WorkerEndpoint", "WorkerTypes"}
    answered = {
        kind.__name__ for kind in local_client._OPERATIONS
    } | wire_schedules.OPERATIONS.keys()
    assert answered >= wire.OPERATIONS.keys() - of_a_node_only


def test_the_asynchronous_client_sends_what_the_client_sends(node):
    async def use() -> None:
        async with AsyncClient(node.endpoint) as client:
            handle = await client.start_workflow("T", 1, workflow_id="w", start_delay_ms=5)
            await handle.signal("add", 1)
            await handle.cancel("why")
            await handle.terminate()
            await client.describe_workflow("w", run=2)

    asyncio.run(use())
    heard = dict(node.heard)
    assert heard["StartWorkflow"]["options"] == {"start_delay_ms": 5}
    assert (heard["SignalWorkflow"]["name"], heard["SignalWorkflow"]["input"]) == ("add", [1])
    assert heard["CancelWorkflow"]["reason"] == "why"
    assert "reason" not in heard["TerminateWorkflow"]
    assert heard["DescribeWorkflow"] == {"workflow_id": "w", "run": 2}


def paged(op, args):
    """A node with three events, one a page."""
    assert op == "ReadEvents"
    at = int(args.get("after") or 0)
    events = [{"id": str(at + 1), "kind": "WorkflowStarted"}] if at < 3 else []
    return {"events": events, "next": str(min(at + 1, 3))}


def test_events_are_read_page_by_page_and_end_where_nobody_follows(node, client):
    node.handler = paged
    assert [it.id for it in client.events(follow=False)] == ["1", "2", "3"]
    assert [it.id for it in client.events("1", follow=False)] == ["2", "3"]


def test_who_follows_waits_at_the_node_and_asks_on_from_the_last(node, client):
    node.handler = paged
    feed = client.events()
    assert [next(feed).id for _ in range(3)] == ["1", "2", "3"]
    assert [args.get("after") for _, args in node.heard] == [None, "1", "2"]
    assert all(args["wait_ms"] > 0 for _, args in node.heard)


def from_now(op, args):
    """A node whose newest commit is another one each time that it is asked for it."""
    at = next(newest) if args["after"] == "now" else int(args["after"]) + 1
    events = [] if args["after"] == "now" else [{"id": str(at)}]
    return {"events": events, "next": str(at)}


@pytest.mark.parametrize("is_async", [False, True])
def test_now_is_said_once_and_without_waiting_so_that_a_restart_can_not_move_it(
    node, client, is_async
):
    node.handler = from_now

    async def use() -> str:
        async with AsyncClient(node.endpoint) as twin:
            async for event in twin.events("now"):
                return event.id
        raise AssertionError

    found = asyncio.run(use()) if is_async else next(client.events("now")).id
    first, second = (args for _, args in node.heard)
    assert not first.get("wait_ms")
    assert (second["after"], found) == (str(int(found) - 1), found)
    assert second["wait_ms"] > 0


def test_the_asynchronous_feed_is_the_same(node):
    node.handler = paged

    async def use() -> list[str]:
        async with AsyncClient(node.endpoint) as client:
            return [it.id async for it in client.events(follow=False)]

    assert asyncio.run(use()) == ["1", "2", "3"]


def test_a_handle_speaks_of_its_run(node, client):
    handle = client.handle("w", 2)
    handle.describe()
    assert node.heard[-1] == ("DescribeWorkflow", {"workflow_id": "w", "run": 2})
    assert repr(handle) == "WorkflowHandle('w')"


def test_an_update_is_asked_for_again_with_the_same_request_id(node, client):
    from perdure.errors import DeadlineExceeded

    answers = iter([DeadlineExceeded("no"), {"result": 7}])

    def handler(op, args):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    node.handler = handler
    assert client.update_workflow("w", "pay", 1) == 7
    first, second = (args for _, args in node.heard)
    assert first["request_id"] == second["request_id"]


def test_an_engine_has_nothing_to_wait_for():
    with pytest.raises(InvalidArgument, match="wait"):
        LocalEngine().client.events(follow=True)
