"""Signals, queries and updates, from the side of the workflow that takes them."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from perdure import values
from perdure.errors import InvalidArgument
from perdure.wire_checks import check_name
from perdure.workflow.runtime import runtime, seconds, within

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def signal(function: Function, /) -> Function: ...


@overload
def signal(*, name: str | None = None) -> Callable[[Function], Function]: ...


def signal(function: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Have a function defined in the workflow take the signals of its name, in their order.

    `@workflow.signal` or `@workflow.signal(name=…)`; a plain function or an async one, which then
    runs as a task of its own. Signals that came before go to it first. Its arguments are bound as a
    workflow's; a signal that does not fit is dropped: logged, and named by describe. An exception
    that leaves it ends the workflow Failed.
    """
    if function is None:
        return functools.partial(_signal, name=name)
    return _signal(function, name=name)


def _signal(function: Function, *, name: str | None) -> Function:
    runtime("signal").messages.handle_signal(_name_of(function, name), function)
    return function


@overload
def query(function: Function, /) -> Function: ...


@overload
def query(*, name: str | None = None) -> Callable[[Function], Function]: ...


def query(function: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Have a plain function defined in the workflow answer the queries of its name.

    `@workflow.query` or `@workflow.query(name=…)`. It may look at everything and schedule nothing,
    and should change nothing. It is called in a copy of the workflow that nobody waits for, also
    after the workflow's end.
    """
    if function is None:
        return functools.partial(_query, name=name)
    return _query(function, name=name)


def _query(function: Function, *, name: str | None) -> Function:
    found = _name_of(function, name)
    if inspect.iscoroutinefunction(function):
        raise InvalidArgument(f"a query answers at once: {found} must not be async")
    runtime("query").messages.handle_query(found, function)
    return function


class Update:
    """A function of the workflow that takes updates; `validator` gives it one that may refuse."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.check: Callable[..., Any] | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the function itself."""
        return self.function(*args, **kwargs)

    def validator(self, function: Function) -> Function:
        """Have `function` look at an update's arguments first: if it raises, the update is
        rejected, and nothing of it happens.

        It may schedule nothing.
        """
        if inspect.iscoroutinefunction(function):
            raise InvalidArgument("a validator decides at once: it must not be async")
        self.check = function
        return function


@overload
def update(function: Callable[..., Any], /) -> Update: ...


@overload
def update(*, name: str | None = None) -> Callable[[Callable[..., Any]], Update]: ...


def update(function: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Have a function defined in the workflow do the updates of its name, and answer them.

    `@workflow.update` or `@workflow.update(name=…)`; each runs as a task of its own and may wait
    for activities. What it returns is the answer; an exception that leaves it fails the update, not
    the workflow. `@handler.validator` adds a check. Updates of a name that the workflow has not
    (yet) are rejected: define handlers before the first await.
    """
    if function is None:
        return functools.partial(_update, name=name)
    return _update(function, name=name)


def _update(function: Callable[..., Any], *, name: str | None) -> Update:
    made = Update(function)
    runtime("update").messages.handle_update(_name_of(function, name), made)
    return made


def _name_of(function: Callable[..., Any], name: str | None) -> str:
    found = getattr(function, "__name__", "") if name is None else name
    check_name("name", found)
    return found


class Box:
    """The signals of one name, taken one by one in their order."""

    def __init__(
        self,
        name: str,
        queue: asyncio.Queue[tuple[int, bytes | None]],
        type: Any = Any,
        dropped: Callable[[str, str], None] = lambda name, why: None,
    ) -> None:
        self.name = name
        self._dropped = dropped
        self._queue = queue
        self._type = type

    def __len__(self) -> int:
        """How many wait."""
        return self._queue.qsize()

    async def get(self, timeout_ms: int | None = None) -> Any:
        """The next signal's argument, waited for. TimeoutError after `timeout_ms`.

        Plain data, or what `receive` was told: the argument where there is one, a list of several,
        an object of those that were named, None where there is none.
        """
        delay = None if timeout_ms is None else seconds("timeout_ms", timeout_ms)
        if delay is None or (self._type is Any and not self._queue.empty()):
            return await self._next()
        return await within(delay, self._next(), f"no signal {self.name!r} within {timeout_ms} ms")

    async def _next(self) -> Any:
        while True:
            value = _argument(await self._queue.get())
            if self._type is Any:
                return value
            try:
                return values.decode(values.encode(value), self._type)
            except InvalidArgument as problem:  # No client can break a workflow.
                self._dropped(self.name, problem.message)

    def __aiter__(self) -> Box:
        return self

    async def __anext__(self) -> Any:
        return await self.get()


def _argument(taken: tuple[int, bytes | None]) -> Any:
    value = values.to_builtins(taken[1])
    if isinstance(value, list) and len(value) < 2:
        return value[0] if value else None
    return value


def receive(name: str, type: Any = Any) -> Box:
    """The signals of that name, for `await box.get()` and `async for`; those that came before too.

    `type`: what their argument is converted to; one that does not fit is dropped: logged, and named
    by describe. A name has one box, however often it is asked for, and then no handler
    (InvalidArgument).
    """
    check_name("name", name)
    messages = runtime("receive").messages
    return Box(name, messages.box(name), type, messages.dropped)


def all_handlers_finished() -> bool:
    """Whether no handler of a signal or update is under way.

    Before a workflow returns or goes on as new, so that none is cut off in the middle:
    `await workflow.wait_condition(workflow.all_handlers_finished)`.
    """
    return runtime("all_handlers_finished").messages.all_finished()
