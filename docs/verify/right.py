"""A workflow that uses the key right: it passes."""

from perdure import activity, verify, workflow


def charge_card(order: str, cents: int, key: str) -> str:
    """Stands for a payment provider that ignores a key it has seen."""
    return f"receipt of {order}"


@activity.define
def charge(order: str, cents: int) -> str:
    key = activity.idempotency_key()
    with verify.effect("payment", key):
        return charge_card(order, cents, key)


@activity.define
async def mail(order: str, receipt: str) -> None:
    verify.effect("mail", activity.idempotency_key())


@activity.define
def ship(order: str) -> None:
    verify.effect("parcel", order)


@workflow.define
async def checkout(order: str = "o-42", cents: int = 1999) -> str:
    receipt = await workflow.execute_activity(charge, order, cents, activity_id="charge")
    await workflow.execute_activity(mail, order, receipt, activity_id="mail")
    await workflow.execute_activity(ship, order, activity_id="ship")
    return receipt
