"""Time, chance and the workflow itself, the same in every replay."""

from __future__ import annotations

import asyncio
import random as _random
import uuid

from perdure.errors import InvalidArgument
from perdure.policy import timedelta_hint
from perdure.workflow.runtime import Info, runtime


async def sleep_ms(duration_ms: int) -> None:
    """Wait that many milliseconds, durably. asyncio.sleep does the same in seconds."""
    if isinstance(duration_ms, bool) or not isinstance(duration_ms, (int, float)):
        raise InvalidArgument(
            f"duration_ms must be a number of milliseconds, not {duration_ms!r:.80}"
            f"{timedelta_hint(duration_ms)}",
            field="duration_ms",
        )
    runtime("sleep_ms")
    await asyncio.sleep(duration_ms / 1000)


def now_ms() -> int:
    """Milliseconds since the Unix epoch by history's clock: when the newest event happened."""
    return runtime("now_ms").now_ms


def random() -> _random.Random:
    """A generator that draws the same numbers in every replay, seeded by the workflow id."""
    return runtime("random").random


def uuid4() -> uuid.UUID:
    """A random UUID, the same in every replay. Who knows the workflow id can work it out."""
    return uuid.UUID(int=runtime("uuid4").random_ids.getrandbits(128), version=4)


def info() -> Info:
    """Who this workflow is: id, type, queue and start."""
    return runtime("info").info
