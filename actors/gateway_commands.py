"""From answers to what a client is told. Pure."""

from __future__ import annotations

from typing import Any

from perdure import errors, wire
from perdure.commanding import signalled, update_error
from perdure.core.commands import (
    AnyAnswer,
    Closed,
    Deadline,
    Done,
    Refusal,
    Started,
    Updated,
    WasReset,
)
from perdure.core.ids import idempotency_key, of_execution
from perdure.core.links import ActivityTask
from perdure.core.state import Status
from perdure.flow_commands import reset_view


def outcome_of(request: wire.Request, answer: AnyAnswer) -> dict[str, Any]:
    """The `ok` that answers `request`; the PerdureError raised where history refused."""
    args = request.args
    match answer:
        case Closed():
            assert isinstance(args, wire.GetResult)
            return result_of(request.form, args.workflow_id, answer)
        case Started():
            assert isinstance(args, wire.StartWorkflow | wire.UpdateWorkflow)
            return {"workflow_id": args.workflow_id, "run": answer.run}
        case Done():
            if isinstance(args, wire.SignalWorkflow):
                return signalled(answer)
            return {"state": answer.state} if isinstance(args, wire.FailActivityTask) else {}
        case WasReset():
            return reset_view(answer)
        case Updated():
            return updated(request.form, args, answer)
        case Deadline():
            return {
                "lease_deadline_ms": answer.deadline_ms,
                "cancel_requested": answer.cancel_requested,
            }
        case Refusal():
            raise errors.from_code(answer.code, _message_of(args, answer))


def _message_of(args: wire.Args, refusal: Refusal) -> str:
    """Why not; what is not there is named."""
    workflow_id: str | None = getattr(args, "workflow_id", None)
    if refusal.code != errors.NotFound.code or workflow_id is None:
        return refusal.message
    no_workflow = errors.no_workflow(workflow_id).message
    if isinstance(args, wire.GetResult) or refusal.message == no_workflow:
        return no_workflow
    return f"workflow {workflow_id!r}: {refusal.message}"


def result_of(form: wire.Form, workflow_id: str, closed: Closed) -> dict[str, Any]:
    """The `ok` of GetResult, or WorkflowFailed with how and why."""
    if closed.status == Status.COMPLETED:
        return {"status": closed.status, "result": form.render(closed.result)}
    why = closed.failure
    text = f"workflow {workflow_id!r} ended {closed.status}"
    if why is not None:
        text = f"{text}: {why.type}: {why.message[:1_000]}"
    raise errors.WorkflowFailed(text, closed.status, why)


def updated(form: wire.Form, args: wire.Args, end: Updated) -> dict[str, Any]:
    """The `ok` of UpdateWorkflow, or UpdateRejected or UpdateFailed with why."""
    assert isinstance(args, wire.UpdateWorkflow)
    if end.failure is None and not end.rejected:
        return {"result": form.render(end.result)}
    raise update_error(args, end)


def too_late(args: wire.GetResult | wire.UpdateWorkflow, wait_ms: int) -> errors.DeadlineExceeded:
    """What was waited for has not happened in time."""
    what = f"workflow {args.workflow_id!r} has not ended"
    if isinstance(args, wire.UpdateWorkflow):
        what = (
            f"the update {args.name!r} of workflow {args.workflow_id!r} (request_id"
            f" {args.request_id!r}: ask again with it) is not done"
        )
    return errors.DeadlineExceeded(f"{what} within {wait_ms} ms")


def task_view(form: wire.Form, task: ActivityTask) -> dict[str, Any]:
    """What a client that polls by hand is given; payloads must be resolved."""
    workflow_id, run = of_execution(task.workflow_id)
    return {
        "token": task.token,
        "workflow_id": workflow_id,
        "run": run,
        "workflow_type": task.workflow_type,
        "activity_id": task.activity_id,
        "type": task.activity_type,
        "attempt": task.attempt,
        "input": form.render(task.input),
        "heartbeat_details": form.render(task.details),
        "idempotency_key": idempotency_key(task.workflow_id, task.activity_id),
        "lease_deadline_ms": task.deadline_ms,
        "scheduled_ms": task.scheduled_ms,
    }
