"""What history says of a workflow that somebody waits for."""

from __future__ import annotations

from collections.abc import Callable

from perdure.core.closings import closed
from perdure.core.commands import AnyAnswer, Refusal
from perdure.core.records import decode_event
from perdure.core.state import Execution, Status
from perdure.errors import no_workflow, removed_workflow


def ended(
    workflow_id: str, execution: Execution | None, event: Callable[[str, int], bytes | None]
) -> AnyAnswer | None:
    """How the workflow ended, or that there is none; None while it goes on.

    `event` finds an encoded event by workflow and number.
    """
    if execution is None or execution.status is Status.REMOVED:
        is_gone = execution is not None
        error = removed_workflow(workflow_id) if is_gone else no_workflow(workflow_id)
        return Refusal(error.code, error.message)
    if execution.is_open:
        return None
    raw = event(workflow_id, execution.last_event_id)
    return closed(execution.status, None if raw is None else decode_event(raw))
