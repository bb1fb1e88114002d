"""An order as it was deployed first: charge, wait, ship."""

import asyncio

from perdure import activity, workflow


@activity.define
def charge(order: str) -> str:
    return f"receipt of {order}"


@activity.define
def ship(order: str) -> str:
    return f"{order} is on its way"


@workflow.define
async def checkout(order: str) -> str:
    await workflow.execute_activity(charge, order, activity_id="charge")
    await asyncio.sleep(86_400)
    return await workflow.execute_activity(ship, order, activity_id="ship")
