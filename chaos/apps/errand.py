"""Errand: a short workflow that does one of everything: an effect, an effect that fails once after
it was applied, a timer, a heartbeat, and an activity that is parked until somebody redrives it.
"""

from __future__ import annotations

import asyncio
import threading

from perdure import activity, workflow
from perdure.effects import SqliteEffects
from perdure.policy import RetryPolicy

RETRY = RetryPolicy(initial_ms=2, backoff=1.0, max_interval_ms=2, max_attempts=50)
# More than the deaths of a worker that one run of a drill causes: those count as attempts, too.
DOOMED = RetryPolicy(initial_ms=2, backoff=1.0, max_interval_ms=2, max_attempts=4)
PAUSE_MS = 10
HEARTBEAT_MS = 5_000
# How long the function goes on after a heartbeat, so that its answer finds it at work.
LISTEN_S = 0.03

STEPS = ("apply", "stumble", "beat", "doomed")
"""The activity ids of an errand: each has one effect, under its idempotency key."""


def applied(ledger: str) -> str:
    """The effect of this attempt, under its key; the receipt."""
    with SqliteEffects(ledger) as effects:
        key = activity.idempotency_key()
        token = activity.task_token()
        return str(effects.apply_once(fn=lambda: f"receipt of {key}", token=token))


@activity.define(retry=RETRY)
def apply(ledger: str) -> str:
    """The effect."""
    return applied(ledger)


@activity.define(retry=RETRY)
def stumble(ledger: str) -> str:
    """The effect, and the first attempt fails after it."""
    receipt = applied(ledger)
    if activity.attempt() == 1:
        raise activity.Error("Stumbled", "after the effect")
    return receipt


@activity.define(retry=RETRY, heartbeat_ms=HEARTBEAT_MS)
def beat(ledger: str) -> str:
    """The effect, between two heartbeats."""
    activity.record_heartbeat({"at": "before"})
    receipt = applied(ledger)
    threading.Event().wait(LISTEN_S)
    activity.record_heartbeat({"at": "after"})
    return receipt


@activity.define(retry=DOOMED)
def doomed(ledger: str) -> str:
    """The effect, once somebody has redriven it: before, it fails until it is parked."""
    if activity.info().generation == 1:
        raise activity.Error("Doomed", "nobody has looked yet")
    return applied(ledger)


@workflow.define(name="Errand")
async def errand(ledger: str, filler: str = "") -> list[str]:
    """The receipts of the four effects, in the order of STEPS. `filler` is ignored."""
    first = await asyncio.gather(
        workflow.execute_activity(apply, ledger, activity_id="apply"),
        workflow.execute_activity(stumble, ledger, activity_id="stumble"),
    )
    await workflow.sleep_ms(PAUSE_MS)
    third = await workflow.execute_activity(beat, ledger, activity_id="beat")
    last = await workflow.execute_activity(doomed, ledger, activity_id="doomed")
    return [*first, third, last]
