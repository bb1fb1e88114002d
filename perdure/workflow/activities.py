"""Activities, from the side of the workflow that waits for them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

from perdure import activity
from perdure.errors import InvalidArgument
from perdure.policy import RetryPolicy
from perdure.wire_checks import check_id, check_name
from perdure.workflow.runtime import Runtime, runtime

Result = TypeVar("Result")


class ActivityHandle(asyncio.Future[Result]):
    """A scheduled activity: awaitable any number of times, and by any of asyncio's functions.

    Awaiting gives the result, or raises ActivityFailed, or Cancelled once it was cancelled: at
    once, or with the option cancellation="wait" when the attempt has ended.
    """

    def __init__(
        self,
        runtime: Runtime,
        activity_id: str,
        activity_type: str,
        *,
        loop: asyncio.AbstractEventLoop,
        rank: int,
        cancellation: str = "try",
    ) -> None:
        super().__init__(loop=loop)
        self.cancellation = cancellation
        self.cancel_requested = False
        self.activity_id = activity_id
        self.activity_type = activity_type
        self.finished: int | None = None  # Its place in the order of completion.
        self._runtime = runtime
        self._rank = rank

    # By creation and not by address: sets of handles have one order, in every replay.
    def __hash__(self) -> int:
        return self._rank

    def cancel(self, msg: Any | None = None) -> bool:
        """Give the activity up, as its option `cancellation` says.

        "try": its worker is told, its report is refused, awaiting raises at once. "wait": its
        worker is told, and awaiting raises when the attempt has ended, unless it ended well.
        "abandon": awaiting raises at once, and the activity goes on by itself.

        False if it was closed already.
        """
        if self.done():
            return False
        return super().cancel(msg) if self._runtime.cancel_activity(self) else True

    def give_up(self) -> None:
        """For the engine: have awaiting raise Cancelled now."""
        super().cancel()


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
    running = runtime("start_activity")
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
    return running.start_activity(target, args, kwargs, activity_id, options)


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
