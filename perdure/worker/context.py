"""What the code of one attempt may ask through perdure.activity, made from an activity task."""

from __future__ import annotations

from collections.abc import Callable

from perdure.activity import ActivityContext, Info
from perdure.core.ids import idempotency_key
from perdure.core.links import ActivityTask


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


def task_context(task: ActivityTask, heartbeat: Callable[[bytes | None], None]) -> ActivityContext:
    """The context of the attempt that `task` asks for."""
    return activity_context(
        workflow_id=task.workflow_id,
        workflow_type=task.workflow_type,
        activity_id=task.activity_id,
        activity_type=task.activity_type,
        generation=task.generation,
        grant=task.grant,
        attempt=task.attempt,
        token=task.token,
        details=task.details,
        heartbeat=heartbeat,
    )
