"""Activities that hang, fall, run programs and are left open, for tests on a real node."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import perdure.subprocess
from perdure import RetryPolicy, activity, workflow

ONCE = RetryPolicy(max_attempts=1)
HUNG = {"retry": ONCE, "on_exhausted": "fail", "isolation": "process"}


def mark(text: str) -> None:
    with open(os.environ["ACTS_MARKS"], "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


@activity.define
def nothing() -> str:
    return activity.idempotency_key()


@activity.define(**HUNG)
def hangs(how: str) -> None:
    mark(f"{os.getpid()}")
    kinds = {"Exception": Exception, "BaseException": BaseException}
    while True:
        try:
            threading.Event().wait(30)
        except kinds.get(how, ()):
            continue


@activity.define
def ask() -> str:
    mark(activity.task_token())
    raise activity.CompleteLater


@activity.define(retry=RetryPolicy(initial_ms=10, max_attempts=3))
def program(directory: str) -> str:
    """Falls at the first attempt, having come to step 3."""
    code = (
        'echo "$PERDURE_ATTEMPT:$PERDURE_HEARTBEAT_DETAILS" >> said; echo "step 3" > beat; '
        '[ "$PERDURE_ATTEMPT" = 2 ] || exit 75'
    )
    beat = Path(directory) / "beat"
    return perdure.subprocess.run(["sh", "-c", code], cwd=directory, heartbeat_file=beat)


@workflow.define
async def one(name: str, *args: str, **options: int) -> object:
    try:
        return await workflow.execute_activity(name, *args, activity_id="a", **options)
    except workflow.ActivityFailed as problem:
        return problem.failure.type


@workflow.define
async def hung(how: str, count: int, start_to_close_ms: int, grace_ms: int) -> list[str]:
    options = {"start_to_close_ms": start_to_close_ms, "grace_ms": grace_ms}
    handles = [workflow.start_activity(hangs, how, **options) for _ in range(count)]
    ended = await asyncio.gather(*handles, return_exceptions=True)
    return [type(one).__name__ for one in ended]
