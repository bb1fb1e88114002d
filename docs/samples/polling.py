"""Waiting for something that does not call back, in three tempers.

Often (every second): a loop in one activity, with heartbeats. Seldom (every hour): an activity that
fails until it is there, with a backoff of 1 and no end of attempts; nothing runs between. In
between, or with more logic: a child workflow that loops, and goes on as new.
"""

import time

from perdure import RetryPolicy, activity, workflow

calls: dict[str, int] = {}
"""Stands for a service: how often each thing was asked for."""


def look(what: str, ready_after: int) -> str | None:
    calls[what] = calls.get(what, 0) + 1
    return f"{what} is ready" if calls[what] > ready_after else None


@activity.define(start_to_close_ms=600_000, heartbeat_ms=10_000)
def poll_often(what: str, ready_after: int, pause_ms: int) -> str:
    while (found := look(what, ready_after)) is None:
        activity.record_heartbeat()
        time.sleep(pause_ms / 1000)
    return found


HOURLY = RetryPolicy(
    initial_ms=3_600_000, backoff=1.0, max_interval_ms=3_600_000, max_attempts=1_000_000
)


@activity.define(retry=HOURLY)
def poll_seldom(what: str, ready_after: int) -> str:
    found = look(what, ready_after)
    if found is None:
        raise activity.Error("NotYet", f"{what} is not ready")
    return found


@activity.define
def poll_once(what: str, ready_after: int) -> str | None:
    return look(what, ready_after)


@workflow.define
async def poll_in_between(what: str, ready_after: int) -> str:
    for _ in range(10):
        found = await workflow.execute_activity(poll_once, what, ready_after)
        if found is not None:
            return found
        await workflow.sleep_ms(60_000)
    workflow.continue_as_new(what, ready_after)


@workflow.define
async def polling(temper: str, ready_after: int) -> str:
    what = f"the {temper} thing"
    match temper:
        case "often":
            return await workflow.execute_activity(poll_often, what, ready_after, 1)
        case "seldom":
            return await workflow.execute_activity(poll_seldom, what, ready_after)
        case _:
            found: str = await workflow.execute_child(poll_in_between, what, ready_after)
            return found
