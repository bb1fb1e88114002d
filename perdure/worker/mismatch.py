"""Where a replay and history part: which command fits which event, and how a mismatch is told."""

from __future__ import annotations

from types import CodeType

from perdure.core import commands, records
from perdure.worker.lines import line_of
from perdure.workflow import NonDeterminism


def fits(step: commands.Step, event: records.Event) -> bool:
    """Whether `event` is what history made of `step`.

    Ids and types have to agree. Inputs, options and lengths may change between versions of a
    workflow's code: what was recorded stays in force.
    """
    match event, step:
        case records.ActivityTaskScheduled(), commands.ScheduleActivity():
            return (event.activity_id, event.activity_type) == (
                step.activity_id,
                step.activity_type,
            )
        case records.ActivityTaskCancelled(), commands.CancelActivity():
            return event.activity_id == step.activity_id
        case records.TimerStarted(), commands.StartTimer():
            return event.timer_id == step.timer_id
        case records.TimerCancelled(), commands.CancelTimer():
            return event.timer_id == step.timer_id
        case records.ActivityCancelRequested(), commands.CancelActivity():
            return (event.activity_id, event.mode) == (step.activity_id, step.mode)
        case records.ChildWorkflowStarted(), commands.StartChild():
            return (event.child_id, event.workflow_type) == (step.child_id, step.workflow_type)
        case records.ChildCancelRequested(), commands.CancelChild():
            return event.child_id == step.child_id
        case records.MarkerRecorded(), commands.RecordMarker():
            return (event.marker, event.name) == (step.marker, step.name)
        case records.UpdateEnded(), commands.EndUpdate():
            return event.request_id == step.update_id
        case records.SearchAttributesSet(), commands.SetSearchAttributes():
            return [name for name, _ in event.attributes] == [name for name, _ in step.attributes]
        case _:
            return (type(event), type(step)) in _ENDINGS or _fits_word(step, event)


def _fits_word(step: commands.Step, event: records.Event) -> bool:
    """The same for what was said to another workflow."""
    match event, step:
        case records.SignalSent(), commands.SendSignal():
            return (event.workflow_id, event.name) == (step.workflow_id, step.name)
        case records.ExternalCancelRequested(), commands.CancelExternal():
            return event.workflow_id == step.workflow_id
        case _:
            return False


_ENDINGS = {
    (records.WorkflowCompleted, commands.CompleteWorkflow),
    (records.WorkflowFailed, commands.FailWorkflow),
    (records.WorkflowCancelled, commands.CancelWorkflowStep),
    (records.WorkflowContinuedAsNew, commands.ContinueAsNew),
}


def between(
    event: records.Event, issued: tuple[commands.Step, CodeType | None, int] | None
) -> NonDeterminism:
    """The error for a recorded command that is not the next one of the code."""
    expected = _event(event)
    got, where = "no command", ""
    if issued is not None:
        step, code, instruction = issued
        got = _command(step)
        where = "" if code is None else f"{code.co_filename}:{line_of(code, instruction)}"
    message = f"the code does not agree with history: expected {expected}, got {got}"
    if where:
        message += f" at {where}"
    return NonDeterminism(message, expected=expected, got=got, where=where)


def unknown(event: records.Event) -> NonDeterminism:
    """The error for an event about something that the code never asked for."""
    expected = _event(event)
    return NonDeterminism(
        f"the code does not agree with history: {expected}, which it never asked for",
        expected=expected,
        got="no command",
    )


def _event(event: records.Event) -> str:
    kind = type(event).__name__
    match event:
        case records.ActivityTaskScheduled():
            about = f" of {event.activity_id!r}, type {event.activity_type}"
        case records.ChildWorkflowStarted():
            about = f" of {event.child_id!r}, type {event.workflow_type}"
        case records.TimerStarted() | records.TimerCancelled() | records.TimerFired():
            about = f" of timer {event.timer_id}"
        case records.MarkerRecorded():
            about = f" of {event.marker} {event.name!r}"
        case records.SignalSent():
            about = f" of {event.name!r} to {event.workflow_id!r}"
        case records.ExternalCancelRequested():
            about = f" of {event.workflow_id!r}"
        case records.UpdateEnded():
            about = f" of {event.request_id!r}"
        case _:
            of = getattr(event, "activity_id", None) or getattr(event, "child_id", None)
            about = f" of {of!r}" if of else ""
    return f"{kind}{about} (event {event.event_id})"


def _command(step: commands.Step) -> str:
    kind = type(step).__name__
    match step:
        case commands.ScheduleActivity():
            return f"{kind} of {step.activity_id!r}, type {step.activity_type}"
        case commands.CancelActivity():
            return f"{kind} of {step.activity_id!r}"
        case commands.StartTimer():
            return f"{kind} of timer {step.timer_id}, {step.duration_ms} ms"
        case commands.CancelTimer():
            return f"{kind} of timer {step.timer_id}"
        case commands.FailWorkflow():
            failure = step.failure
            return f"{kind} with {failure.type}: {failure.message[:200]}"
        case commands.StartChild():
            return f"{kind} of {step.child_id!r}, type {step.workflow_type}"
        case commands.CancelChild():
            return f"{kind} of {step.child_id!r}"
        case commands.SendSignal():
            return f"{kind} of {step.name!r} to {step.workflow_id!r}"
        case commands.CancelExternal():
            return f"{kind} of {step.workflow_id!r}"
        case commands.RecordMarker():
            return f"{kind} of {step.marker} {step.name!r}"
        case commands.EndUpdate():
            return f"{kind} of {step.update_id!r}"
        case _:
            return kind
