"""The deadlines that callers give an activity: when each passes, where it runs at all."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.core.state import Activity, ActivityState

SCHEDULE_TO_START = "schedule_to_start"
SCHEDULE_TO_CLOSE = "schedule_to_close"


def of_activity(activity: Activity) -> Iterator[tuple[str, int | None]]:
    """(kind, when it passes) of those that it was given; None: not any more. A dead letter has
    none.
    """
    length_ms = activity.options.schedule_to_start_ms
    if length_ms:
        waits = activity.state is ActivityState.SCHEDULED and not activity.leased_in_generation
        yield SCHEDULE_TO_START, activity.generation_ms + length_ms if waits else None
    close_ms = activity.schedule_to_close_at_ms
    if close_ms is not None:
        is_dead = activity.state is ActivityState.DEAD_LETTERED
        yield SCHEDULE_TO_CLOSE, None if is_dead else close_ms
