"""Every attempt makes a key of its own: the payment is doubled."""

import uuid

from perdure import activity, verify, workflow


@activity.define
def charge(order: str) -> None:
    key = uuid.uuid4()
    with verify.effect("payment", key):
        pass  # provider.charge(order, key=key)


@workflow.define
async def checkout(order: str = "o-42") -> None:
    await workflow.execute_activity(charge, order, activity_id="charge")
