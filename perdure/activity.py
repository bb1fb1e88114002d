"""Activities: plain functions, synchronous or async, run again until one attempt succeeds.

`define` makes a function an activity; the other functions are for code that runs in one. A defined
function stays a function: it can be called directly, in a test for instance.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar, overload

import msgspec

from perdure import effects, values
from perdure.activity_options import FIELDS, Options
from perdure.errors import FailedPrecondition, InvalidArgument
from perdure.failures import Cancelled, CompleteLater, Error, NonRetryable, is_non_retryable
from perdure.policy import RetryPolicy
from perdure.progress import Progress
from perdure.wire_checks import check_name

__all__ = [
    "ActivityContext",
    "Cancelled",
    "CompleteLater",
    "Definition",
    "Error",
    "Info",
    "NonRetryable",
    "Options",
    "Progress",
    "attempt",
    "bound",
    "cancelled",
    "define",
    "definition_of",
    "fence",
    "heartbeat_details",
    "idempotency_key",
    "info",
    "inside",
    "is_non_retryable",
    "on_cancel",
    "progress",
    "record_heartbeat",
    "task_token",
]

ATTRIBUTE = "__perdure_activity__"

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Definition:
    """An activity as it was defined: its name, its function and the options of `define`."""

    name: str
    function: Callable[..., Any]
    options: Options
    is_async: bool


defined: list[Definition] = []
"""Every definition of this process, in order; perdure.registry takes an application's from it."""


@overload
def define(function: Function, /) -> Function: ...


@overload
def define(
    *,
    name: str | None = None,
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
) -> Callable[[Function], Function]: ...


def define(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any
) -> Any:
    """Make a function an activity: `@activity.define`, or with options `@activity.define(retry=…)`.

    `name` is its type, by default the function's name. The function itself is returned, unchanged.
    An option that can't be is refused here, not at its first use: InvalidArgument names the field.
    """
    unknown = options.keys() - set(FIELDS)
    if unknown:
        raise TypeError(f"activity.define has no option {sorted(unknown)[0]!r}")
    checked = Options(**options)
    if function is None:
        return functools.partial(_define, name=name, options=checked)
    return _define(function, name=name, options=checked)


def _define(function: Function, *, name: str | None, options: Options) -> Function:
    if isinstance(function, type) or not hasattr(function, "__dict__"):
        raise InvalidArgument(f"activity.define takes a function, not {function!r:.80}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(
            f"an activity returns its result once; {function!r:.80} is a generator"
        )
    name = getattr(function, "__name__", "") if name is None else name
    check_name("name", name)
    definition = Definition(
        name=name,
        function=function,
        options=options,
        is_async=inspect.iscoroutinefunction(function),
    )
    setattr(function, ATTRIBUTE, definition)
    defined.append(definition)
    return function


def definition_of(function: object) -> Definition:
    """The definition of a defined function; InvalidArgument for anything else."""
    definition = getattr(function, ATTRIBUTE, None)
    if isinstance(definition, Definition):
        return definition
    shown = getattr(function, "__qualname__", None) or repr(function)[:80]
    raise InvalidArgument(f"{shown} is no activity: decorate it with @activity.define")


# --- inside an activity ------------------------------------------------------


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """Who the running attempt is. `attempt` counts from 1; `fence` grows with every grant."""

    workflow_id: str
    workflow_type: str
    activity_id: str
    activity_type: str
    attempt: int
    generation: int
    fence: int
    idempotency_key: str


class ActivityContext:
    """What a worker knows of the attempt that it runs.

    `heartbeat` takes the newest details (a payload, or None for a mere sign of life) from any
    thread, and must not block. `details` is the payload that the attempt resumes from.
    """

    __slots__ = (
        "_cancelled",
        "_heartbeat",
        "_listeners",
        "cancel_reason",
        "details",
        "info",
        "token",
    )

    def __init__(
        self,
        *,
        info: Info,
        token: str,
        details: bytes | None,
        heartbeat: Callable[[bytes | None], None],
    ) -> None:
        self.info = info
        self.token = token
        self.details = details
        self.cancel_reason = ""
        self._heartbeat = heartbeat
        self._cancelled = False
        self._listeners: list[Callable[[str], None]] = []

    @property
    def is_cancelled(self) -> bool:
        """Whether the attempt no longer counts."""
        return self._cancelled

    def cancel(self, reason: str = "cancelled") -> None:
        """The attempt no longer counts: its code hears of it when it asks. From any thread."""
        if not self._cancelled:
            self.cancel_reason = reason
            self._cancelled = True
            self._tell()

    def on_cancel(self, listener: Callable[[str], None]) -> None:
        """Have `listener(reason)` called once, when it is cancelled; at once if it is already.

        It is called in whichever thread cancels, must not block, and must not raise.
        """
        self._listeners.append(listener)
        if self._cancelled:
            self._tell()

    def _tell(self) -> None:
        # Perhaps in two threads at once: each listener is taken off the list by one of them.
        while True:
            try:
                listener = self._listeners.pop()
            except IndexError:
                return
            listener(self.cancel_reason)

    def heartbeat(self, details: bytes | None) -> None:
        """Hand the newest details on; Cancelled if the attempt no longer counts."""
        if self._cancelled:
            raise Cancelled(f"this attempt no longer counts: {self.cancel_reason}")
        self._heartbeat(details)


_current: ContextVar[ActivityContext | None] = ContextVar("perdure.activity", default=None)


class _Bound:
    __slots__ = ("_context", "_reset")

    def __init__(self, context: ActivityContext) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._reset = _current.set(self._context)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._reset)


def bound(context: ActivityContext) -> contextlib.AbstractContextManager[None]:
    """Around the code of one attempt: this module speaks of `context` in it.

    So do tasks that the code starts and asyncio.to_thread. A thread that it starts itself needs
    `contextvars.copy_context().run`.
    """
    return _Bound(context)


def inside() -> bool:
    """Whether the code that asks is that of an attempt."""
    return _current.get() is not None


def _context(what: str) -> ActivityContext:
    context = _current.get()
    if context is None:
        raise FailedPrecondition(f"activity.{what}() can only be called inside a running activity")
    return context


def info() -> Info:
    """Who this attempt is: ids, types, attempt, generation, fence and key."""
    return _context("info").info


def idempotency_key() -> str:
    """The key of this activity's effect: the same on every attempt and after every redrive."""
    return _context("idempotency_key").info.idempotency_key


def attempt() -> int:
    """Which attempt this is, from 1."""
    return _context("attempt").info.attempt


def fence() -> int:
    """A number that grows with every grant of this activity, for sinks that can compare."""
    return _context("fence").info.fence


def task_token() -> str:
    """The token that names this attempt: whoever holds it may report for it."""
    return _context("task_token").token


def heartbeat_details(type: Any = Any) -> Any:
    """The last acknowledged heartbeat details of an earlier attempt as `type` has them, or None.

    BadValue, an InvalidArgument, if they do not fit.
    """
    details = _context("heartbeat_details").details
    return None if details is None else values.decode(details, type)


_NOTHING: Any = object()


def record_heartbeat(details: Any = _NOTHING) -> None:
    """Say that the attempt lives, and keep `details` (a checkpoint) for the next one.

    Never blocks, and may be called as often as the code likes. Without an argument the details
    stay. Raises Cancelled if the attempt is cancelled; InvalidArgument for details that can't be
    encoded or are too large.
    """
    context = _context("record_heartbeat")
    if details is _NOTHING:
        context.heartbeat(None)
    else:
        context.heartbeat(values.check_size(values.encode(details), "heartbeat details"))


def progress(
    done: float, total: float | None = None, note: str = "", *, details: Any = None
) -> None:
    """A heartbeat that says how far the attempt has come: `done` of `total`, where that is known.

    `describe` and the command line draw it. The next attempt finds it all with
    `heartbeat_details(activity.Progress)`; `details` is a checkpoint that rides along. Raises as
    record_heartbeat does; InvalidArgument naming the field for what is no count or no text.
    """
    record_heartbeat(Progress.of(done, total, note, details))


def cancelled() -> bool:
    """Whether this attempt is cancelled or no longer counts: its report would be refused."""
    return _context("cancelled").is_cancelled


def on_cancel(listener: Callable[[str], None]) -> None:
    """Have `listener(reason)` called once, when this attempt is cancelled or no longer counts.

    For code that waits for something else and can be woken. It is called in another thread, must
    not block and must not raise; at once, if the attempt is cancelled already.
    """
    _context("on_cancel").on_cancel(listener)


def _running() -> tuple[str, int] | None:
    context = _current.get()
    return None if context is None else (context.info.idempotency_key, context.info.attempt)


effects.current_activity = _running
