"""Money goes from one account to another: withdrawn, deposited, or given back.

An account that does not exist is no use retrying. The bank knows each call by its key, so that a
call that is made again after a crash moves no money.
"""

from dataclasses import dataclass

from perdure import RetryPolicy, activity, workflow


@dataclass
class Transfer:
    source: str
    target: str
    cents: int
    reference: str


class Bank:
    """Stands for a bank with an idempotent API: a key that it knows moves nothing again."""

    def __init__(self, balances: dict[str, int]) -> None:
        self.balances = balances
        self.done: set[str] = set()

    def move(self, account: str, cents: int, key: str) -> None:
        if account not in self.balances:
            raise activity.NonRetryable("NoSuchAccount", account)
        if key in self.done:
            return
        if self.balances[account] + cents < 0:
            raise activity.NonRetryable("InsufficientFunds", account)
        self.balances[account] += cents
        self.done.add(key)


bank = Bank({"a": 500, "b": 0})


@activity.define
def withdraw(order: Transfer) -> str:
    bank.move(order.source, -order.cents, activity.idempotency_key())
    return f"W-{order.reference}"


@activity.define(retry=RetryPolicy(max_attempts=3))
def deposit(order: Transfer) -> str:
    bank.move(order.target, order.cents, activity.idempotency_key())
    return f"D-{order.reference}"


@activity.define
def refund(order: Transfer) -> str:
    bank.move(order.source, order.cents, activity.idempotency_key())
    return f"R-{order.reference}"


@workflow.define
async def transfer(order: Transfer) -> list[str]:
    receipts = [await workflow.execute_activity(withdraw, order, activity_id="withdraw")]
    try:
        deposited = workflow.execute_activity(
            deposit, order, activity_id="deposit", on_exhausted="fail"
        )
        receipts.append(await deposited)
    except workflow.ActivityFailed as problem:
        receipts.append(await workflow.execute_activity(refund, order, activity_id="refund"))
        raise RuntimeError(f"refunded: {problem.failure.type}") from problem
    return receipts
