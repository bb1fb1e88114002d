"""The workflow's own code runs again after every crash: what it does itself is doubled."""

from perdure import activity, verify, workflow


@activity.define
def charge(order: str) -> None:
    verify.effect("payment", activity.idempotency_key())


@workflow.define
async def checkout(order: str = "o-42") -> None:
    verify.effect("mail")
    await workflow.execute_activity(charge, order, activity_id="charge")
