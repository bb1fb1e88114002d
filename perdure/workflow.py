"""Workflows: async functions that survive the death of any process, by being replayed.

A workflow function runs on a deterministic event loop. asyncio.gather, sleep, wait, wait_for,
timeout, TaskGroup and as_completed work there and are durable; time, chance, threads, files and
sockets are not deterministic and raise NonDeterminism: use what this module has, or an activity.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import random as _random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, overload

import msgspec

from perdure import activity
from perdure.errors import FailedPrecondition, InvalidArgument, PerdureError
from perdure.failures import Failure
from perdure.policy import RetryPolicy, timedelta_hint
from perdure.wire_checks import check_id, check_name

__all__ = [
    "ActivityFailed",
    "ActivityHandle",
    "Cancelled",
    "Definition",
    "Info",
    "NonDeterminism",
    "define",
    "definition_of",
    "execute_activity",
    "info",
    "now_ms",
    "random",
    "sleep_ms",
    "start_activity",
    "uuid4",
]

ATTRIBUTE = "__perdure_workflow__"

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")

# The class itself and no subclass: asyncio.timeout and TaskGroup know their own cancellation by it.
Cancelled = asyncio.CancelledError


class ActivityFailed(PerdureError):
    """An activity that the workflow waited for has failed for good: `failure` says how.

    `activity_id` and `activity_type` say which. Never raised while retries go on, nor for an
    activity that waits as a dead letter.
    """

    code = "ACTIVITY_FAILED"

    # Defaults, so that the exception can be rebuilt from its message alone when it is unpickled.
    def __init__(
        self,
        message: str = "",
        failure: Failure | None = None,
        *,
        activity_id: str = "",
        activity_type: str = "",
    ) -> None:
        super().__init__(message)
        self.failure = Failure("Unknown", message) if failure is None else failure
        self.activity_id = activity_id
        self.activity_type = activity_type


class NonDeterminism(PerdureError):
    """The workflow's code did what a replay could not repeat, or a replay went another way.

    It fails no workflow: the workflow task is given out again, for code that agrees with history.
    `expected` is the recorded event, `got` the command of the code, `where` its file and line; all
    are empty where the code was stopped before anything was recorded.
    """

    code = "FAILED_PRECONDITION"

    def __init__(
        self, message: str = "", *, expected: str = "", got: str = "", where: str = ""
    ) -> None:
        super().__init__(message)
        self.expected = expected
        self.got = got
        self.where = where


# --- definitions -------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Definition:
    """A workflow as it was defined: its name and its function."""

    name: str
    function: Callable[..., Any]


defined: list[Definition] = []
"""Every definition of this process, in order; perdure.registry takes an application's from it."""


@overload
def define(function: Function, /) -> Function: ...


@overload
def define(*, name: str | None = None) -> Callable[[Function], Function]: ...


def define(function: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Make an async function a workflow: `@workflow.define` or `@workflow.define(name=…)`.

    `name` is its type, by default the function's name. The function itself is returned, unchanged.
    InvalidArgument if it is not async, or the name can't be one.
    """
    if function is None:
        return functools.partial(_define, name=name)
    return _define(function, name=name)


def _define(function: Function, *, name: str | None) -> Function:
    if not inspect.iscoroutinefunction(function):
        raise InvalidArgument(_not_async(function))
    name = getattr(function, "__name__", "") if name is None else name
    check_name("name", name)
    definition = Definition(name=name, function=function)
    setattr(function, ATTRIBUTE, definition)
    defined.append(definition)
    return function


def _not_async(function: object) -> str:
    name = getattr(function, "__name__", None)
    if name is None or name == "<lambda>" or isinstance(function, type):
        return f"a workflow must be an async function, not {name or repr(function)[:80]}"
    if inspect.isasyncgenfunction(function):
        return f"a workflow returns its result once; {name} yields"
    return f"workflow functions must be async: `async def {name}`"


def definition_of(function: object) -> Definition:
    """The definition of a defined function; InvalidArgument for anything else."""
    definition = getattr(function, ATTRIBUTE, None)
    if isinstance(definition, Definition):
        return definition
    shown = getattr(function, "__qualname__", None) or repr(function)[:80]
    raise InvalidArgument(f"{shown} is no workflow: decorate it with @workflow.define")


# --- inside a workflow -------------------------------------------------------


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """Who this workflow is, and when history took its start."""

    workflow_id: str
    workflow_type: str
    task_queue: str
    started_ms: int


class Runtime(Protocol):
    """What a workflow function runs on; perdure.worker.replay has it."""

    @property
    def info(self) -> Info:
        """Who the workflow is."""

    @property
    def now_ms(self) -> int:
        """The time of the event that is being worked off."""

    @property
    def random(self) -> _random.Random:
        """The generator of workflow.random()."""

    @property
    def random_ids(self) -> _random.Random:
        """The generator behind workflow.uuid4()."""

    def start_activity(
        self,
        target: activity.Definition | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        activity_id: str | None,
        options: activity.Options | None,
    ) -> ActivityHandle[Any]:
        """Schedule an activity."""

    def cancel_activity(self, handle: ActivityHandle[Any]) -> None:
        """The workflow no longer waits for this activity."""


class ActivityHandle(asyncio.Future[Result]):
    """A scheduled activity: awaitable any number of times, and by any of asyncio's functions.

    Awaiting gives the result, or raises ActivityFailed, or Cancelled once it was cancelled.
    """

    def __init__(
        self,
        runtime: Runtime,
        activity_id: str,
        activity_type: str,
        *,
        loop: asyncio.AbstractEventLoop,
        rank: int,
    ) -> None:
        super().__init__(loop=loop)
        self.activity_id = activity_id
        self.activity_type = activity_type
        self.finished: int | None = None  # Its place in the order of completion.
        self._runtime = runtime
        self._rank = rank

    # By creation and not by address: sets of handles have one order, in every replay.
    def __hash__(self) -> int:
        return self._rank

    def cancel(self, msg: Any | None = None) -> bool:
        """End the activity: its worker is told, its report is refused, awaiting raises at once.

        False if it was closed already.
        """
        if self.done():
            return False
        self._runtime.cancel_activity(self)
        return super().cancel(msg)


def _runtime(what: str) -> Runtime:
    runtime: Runtime | None = getattr(asyncio._get_running_loop(), "perdure_runtime", None)
    if runtime is not None:
        return runtime
    raise FailedPrecondition(f"workflow.{what}() can only be called inside a running workflow")


@overload
def start_activity(
    function: Callable[..., Awaitable[Result]],
    /,
    *args: Any,
    activity_id: str | None = None,
    retry: RetryPolicy | None = None,
    start_to_close_ms: int | None = None,
    heartbeat_ms: int | None = None,
    schedule_to_start_ms: int | None = None,
    schedule_to_close_ms: int | None = None,
    task_queue: str | None = None,
    priority: int | None = None,
    on_exhausted: str | None = None,
    cancellation: str | None = None,
    isolation: str | None = None,
    grace_ms: int | None = None,
    **kwargs: Any,
) -> ActivityHandle[Result]: ...


@overload
def start_activity(
    function: Callable[..., Result],
    /,
    *args: Any,
    activity_id: str | None = None,
    retry: RetryPolicy | None = None,
    start_to_close_ms: int | None = None,
    heartbeat_ms: int | None = None,
    schedule_to_start_ms: int | None = None,
    schedule_to_close_ms: int | None = None,
    task_queue: str | None = None,
    priority: int | None = None,
    on_exhausted: str | None = None,
    cancellation: str | None = None,
    isolation: str | None = None,
    grace_ms: int | None = None,
    **kwargs: Any,
) -> ActivityHandle[Result]: ...


@overload
def start_activity(
    function: str,
    /,
    *args: Any,
    activity_id: str | None = None,
    retry: RetryPolicy | None = None,
    start_to_close_ms: int | None = None,
    heartbeat_ms: int | None = None,
    schedule_to_start_ms: int | None = None,
    schedule_to_close_ms: int | None = None,
    task_queue: str | None = None,
    priority: int | None = None,
    on_exhausted: str | None = None,
    cancellation: str | None = None,
    isolation: str | None = None,
    grace_ms: int | None = None,
    **kwargs: Any,
) -> ActivityHandle[Any]: ...


def start_activity(
    function: Callable[..., Any] | str,
    /,
    *args: Any,
    activity_id: str | None = None,
    retry: RetryPolicy | None = None,
    start_to_close_ms: int | None = None,
    heartbeat_ms: int | None = None,
    schedule_to_start_ms: int | None = None,
    schedule_to_close_ms: int | None = None,
    task_queue: str | None = None,
    priority: int | None = None,
    on_exhausted: str | None = None,
    cancellation: str | None = None,
    isolation: str | None = None,
    grace_ms: int | None = None,
    **kwargs: Any,
) -> ActivityHandle[Any]:
    """Schedule an activity, a defined function or a name, now; the handle is awaited when it suits.

    Options given here win over those of define, field by field. Their names are taken: an argument
    of the activity that is called like one of them has to go by position. The default id is "@1",
    "@2", … in the order of scheduling, the default queue the workflow's own.

    A result is converted by the return annotation of a function; by name it is plain data.
    InvalidArgument at once for an option or id that can't be, for a second use of an id in one run
    (it would share the idempotency key), and for arguments that can't be encoded.
    """
    runtime = _runtime("start_activity")
    target = _target(function, activity_id)
    said = (
        retry,
        start_to_close_ms,
        heartbeat_ms,
        schedule_to_start_ms,
        schedule_to_close_ms,
        task_queue,
        priority,
        on_exhausted,
        cancellation,
        isolation,
        grace_ms,
    )
    options = None
    if said != _NOTHING_SAID:
        options = activity.Options(
            retry=retry,
            start_to_close_ms=start_to_close_ms,
            heartbeat_ms=heartbeat_ms,
            schedule_to_start_ms=schedule_to_start_ms,
            schedule_to_close_ms=schedule_to_close_ms,
            task_queue=task_queue,
            priority=priority,
            on_exhausted=on_exhausted,
            cancellation=cancellation,
            isolation=isolation,
            grace_ms=grace_ms,
        )
    return runtime.start_activity(target, args, kwargs, activity_id, options)


def _target(
    function: Callable[..., Any] | str, activity_id: str | None
) -> activity.Definition | str:
    """What is to be scheduled, and a check of the id that is asked for."""
    if activity_id is not None:
        check_id("activity_id", activity_id)
        if activity_id[0] == "@":
            raise InvalidArgument(
                f'activity_id {activity_id!r}: ids that begin with "@" are given by the engine',
                field="activity_id",
            )
    if not isinstance(function, str):
        return activity.definition_of(function)
    check_name("activity", function)
    return function


_NOTHING_SAID = (None,) * len(dataclasses.fields(activity.Options))

execute_activity = start_activity
"""The same under the name that reads well where it is awaited: `await execute_activity(…)`.

It schedules when it is called, so that several in a row run at the same time until awaited.
"""


async def sleep_ms(duration_ms: int) -> None:
    """Wait that many milliseconds, durably. asyncio.sleep does the same in seconds."""
    if isinstance(duration_ms, bool) or not isinstance(duration_ms, (int, float)):
        raise InvalidArgument(
            f"duration_ms must be a number of milliseconds, not {duration_ms!r:.80}"
            f"{timedelta_hint(duration_ms)}",
            field="duration_ms",
        )
    _runtime("sleep_ms")
    await asyncio.sleep(duration_ms / 1000)


def now_ms() -> int:
    """Milliseconds since the Unix epoch by history's clock: when the newest event happened."""
    return _runtime("now_ms").now_ms


def random() -> _random.Random:
    """A generator that draws the same numbers in every replay, seeded by the workflow id."""
    return _runtime("random").random


def uuid4() -> uuid.UUID:
    """A random UUID, the same in every replay. Who knows the workflow id can work it out."""
    return uuid.UUID(int=_runtime("uuid4").random_ids.getrandbits(128), version=4)


def info() -> Info:
    """Who this workflow is: id, type, queue and start."""
    return _runtime("info").info
