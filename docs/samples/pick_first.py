"""Who answers first wins: three carriers are asked, the slower ones are told to stop."""

import asyncio

from perdure import activity, workflow


@activity.define
def quote(carrier: str) -> dict[str, str | int]:
    return {"carrier": carrier, "cents": 100 * len(carrier)}


@workflow.define
async def pick_first(carriers: list[str]) -> dict[str, str | int]:
    asked = [workflow.start_activity(quote, one, activity_id=one) for one in carriers]
    done, late = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    for one in late:
        one.cancel()
    return done.pop().result()
