"""A shop: take from stock, wait for the payment, and put back what is not paid for.

The web server starts the workflow and asks it (a query) where the payment has to be made. The
payment provider's callback becomes a signal. Dispatching is a workflow of its own, which outlives
the checkout.
"""

from perdure import activity, workflow

stock = {"widget": 2}
orders: dict[str, str] = {}


@activity.define
def create_order(order: str) -> None:
    orders[order] = "pending"


@activity.define
def take_from_stock(item: str) -> bool:
    if not stock[item]:
        return False
    stock[item] -= 1
    return True


@activity.define
def put_back(item: str) -> None:
    stock[item] += 1


@activity.define
def set_status(order: str, status: str) -> None:
    orders[order] = status


@workflow.define
async def dispatch(order: str, days: int = 3) -> None:
    for left in range(days, 0, -1):
        await workflow.execute_activity(set_status, order, f"arrives in {left}")
        await workflow.sleep_ms(86_400_000)
    await workflow.execute_activity(set_status, order, "delivered")


@workflow.define
async def checkout(item: str, pay_within_ms: int = 60_000) -> str:
    order = workflow.info().workflow_id
    payment = workflow.receive("payment")
    link: str | None = None

    @workflow.query
    def payment_link() -> str | None:
        return link

    await workflow.execute_activity(create_order, order)
    if not await workflow.execute_activity(take_from_stock, item):
        await workflow.execute_activity(set_status, order, "sold out")
        return "sold out"
    link = f"pay/{workflow.uuid4()}"
    try:
        paid = await payment.get(timeout_ms=pay_within_ms) == "paid"
    except TimeoutError:
        paid = False
    if not paid:
        await workflow.execute_activity(put_back, item)
        await workflow.execute_activity(set_status, order, "cancelled")
        return "cancelled"
    await workflow.execute_activity(set_status, order, "paid")
    await workflow.start_child(
        dispatch, order, workflow_id=f"{order}/dispatch", parent_close="abandon"
    )
    return "paid"
