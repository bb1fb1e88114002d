"""Judge what an operator decides about a dead letter. The same request again changes nothing."""

from __future__ import annotations

from perdure.core.commands import (
    CompleteDeadLetter,
    Done,
    FailDeadLetter,
    RedriveDeadLetter,
)
from perdure.core.facts import Decision, Facts, refuse, scoped
from perdure.core.records import (
    ActivityRedriven,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    Record,
)
from perdure.core.state import Activity, ActivityState, Execution
from perdure.policy import attempt_of

Resolution = RedriveDeadLetter | FailDeadLetter | CompleteDeadLetter


def redrive(execution: Execution, command: RedriveDeadLetter, facts: Facts) -> Decision:
    """Attempt 1 again with the full policy, in a new generation."""
    again = _again(command, facts, ActivityRedriven)
    if again is not None:
        return again
    activity = _dead(execution, command.activity_id)
    if activity is None:
        return _no_dead_letter(execution, command, facts)
    record = ActivityRedriven(
        event_id=execution.last_event_id + 1,
        at_ms=facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation + 1,
        request_id=command.request_id,
        input=command.input,
        has_input=command.has_input,
        by=command.by,
    )
    return Decision((record,), Done())


def fail_dead_letter(execution: Execution, command: FailDeadLetter, facts: Facts) -> Decision:
    """The workflow sees the last failure."""
    again = _again(command, facts, ActivityTaskFailed)
    if again is not None:
        return again
    activity = _dead(execution, command.activity_id)
    failure = None if activity is None else activity.last_failure
    if activity is None or failure is None:
        return _no_dead_letter(execution, command, facts)
    record = ActivityTaskFailed(
        event_id=execution.last_event_id + 1,
        at_ms=facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        attempt=activity.attempt,
        failure=failure,
        started_ms=None,
        worker_id="",
        request_id=command.request_id,
    )
    return Decision((record,), Done())


def complete_dead_letter(
    execution: Execution, command: CompleteDeadLetter, facts: Facts
) -> Decision:
    """An operator did the work by hand: the workflow sees this result."""
    again = _again(command, facts, ActivityTaskCompleted)
    if again is not None:
        return again
    activity = _dead(execution, command.activity_id)
    if activity is None:
        return _no_dead_letter(execution, command, facts)
    record = ActivityTaskCompleted(
        event_id=execution.last_event_id + 1,
        at_ms=facts.now_ms,
        activity_id=activity.activity_id,
        generation=activity.generation,
        grant=activity.grant,
        attempt=activity.attempt,
        result=command.result,
        started_ms=None,
        worker_id="",
        request_id=command.request_id,
    )
    return Decision((record,), Done())


def _dead(execution: Execution, activity_id: str) -> Activity | None:
    activity = execution.activities.get(activity_id)
    if activity is None or activity.state is not ActivityState.DEAD_LETTERED:
        return None
    return activity


def _no_dead_letter(execution: Execution, command: Resolution, facts: Facts) -> Decision:
    """Says what it is instead, and whether somebody was faster."""
    what = f"activity {command.activity_id!r}"
    activity = execution.activities.get(command.activity_id)
    if activity is not None:
        times = attempt_of(activity.attempt, activity.options.retry.max_attempts)
        is_now = f"is no dead letter: it is {activity.state.value}, {times}"
        if activity.redrives:
            is_now = f"is redriven already: it is {activity.state.value}, {times}"
        return refuse("NOT_FOUND", f"{what} {is_now}")
    match facts.past.closing_event(command.activity_id):
        case ActivityTaskCompleted():
            return refuse("NOT_FOUND", f"{what} is no dead letter: it has completed")
        case ActivityTaskFailed():
            return refuse("NOT_FOUND", f"{what} is no dead letter: it was given up as failed")
        case None if execution.is_open:
            return refuse("NOT_FOUND", f"there is no {what}, dead letter or not")
        case None:
            text = f"{what} is no dead letter: the workflow is {execution.status.value}"
            return refuse("NOT_FOUND", text)
        case _:
            return refuse("NOT_FOUND", f"{what} is no dead letter: it was cancelled")


def _again(command: Resolution, facts: Facts, kind: type[Record]) -> Decision | None:
    """The answer to a request that was made before, or None: it is new.

    Asked first: a request that comes late must not resolve what died again meanwhile.
    """
    if command.request_id is None:
        return None
    event = facts.past.requested_event(scoped(kind, command.request_id))
    if event is None:
        return None
    is_same = getattr(event, "activity_id", None) == command.activity_id
    if isinstance(command, RedriveDeadLetter) and isinstance(event, ActivityRedriven):
        same_input = (event.has_input, event.input) == (command.has_input, command.input)
        is_same = is_same and same_input
    if isinstance(command, CompleteDeadLetter) and isinstance(event, ActivityTaskCompleted):
        is_same = is_same and event.result == command.result
    if is_same:
        return Decision((), Done())
    return refuse(
        "FAILED_PRECONDITION", f"request_id {command.request_id!r} was used with other arguments"
    )
