"""Judge a command against the state of a workflow execution: the records that follow, and the
answer.

Nothing is changed here and nothing is read but the arguments: no clock, no chance, no store. What a
decision needs of the outside stands in `Facts`. Commands about one activity are judged in
decide_activity.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.core import decide_activity, decide_dead_letter, decide_interactions, limits
from perdure.core.commands import (
    REPEATED,
    AnyAnswer,
    Command,
    CompleteActivity,
    CompleteDeadLetter,
    CompleteWorkflowTask,
    DetachLease,
    Done,
    EndLease,
    ExpireLease,
    FailActivity,
    FailDeadLetter,
    FailWorkflowTask,
    FireTimer,
    GrantLease,
    RecordHeartbeat,
    RedriveDeadLetter,
    Refusal,
    ReleaseActivity,
    Started,
    StartWorkflow,
    TimeOutActivity,
    TimeOutWorkflowTask,
)
from perdure.core.decide_start import resolve_terms
from perdure.core.decide_steps import Steps, resolve_options
from perdure.core.facts import Decision, Facts, refuse
from perdure.core.records import (
    Record,
    SignalNotes,
    TimerFired,
    WorkflowContinuedAsNew,
    WorkflowStarted,
    WorkflowTaskCompleted,
    WorkflowTaskFailed,
)
from perdure.core.state import Execution, Status
from perdure.errors import no_workflow
from perdure.failures import engine_failure

# Ends of a workflow task that say nothing about the workflow: not counted towards parking.
UNCOUNTED = frozenset({"handed_back", "unknown_type", "unread"})
NO_NOTES = SignalNotes()
# A run is continued only once it has read all that was sent to it and acknowledged, for its code
# hands on what it has not used.
UNREAD = Refusal(
    "FAILED_PRECONDITION",
    "a signal, an update or a cancellation has come that the run has not read: it reads it first",
)


def decide(execution: Execution | None, command: Command, facts: Facts) -> Decision:
    """What `command` does to `execution` (None: there is none of that id).

    Raises on our own bugs only.
    """
    if type(command) is StartWorkflow:
        return _start(execution, command, facts)
    if execution is None:
        workflow_id = getattr(command, "workflow_id", None)  # A token hides it.
        text = "there is no workflow of this id"
        return refuse("NOT_FOUND", no_workflow(workflow_id).message if workflow_id else text)
    return _DECIDERS[type(command)](execution, command, facts)


def _start(execution: Execution | None, command: StartWorkflow, facts: Facts) -> Decision:
    if execution is None:
        terms = command.terms
        return Decision(
            (
                WorkflowStarted(
                    1,
                    facts.now_ms,
                    command.workflow_type,
                    command.task_queue,
                    command.input,
                    command.request_id,
                    command.digest,
                    None if terms is None else resolve_terms(terms, facts),
                ),
            ),
            Started(),
        )
    if command.request_id is None or command.request_id != execution.request_id:
        is_what = execution.status.value
        if execution.status is Status.REMOVED:
            is_what = "closed and removed by retention"
        return refuse(
            "ALREADY_EXISTS",
            f"workflow_id {command.workflow_id!r} is taken by another workflow"
            f" ({execution.workflow_type}, {is_what}); ids are never used again",
        )
    if command.digest != execution.digest:
        return refuse(
            "FAILED_PRECONDITION",
            f"request_id {command.request_id!r} was used for workflow {command.workflow_id!r}"
            " with other arguments",
        )
    return Decision((), Started())


# --- workflow tasks ---------------------------------------------------------
def _at_cursor(execution: Execution, consumed: int, commands: int) -> Decision | None:
    """The refusal of a workflow task's end that is not about the present cursor, or None."""
    if not execution.is_open:
        return refuse("FAILED_PRECONDITION", f"the workflow is {execution.status.value}")
    if (execution.consumed, execution.commands) != (consumed, commands):
        return refuse(
            "FAILED_PRECONDITION",
            f"the workflow has gone on: it stands at event {execution.consumed},"
            f" command {execution.commands}, not at {consumed}, {commands}",
        )
    return None


def _complete_task(execution: Execution, command: CompleteWorkflowTask, facts: Facts) -> Decision:
    after = (command.consumed, command.commands_from + len(command.steps))
    if (execution.consumed, execution.commands) == after and after != (
        command.consumed_from,
        command.commands_from,
    ):
        return Decision((), Done(REPEATED))
    stale = _at_cursor(execution, command.consumed_from, command.commands_from)
    if stale is not None:
        return stale
    if not command.consumed_from < command.consumed <= execution.last_event_id:
        return refuse("INVALID_ARGUMENT", f"consumed: event {command.consumed} does not exist")
    records: list[Record] = [
        WorkflowTaskCompleted(*after),
        *decide_interactions.noted(execution, command.signals or NO_NOTES, facts),
    ]
    steps = Steps(execution, facts, command.hire, command.consumed)
    for step in command.steps:
        wrong = steps.take(step)
        if wrong is not None:
            failure = engine_failure("BadWorkflowTask", wrong)
            return Decision(
                (_failed_task(execution, "error", failure, facts),),
                Refusal("INVALID_ARGUMENT", wrong),
            )
    steps.finish()
    more = execution.more
    goes_on = type(steps.ending) is WorkflowContinuedAsNew
    if goes_on and more is not None and more.last_message_id > command.consumed:
        return Decision((_failed_task(execution, "unread", None, facts),), UNREAD)
    if steps.ending is None and steps.records:
        text = beyond(execution, len(steps.records), facts)
        if text:
            failure = engine_failure("HistoryLimit", text)
            failed = _failed_task(execution, "history_limit", failure, facts)
            return Decision((failed,), Refusal("FAILED_PRECONDITION", text))
    records.extend(steps.records)
    if steps.then or (steps.ending is not None and more is not None):
        return Decision(tuple(records), Done(), steps.follow_ons())
    return Decision(tuple(records), Done())


def beyond(execution: Execution, more: int, facts: Facts) -> str:
    """Why a history may not grow by `more` events; empty where it may."""
    bounds = facts.standing.bounds
    if execution.last_event_id + more > bounds.history_events_max:
        what = f"limits.history_events_max: it has {execution.last_event_id} events"
    elif facts.history_bytes > bounds.history_bytes_max:
        what = f"limits.history_bytes_max: it has {facts.history_bytes} bytes"
    else:
        return ""
    return f"{what}; the workflow goes no further unless it ends or continues as new"


def _fail_task(execution: Execution, command: FailWorkflowTask, facts: Facts) -> Decision:
    stale = _at_cursor(execution, command.consumed_from, command.commands_from)
    if stale is not None:
        return stale
    return Decision((_failed_task(execution, command.reason, command.failure, facts),), Done())


def _time_out_task(execution: Execution, command: TimeOutWorkflowTask, facts: Facts) -> Decision:
    stale = _at_cursor(execution, command.consumed, command.commands)
    if stale is not None:
        return stale
    return Decision((_failed_task(execution, command.reason, None, facts),), Done())


def _failed_task(
    execution: Execution, reason: str, failure: Any, facts: Facts
) -> WorkflowTaskFailed:
    """Twice in a row is given out again at once; from the third on with doubling waits, up to ten
    minutes.
    """
    failures, wait_ms = execution.task_failures, 0
    if reason == "unknown_type":
        wait_ms = limits.WORKFLOW_TASK_BACKOFF_MS
    if reason not in UNCOUNTED:
        failures += 1
        extra = failures - limits.WORKFLOW_TASK_FAILURES_FREE
        if extra > 0:
            doubled = limits.WORKFLOW_TASK_BACKOFF_MS * 2 ** min(extra - 1, 20)
            wait_ms = min(doubled, limits.WORKFLOW_TASK_BACKOFF_MAX_MS)
    return WorkflowTaskFailed(facts.now_ms, reason, failure, failures, facts.now_ms + wait_ms)


def _fire_timer(execution: Execution, command: FireTimer, facts: Facts) -> Decision:
    due_ms = execution.timers.get(command.timer_id)
    if due_ms is None:
        return refuse("NOT_FOUND", f"timer {command.timer_id} is not running")
    if facts.now_ms < due_ms:
        return refuse("FAILED_PRECONDITION", f"timer {command.timer_id}: too early", due_ms)
    event_id = execution.last_event_id + 1
    return Decision((TimerFired(event_id, facts.now_ms, command.timer_id),), Done())


_DECIDERS: dict[type[Command], Callable[[Execution, Any, Facts], Decision]] = {
    CompleteWorkflowTask: _complete_task,
    FailWorkflowTask: _fail_task,
    TimeOutWorkflowTask: _time_out_task,
    FireTimer: _fire_timer,
    GrantLease: decide_activity.grant,
    CompleteActivity: decide_activity.complete,
    FailActivity: decide_activity.fail,
    ReleaseActivity: decide_activity.release,
    RecordHeartbeat: decide_activity.heartbeat,
    ExpireLease: decide_activity.expire,
    EndLease: decide_activity.end,
    TimeOutActivity: decide_activity.time_out,
    DetachLease: decide_activity.detach,
    RedriveDeadLetter: decide_dead_letter.redrive,
    FailDeadLetter: decide_dead_letter.fail_dead_letter,
    CompleteDeadLetter: decide_dead_letter.complete_dead_letter,
    **decide_interactions.DECIDERS,
}

__all__ = ["AnyAnswer", "decide", "resolve_options"]
