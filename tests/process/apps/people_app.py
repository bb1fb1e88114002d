"""Workflows that people and programs talk to."""

from __future__ import annotations

import asyncio
import os
import signal

from perdure import RetryPolicy, activity, workflow

ONCE = RetryPolicy(max_attempts=1)


@activity.define(retry=ONCE)
def strict(word: str) -> str:
    if word.strip() != "right":
        raise ValueError(f"no {word}")
    return word.strip()


@activity.define(retry=ONCE)
def deadly() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@workflow.define
async def order() -> int:
    count = 0

    @workflow.signal
    def add(n: int = 1) -> None:
        nonlocal count
        count += n

    @workflow.query(name="count")
    def at() -> int:
        return count

    @workflow.update
    async def say(word: str) -> str:
        return await workflow.execute_activity(strict, word)

    @say.validator
    def check(word: str) -> None:
        if not word:
            raise ValueError("say something")

    await workflow.wait_condition(lambda: count >= 10)
    return count


@workflow.define
async def runs(n: int, until: int) -> int:
    if n < until:
        workflow.continue_as_new(n + 1, until)
    return n


@workflow.define
async def picky(word: str = "wrong") -> str:
    return await workflow.execute_activity(strict, word, activity_id="a")


@workflow.define
async def poison() -> None:
    await workflow.execute_activity(deadly, activity_id="a")


@workflow.define
async def forever() -> None:
    await asyncio.sleep(10**6)
