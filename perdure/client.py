"""Client: what a program asks of a node, over the public protocol."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import msgspec

from perdure import wire
from perdure.answers import Answer
from perdure.errors import FailedPrecondition, PerdureError, Unavailable
from perdure.link import Link
from perdure.operations import Operations, WorkflowHandle
from perdure.outstanding import Round

__all__ = ["AsyncClient", "Client", "WorkflowHandle"]

TIMEOUT_MS = 5_000
WINDOW = 2_000
ASYNC_CALLS_MAX = 64

P = ParamSpec("P")
R = TypeVar("R")

_decode = msgspec.msgpack.Decoder().decode


class Client(Operations):
    """A connection to a node, made at the first call.

    Where no `endpoint` is given: PERDURE_ENDPOINT, else the node of `data_dir`, found again when it
    restarts. A call raises Unavailable after `timeout_ms` without an answer (a call that waits for
    something: `timeout_ms` more than its wait). Threads may share a client; after a fork the child
    gets a connection of its own. `close()` or a with block lets go of the socket.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        data_dir: str | Path = ".perdure",
    ) -> None:
        self.timeout_ms = timeout_ms
        self._given = endpoint or os.environ.get("PERDURE_ENDPOINT") or None
        # Absolute: a program may change its working directory.
        self._node_file = Path(data_dir).absolute() / "node.json"
        self._link = Link(self._resolve)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the socket; calls under way raise Unavailable. Idempotent."""
        self._link.close()

    def ping(self) -> Answer:
        """The node's version, node and now_ms. Unavailable if no node answers."""
        return Answer(self._call(wire.Ping()))

    def worker_endpoint(self) -> str:
        """Where workers of this node connect."""
        endpoint: str = self._call(wire.WorkerEndpoint())["endpoint"]
        return endpoint

    def call_many(
        self, calls: Sequence[wire.Args], timeout_ms: int | None = None
    ) -> list[Any | PerdureError]:
        """The `ok` (plain data) or the error of each call, in order, 2 000 under way at a time.

        For programs that start or watch thousands at once. `timeout_ms` is for each 2 000.
        """
        results: list[Any | PerdureError] = []
        for start in range(0, len(calls), WINDOW):
            results += self._window(calls[start : start + WINDOW], timeout_ms or self.timeout_ms)
        return results

    # --- within ------------------------------------------------------------------
    def _call(self, args: wire.Args, wait_ms: int = 0) -> Any:
        [outcome] = self._window([args], self.timeout_ms + wait_ms)
        if isinstance(outcome, PerdureError):
            raise outcome
        return outcome

    def _clock_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def _window(self, calls: Sequence[wire.Args], timeout_ms: int) -> list[Any | PerdureError]:
        """Carry these out together, again where the outcome is unknown, until the time is up."""
        link = self._own_link()
        deadline = time.monotonic() + timeout_ms / 1000
        round_ = Round(calls, random.random)
        while True:
            answers = link.exchange(round_.requests(link.next_id), deadline)
            pause_s = round_.take(answers, lambda: self._nothing_came(link, timeout_ms), _decode)
            if pause_s is None or time.monotonic() + pause_s >= deadline:
                return round_.outcomes
            time.sleep(pause_s)

    def _nothing_came(self, link: Link, timeout_ms: int) -> PerdureError:
        where = link.endpoint or self._given or f"any endpoint: there is no {self._node_file}"
        if link.connected:
            return Unavailable(
                f"the node at {where} did not answer within {timeout_ms} ms; whether it carried "
                "the request out is not known"
            )
        return Unavailable(f"no node answers at {where} (waited {timeout_ms} ms)")

    def _own_link(self) -> Link:
        """The link of this process: a forked child must not touch its parent's."""
        link = self._link
        if link.pid != os.getpid():
            link.abandon()
            link = self._link = Link(self._resolve)
        return link

    def _resolve(self) -> str | None:
        """The endpoint to connect to now, or None where no node is known."""
        if self._given is not None:
            return self._given
        try:
            node = msgspec.json.decode(self._node_file.read_bytes())
            return str(node["endpoint"])
        except (OSError, msgspec.DecodeError, LookupError, TypeError):
            return None  # No node, or one that is just starting: asked again.


class AsyncClient:
    """Client for asyncio: the same methods, each awaited; at most 64 calls at a time.

    It belongs to the event loop that first used it; FailedPrecondition in another. A call that is
    cancelled is no longer waited for; whether it takes effect is not known.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        data_dir: str | Path = ".perdure",
    ) -> None:
        self._client = Client(endpoint, timeout_ms=timeout_ms, data_dir=data_dir)
        self._threads = ThreadPoolExecutor(ASYNC_CALLS_MAX, thread_name_prefix="perdure-client")
        self._loop: asyncio.AbstractEventLoop | None = None

        call = self._awaited
        self.ping = call(self._client.ping)
        self.result = call(self._client.result)
        self.describe_workflow = call(self._client.describe_workflow)
        self.history = call(self._client.history)
        self.list_workflows = call(self._client.list_workflows)
        self.list_dead_letters = call(self._client.list_dead_letters)
        self.redrive_dead_letter = call(self._client.redrive_dead_letter)
        self.fail_dead_letter = call(self._client.fail_dead_letter)
        self.complete_dead_letter = call(self._client.complete_dead_letter)
        self.poll_activity_task = call(self._client.poll_activity_task)
        self.complete_activity_task = call(self._client.complete_activity_task)
        self.fail_activity_task = call(self._client.fail_activity_task)
        self.record_heartbeat = call(self._client.record_heartbeat)

    async def start_workflow(
        self,
        workflow: str | Callable[..., Any],
        *args: Any,
        workflow_id: str,
        request_id: str | None = None,
        task_queue: str = "default",
        **kwargs: Any,
    ) -> AsyncWorkflowHandle:
        """See Client.start_workflow."""
        start = self._awaited(self._client.start_workflow)
        await start(
            workflow,
            *args,
            workflow_id=workflow_id,
            request_id=request_id,
            task_queue=task_queue,
            **kwargs,
        )
        return AsyncWorkflowHandle(self, workflow_id)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the socket; calls under way raise Unavailable. Idempotent."""
        self._client.close()
        self._threads.shutdown(wait=False)

    def _awaited(self, method: Callable[P, R]) -> Callable[P, asyncio.Future[R]]:
        def call(*args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
            loop = asyncio.get_running_loop()
            if self._loop is None:
                self._loop = loop
            elif self._loop is not loop:
                raise FailedPrecondition("this AsyncClient is in use in another event loop")
            return loop.run_in_executor(self._threads, lambda: method(*args, **kwargs))

        return call


class AsyncWorkflowHandle:
    """One workflow, by its id."""

    __slots__ = ("_client", "workflow_id")

    def __init__(self, client: AsyncClient, workflow_id: str) -> None:
        self._client = client
        self.workflow_id = workflow_id

    async def result(self, timeout_ms: int | None = None) -> Any:
        """See Client.result."""
        return await self._client.result(self.workflow_id, timeout_ms=timeout_ms)

    async def describe(self) -> Answer:
        """See Client.describe_workflow."""
        return await self._client.describe_workflow(self.workflow_id)

    async def history(self) -> list[Answer]:
        """See Client.history."""
        return await self._client.history(self.workflow_id)
