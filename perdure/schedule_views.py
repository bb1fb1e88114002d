"""Schedules as plain data, as `perdure schedule show --json` has them."""

from __future__ import annotations

from itertools import islice
from typing import Any

from perdure import values, wire
from perdure import wire_schedules as ws
from perdure.core.decide_schedule import fires_at_ms, times_of
from perdure.core.schedule_state import Schedule
from perdure.errors import NotFound
from perdure.store.protocol import Reader
from perdure.times import INSTANT_MAX_MS

LIST_LIMIT = 100  # Where the asker names no limit.


def summary(schedule: Schedule) -> dict[str, Any]:
    """One line of a list."""
    spec = schedule.spec
    return {
        "schedule_id": schedule.schedule_id,
        "type": spec.workflow_type,
        "cron": list(spec.crons),
        "every_ms": spec.every_ms,
        "offset_ms": spec.offset_ms,
        "time_zone": spec.time_zone,
        "overlap": spec.overlap,
        "paused": schedule.paused,
        "reason": schedule.reason,
        "next_ms": fires_at_ms(schedule),
        "running": len(schedule.running),
        "started": schedule.started,
        "skipped": schedule.skipped,
        "missed": schedule.missed,
        "note": spec.note,
    }


def describe(schedule: Schedule, now_ms: int, upcoming: int) -> dict[str, Any]:
    """All of it. `upcoming_ms`: when the next runs are due, jitter apart, were it not paused."""
    spec = schedule.spec
    times = times_of(spec)
    first_ms = schedule.next_ms if schedule.next_ms is not None else now_ms + 1
    due = times.between(first_ms, INSTANT_MAX_MS)
    return {
        **summary(schedule),
        "task_queue": spec.task_queue,
        "input": None if spec.input is None else values.to_builtins(spec.input),
        "start_ms": spec.start_ms,
        "end_ms": spec.end_ms,
        "jitter_ms": spec.jitter_ms,
        "catch_up": spec.catch_up,
        "pause_on_failure": spec.pause_on_failure,
        "timeout_ms": spec.timeout_ms,
        "created_ms": schedule.created_ms,
        "changed_ms": schedule.changed_ms,
        "running": [
            {"workflow_id": workflow_id, "due_ms": due_ms}
            for workflow_id, due_ms in schedule.running.items()
        ],
        "buffered_ms": list(schedule.buffered),
        "upcoming_ms": list(islice(due, upcoming)),
        "recent": [
            {
                "due_ms": one.due_ms,
                "at_ms": one.at_ms,
                "outcome": one.outcome,
                "why": one.why,
                "workflow_id": one.workflow_id or None,
                "status": one.status or ("Running" if one.outcome == "started" else None),
            }
            for one in schedule.recent
        ],
    }


def look(reader: Reader, args: wire.Args, now_ms: int) -> dict[str, Any] | None:
    """The `ok` of an operation that only looks at schedules; None for any other.

    Raises NotFound where there is no schedule of the id.
    """
    if isinstance(args, ws.ListSchedules):
        limit = args.limit or LIST_LIMIT
        found = reader.schedules(args.page or "", limit + 1)
        next_page = found[limit - 1].schedule_id if len(found) > limit else None
        return {"schedules": [summary(one) for one in found[:limit]], "next_page": next_page}
    if isinstance(args, ws.DescribeSchedule):
        schedule = reader.schedule(args.schedule_id)
        if schedule is None or schedule.deleted:
            raise NotFound(f"there is no schedule {args.schedule_id!r}")
        return describe(schedule, now_ms, args.upcoming)
    return None
