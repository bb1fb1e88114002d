"""Time, chance and the workflow itself, the same in every replay."""

from __future__ import annotations

import asyncio
import random as _random
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from perdure.workflow.runtime import Info, runtime, seconds, within

Result = TypeVar("Result")


async def sleep_ms(duration_ms: int) -> None:
    """Wait that many milliseconds, durably. asyncio.sleep does the same in seconds."""
    delay = seconds("duration_ms", duration_ms)
    runtime("sleep_ms")
    await asyncio.sleep(delay)


async def wait_condition(predicate: Callable[[], Any], timeout_ms: int | None = None) -> None:
    """Wait until `predicate()` is true: it is looked at whenever something has happened.

    It may schedule nothing. TimeoutError after `timeout_ms` of durable time.
    """
    running = runtime("wait_condition")
    delay = None if timeout_ms is None else seconds("timeout_ms", timeout_ms)
    condition = running.condition(predicate)
    if condition.done() or delay is None:
        await condition
        return
    too_late = f"the condition did not come true within {timeout_ms} ms"
    await within(delay, condition, too_late)


def now_ms() -> int:
    """Milliseconds since the Unix epoch by history's clock: when the newest event happened."""
    return runtime("now_ms").now_ms


def random() -> _random.Random:
    """A generator that draws the same numbers in every replay, seeded by the workflow id."""
    return runtime("random").random


def uuid4() -> uuid.UUID:
    """A random UUID, the same in every replay. Who knows the workflow id can work it out."""
    return uuid.UUID(int=runtime("uuid4").random_ids.getrandbits(128), version=4)


def info() -> Info:
    """Who this workflow is, and how long its history has become."""
    return runtime("info").info


def patched(patch_id: str) -> bool:
    """Whether to run the new code that this id stands for, or what was there before it.

    True for workflows that come here for the first time, and for all that were told True once;
    False for those that had gone past with the code before. One run gets one answer, for good. When
    no workflow is open that began before the change, the call and the old code can be taken out.
    """
    return runtime("patched").notes.patched(patch_id)


def side_effect(function: Callable[[], Result]) -> Result:
    """What `function()` returns, kept: later replays are told it, and do not call the function.

    For what is quick and has no need of being done only once: it may be called again as long as
    its value has not been recorded. In there time, chance and files can be used. An exception that
    leaves it fails the workflow task, which is tried again. What does real work belongs into an
    activity.
    """
    result: Result = runtime("side_effect").notes.side_effect(function)
    return result


def set_search_attributes(attributes: Mapping[str, Any]) -> None:
    """Have this workflow found by these names and values; None takes one away, others stay.

    Values are texts, whole numbers, floats, booleans, or datetimes with a time zone, which are kept
    as instants (a text in UTC). InvalidArgument for others, and for more than 20 names or 8 KiB in
    all.
    """
    runtime("set_search_attributes").notes.set_search_attributes(attributes)


def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """End this run and begin the next of the same workflow, with these arguments and no history.

    It does not return. What is open of this run is dropped; signals that nobody has taken are the
    next run's. To be called by the workflow function itself and not by a task that it started
    (FailedPrecondition).
    """
    runtime("continue_as_new").continue_as_new(args, kwargs)
