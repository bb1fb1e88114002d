"""From requests to commands, from answers to what a client is told. Pure."""

from __future__ import annotations

from collections.abc import Callable
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
    Updated,
)
from perdure.core.ids import idempotency_key
from perdure.core.links import ActivityTask
from perdure.core.state import Status


def command_of(request: wire.Request) -> AnyCommand:
    """What history is asked. InvalidArgument naming the field where a payload is no value."""
    return _COMMANDS[type(request.args)](request.form, request.args)


def _start(form: wire.Form, args: wire.StartWorkflow) -> AnyCommand:
    payload = form.payload(args.input, "input")
    digest = values.digest(payload, args.type, args.task_queue)
    return StartWorkflow(
        args.workflow_id, args.type, args.task_queue, payload, args.request_id, digest
    )


def _redrive(form: wire.Form, args: wire.RedriveDeadLetter) -> AnyCommand:
    return RedriveDeadLetter(args.workflow_id, args.activity_id, args.request_id)


def _fail_dead(form: wire.Form, args: wire.FailDeadLetter) -> AnyCommand:
    return FailDeadLetter(args.workflow_id, args.activity_id, args.request_id)


def _complete_dead(form: wire.Form, args: wire.CompleteDeadLetter) -> AnyCommand:
    result = form.payload(args.result, "result")
    return CompleteDeadLetter(args.workflow_id, args.activity_id, result, args.request_id)


def _complete(form: wire.Form, args: wire.CompleteActivityTask) -> AnyCommand:
    return CompleteActivity(args.token, form.payload(args.result, "result"))


def _fail(form: wire.Form, args: wire.FailActivityTask) -> AnyCommand:
    return FailActivity(args.token, args.failure.to_failure())


_COMMANDS: dict[type[wire.Args], Callable[[wire.Form, Any], AnyCommand]] = {
    wire.StartWorkflow: _start,
    wire.RedriveDeadLetter: _redrive,
    wire.FailDeadLetter: _fail_dead,
    wire.CompleteDeadLetter: _complete_dead,
    wire.CompleteActivityTask: _complete,
    wire.FailActivityTask: _fail,
}


def outcome_of(request: wire.Request, answer: AnyAnswer) -> dict[str, Any]:
    """The `ok` that answers `request`; the PerdureError raised where history refused."""
    args = request.args
    match answer:
        case Closed():
            assert isinstance(args, wire.GetResult)
            return result_of(request.form, args.workflow_id, answer)
        case Started():
            assert isinstance(args, wire.StartWorkflow)
            return {"workflow_id": args.workflow_id, "run": answer.run}
        case Done():
            return {"state": answer.state} if isinstance(args, wire.FailActivityTask) else {}
        case Deadline():
            return {
                "lease_deadline_ms": answer.deadline_ms,
                "cancel_requested": answer.cancel_requested,
            }
        case Updated():
            raise errors.Internal("an answer to an update that nobody asked for")
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
