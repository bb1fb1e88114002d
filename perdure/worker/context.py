"""What the code of one attempt may ask through perdure.activity, made from an activity task."""

from __future__ import annotations

from collections.abc import Callable

from perdure.activity import ActivityContext, Info
from perdure.core.ids import idempotency_key


def activity_context(
    *,
    workflow_id: str,
    workflow_type: str,
    activity_id: str,
    activity_type: str,
    generation: int,
    grant: int,
    attempt: int,
    token: str,
    details: bytes | None,
    heartbeat: Callable[[bytes | None], None],
) -> ActivityContext:
    """The context of one attempt; the key is derived and the grant is its fence.

    `heartbeat` is called with the newest details (None: a mere sign of life), from any thread.
    """
    info = Info(
        workflow_id=workflow_id,
        workflow_type=workflow_type,
        activity_id=activity_id,
        activity_type=activity_type,
        attempt=attempt,
        generation=generation,
        fence=grant,
        idempotency_key=idempotency_key(workflow_id, activity_id),
    )
    return ActivityContext(info=info, token=token, details=details, heartbeat=heartbeat)
