"""Work with values that nobody but the store may see, for tests/process/test_no_leaks.py."""

from __future__ import annotations

import os
import sqlite3
import threading
import time

from perdure import RetryPolicy, activity, workflow

TWICE = RetryPolicy(initial_ms=1, max_interval_ms=5, max_attempts=2)


def keep_token() -> None:
    """The token goes where the test reads it; it is the receiver's, and in no log."""
    with sqlite3.connect(os.environ["HURT_LEDGER"], timeout=30) as ledger:
        ledger.execute(
            "INSERT INTO calls VALUES (?, ?, ?)", (activity.task_token(), 0, os.getpid())
        )


@activity.define(retry=TWICE, heartbeat_ms=2_000)
def carry(secret: str, result: str, work_ms: int) -> str:
    keep_token()
    activity.record_heartbeat({"so_far": os.environ["SECRET_DETAILS"]})
    until, pause = time.monotonic() + work_ms / 1_000, threading.Event()
    while time.monotonic() < until and not activity.cancelled():
        pause.wait(0.01)
    return result


@activity.define(retry=TWICE)
def spill(secret: str) -> str:
    keep_token()
    raise activity.Error("Spilt", os.environ["SECRET_MESSAGE"], details=secret)


@activity.define
def picky(count: int) -> int:
    return count


@workflow.define
async def carries(secret: str, result: str, work_ms: int = 0) -> str:
    return str(await workflow.execute_activity(carry, secret, result, work_ms, activity_id="c"))


@workflow.define
async def spills(secret: str) -> str:
    return str(await workflow.execute_activity(spill, secret, activity_id="s"))


@workflow.define
async def misfits(secret: str) -> int:
    return int(await workflow.execute_activity("picky", secret, activity_id="p"))


@workflow.define
async def breaks(secret: str) -> str:
    raise ValueError(secret)
