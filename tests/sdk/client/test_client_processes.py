from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
import warnings
from typing import Any

import pytest

from perdure import errors
from perdure.async_client import AsyncClient
from perdure.client import Client


def _ping_into(client: Client, pipe: Any) -> None:
    pipe.send(client.ping().op)


def test_after_a_fork_the_child_has_a_connection_of_its_own(node, client):
    client.ping()
    ours, theirs = multiprocessing.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(
            target=_ping_into, args=(client, theirs)
        )
        child.start()
    assert ours.recv() == "Ping"
    child.join()
    assert child.exitcode == 0
    assert [client.ping().op for _ in range(100)] == ["Ping"] * 100


@pytest.mark.parametrize("end", ["pass", "raise SystemExit(0)", "os.kill(os.getpid(), 15)"])
def test_a_process_with_unsent_requests_ends_at_once(path, end):
    program = f"""
import os, threading
from perdure import wire
from perdure.client import Client
client = Client("ipc://{path}/absent", timeout_ms=60_000)
calls = [wire.Ping()] * 10_000
threading.Thread(target=client.call_many, args=(calls,), daemon=True).start()
while not client._link._open.pending:
    pass
{end}
"""
    # Less than the time that its calls have.
    subprocess.run([sys.executable, "-c", program], timeout=30, check=False)


def test_an_async_client_has_the_same_methods(node):
    async def use() -> None:
        async with AsyncClient(node.endpoint) as client:
            handle = await client.start_workflow("T", 1, workflow_id="w")
            assert await handle.result() == "w"
            assert (await client.ping()).op == "Ping"
            results = await asyncio.gather(*(client.result(f"w{n}") for n in range(100)))
            assert results == [f"w{n}" for n in range(100)]

    asyncio.run(use())


def test_an_async_client_belongs_to_one_event_loop(node):
    client = AsyncClient(node.endpoint)

    async def ping() -> None:
        await client.ping()

    asyncio.run(ping())
    with pytest.raises(errors.FailedPrecondition, match="event loop"):
        asyncio.run(ping())
    client.close()
