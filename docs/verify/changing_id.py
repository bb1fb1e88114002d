"""The workflow's code names an object's address: replayed it goes another way, and stands still."""

from perdure import activity, verify, workflow


@activity.define
def charge(order: str) -> None:
    verify.effect("payment", activity.idempotency_key())


class Cart:
    """Without a name of its own it is shown with its address."""


@workflow.define
async def checkout(order: str = "o-42") -> None:
    await workflow.execute_activity(charge, order, activity_id=f"charge {Cart()}")
