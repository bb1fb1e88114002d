"""Judge what clients and other executions ask of a workflow: signals, updates, its end.

`ended` says what the end of an execution means to its parent and to its children.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.core import holding, limits, resetting
from perdure.core.commands import (
    NOT_TAKEN,
    CancelWorkflow,
    ChildEnded,
    Command,
    CompleteDeadLetter,
    Done,
    FailDeadLetter,
    PauseWorkflow,
    RedriveDeadLetter,
    ResetWorkflow,
    RetryNow,
    SignalWorkflow,
    StartWorkflow,
    TerminateWorkflow,
    TimeOutWorkflow,
    UpdateWorkflow,
)
from perdure.core.facts import Decision, Facts, FollowOn, refuse, scoped
from perdure.core.ids import of_execution
from perdure.core.records import (
    ChildWorkflowCompleted,
    ChildWorkflowFailed,
    Record,
    SignalNotes,
    SignalReceived,
    SignalsNoted,
    UpdateReceived,
    WorkflowCancelled,
    WorkflowCancelRequested,
    WorkflowCompleted,
    WorkflowContinuedAsNew,
    WorkflowFailed,
    WorkflowTerminated,
)
from perdure.core.state import Execution, Status
from perdure.failures import CANCELLED, TERMINATED, WORKFLOW_TIMEOUT, Failure, engine_failure


# --- its end ------------------------------------------------------------------
def cancel(execution: Execution, command: CancelWorkflow, facts: Facts) -> Decision:
    """The workflow is woken, to end in order. A second time changes nothing."""
    known = _anothers(execution, command) or _again(command, WorkflowCancelRequested, facts)
    if known is not None:
        return known
    if not execution.is_open:
        return _closed(execution)
    if execution.more is not None and execution.more.cancel_requested:
        return Decision((), Done())
    record = WorkflowCancelRequested(
        execution.last_event_id + 1, facts.now_ms, command.reason, command.request_id
    )
    return Decision((record,), Done())


def terminate(execution: Execution, command: TerminateWorkflow, facts: Facts) -> Decision:
    """The workflow ends now, whatever its code would do."""
    known = _anothers(execution, command) or _again(command, WorkflowTerminated, facts)
    if known is not None:
        return known
    if not execution.is_open:
        return _closed(execution)
    record = WorkflowTerminated(
        execution.last_event_id + 1, facts.now_ms, command.reason, command.request_id
    )
    return Decision((record,), Done(), ended(execution, record))


def time_out(execution: Execution, command: TimeOutWorkflow, facts: Facts) -> Decision:
    """The time that the workflow was given is over."""
    if not execution.is_open:
        return _closed(execution)
    at_ms = 0 if execution.more is None else execution.more.timeout_at_ms
    if not at_ms:
        return refuse("FAILED_PRECONDITION", "the workflow has no timeout")
    if facts.now_ms < at_ms:
        return refuse("FAILED_PRECONDITION", "too early", at_ms)
    failure = engine_failure(WORKFLOW_TIMEOUT, "the workflow did not end within its timeout_ms")
    record = WorkflowFailed(execution.last_event_id + 1, facts.now_ms, failure)
    return Decision((record,), Done(), ended(execution, record))


def ended(
    execution: Execution, record: Record, started: Mapping[str, str] | None = None
) -> tuple[FollowOn, ...]:
    """What follows for others when `execution` ends with `record`.

    `started`: children of the same commit. A run that is continued as new tells its parent nothing,
    and its children are the next run's.
    """
    more = execution.more
    if type(record) is WorkflowContinuedAsNew:
        return ()
    then = []
    children = {**({} if more is None else more.children), **(started or {})}
    reason = f"its parent {of_execution(execution.workflow_id)[0]} has ended"
    for child_id, close in children.items():
        if close == "terminate":
            then.append(FollowOn(TerminateWorkflow(child_id, reason, parent=execution.workflow_id)))
        elif close == "cancel":
            then.append(FollowOn(CancelWorkflow(child_id, reason, parent=execution.workflow_id)))
    if more is not None and more.parent is not None:
        status, result, failure = outcome(record)
        parent = more.parent
        child = ChildEnded(parent.workflow_id, parent.child_id, status.value, result, failure)
        then.append(FollowOn(child))
    return tuple(then)


def outcome(record: Record | None) -> tuple[Status, bytes | None, Failure | None]:
    """How an execution ended whose last event is `record`: status, result, failure."""
    match record:
        case WorkflowCompleted(result=result):
            return Status.COMPLETED, result, None
        case WorkflowFailed(failure=failure):
            return Status.FAILED, None, failure
        case WorkflowCancelled(reason=reason):
            return Status.CANCELLED, None, engine_failure(CANCELLED, reason)
        case WorkflowTerminated(reason=reason):
            return Status.TERMINATED, None, engine_failure(TERMINATED, reason)
        case WorkflowContinuedAsNew():
            return Status.CONTINUED_AS_NEW, None, None
        case _:
            return Status.RUNNING, None, None


# --- signals and updates ------------------------------------------------------
def signal(execution: Execution, command: SignalWorkflow, facts: Facts) -> Decision:
    """The signal is kept for the workflow's code, and wakes it."""
    known = _again(command, SignalReceived, facts)
    if known is not None:
        return known
    refusal = _is_another(execution, command.start) or _closed_or_full(execution, command, facts)
    if refusal is not None:
        return refusal
    record = SignalReceived(
        execution.last_event_id + 1,
        facts.now_ms,
        command.name,
        command.input,
        command.request_id,
    )
    takes = () if execution.more is None else execution.more.takes
    # Nothing is said of code that takes no signal so far: it may not have run. Nor where there may
    # be more names than were noted.
    is_known = 0 < len(takes) < limits.SIGNAL_NAMES_NOTED
    return Decision((record,), Done(NOT_TAKEN if is_known and command.name not in takes else ""))


def noted(execution: Execution, notes: SignalNotes, facts: Facts) -> tuple[Record, ...]:
    """What a workflow task found out about signals, where that is news."""
    more = execution.more
    before = ((), ()) if more is None else (more.takes, more.untaken)
    if (notes.takes, notes.untaken) == before and not notes.dropped:
        return ()
    return (SignalsNoted(facts.now_ms, notes),)


def update(execution: Execution, command: UpdateWorkflow, facts: Facts) -> Decision:
    """The update is kept for the workflow's code, and wakes it; the code will answer it."""
    known = facts.past.requested_event(scoped(UpdateReceived, command.update_id))
    if known is not None and not command.handed_on:
        return _same(command, known, command.update_id)
    refusal = _is_another(execution, command.start) or _closed_or_full(execution, command, facts)
    if refusal is not None:
        return refusal
    open_updates = 0 if execution.more is None else len(execution.more.updates)
    if open_updates >= facts.standing.bounds.open_updates:
        text = f"limits.open_updates: {open_updates} updates of this workflow wait for their answer"
        return refuse("RESOURCE_EXHAUSTED", text)
    record = UpdateReceived(
        execution.last_event_id + 1,
        facts.now_ms,
        command.name,
        command.input,
        command.update_id,
    )
    return Decision((record,), Done())


def _is_another(execution: Execution, start: StartWorkflow | None) -> Decision | None:
    """The refusal of a message to what is not the workflow that it would start, or None."""
    if start is None or start.workflow_type == execution.workflow_type:
        return None
    text = f"workflow_id {start.workflow_id!r} is taken, by a {execution.workflow_type}"
    return refuse("ALREADY_EXISTS", text)


def _closed_or_full(
    execution: Execution, command: SignalWorkflow | UpdateWorkflow, facts: Facts
) -> Decision | None:
    """The refusal of a message that the workflow can't take, or None."""
    if not execution.is_open:
        return _closed(execution)
    if command.start is not None and execution.last_event_id == 1:
        return None  # It has only just begun, for this very message.
    bounds = facts.standing.bounds
    more = execution.more
    if more is not None and more.unread >= bounds.pending_signals:
        text = f"limits.pending_signals: {more.unread} signals and updates were not read yet"
        return refuse("RESOURCE_EXHAUSTED", text)
    if execution.last_event_id >= bounds.history_events_max:
        text = f"limits.history_events_max: its history has {execution.last_event_id} events"
        return refuse("RESOURCE_EXHAUSTED", text)
    if facts.history_bytes > bounds.history_bytes_max:
        text = f"limits.history_bytes_max: its history has {facts.history_bytes} bytes"
        return refuse("RESOURCE_EXHAUSTED", text)
    return None


# --- children -----------------------------------------------------------------
def child_ended(execution: Execution, command: ChildEnded, facts: Facts) -> Decision:
    """The parent is told, and woken."""
    if not execution.is_open:
        return _closed(execution)
    if execution.more is None or command.child_id not in execution.more.children:
        return refuse("FAILED_PRECONDITION", f"{command.child_id!r} is no open child")
    event_id = execution.last_event_id + 1
    record: Record
    if command.status == Status.COMPLETED:
        record = ChildWorkflowCompleted(event_id, facts.now_ms, command.child_id, command.result)
    else:
        failure = command.failure or engine_failure(command.status, "")
        record = ChildWorkflowFailed(
            event_id, facts.now_ms, command.child_id, command.status, failure
        )
    return Decision((record,), Done())


# --- within -------------------------------------------------------------------
def _anothers(execution: Execution, command: CancelWorkflow | TerminateWorkflow) -> Decision | None:
    """The refusal of a parent's order to what is not its child, or None: where the id was taken,
    nothing of the one that has it is the parent's to end.
    """
    if not command.parent:
        return None
    parent = None if execution.more is None else execution.more.parent
    # Any run of it: a child outlives the run that started it.
    if (
        parent is not None
        and of_execution(parent.workflow_id)[0] == of_execution(command.parent)[0]
    ):
        return None
    return refuse("FAILED_PRECONDITION", f"{execution.workflow_id!r} is no child of its")


def _closed(execution: Execution) -> Decision:
    if execution.status is Status.REMOVED:
        return refuse("NOT_FOUND", "the workflow has ended and was removed by retention")
    return refuse("FAILED_PRECONDITION", f"the workflow is {execution.status.value}")


def _again(command: Any, kind: type[Record], facts: Facts) -> Decision | None:
    """The answer to a request that was made before, or None: it is new."""
    if command.request_id is None:
        return None
    known = facts.past.requested_event(scoped(kind, command.request_id))
    return None if known is None else _same(command, known, command.request_id)


def _same(command: Any, event: Record, request_id: str) -> Decision:
    """A repeat is answered as the first time, if it says the same."""
    for field in ("name", "input", "reason"):
        if getattr(command, field, None) != getattr(event, field, None):
            text = f"request_id {request_id!r} was used with another {field}"
            return refuse("FAILED_PRECONDITION", text)
    return Decision((), Done())


DECIDERS: dict[type[Command], Callable[[Execution, Any, Facts], Decision]] = {
    CancelWorkflow: cancel,
    TerminateWorkflow: terminate,
    TimeOutWorkflow: time_out,
    SignalWorkflow: signal,
    UpdateWorkflow: update,
    ChildEnded: child_ended,
    ResetWorkflow: resetting.reset,
    PauseWorkflow: holding.pause,
    RetryNow: holding.retry_now,
}

# Whoever sends these knows a workflow by its id, and means its newest run: so does a child, for its
# parent may have gone on since.
BY_ID = frozenset(
    {
        SignalWorkflow,
        CancelWorkflow,
        TerminateWorkflow,
        UpdateWorkflow,
        RetryNow,
        PauseWorkflow,
        ResetWorkflow,
        RedriveDeadLetter,
        FailDeadLetter,
        CompleteDeadLetter,
        ChildEnded,
    }
)
