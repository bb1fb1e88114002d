"""One order, many parts: children that answer, one that fails, one that is left alone.

A parent waits for the suppliers of all its parts; the order stands if enough can deliver. What
tells the newsletter is started and outlives it.
"""

import asyncio

from perdure import workflow


@workflow.define
async def supplier(part: str, days: int) -> str:
    if not days:
        raise ValueError(f"{part} is not made any more")
    await workflow.sleep_ms(days * 86_400_000)
    return f"{part} in {days} days"


@workflow.define
async def newsletter(order: str) -> str:
    await workflow.sleep_ms(30 * 86_400_000)
    return f"thank you for {order}"


@workflow.define
async def order(parts: dict[str, int], patience_days: int = 10) -> dict[str, list[str]]:
    me = workflow.info().workflow_id
    await workflow.start_child(newsletter, me, workflow_id=f"{me}/news", parent_close="abandon")
    asked = {
        part: workflow.execute_child(supplier, part, days, workflow_id=f"{me}/{part}")
        for part, days in parts.items()
    }
    await asyncio.wait(asked.values(), timeout=patience_days * 86_400)
    found: dict[str, list[str]] = {"comes": [], "failed": [], "late": []}
    for part, child in asked.items():
        if not child.done():
            child.cancel()
            await asyncio.wait([child])  # Else it would be terminated, as the parent ends.
            found["late"].append(part)
        elif child.exception():
            found["failed"].append(part)
        else:
            found["comes"].append(await child)
    return found
