"""AsyncClient: the Client's operations for asyncio, each awaited."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.answers import Answer
from perdure.client import TIMEOUT_MS, Client
from perdure.errors import FailedPrecondition
from perdure.handles import AsyncWorkflowHandle
from perdure.interacting import EVENTS_WAIT_MS

ASYNC_CALLS_MAX = 64


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

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]: ...

    async def start_workflow(
        self, workflow: str | Callable[..., Any], *args: Any, **kwargs: Any
    ) -> AsyncWorkflowHandle:
        """See Client.start_workflow."""
        started = await self._awaited(self._client.start_workflow, workflow, *args, **kwargs)
        return AsyncWorkflowHandle(self, started.workflow_id, started.run)

    def handle(self, workflow_id: str, run: int | None = None) -> AsyncWorkflowHandle:
        """See Client.handle. Not awaited: it asks nothing."""
        return AsyncWorkflowHandle(self, workflow_id, run)

    async def events(
        self,
        after: str | None = None,
        kinds: Sequence[str] | None = None,
        workflow_id: str | None = None,
        *,
        follow: bool = True,
    ) -> AsyncIterator[Answer]:
        """See Client.events; for `async for`."""
        wait_ms = EVENTS_WAIT_MS if follow else 0
        while True:
            page = await self.read_events(
                after, kinds=kinds, workflow_id=workflow_id, wait_ms=wait_ms
            )
            for event in page.events:
                yield event
            if page.next == after and not follow:
                return
            after = page.next

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the socket; calls under way raise Unavailable. Idempotent."""
        self._client.close()
        self._threads.shutdown(wait=False)

    def _awaited(
        self, method: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise FailedPrecondition("this AsyncClient is in use in another event loop")
        return loop.run_in_executor(self._threads, functools.partial(method, *args, **kwargs))


def _twin(name: str, of: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(of)
    async def method(self: AsyncClient, *args: Any, **kwargs: Any) -> Any:
        return await self._awaited(getattr(self._client, name), *args, **kwargs)

    method.__qualname__ = f"AsyncClient.{name}"
    return method


def _add_the_rest() -> None:
    """Every public method of Client that has no twin of its own here gets one."""
    for name, of in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_") and name not in vars(AsyncClient):
            setattr(AsyncClient, name, _twin(name, of))


_add_the_rest()
