"""A receiver of perdure.effects sees the key itself, and no adapter is needed: it passes."""

import apsw

from perdure import activity, workflow
from perdure.effects import SqliteEffects

ledger = SqliteEffects("payments.db")


@activity.define
def charge(order: str, cents: int) -> str:
    def insert(connection: apsw.Connection) -> str:
        connection.execute("CREATE TABLE IF NOT EXISTS payments (order_id, cents)")
        connection.execute("INSERT INTO payments VALUES (?, ?)", (order, cents))
        return f"receipt of {order}"

    return ledger.apply_once(fn=insert)


@workflow.define
async def checkout(order: str = "o-42", cents: int = 1999) -> str:
    return await workflow.execute_activity(charge, order, cents, activity_id="charge")
