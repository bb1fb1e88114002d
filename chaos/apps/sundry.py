"""Sundry: a workflow that does one of everything that an errand does not: an update, a child and a
signal to it, a program, an attempt that somebody else completes, and a second run.

What its people do besides (a pause, a reset, a schedule, an order in an outbox) is for
chaos.drills.boundaries_sundry. Every effect goes to the ledger of the errand.
"""

from __future__ import annotations

import perdure.subprocess
from chaos.apps.errand import RETRY, applied
from perdure import activity, workflow

ASKED = "asked"
RUN_1_KEYS = ("add-1", "program", ASKED)
LAST = "last"
CHILD = "/@1"


@activity.define(retry=RETRY)
def plain(ledger: str) -> str:
    """The effect."""
    return applied(ledger)


@activity.define(retry=RETRY)
def program(ledger: str) -> str:
    """The effect, once a program has run."""
    perdure.subprocess.run(["true"])
    return applied(ledger)


@activity.define(retry=RETRY)
def asks(ledger: str) -> str:
    """The effect; its result is what somebody says who has the token, which stands beside it."""
    applied(ledger)
    with open(token_path(ledger, activity.idempotency_key()), "a") as tokens:
        tokens.write(activity.task_token() + "\n")
    raise activity.CompleteLater


def token_path(ledger: str, key: str) -> str:
    """Where the tokens of that key's attempts stand, the newest at the end."""
    return f"{ledger}.{key.replace('/', '_')}.tokens"


@workflow.define(name="SundryChild")
async def sundry_child(ledger: str) -> str:
    """The effect, once its parent has said so."""
    await workflow.receive("go").get()
    return await workflow.execute_activity(plain, ledger, activity_id="child")


@workflow.define(name="SundryBell")
async def sundry_bell(ledger: str) -> str:
    """The effect: for schedules and outboxes."""
    return await workflow.execute_activity(plain, ledger, activity_id="ring")


@workflow.define(name="Sundry")
async def sundry(ledger: str, receipts: list[str] | None = None) -> list[str]:
    """The receipts of both runs."""
    if receipts is not None:
        last = await workflow.execute_activity(plain, ledger, activity_id=LAST)
        return [*receipts, last]
    added: list[str] = []

    @workflow.update
    async def add(number: int) -> str:
        receipt = await workflow.execute_activity(plain, ledger, activity_id=f"add-{number}")
        added.append(receipt)
        return receipt

    child = await workflow.start_child(sundry_child, ledger)
    await child.signal("go")
    found = [
        await workflow.execute_activity(program, ledger, activity_id="program"),
        await workflow.execute_activity(asks, ledger, activity_id=ASKED),
        await child,
    ]
    await workflow.wait_condition(lambda: bool(added))
    await workflow.wait_condition(workflow.all_handlers_finished)
    workflow.continue_as_new(ledger, [*added, *found])
