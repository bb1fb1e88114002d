"""Somebody has to say yes: an activity that is completed by a person, with a reminder and an end.

The activity asks the approval system, hands it the token, and ends without a result. Whoever has
the token completes it, from any program or language, days later.
"""

import asyncio

from perdure import activity, workflow

DAY_MS = 86_400_000

asked: dict[str, str] = {}
"""Stands for the approval system: the token of each expense that waits for a decision."""


@activity.define(start_to_close_ms=14 * DAY_MS)
def decision(expense: str) -> str:
    asked[expense] = activity.task_token()
    raise activity.CompleteLater


@activity.define
def remind(expense: str, times: int) -> None:
    print(f"{expense}: reminded {times} times")


@activity.define
def pay(expense: str) -> None:
    print(f"{expense}: paid")


@workflow.define
async def expense(name: str, reminder_ms: int = DAY_MS, reminders: int = 3) -> str:
    decided = workflow.start_activity(decision, name, activity_id="decision")
    for times in range(reminders):
        done, _ = await asyncio.wait([decided], timeout=reminder_ms / 1000)
        if done:
            break
        await workflow.execute_activity(remind, name, times + 1)
    else:
        decided.cancel()
        return "nobody decided"
    if decided.result() == "approved":
        await workflow.execute_activity(pay, name)
    return decided.result()
