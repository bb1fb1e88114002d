"""Cancelled in the middle: the activity is told and ends first, then the workflow cleans up.

cancellation="wait" has the workflow wait until the attempt has ended. The clean-up in `finally` is
ordinary workflow code: it may call activities and take its time.
"""

import time

from perdure import activity, workflow

events: list[str] = []


@activity.define(heartbeat_ms=2_000, cancellation="wait")
def render(frames: int) -> int:
    for frame in range(frames):
        activity.record_heartbeat(frame)
        if activity.cancelled():
            events.append("stopped")
            raise activity.Cancelled
        time.sleep(0.01)
    return frames


@activity.define
def remove_files(why: str) -> None:
    events.append(f"removed: {why}")


@workflow.define
async def film(frames: int) -> int:
    why = "done"
    try:
        return await workflow.execute_activity(render, frames, activity_id="render")
    except workflow.Cancelled:
        why = "cancelled"
        raise
    finally:
        await workflow.execute_activity(remove_files, why, activity_id="remove")
