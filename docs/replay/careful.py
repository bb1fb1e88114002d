"""The same change with a patch: new orders are checked, open ones go on as they began."""

import asyncio

from perdure import activity, workflow


@activity.define
def charge(order: str) -> str:
    return f"receipt of {order}"


@activity.define
def ship(order: str) -> str:
    return f"{order} is on its way"


@activity.define
def check(order: str) -> None:
    if not order.startswith("o-"):
        raise activity.NonRetryable(f"{order} is no order")


@workflow.define
async def checkout(order: str) -> str:
    if workflow.patched("check"):
        await workflow.execute_activity(check, order, activity_id="check")
    await workflow.execute_activity(charge, order, activity_id="charge")
    await asyncio.sleep(86_400)
    return await workflow.execute_activity(ship, order, activity_id="ship")
