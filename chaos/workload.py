"""Workflows that drills let a node run: each notes its runs and effects in the ledger of the demo.

A worker loads this module as it loads any user's: it imports nothing of the application.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from perdure import activity, workflow
from perdure.clock import boottime_ms
from perdure.demo import Ledger, chance, open_ledger
from perdure.policy import RetryPolicy

PATIENT = RetryPolicy(initial_ms=20, backoff=2.0, max_interval_ms=500, max_attempts=1_000)
HEARTBEAT_MS = 1_500
LEASE_MS = 2_500
BEAT_S = 0.1
PARKED = "parked"
GO_ON = "go-on"
CHILD = "/@1"  # Behind the id of a Mixed workflow: that of its child.
CHILD_RUNS = 2
MIXED_EFFECTS = 7 + CHILD_RUNS


class Step:
    """One run of a step: its begin is noted when it is made, its end by one of the methods."""

    def __init__(self, ledger: str) -> None:
        self.key, self.attempt = activity.idempotency_key(), activity.attempt()
        self._token = activity.task_token()
        self._book: Ledger = open_ledger(ledger)
        self._run = self._book.began(self.key, self.attempt, self._token)

    def apply(self) -> str:
        """The step's effect; its receipt."""
        receipt = self._book.apply(self.key, self.attempt, self._token)
        self._book.applied(self._run)
        return receipt

    def returned(self, receipt: str) -> str:
        """The step is over, and reports its receipt."""
        self._book.ended(self._run, "returned")
        return receipt

    def failed(self, kind: str) -> activity.Error:
        """The step is over with a failure, which is to be raised."""
        self._book.ended(self._run, f"failed: {kind}")
        return activity.Error(kind, f"attempt {self.attempt} failed")

    def cancelled(self) -> None:
        """The step was told that it no longer counts."""
        self._book.ended(self._run, "failed: cancelled")


# --- hang: leases by heartbeat, and leases without -----------------------------------
@activity.define(retry=PATIENT, heartbeat_ms=HEARTBEAT_MS)
def beating_step(work_ms: int, ledger: str) -> str:
    """Works for `work_ms`, beats all the while, and has its effect in the middle."""
    step, receipt = Step(ledger), ""
    began = time.monotonic()
    try:
        while (passed_ms := (time.monotonic() - began) * 1_000) < work_ms:
            if not receipt and passed_ms >= work_ms / 2:
                receipt = step.apply()
            activity.record_heartbeat({"passed_ms": int(passed_ms)})
            time.sleep(BEAT_S)
    except activity.Cancelled:
        step.cancelled()
        raise
    return step.returned(receipt or step.apply())


@activity.define(retry=PATIENT, start_to_close_ms=LEASE_MS)
def leased_step(work_ms: int, ledger: str) -> str:
    """Works for `work_ms` without a sign of life, and has its effect in the middle."""
    step = Step(ledger)
    time.sleep(work_ms / 2_000)
    receipt = step.apply()
    time.sleep(work_ms / 2_000)
    return step.returned(receipt)


@workflow.define(name="Steady")
async def steady(steps: int, work_ms: int, ledger: str) -> list[str]:
    """Beating steps and leased ones in turn."""
    receipts = []
    for number in range(1, steps + 1):
        step = beating_step if number % 2 else leased_step
        receipts.append(
            await workflow.execute_activity(step, work_ms, ledger, activity_id=f"step-{number}")
        )
    return receipts


# --- mixed: something for every actor to lose -------------------------------------------
@activity.define(retry=PATIENT, start_to_close_ms=60_000)
def shaky_step(fail_rate: float, work_ms: int, ledger: str, seed: int) -> str:
    """Fails before its effect, after it, or not at all, as seed, key and attempt say."""
    step = Step(ledger)
    luck = chance(seed, step.key, step.attempt)
    time.sleep(work_ms / 2_000)
    if luck < fail_rate / 2:
        raise step.failed("before its effect")
    receipt = step.apply()
    time.sleep(work_ms / 2_000)
    if luck < fail_rate:
        raise step.failed("after its effect")
    return step.returned(receipt)


@activity.define(retry=RetryPolicy(initial_ms=20, max_interval_ms=50, max_attempts=2))
def parked_step(ledger: str) -> str:
    """Fails at its first two grants, and so is parked; succeeds when it is redriven."""
    step = Step(ledger)
    if activity.fence() <= 2:
        raise step.failed("Parked")
    return step.returned(step.apply())


@workflow.define(name="MixedChild")
async def mixed_child(fail_rate: float, work_ms: int, ledger: str, seed: int) -> list[str]:
    """One step a run, and as many runs as are wanted."""
    receipt = await workflow.execute_activity(
        shaky_step, fail_rate, work_ms, ledger, seed, activity_id="of-child"
    )
    if workflow.info().run < CHILD_RUNS:
        workflow.continue_as_new(fail_rate, work_ms, ledger, seed)
    return [receipt]


@workflow.define(name="Mixed")
async def mixed(fail_rate: float, work_ms: int, ledger: str, seed: int) -> list[str]:
    """Steps side by side, a timer, heartbeats, a dead letter that needs an operator; a child that
    continues as new, and a signal that is waited for.
    """
    box = workflow.receive(GO_ON)
    child = await workflow.start_child(mixed_child, fail_rate, work_ms, ledger, seed)

    async def shaky(*names: str) -> list[str]:
        calls = [
            workflow.execute_activity(
                shaky_step, fail_rate, work_ms, ledger, seed, activity_id=name
            )
            for name in names
        ]
        return list(await asyncio.gather(*calls))

    receipts = await shaky("first-1", "first-2", "first-3")
    await asyncio.sleep(0.3)
    receipts.append(
        await workflow.execute_activity(beating_step, 3 * work_ms, ledger, activity_id="beating")
    )
    receipts.append(await workflow.execute_activity(parked_step, ledger, activity_id=PARKED))
    await asyncio.gather(asyncio.sleep(0.1), asyncio.sleep(0.2), child)
    await box.get()
    return [*receipts, *await shaky("last-1", "last-2")]


# --- poison ---------------------------------------------------------------------------
@activity.define
def poison_step(ledger: str) -> str:
    """Kills the process that it runs in."""
    Step(ledger)
    os.kill(os.getpid(), signal.SIGKILL)
    return "nobody reads this"


@activity.define(retry=RetryPolicy(initial_ms=20, max_interval_ms=500, max_attempts=5))
def innocent_step(work_ms: int, ledger: str) -> str:
    """Works, and is parked if it is charged with five deaths of others."""
    step = Step(ledger)
    time.sleep(work_ms / 1_000)
    return step.returned(step.apply())


@workflow.define(name="Innocent")
async def innocent(steps: int, work_ms: int, ledger: str) -> list[str]:
    """Innocent steps, one after the other."""
    return [
        await workflow.execute_activity(innocent_step, work_ms, ledger, activity_id=f"step-{n}")
        for n in range(1, steps + 1)
    ]


@workflow.define(name="Poisoned")
async def poisoned(attempts: int, ledger: str) -> str:
    """A poison step, tried so often."""
    retry = RetryPolicy(initial_ms=200, max_interval_ms=200, max_attempts=attempts)
    return str(
        await workflow.execute_activity(poison_step, ledger, activity_id="poison", retry=retry)
    )


# --- outage ---------------------------------------------------------------------------
@activity.define
async def called_step(down_at_ms: int, up_at_ms: int, ledger: str) -> str:
    """Calls something that is down from one instant to another (boot time): whoever waits at the
    first fails at it, all together.
    """
    step = Step(ledger)
    if (wait_ms := down_at_ms - boottime_ms()) > 0:
        await asyncio.sleep(wait_ms / 1_000)
    if down_at_ms <= boottime_ms() < up_at_ms:
        raise step.failed("Outage")
    return step.returned(step.apply())


@workflow.define(name="Calls")
async def calls(
    count: int, down_at_ms: int, up_at_ms: int, initial_ms: int, ledger: str
) -> list[str]:
    """`count` calls side by side, each tried again after up to `initial_ms`, doubled each time."""
    retry = RetryPolicy(
        initial_ms=initial_ms, backoff=2.0, max_interval_ms=2 * initial_ms, max_attempts=100
    )
    return list(
        await asyncio.gather(
            *(
                workflow.execute_activity(
                    called_step,
                    down_at_ms,
                    up_at_ms,
                    ledger,
                    activity_id=f"call-{number}",
                    retry=retry,
                )
                for number in range(1, count + 1)
            )
        )
    )


# --- operator -------------------------------------------------------------------------
@activity.define(retry=RetryPolicy(initial_ms=20, max_interval_ms=50, max_attempts=3))
def broken_step(number: int, remedy: str, ledger: str) -> str:
    """Fails until somebody has made the file `remedy`."""
    step = Step(ledger)
    if not Path(remedy).exists():
        raise step.failed(f"Broken{number % 2}")
    return step.returned(step.apply())


@workflow.define(name="Repaired")
async def repaired(number: int, remedy: str, ledger: str) -> list[str]:
    """A step that needs an operator, and one after it."""
    receipts = []
    for name in ("broken", "after"):
        receipts.append(
            await workflow.execute_activity(broken_step, number, remedy, ledger, activity_id=name)
        )
    return receipts
