"""From requests to commands, from answers to what a client is told. Pure."""

from __future__ import annotations

from typing import Any

from perdure import errors, values, wire
from perdure.core.commands import (
    AnyAnswer,
    AnyCommand,
    Closed,
    CompleteActivity,
    CompleteDeadLetter,
    Deadline,
    Done,
    FailActivity,
    FailDeadLetter,
    RedriveDeadLetter,
    Refusal,
    Started,
    StartWorkflow,
)
from perdure.core.ids import idempotency_key
from perdure.core.links import ActivityTask
from perdure.core.state import Status


def command_of(request: wire.Request) -> AnyCommand:
    """What history is asked. InvalidArgument naming the field where a payload is no value."""
    args, form = request.args, request.form
    match args:
        case wire.StartWorkflow():
            payload = form.payload(args.input, "input")
            return StartWorkflow(
                args.workflow_id,
                args.type,
                args.task_queue,
                payload,
                args.request_id,
                values.digest(payload, args.type, args.task_queue),
            )
        case wire.RedriveDeadLetter():
            return RedriveDeadLetter(args.workflow_id, args.activity_id, args.request_id)
        case wire.FailDeadLetter():
            return FailDeadLetter(args.workflow_id, args.activity_id, args.request_id)
        case wire.CompleteDeadLetter():
            result = form.payload(args.result, "result")
            return CompleteDeadLetter(args.workflow_id, args.activity_id, result, args.request_id)
        case wire.CompleteActivityTask():
            return CompleteActivity(args.token, form.payload(args.result, "result"))
        case wire.FailActivityTask():
            return FailActivity(args.token, args.failure.to_failure())
        case _:
            raise AssertionError(f"{request.op} is no command")


def outcome_of(request: wire.Request, answer: AnyAnswer) -> dict[str, Any]:
    """The `ok` that answers `request`; the PerdureError raised where history refused."""
    match answer:
        case Done(state=state):
            return {"state": state} if isinstance(request.args, wire.FailActivityTask) else {}
        case Started(run=run):
            assert isinstance(request.args, wire.StartWorkflow)
            return {"workflow_id": request.args.workflow_id, "run": run}
        case Deadline():
            return {
                "lease_deadline_ms": answer.deadline_ms,
                "cancel_requested": answer.cancel_requested,
            }
        case Closed():
            assert isinstance(request.args, wire.GetResult)
            return result_of(request.form, request.args.workflow_id, answer)
        case Refusal():
            raise errors.from_code(answer.code, answer.message)


def result_of(form: wire.Form, workflow_id: str, closed: Closed) -> dict[str, Any]:
    """The `ok` of GetResult, or WorkflowFailed with how and why."""
    if closed.status == Status.COMPLETED:
        return {"status": closed.status, "result": form.render(closed.result)}
    why = closed.failure
    text = f"workflow {workflow_id!r} ended {closed.status}"
    if why is not None:
        text = f"{text}: {why.type}: {why.message[:1_000]}"
    raise errors.WorkflowFailed(text, closed.status, why)


def task_view(form: wire.Form, task: ActivityTask) -> dict[str, Any]:
    """What a client that polls by hand is given; payloads must be resolved."""
    return {
        "token": task.token,
        "workflow_id": task.workflow_id,
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
