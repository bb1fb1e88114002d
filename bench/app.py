"""The workflows that the bench runs."""

from __future__ import annotations

from perdure import activity, workflow

HOUR_MS = 3_600_000


@activity.define
def nothing(number: int) -> int:
    """Does nothing."""
    return number


@workflow.define(name="BenchOne")
async def one(number: int) -> int:
    """One activity."""
    return await workflow.execute_activity(nothing, number)


@workflow.define(name="BenchFive")
async def five(number: int) -> int:
    """Five activities, one after the other."""
    for _ in range(5):
        number = await workflow.execute_activity(nothing, number)
    return number


@workflow.define(name="BenchPark")
async def park(number: int) -> int:
    """Stays open."""
    await workflow.sleep_ms(HOUR_MS)
    return number
