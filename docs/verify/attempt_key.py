"""The key has the number of the attempt in it: the payment is doubled when a worker dies."""

from perdure import activity, verify, workflow


@activity.define
def charge(order: str) -> None:
    key = f"{order}-{activity.attempt()}"
    with verify.effect("payment", key):
        pass  # provider.charge(order, key=key)


@workflow.define
async def checkout(order: str = "o-42") -> None:
    await workflow.execute_activity(charge, order, activity_id="charge")
