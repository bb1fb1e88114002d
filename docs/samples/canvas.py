"""Chain, group and chord, the shapes of task queues: here they are plain Python.

A chain is one await behind the other, a group is gather, a chord is a group and then one more; and
a map in chunks is a loop. No results backend is needed to join them.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from perdure import activity, workflow


@activity.define
def add(a: int, b: int) -> int:
    return a + b


@activity.define
def double(a: int) -> int:
    return 2 * a


@activity.define
def total(numbers: list[int]) -> int:
    return sum(numbers)


async def chain(value: Any, *steps: Callable[..., Any]) -> Any:
    for step in steps:
        value = await workflow.execute_activity(step, value)
    return value


async def group(step: Callable[..., Any], values: list[Any], at_once: int) -> list[Any]:
    room = asyncio.Semaphore(at_once)

    async def one(value: Any) -> Any:
        async with room:
            return await workflow.execute_activity(step, value)

    return await asyncio.gather(*map(one, values))


@workflow.define
async def canvas(numbers: list[int], at_once: int = 3) -> dict[str, int]:
    first = await workflow.execute_activity(add, numbers[0], numbers[1])
    chained = await chain(first, double, double)
    doubled = await group(double, numbers, at_once)
    chord = await workflow.execute_activity(total, doubled)
    return {"chain": chained, "chord": chord}
