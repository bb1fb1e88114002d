"""A subscription: a trial, then a charge every month, for years; it can be changed and ended.

Signals change the price or end it, a query tells the state, and every year is a run of its own, so
that the history stays short.
"""

from dataclasses import dataclass

from perdure import activity, workflow

DAY_MS = 86_400_000


@dataclass
class Customer:
    name: str
    cents: int
    trial_ms: int = 7 * DAY_MS
    period_ms: int = 30 * DAY_MS
    periods_max: int = 24


@activity.define
def welcome(name: str) -> None:
    print(f"{name}: welcome")


@activity.define
def charge(name: str, cents: int, period: int) -> None:
    print(f"{name}: {cents} for period {period}")


@activity.define
def goodbye(name: str, why: str) -> None:
    print(f"{name}: {why}")


@workflow.define
async def subscription(customer: Customer, periods: int = 0, paid: int = 0) -> dict[str, int]:
    ended = False

    @workflow.signal
    def end() -> None:
        nonlocal ended
        ended = True

    @workflow.signal
    def set_price(cents: int) -> None:
        customer.cents = cents

    @workflow.query
    def state() -> dict[str, int]:
        return {"periods": periods, "paid": paid, "cents": customer.cents}

    async def ended_within(duration_ms: int) -> bool:
        try:
            await workflow.wait_condition(lambda: ended, timeout_ms=duration_ms)
        except TimeoutError:
            return False
        return True

    if not periods:
        await workflow.execute_activity(welcome, customer.name)
        if await ended_within(customer.trial_ms):
            await workflow.execute_activity(goodbye, customer.name, "within the trial")
            return state()
    while periods < customer.periods_max:
        await workflow.execute_activity(charge, customer.name, customer.cents, periods + 1)
        periods += 1
        paid += customer.cents
        if await ended_within(customer.period_ms):
            break
        if periods % 12 == 0 and periods < customer.periods_max:
            workflow.continue_as_new(customer, periods, paid)
    await workflow.execute_activity(goodbye, customer.name, "ended" if ended else "over")
    return state()
