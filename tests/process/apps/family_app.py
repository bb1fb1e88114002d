"""Parents with children, sums that continue as new, and work that is given up, for a real node."""

from __future__ import annotations

import asyncio
import threading

from perdure import activity, workflow


@activity.define
def work(name: str) -> str:
    return activity.idempotency_key()


@activity.define(cancellation="wait")
def listens() -> str:
    """Goes on until it is told that nobody wants it; it does not ask."""
    told = threading.Event()
    activity.on_cancel(lambda reason: told.set())
    told.wait()
    raise activity.Cancelled("told")


@workflow.define
async def child(name: str) -> str:
    return await workflow.execute_activity(work, name, activity_id="work")


@workflow.define
async def parent(children: int) -> list[str]:
    handles = [workflow.execute_child(child, str(number)) for number in range(children)]
    return await asyncio.gather(*handles)


@workflow.define
async def adds(total: int = 0) -> int:
    amount = await workflow.receive("add").get()
    if amount == 0:
        return total
    workflow.continue_as_new(total + amount)


@workflow.define
async def stops() -> str:
    try:
        await workflow.execute_activity(listens, activity_id="listens")
    except workflow.Cancelled:
        await workflow.execute_activity(work, "tidy", activity_id="tidy")
        raise
    return "never"


@workflow.define
async def tree(depth: int) -> None:
    """Waits for ever, in company."""
    if depth:
        await workflow.start_child(tree, depth - 1)
    await asyncio.sleep(100_000)
