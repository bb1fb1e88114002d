"""The receiver refuses a repeat, and the activity takes that for a failure: it stands still."""

from perdure import activity, verify, workflow

# Stands for the provider's own table: the death of a worker does not empty it.
charged: set[str] = verify.outside(set())


def charge_card(key: str) -> None:
    """As some providers do: a key that was used is an error."""
    if key in charged:
        raise ValueError(f"key {key} was used before")
    charged.add(key)


@activity.define
def charge(order: str) -> None:
    key = activity.idempotency_key()
    with verify.effect("payment", key):
        charge_card(key)


@workflow.define
async def checkout(order: str = "o-42") -> None:
    await workflow.execute_activity(charge, order, activity_id="charge")
