"""Warnings about names that no worker knows: what was asked for is done, since a deploy may bring
them, but it may as well be a mistake in writing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from perdure import errors
from perdure.cli.options import ask

if TYPE_CHECKING:
    from perdure.client import Client

# What workers take at most to find a gateway that has just started again.
WORKERS_PAUSE_S = 0.5


def workflow(client: Client, who: str, type_: str, queue: str) -> str | None:
    """Where no worker has this workflow type on that queue: that `who` waits for one."""
    from perdure import waiting

    workers = _workers(client)
    if workers is None:
        return None
    offers = [
        waiting.Offer(
            tuple(each["queues"]), tuple(each["activity_types"]), tuple(each["workflow_types"])
        )
        for each in workers
    ]
    text = waiting.sentence("workflow", type_, queue, offers)
    return None if text is None else f"{who} waits for {text}"


def name(client: Client, offered: str, name: str) -> str | None:
    """Where no worker offers this name among its `offered` ("queues", "activity_types")."""
    from perdure.config import listed

    workers = _workers(client)
    if workers is None:
        return None
    known = sorted({one for worker in workers for one in worker[offered]})
    if name in known:
        return None
    what = "serves queue" if offered == "queues" else "has activity type"
    if not workers:
        return f"no worker {what} {name!r}: none is connected"
    return f"no worker {what} {name!r}; workers have: {listed(known, name) or 'none'}"


def _workers(client: Client) -> list[dict[str, Any]] | None:
    """Who is there; None: that can't be said, and a warning is not worth an error."""
    from perdure import wire

    found: list[dict[str, Any]] = []
    for is_last in (False, True):
        try:
            found = ask(client, wire.WorkerTypes())["workers"]
        except errors.PerdureError:
            return None
        if found or is_last:
            break
        time.sleep(WORKERS_PAUSE_S)
    return found
