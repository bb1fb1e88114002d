"""From what a client asks to the command that history judges: for gateway and LocalEngine. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure import flow_commands, schedule_commanding, values, wire
from perdure.core.commands import (
    NOT_TAKEN,
    STARTED,
    AnyAnswer,
    AnyCommand,
    CancelWorkflow,
    CompleteActivity,
    CompleteDeadLetter,
    Done,
    FailActivity,
    FailDeadLetter,
    RedriveDeadLetter,
    SignalWorkflow,
    StartWorkflow,
    TerminateWorkflow,
    Updated,
    UpdateWorkflow,
)
from perdure.core.start import StartTerms
from perdure.errors import UpdateFailed, UpdateRejected


def command_of(form: wire.Form, args: wire.Args) -> AnyCommand:
    """What history is asked. InvalidArgument naming the field where a payload is no value."""
    make = _COMMANDS.get(type(args), _about_schedules)
    return make(form, args)


def _about_schedules(form: wire.Form, args: wire.Args) -> AnyCommand:
    command: AnyCommand = schedule_commanding.command_of(form, args)
    return command


def signalled(answer: AnyAnswer) -> dict[str, Any]:
    """The `ok` of a signal: `taken` is false where the code, as it stands, has nothing for it,
    `started` true where the workflow was started with it.
    """
    state = answer.state if isinstance(answer, Done) else ""
    if state == STARTED:
        return {"started": True}
    return {"taken": False} if state == NOT_TAKEN else {}


def update_error(args: wire.UpdateWorkflow, end: Updated) -> UpdateFailed:
    """Why there is no result of an update: rejected by its validator, or failed."""
    why = end.failure
    how = "was rejected" if end.rejected else "failed"
    said = f": {why.type}: {why.message[:1_000]}" if why else ""
    text = f"the update {args.name!r} of workflow {args.workflow_id!r} {how}{said}"
    return UpdateRejected(text, why) if end.rejected else UpdateFailed(text, why)


def _start(form: wire.Form, args: wire.StartWorkflow) -> StartWorkflow:
    return _starting(form, args, args.workflow_id, args.request_id, "input")


def _starting(
    form: wire.Form,
    args: wire.StartWorkflow | wire.StartFirst,
    workflow_id: str,
    request_id: str | None,
    field: str,
) -> StartWorkflow:
    payload = form.payload(args.input, field)
    terms = _terms(args.options)
    said = [args.type, args.task_queue]
    if terms is not None:
        said += [str(terms.delay_ms), str(terms.timeout_ms), repr(terms.attributes)]
    return StartWorkflow(
        workflow_id,
        args.type,
        args.task_queue,
        payload,
        request_id,
        values.digest(payload, *said),
        terms,
    )


def _first(
    form: wire.Form, args: wire.SignalWorkflow | wire.UpdateWorkflow
) -> StartWorkflow | None:
    """How the workflow is started, where there is none to take the message."""
    if args.start is None:
        return None
    return _starting(form, args.start, args.workflow_id, args.request_id, "start.input")


def _terms(options: wire.StartOptions | None) -> StartTerms | None:
    """None for a plain start, which is all that most are."""
    if options is None:
        return None
    terms = StartTerms(
        delay_ms=options.start_delay_ms or 0,
        timeout_ms=options.timeout_ms or 0,
        attributes=tuple(sorted((options.search_attributes or {}).items())),
    )
    return None if terms == StartTerms() else terms


def _signal(form: wire.Form, args: wire.SignalWorkflow) -> AnyCommand:
    payload = form.payload(args.input, "input")
    start = _first(form, args)
    if start is not None:
        terms = msgspec.structs.replace(start.terms or StartTerms(), signalled=True)
        start = msgspec.structs.replace(start, terms=terms)
    return SignalWorkflow(args.workflow_id, args.name, payload, args.request_id, start)


def _cancel(form: wire.Form, args: wire.CancelWorkflow) -> AnyCommand:
    return CancelWorkflow(args.workflow_id, args.reason or "", args.request_id)


def _terminate(form: wire.Form, args: wire.TerminateWorkflow) -> AnyCommand:
    return TerminateWorkflow(args.workflow_id, args.reason or "", args.request_id)


def _update(form: wire.Form, args: wire.UpdateWorkflow) -> AnyCommand:
    payload = form.payload(args.input, "input")
    start = _first(form, args)
    return UpdateWorkflow(args.workflow_id, args.name, payload, args.request_id, start=start)


def _redrive(form: wire.Form, args: wire.RedriveDeadLetter) -> AnyCommand:
    return RedriveDeadLetter(
        args.workflow_id,
        args.activity_id,
        args.request_id,
        form.payload(args.input, "input"),
        bool(args.input),
        args.by or "",
    )


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
    wire.SignalWorkflow: _signal,
    wire.CancelWorkflow: _cancel,
    wire.TerminateWorkflow: _terminate,
    wire.UpdateWorkflow: _update,
    wire.RedriveDeadLetter: _redrive,
    wire.FailDeadLetter: _fail_dead,
    wire.CompleteDeadLetter: _complete_dead,
    wire.CompleteActivityTask: _complete,
    wire.FailActivityTask: _fail,
    **flow_commands.COMMANDS,
}
