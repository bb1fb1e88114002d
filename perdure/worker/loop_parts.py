"""What the deterministic loop is made of: tasks, futures and handles with an order of their own."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

CLOSE_TRIES_MAX = 100

Result = TypeVar("Result")
_log = logging.getLogger("perdure.workflow")


class LoopTask(asyncio.Task[Result]):
    """A task with a place in the order of creation, and later one in that of completion."""

    __slots__ = ("_rank", "finished")

    def __init__(
        self,
        coro: Coroutine[Any, Any, Result],
        *,
        loop: asyncio.AbstractEventLoop,
        name: str,
        context: contextvars.Context | None,
        rank: int,
    ) -> None:
        self._rank = rank
        self.finished: int | None = None
        super().__init__(coro, loop=loop, name=name, context=context)
        # Its loop holds it to its end: it goes only with the whole workflow, which is no fault.
        self._log_destroy_pending = False

    def __hash__(self) -> int:
        return self._rank


class LoopFuture(asyncio.Future[Any]):
    """A future with a place in the order of creation."""

    __slots__ = ("_rank",)

    def __init__(self, *, loop: asyncio.AbstractEventLoop, rank: int) -> None:
        self._rank = rank
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._rank


class LoopHandle(asyncio.Handle):
    """As asyncio's, without its debugging."""

    __slots__ = ()
    _callback: Callable[..., Any]
    _context: contextvars.Context

    def __init__(
        self,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class LoopTimer(asyncio.TimerHandle):
    """A durable timer, or with the id 0 a callback that is due at once."""

    __slots__ = ("timer_id",)
    _callback: Callable[..., Any]
    _context: contextvars.Context
    _scheduled: bool
    timer_id: int


async def awaited(future: asyncio.Future[Result]) -> Result:
    """What `future` gives, as a coroutine."""
    return await future


def end(task: LoopTask[Any]) -> None:
    """Close the task's coroutine, however it clings to life."""
    coroutine: Any = task.get_coro()
    for _ in range(CLOSE_TRIES_MAX):
        if getattr(coroutine, "cr_frame", None) is None:
            return
        try:
            coroutine.close()
        except BaseException as problem:  # noqa: BLE001 - what its `finally` does no longer counts
            _log.debug("a workflow let go of raised %r", problem)
