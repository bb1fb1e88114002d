"""An order: reserve, charge, wait for a word, ship; and take it all back where that fails."""

import time

from perdure import RetryPolicy, activity, ms, workflow
from perdure.effects import SqliteEffects

# Stands for the warehouse, the bank and the courier: a receiver that remembers keys.
world = SqliteEffects("world.db")

patient = RetryPolicy(initial_ms=200, max_attempts=10)


@activity.define(retry=patient)
def reserve(item: str) -> None:
    world.apply_once(fn=noted("reserved", item))


@activity.define(retry=patient, start_to_close_ms=ms(seconds=30))
def charge(order_id: str, cents: int) -> str:
    receipt = world.apply_once(fn=noted("charged", f"{order_id} {cents}"))
    time.sleep(10)  # A slow bank: the money has moved, and its answer is not here yet.
    return receipt


@activity.define(retry=patient)
def ship(order_id: str, address: str) -> str:
    if not address:
        raise activity.NonRetryable("NoAddress", f"{order_id} has no address")
    return world.apply_once(fn=noted("shipped", f"{order_id} to {address}"))


@activity.define(retry=patient)
def release(item: str) -> None:
    world.apply_once(fn=noted("released", item))


@activity.define(retry=patient)
def refund(receipt: str) -> None:
    world.apply_once(fn=noted("refunded", receipt))


def noted(what: str, of: str):
    """Writes down what is done, in the transaction that also keeps the activity's key."""

    def write(db) -> str:
        db.execute("CREATE TABLE IF NOT EXISTS diary (what TEXT, of TEXT)")
        db.execute("INSERT INTO diary VALUES (?, ?)", (what, of))
        return f"{what} {of}"

    return write


class NotApproved(Exception):
    pass


@workflow.define
async def order(
    order_id: str, item: str, cents: int, address: str, approval_ms: int = ms(days=1)
) -> str:
    step = "reserving"
    approved: bool | None = None

    @workflow.signal
    def approve(yes: bool) -> None:
        nonlocal approved
        approved = yes

    @workflow.query
    def state() -> str:
        return step

    undo = []
    try:
        await workflow.execute_activity(reserve, item, activity_id="reserve")
        undo.append(("release", release, item))
        step = "charging"
        receipt = await workflow.execute_activity(charge, order_id, cents, activity_id="charge")
        undo.append(("refund", refund, receipt))
        step = "waiting for approval"
        try:
            await workflow.wait_condition(lambda: approved is not None, timeout_ms=approval_ms)
        except TimeoutError:
            raise NotApproved("nobody said anything") from None
        if not approved:
            raise NotApproved("somebody said no")
        step = "shipping"
        return await workflow.execute_activity(ship, order_id, address, activity_id="ship")
    except (workflow.ActivityFailed, workflow.Cancelled, NotApproved):
        step = "taking back"
        for name, function, argument in reversed(undo):
            await workflow.execute_activity(function, argument, activity_id=name)
        raise
