"""AsyncClient: the Client's operations for asyncio, each awaited.

None of them is written a second time. A method of Client is run with a script in place of the
client: what it asks and the script has no answer to yet, ends the run and is asked over the wire;
then the method is run again, with that answer. So no thread waits for anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from perdure import wire
from perdure.answers import Answer
from perdure.client import TIMEOUT_MS, WINDOW, Client, decode
from perdure.errors import FailedPrecondition, PerdureError, Unavailable
from perdure.handles import AsyncScheduleHandle, AsyncWorkflowHandle, Result, WorkflowHandle
from perdure.interacting import EVENTS_WAIT_MS
from perdure.link import Link
from perdure.operations import Operations
from perdure.outstanding import Round
from perdure.request_ids import new_request_id
from perdure.schedule_operations import ScheduleHandle
from perdure.wire import AnswerBody


class AsyncClient:
    """Client for asyncio: the same methods, each awaited, as many at a time as you like.

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
        self.timeout_ms = timeout_ms
        self._client = Client(endpoint, timeout_ms=timeout_ms, data_dir=data_dir)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._served: Link | None = None

    if TYPE_CHECKING:

        @overload
        async def start_workflow(
            self, workflow: Callable[..., Awaitable[Result]], *args: Any, **kwargs: Any
        ) -> AsyncWorkflowHandle[Result]: ...

        @overload
        async def start_workflow(
            self, workflow: str | Callable[..., Any], *args: Any, **kwargs: Any
        ) -> AsyncWorkflowHandle[Any]: ...

        async def start_workflow(
            self, workflow: str | Callable[..., Any], *args: Any, **kwargs: Any
        ) -> AsyncWorkflowHandle[Any]:
            """See Client.start_workflow."""
            ...

        async def create_schedule(
            self, schedule_id: str, workflow: str | Callable[..., Any], *args: Any, **kwargs: Any
        ) -> AsyncScheduleHandle:
            """See Client.create_schedule."""
            ...

        def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]: ...

    def handle(self, workflow_id: str, run: int | None = None) -> AsyncWorkflowHandle[Any]:
        """See Client.handle. Not awaited: it asks nothing."""
        return AsyncWorkflowHandle(self, workflow_id, run)

    def schedule_handle(self, schedule_id: str) -> AsyncScheduleHandle:
        """See Client.schedule_handle. Not awaited: it asks nothing."""
        return AsyncScheduleHandle(self, schedule_id)

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
        if after == "now":
            after = (await self.read_events(after)).next
        while True:
            page = await self.read_events(
                after, kinds=kinds, workflow_id=workflow_id, wait_ms=wait_ms
            )
            for event in page.events:
                yield event
            if page.next == after and not follow:
                return
            after = page.next

    async def call_many(
        self, calls: Sequence[wire.Args], timeout_ms: int | None = None
    ) -> list[Any | PerdureError]:
        """See Client.call_many."""
        results: list[Any | PerdureError] = []
        for start in range(0, len(calls), WINDOW):
            window = calls[start : start + WINDOW]
            results += await self._window(window, timeout_ms or self.timeout_ms)
        return results

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # The thread that serves the link would keep it for ever.
        if getattr(self, "_served", None) is not None:
            self.close()

    def close(self) -> None:
        """Let go of the socket; calls under way raise Unavailable. Idempotent."""
        self._client.close()

    # --- within ------------------------------------------------------------------
    async def _run(self, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        script = _Script()
        while True:
            script.rewind()
            try:
                return self._twin_of(method(script, *args, **kwargs))
            except _Unanswered as question:
                wait_ms = self.timeout_ms + question.wait_ms
                [outcome] = await self._window([question.args_], wait_ms)
                script.answers.append(outcome)

    def _twin_of(self, made: Any) -> Any:
        """A handle as one of this client's."""
        if isinstance(made, WorkflowHandle):
            return AsyncWorkflowHandle(self, made.workflow_id, made.run)
        if isinstance(made, ScheduleHandle):
            return AsyncScheduleHandle(self, made.schedule_id)
        return made

    async def _window(
        self, calls: Sequence[wire.Args], timeout_ms: int
    ) -> list[Any | PerdureError]:
        """Carry these out together, again where the outcome is unknown, until the time is up."""
        link = self._link()
        deadline = time.monotonic() + timeout_ms / 1_000
        round_ = Round(calls, random.random)
        while True:
            answers = await self._exchange(link, round_.requests(link.next_id), deadline)
            pause_s = round_.take(
                answers, lambda: self._client._nothing_came(link, timeout_ms), decode
            )
            if pause_s is None or time.monotonic() + pause_s >= deadline:
                return round_.outcomes
            await asyncio.sleep(pause_s)

    async def _exchange(
        self, link: Link, requests: Sequence[tuple[int, bytes]], deadline: float
    ) -> list[AnswerBody | None]:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        def told() -> None:
            # Where the loop has ended meanwhile, nobody waits there any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish)

        asked = link.ask(requests, told)
        timer = loop.call_later(max(0.0, deadline - time.monotonic()), finish)
        try:
            await done
        finally:
            timer.cancel()
            link.forget(asked)
        if link.is_closed and asked.remaining:
            raise Unavailable("the client was closed during the call")
        return asked.answers()

    def _link(self) -> Link:
        """The link, with a thread that serves it. FailedPrecondition in another event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise FailedPrecondition("this AsyncClient is in use in another event loop")
        link = self._client._own_link()
        if self._served is not link:
            self._served = link
            threading.Thread(target=link.serve, name="perdure-client", daemon=True).start()
        return link


class _Unanswered(BaseException):
    """A method asks what the script has no answer to. No Exception: no method may handle it."""

    def __init__(self, args: wire.Args, wait_ms: int) -> None:
        super().__init__(args, wait_ms)
        self.args_ = args
        self.wait_ms = wait_ms


class _Script(Operations):
    """What a method has been answered so far, from the first question on, and what the clock said:
    with these it does the same again.
    """

    def __init__(self) -> None:
        self.answers: list[Any | PerdureError] = []
        self._clock: list[int] = []
        self._asked = self._looked = 0

    def rewind(self) -> None:
        """The method begins again."""
        self._asked = self._looked = 0

    def _call(self, args: wire.Args, wait_ms: int = 0) -> Any:
        if self._asked == len(self.answers):
            raise _Unanswered(args, wait_ms)
        answer = self.answers[self._asked]
        self._asked += 1
        if isinstance(answer, PerdureError):
            raise answer
        return answer

    def _clock_ms(self) -> int:
        if self._looked == len(self._clock):
            self._clock.append(time.monotonic_ns() // 1_000_000)
        self._looked += 1
        return self._clock[self._looked - 1]


def _twin(name: str, of: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    takes_request_id = "request_id" in inspect.signature(of).parameters

    @functools.wraps(of)
    async def method(self: AsyncClient, *args: Any, **kwargs: Any) -> Any:
        if takes_request_id and kwargs.get("request_id") is None:
            # Chosen here: run again, the method must not choose another one.
            kwargs["request_id"] = new_request_id()
        return await self._run(of, args, kwargs)

    method.__qualname__ = f"AsyncClient.{name}"
    return method


def _add_the_rest() -> None:
    """Every public method of Client that has no twin of its own here gets one."""
    for name, of in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_") and name not in vars(AsyncClient):
            setattr(AsyncClient, name, _twin(name, of))


_add_the_rest()
