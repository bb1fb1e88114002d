"""New code while old workflows run: who is past the change goes on as before.

`patched` is true for runs that come here for the first time, and stays what it was in each run. The
old branch can be taken out when no run is open that began before.
"""

from perdure import activity, workflow


@activity.define
def charge_by_card(order: str) -> str:
    return f"card {order}"


@activity.define
def charge_by_wallet(order: str) -> str:
    return f"wallet {order}"


@workflow.define
async def pay(order: str) -> str:
    await workflow.sleep_ms(1_000)
    if workflow.patched("wallet"):
        return await workflow.execute_activity(charge_by_wallet, order)
    return await workflow.execute_activity(charge_by_card, order)
