"""The workflow's code reads the clock: after a crash it goes another way, and stands still."""

from datetime import datetime

from perdure import activity, verify, workflow


@activity.define
def charge(order: str) -> None:
    verify.effect("payment", activity.idempotency_key())


@workflow.define
async def checkout(order: str = "o-42") -> None:
    day = datetime.now().strftime("%Y-%m-%d")
    await workflow.execute_activity(charge, order, activity_id=f"charge-{day}")
