"""An object with an id: its state is a workflow's, its methods are updates, one after the other.

The id is the workflow id. Each call is answered once however often it is sent; calls of one object
take turns, objects don't wait for each other. It lives as long as it is used, run after run.
"""

import asyncio

from perdure import workflow


@workflow.define
async def counter(value: int = 0, calls_max: int = 1_000) -> None:
    turn = asyncio.Lock()
    calls = 0

    @workflow.update
    async def add(amount: int) -> dict[str, int]:
        nonlocal value, calls
        async with turn:
            calls += 1
            old = value
            value += amount
            return {"old": old, "new": value}

    @add.validator
    def check(amount: int) -> None:
        if value + amount < 0:
            raise ValueError("a counter is never below 0")

    @workflow.query
    def get() -> int:
        return value

    @workflow.signal
    def reset() -> None:
        nonlocal value
        value = 0

    await workflow.wait_condition(lambda: calls >= calls_max)
    await workflow.wait_condition(workflow.all_handlers_finished)
    workflow.continue_as_new(value, calls_max)
