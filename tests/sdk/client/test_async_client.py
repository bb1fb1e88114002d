"""AsyncClient: many calls at a time, calls that are cancelled, its end."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time

import pytest

from perdure import errors, wire
from perdure.async_client import AsyncClient
from perdure.handles import AsyncScheduleHandle, AsyncWorkflowHandle


def run(node, use, **options):
    async def main():
        async with AsyncClient(node.endpoint, **options) as client:
            return await use(client)

    return asyncio.run(main())


def pending(client):
    return client._client._link._open.pending


def late(op, args):
    """A node that answers nothing but Ping."""
    if op != "Ping":
        raise TimeoutError
    return {"op": op}


def servers():
    return [it for it in threading.enumerate() if it.name == "perdure-client"]


def test_calls_that_wait_keep_no_other_from_being_answered(node):
    node.handler = late

    async def use(client):
        waiting = [asyncio.create_task(client.result(f"w{n}")) for n in range(500)]
        assert (await client.ping()).op == "Ping"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    run(node, use)


def test_a_call_that_is_cancelled_leaves_nothing_behind_and_the_next_one_works(node):
    node.handler = late

    async def use(client):
        for method in (client.result, client.describe_workflow, client.history):
            task = asyncio.create_task(method("w"))
            while len(node.heard) == 0:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not pending(client)
            node.heard.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.result("w")
        assert not pending(client)
        assert (await client.ping()).op == "Ping"

    run(node, use)


def test_a_thousand_calls_at_once_take_one_thread(node):
    async def use(client):
        calls = [client.describe_workflow(f"w{n}") for n in range(1_000)]
        found = await asyncio.gather(*calls)
        assert [it.workflow_id for it in found] == [f"w{n}" for n in range(1_000)]
        assert len(servers()) == before + 1

    before = len(servers())
    run(node, use)


def test_starts_give_handles_that_are_awaited_too(node):
    async def use(client):
        handle = await client.start_workflow("T", workflow_id="w")
        assert isinstance(handle, AsyncWorkflowHandle)
        schedule = await client.create_schedule("s", "T", cron="0 * * * *")
        assert isinstance(schedule, AsyncScheduleHandle)
        await schedule.pause("why")
        await schedule.trigger("allow_all")
        await client.schedule_handle("s").backfill(1, 2)
        await schedule.delete()
        assert (await schedule.describe(3)).op == "DescribeSchedule"

    run(node, use)
    ops = [op for op, _ in node.heard]
    assert ops == [
        "StartWorkflow",
        "CreateSchedule",
        "PauseSchedule",
        "TriggerSchedule",
        "BackfillSchedule",
        "DeleteSchedule",
        "DescribeSchedule",
    ]
    assert node.heard[-1][1]["upcoming"] == 3


def test_an_update_that_is_asked_for_again_is_the_same_update(node):
    answers = iter([errors.DeadlineExceeded("no"), errors.DeadlineExceeded("no"), {"result": 7}])

    def handler(op, args):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    node.handler = handler

    async def use(client):
        assert await client.handle("w").update("pay", 1) == 7

    run(node, use)
    assert len({args["request_id"] for _, args in node.heard}) == 1
    assert len(node.heard) == 3


def test_a_history_of_many_pages_is_read_to_its_end(node):
    def handler(op, args):
        after = args.get("after", 0)
        more = after + 1 if after < 4 else None
        return {"events": [{"event_id": after + 1}], "next_after": more}

    node.handler = handler

    async def use(client):
        return [event.event_id for event in await client.history("w")]

    assert run(node, use) == [1, 2, 3, 4, 5]


def test_a_result_is_waited_for_as_long_as_was_said(node):
    def handler(op, args):
        raise errors.DeadlineExceeded("not yet")

    node.handler = handler

    async def use(client):
        with pytest.raises(errors.DeadlineExceeded, match="within 30 ms"):
            await client.result("w", timeout_ms=30)

    run(node, use)


def test_errors_are_those_of_the_client_and_a_node_that_is_not_there_is_named(node, path):
    def handler(op, args):
        raise errors.NotFound("there is no workflow 'w'")

    node.handler = handler

    async def use(client):
        with pytest.raises(errors.NotFound, match="'w'"):
            await client.describe_workflow("w")
        with pytest.raises(errors.InvalidArgument):
            await client.describe_workflow("")
        outcomes = await client.call_many([wire.DescribeWorkflow("a")] * 3)
        assert [type(it) for it in outcomes] == [errors.NotFound] * 3

    run(node, use)

    async def alone():
        async with AsyncClient(f"ipc://{path}/absent", timeout_ms=50) as client:
            with pytest.raises(errors.Unavailable, match="no node answers at"):
                await client.ping()

    asyncio.run(alone())


def test_closing_ends_the_calls_under_way(node):
    node.handler = late

    async def use(client):
        tasks = [asyncio.create_task(client.result("w")) for _ in range(10)]
        while len(node.heard) < 10:
            await asyncio.sleep(0)
        client.close()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, errors.Unavailable)
        with pytest.raises(errors.Unavailable, match="closed"):
            await client.ping()

    run(node, use)


def test_one_that_is_forgotten_takes_its_thread_along(node):
    async def use():
        await AsyncClient(node.endpoint).ping()

    before = set(servers())
    asyncio.run(use())
    gc.collect()
    deadline = time.monotonic() + 30
    for thread in set(servers()) - before:
        thread.join(max(0, deadline - time.monotonic()))
        assert not thread.is_alive()


def test_a_program_ends_though_a_call_is_not_answered(node):
    node.handler = late
    program = f"""
import asyncio
from perdure import AsyncClient

async def main():
    client = AsyncClient({node.endpoint!r})
    asyncio.create_task(client.result("w"))
    await client.ping()

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], timeout=20, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
