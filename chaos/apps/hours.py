"""Hours: workflows that measure time: short timers one after the other, one long one, activities
that live by heartbeats, and one for workers elsewhere.

Every attempt and effect goes to the ledger of FlakyDemo, with instants of boot time.
"""

from __future__ import annotations

import asyncio
import threading

from perdure import activity, workflow
from perdure.demo import Ledger
from perdure.policy import RetryPolicy

HEARTBEAT_MS = 10_000
BEAT_MS = 250
LEASE_MS = 120_000
FAR_QUEUE = "far"
_RETRY = RetryPolicy(initial_ms=500, backoff=2.0, max_interval_ms=2_000, max_attempts=100)

_ledgers: dict[str, Ledger] = {}


def _noted(ledger: str, work_ms: int, *, beats: bool) -> str:
    book = _ledgers.get(ledger)
    if book is None:
        book = _ledgers.setdefault(ledger, Ledger(ledger))
    key, attempt, token = activity.idempotency_key(), activity.attempt(), activity.task_token()
    run = book.began(key, attempt, token)
    pause = threading.Event()
    for _ in range(work_ms // BEAT_MS):
        pause.wait(BEAT_MS / 1_000)
        if beats:
            activity.record_heartbeat()
    receipt = book.apply(key, attempt, token)
    book.applied(run)
    book.ended(run, "returned")
    return receipt


@activity.define(retry=_RETRY, start_to_close_ms=LEASE_MS)
def tick(ledger: str) -> str:
    """An effect, at once."""
    return _noted(ledger, 0, beats=False)


@activity.define(retry=_RETRY, start_to_close_ms=LEASE_MS, heartbeat_ms=HEARTBEAT_MS)
def vigil(ledger: str, work_ms: int) -> str:
    """An effect after `work_ms`, with heartbeats on the way."""
    return _noted(ledger, work_ms, beats=True)


@activity.define(retry=_RETRY, start_to_close_ms=LEASE_MS)
def errand(ledger: str, work_ms: int) -> str:
    """An effect after `work_ms`, without a sign of life before."""
    return _noted(ledger, work_ms, beats=False)


@workflow.define(name="Hours")
async def hours(ledger: str, ticks: int, pause_ms: int, vigil_ms: int) -> list[str]:
    """`ticks` effects with `pause_ms` before each, and a vigil beside them; their receipts."""
    watch = workflow.start_activity(vigil, ledger, vigil_ms, activity_id="vigil")
    receipts = []
    for number in range(1, ticks + 1):
        await asyncio.sleep(pause_ms / 1_000)
        receipts.append(await workflow.execute_activity(tick, ledger, activity_id=f"tick-{number}"))
    return [await watch, *receipts]


@workflow.define(name="FarHours")
async def far_hours(ledger: str, work_ms: int) -> list[str]:
    """One effect by a worker elsewhere."""
    receipt = await workflow.execute_activity(
        errand, ledger, work_ms, activity_id="errand", task_queue=FAR_QUEUE
    )
    return [receipt]
