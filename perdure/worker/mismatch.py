"""Where a replay and history part: which command fits which event, and how a mismatch is told."""

from __future__ import annotations

from types import CodeType

from perdure.core import commands, records
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
        case records.WorkflowCompleted(), commands.CompleteWorkflow():
            return True
        case records.WorkflowFailed(), commands.FailWorkflow():
            return True
        case _:
            return False


def between(
    event: records.Event, issued: tuple[commands.Step, CodeType | None, int] | None
) -> NonDeterminism:
    """The error for a recorded command that is not the next one of the code."""
    expected = _event(event)
    got, where = "no command", ""
    if issued is not None:
        step, code, instruction = issued
        got = _command(step)
        where = "" if code is None else f"{code.co_filename}:{_line(code, instruction)}"
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
        case (
            records.ActivityTaskCancelled()
            | records.ActivityTaskCompleted()
            | records.ActivityTaskFailed()
        ):
            about = f" of {event.activity_id!r}"
        case records.TimerStarted() | records.TimerCancelled() | records.TimerFired():
            about = f" of timer {event.timer_id}"
        case _:
            about = ""
    return f"{kind}{about} (event {event.event_id})"


def _command(step: commands.Step) -> str:
    match step:
        case commands.ScheduleActivity():
            return f"ScheduleActivity of {step.activity_id!r}, type {step.activity_type}"
        case commands.CancelActivity():
            return f"CancelActivity of {step.activity_id!r}"
        case commands.StartTimer():
            return f"StartTimer of timer {step.timer_id}, {step.duration_ms} ms"
        case commands.CancelTimer():
            return f"CancelTimer of timer {step.timer_id}"
        case commands.CompleteWorkflow():
            return "CompleteWorkflow"
        case commands.FailWorkflow():
            failure = step.failure
            return f"FailWorkflow with {failure.type}: {failure.message[:200]}"
        case _:
            return type(step).__name__


def _line(code: CodeType, instruction: int) -> int:
    """The line of an instruction; worked out only when it is shown."""
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno
