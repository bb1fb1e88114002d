"""Work for tests that hurt a node: effects go to a ledger of the test's own, by key."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time

from perdure import RetryPolicy, activity, workflow

PATIENT = RetryPolicy(initial_ms=10, backoff=2.0, max_interval_ms=200, max_attempts=50)
THRICE = RetryPolicy(initial_ms=10, max_attempts=3)


def note() -> str:
    """Write this delivery down, and its effect where the key is new; the key."""
    key = activity.idempotency_key()
    ledger = sqlite3.connect(os.environ["HURT_LEDGER"], timeout=30)
    try:
        with ledger:
            call = (key, activity.attempt(), os.getpid())
            ledger.execute("INSERT INTO calls VALUES (?, ?, ?)", call)
            ledger.execute("INSERT OR IGNORE INTO effects VALUES (?)", (key,))
    finally:
        ledger.close()
    return key


@activity.define(retry=PATIENT)
def effect(work_ms: int) -> str:
    key = note()
    if work_ms:
        time.sleep(work_ms / 1000)
    return key


@activity.define(retry=PATIENT)
def effect_until(path: str) -> str:
    """Goes on until there is such a file."""
    key = note()
    while not os.path.exists(path):
        time.sleep(0.01)
    return key


@activity.define(retry=PATIENT, heartbeat_ms=2_000)
def beating(work_ms: int) -> str:
    key = note()
    until = time.monotonic() + work_ms / 1000
    while time.monotonic() < until:
        activity.record_heartbeat()
        time.sleep(0.02)
    return f"{key} {activity.attempt()}"


@activity.define(retry=PATIENT, heartbeat_ms=2_000)
def beating_until(path: str) -> str:
    """The same, with heartbeats."""
    key = note()
    while not os.path.exists(path):
        activity.record_heartbeat()
        time.sleep(0.02)
    return f"{key} {activity.attempt()}"


@activity.define(retry=THRICE)
def poison(how: str) -> None:
    note()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        os._exit(7)
    raise SystemExit(3) if how == "SystemExit" else KeyboardInterrupt


@activity.define(retry=THRICE)
async def async_poison(how: str) -> None:
    note()
    raise SystemExit(3) if how == "SystemExit" else KeyboardInterrupt


@workflow.define
async def several(work_ms: int = 0) -> list[str]:
    both = [workflow.execute_activity(effect, work_ms, activity_id=f"e/{n}") for n in range(2)]
    done = await asyncio.gather(*both)
    await asyncio.sleep(0.02)
    return [*done, await workflow.execute_activity(effect, 0)]


@workflow.define
async def one(work_ms: int = 0) -> str:
    return await workflow.execute_activity(effect, work_ms, activity_id="e")


@workflow.define
async def one_until(path: str) -> str:
    return await workflow.execute_activity(effect_until, path, activity_id="e")


@workflow.define
async def beats(work_ms: int) -> str:
    return await workflow.execute_activity(beating, work_ms, activity_id="b")


@workflow.define
async def beats_until(path: str) -> str:
    return await workflow.execute_activity(beating_until, path, activity_id="b")


@workflow.define
async def poisoned(how: str, is_async: bool = False) -> None:
    activity_ = async_poison if is_async else poison
    await workflow.execute_activity(activity_, how, activity_id="p")


@workflow.define
async def naps(ms: int) -> str:
    await workflow.sleep_ms(ms)
    return "awake"


@workflow.define
async def blocks() -> None:
    time.sleep(60)


@activity.define(retry=THRICE)
def beside() -> str:
    key = note()
    time.sleep(0.1)
    return f"{key} {activity.attempt()}"


@workflow.define
async def innocents(count: int) -> list[str]:
    all_ = [workflow.execute_activity(beside, activity_id=f"b{n}") for n in range(count)]
    return await asyncio.gather(*all_)


@workflow.define
async def kills_its_worker() -> None:
    signal.raise_signal(signal.SIGKILL)  # Past the guards, as a fault in C would be.
