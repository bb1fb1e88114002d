"""A second attempt takes it that the first did the work: the parcel is lost."""

from perdure import activity, verify, workflow


@activity.define
def ship(order: str) -> None:
    if activity.attempt() > 1:
        return
    verify.effect("parcel", activity.idempotency_key())


@workflow.define
async def checkout(order: str = "o-42") -> None:
    await workflow.execute_activity(ship, order, activity_id="ship")
