"""Fold the records of what workflows and people do to each other: see perdure.core.execution.

Whatever touches `Execution.more` does it here. A plain execution has none, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.core import limits, resetting
from perdure.core.holding import fold_paused, fold_retried
from perdure.core.interaction_records import (
    ActivityCancelRequested,
    ChildCancelRequested,
    ChildWorkflowCompleted,
    ChildWorkflowFailed,
    ChildWorkflowStarted,
    ExternalCancelRequested,
    GateSet,
    LeaseDetached,
    MarkerRecorded,
    RetriedNow,
    SearchAttributesSet,
    SignalReceived,
    SignalSent,
    SignalsNoted,
    UpdateEnded,
    UpdateReceived,
    WorkflowCancelled,
    WorkflowCancelRequested,
    WorkflowContinuedAsNew,
    WorkflowPaused,
    WorkflowReset,
    WorkflowTerminated,
)
from perdure.core.more import More
from perdure.core.record_base import Record
from perdure.core.start import StartTerms
from perdure.core.state import Activity, Execution, Lease, Status


def more_of(execution: Execution) -> More:
    """Its `more`, made where it has none yet."""
    more = execution.more
    if more is None:
        more = execution.more = More()
    return more


def begin_with(execution: Execution, terms: StartTerms) -> None:
    """What the terms of its start make of a new execution."""
    if terms.delay_ms:
        execution.task_due_ms = execution.started_ms + terms.delay_ms
    goes_on = terms.first_started_ms or terms.children
    if terms.parent or terms.timeout_at_ms or terms.attributes or goes_on:
        more = more_of(execution)
        more.parent = terms.parent
        more.timeout_at_ms = terms.timeout_at_ms
        more.attributes = dict(terms.attributes)
        more.first_started_ms = terms.first_started_ms
        more.children = dict(terms.children)


def close(execution: Execution, status: Status, at_ms: int) -> None:
    """It has ended: nothing of it is open any more."""
    execution.status = status
    execution.closed_ms = at_ms
    execution.activities.clear()
    execution.timers.clear()
    more = execution.more
    if more is not None:
        more.children = {}
        more.updates = {}
        more.unread = 0


def has_read(more: More, consumed: int) -> None:
    """A workflow task has read up to this event."""
    if consumed >= more.last_message_id:
        more.unread = 0


# --- endings ------------------------------------------------------------------
def _cancel_requested(execution: Execution, record: WorkflowCancelRequested) -> None:
    more = more_of(execution)
    more.cancel_requested = True
    more.cancel_reason = record.reason
    more.last_message_id = record.event_id
    execution.task_due_ms = 0  # It does not wait for its start, nor for a backoff.


def _cancelled(execution: Execution, record: WorkflowCancelled) -> None:
    close(execution, Status.CANCELLED, record.at_ms)


def _terminated(execution: Execution, record: WorkflowTerminated) -> None:
    close(execution, Status.TERMINATED, record.at_ms)


def _continued(execution: Execution, record: WorkflowContinuedAsNew) -> None:
    close(execution, Status.CONTINUED_AS_NEW, record.at_ms)


# --- signals and updates ------------------------------------------------------
def _signalled(execution: Execution, record: SignalReceived) -> None:
    more = more_of(execution)
    more.signals += 1
    more.unread += 1
    more.last_message_id = record.event_id


def _signals_noted(execution: Execution, record: SignalsNoted) -> None:
    more, notes = more_of(execution), record.notes
    more.takes, more.untaken = notes.takes, notes.untaken
    more.dropped = (*more.dropped, *notes.dropped)[-limits.SIGNALS_DROPPED_KEPT :]


def _sent(execution: Execution, record: SignalSent) -> None:
    if record.answered:
        execution.last_wake_id = max(execution.last_wake_id, record.event_id)


def _update_received(execution: Execution, record: UpdateReceived) -> None:
    more = more_of(execution)
    more.updates[record.update_id] = record.event_id
    more.unread += 1
    more.last_message_id = record.event_id


def _update_ended(execution: Execution, record: UpdateEnded) -> None:
    if execution.more is not None:
        execution.more.updates.pop(record.request_id, None)


# --- children -----------------------------------------------------------------
def _child_started(execution: Execution, record: ChildWorkflowStarted) -> None:
    more_of(execution).children[record.child_id] = record.parent_close


def _child_ended(
    execution: Execution, record: ChildWorkflowCompleted | ChildWorkflowFailed
) -> None:
    if execution.more is not None:
        execution.more.children.pop(record.child_id, None)


# --- back to an earlier event -------------------------------------------------
def _reset(execution: Execution, record: WorkflowReset) -> None:
    after = resetting.restored(record)
    for name in Execution.__struct_fields__:
        setattr(execution, name, getattr(after, name))


# --- the workflow's own notes -------------------------------------------------
def _attributes_set(execution: Execution, record: SearchAttributesSet) -> None:
    attributes = more_of(execution).attributes
    for name, value in record.attributes:
        if value is None:
            attributes.pop(name, None)
        else:
            attributes[name] = value


def _nothing(execution: Execution, record: Record) -> None:
    """It is told in the history, and changes nothing that is kept beside it."""


FOLDS: dict[type[Record], Callable[[Execution, Any], None]] = {
    WorkflowCancelRequested: _cancel_requested,
    WorkflowCancelled: _cancelled,
    WorkflowTerminated: _terminated,
    WorkflowContinuedAsNew: _continued,
    SignalReceived: _signalled,
    SignalSent: _sent,
    SignalsNoted: _signals_noted,
    ExternalCancelRequested: _nothing,
    UpdateReceived: _update_received,
    UpdateEnded: _update_ended,
    ChildWorkflowStarted: _child_started,
    ChildWorkflowCompleted: _child_ended,
    ChildWorkflowFailed: _child_ended,
    ChildCancelRequested: _nothing,
    MarkerRecorded: _nothing,
    SearchAttributesSet: _attributes_set,
    WorkflowReset: _reset,
    WorkflowPaused: fold_paused,
    RetriedNow: fold_retried,
    GateSet: _nothing,
}


# --- an activity --------------------------------------------------------------
def cancel_requested(activity: Activity, record: ActivityCancelRequested) -> None:
    """The workflow gave it up, and it goes on."""
    activity.cancel_requested = record.mode


def detached(activity: Activity, record: LeaseDetached) -> None:
    """Its lease lives on, and belongs to no session any more."""
    lease = activity.lease
    if lease is None or record.grant != activity.grant:
        return
    activity.lease = Lease(
        worker_id=lease.worker_id,
        session=None,
        granted_ms=lease.granted_ms,
        deadline_ms=lease.deadline_ms,
        attempt_deadline_ms=lease.attempt_deadline_ms,
        poll_id=None,
        granted_n=lease.granted_n,
        stall_ms=lease.stall_ms,
    )
