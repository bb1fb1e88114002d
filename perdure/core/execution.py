"""Fold records into the state of a workflow execution: the one place where state changes.

`ACTIVITY_TRANSITIONS` is the picture of an activity's life; a pair that is absent leaves the
activity as it is. The fold is total: no durable record may make it raise, for a record that raised
on replay would stop the node for ever.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from perdure.core import execution_more, limits
from perdure.core.records import (
    EVENT_TYPES,
    WAKE_TYPES,
    ActivityCancelRequested,
    ActivityDeadLettered,
    ActivityRedriven,
    ActivityTaskCancelled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskScheduled,
    HeartbeatRecorded,
    LeaseDetached,
    LeaseGranted,
    LeaseReleased,
    Record,
    RetryScheduled,
    TimerCancelled,
    TimerFired,
    TimerStarted,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowStarted,
    WorkflowTaskCompleted,
    WorkflowTaskFailed,
)
from perdure.core.state import (
    Activity,
    ActivityState,
    AttemptFailure,
    Execution,
    LastEnd,
    Lease,
    Status,
    moved_deadlines,
)
from perdure.failures import WORKER_DIED
from perdure.values import refer

# Where an activity stands after a record. None is "not open": not scheduled yet, or closed.
ACTIVITY_TRANSITIONS: dict[tuple[ActivityState | None, type[Record]], ActivityState | None] = {
    (None, ActivityTaskScheduled): ActivityState.SCHEDULED,
    (ActivityState.SCHEDULED, LeaseGranted): ActivityState.LEASED,
    (ActivityState.SCHEDULED, ActivityTaskFailed): None,  # A deadline of the caller passed.
    (ActivityState.SCHEDULED, ActivityTaskCancelled): None,
    (ActivityState.LEASED, HeartbeatRecorded): ActivityState.LEASED,
    # Back to Scheduled where the attempt is the first: see _released.
    (ActivityState.LEASED, LeaseReleased): ActivityState.RETRYING,
    (ActivityState.LEASED, RetryScheduled): ActivityState.RETRYING,
    (ActivityState.LEASED, ActivityTaskCompleted): None,
    (ActivityState.LEASED, ActivityTaskFailed): None,
    (ActivityState.LEASED, ActivityTaskCancelled): None,
    (ActivityState.LEASED, ActivityDeadLettered): ActivityState.DEAD_LETTERED,
    (ActivityState.RETRYING, LeaseGranted): ActivityState.LEASED,
    (ActivityState.RETRYING, ActivityTaskFailed): None,
    (ActivityState.RETRYING, ActivityTaskCancelled): None,
    (ActivityState.DEAD_LETTERED, ActivityRedriven): ActivityState.SCHEDULED,
    (ActivityState.DEAD_LETTERED, ActivityTaskCompleted): None,  # By an operator.
    (ActivityState.DEAD_LETTERED, ActivityTaskFailed): None,  # By an operator.
    (ActivityState.DEAD_LETTERED, ActivityTaskCancelled): None,
    (ActivityState.LEASED, LeaseDetached): ActivityState.LEASED,
    # The workflow no longer waits for it, or only for the end of its attempt.
    (ActivityState.SCHEDULED, ActivityCancelRequested): ActivityState.SCHEDULED,
    (ActivityState.LEASED, ActivityCancelRequested): ActivityState.LEASED,
    (ActivityState.RETRYING, ActivityCancelRequested): ActivityState.RETRYING,
    (ActivityState.DEAD_LETTERED, ActivityCancelRequested): ActivityState.DEAD_LETTERED,
}


def begin(workflow_id: str, started: WorkflowStarted) -> Execution:
    """The execution that `started` makes."""
    execution = Execution(
        workflow_id=workflow_id,
        workflow_type=started.workflow_type,
        task_queue=started.task_queue,
        started_ms=started.at_ms,
        request_id=started.request_id,
        digest=started.digest,
        shard=zlib.crc32(workflow_id.encode("utf-8")) % limits.SHARDS,
        last_event_id=started.event_id,
        last_wake_id=started.event_id,
    )
    if started.terms is not None:
        execution_more.begin_with(execution, started.terms)
    return execution


def evolve(execution: Execution, record: Record, n: int = 0) -> Execution:
    """`execution` after `record` of commit `n`: changed in place and returned.

    Never raises on a durable record.
    """
    kind = type(record)
    if kind in EVENT_TYPES:
        event_id: int = record.event_id  # type: ignore[attr-defined]
        if event_id > execution.last_event_id:
            execution.last_event_id = event_id
        if kind in WAKE_TYPES and event_id > execution.last_wake_id:
            execution.last_wake_id = event_id
    workflow_fold = _WORKFLOW_FOLDS.get(kind)
    if workflow_fold is not None:
        workflow_fold(execution, record)
        return execution
    _fold_activity(execution, record, kind, n)
    return execution


# --- the workflow -----------------------------------------------------------
def _nothing(execution: Execution, record: WorkflowStarted) -> None:
    """The first event was folded by `begin`."""


def _task_completed(execution: Execution, record: WorkflowTaskCompleted) -> None:
    execution.consumed = record.consumed
    execution.commands = record.commands
    execution.task_failures = 0
    execution.task_due_ms = 0
    execution.task_failure = None
    execution.task_reason = ""
    if execution.more is not None:
        execution_more.has_read(execution.more, record.consumed)


def _task_failed(execution: Execution, record: WorkflowTaskFailed) -> None:
    execution.task_failures = record.failures
    execution.task_due_ms = record.due_ms
    execution.task_failure = record.failure
    execution.task_reason = record.reason


def _completed(execution: Execution, record: WorkflowCompleted) -> None:
    execution_more.close(execution, Status.COMPLETED, record.at_ms)


def _failed(execution: Execution, record: WorkflowFailed) -> None:
    execution_more.close(execution, Status.FAILED, record.at_ms)


def _timer_started(execution: Execution, record: TimerStarted) -> None:
    execution.timers[record.timer_id] = record.due_ms


def _timer_gone(execution: Execution, record: TimerFired | TimerCancelled) -> None:
    execution.timers.pop(record.timer_id, None)


_WORKFLOW_FOLDS: dict[type[Record], Callable[[Execution, Any], None]] = {
    WorkflowStarted: _nothing,
    WorkflowCompleted: _completed,
    WorkflowFailed: _failed,
    WorkflowTaskCompleted: _task_completed,
    WorkflowTaskFailed: _task_failed,
    TimerStarted: _timer_started,
    TimerFired: _timer_gone,
    TimerCancelled: _timer_gone,
    **execution_more.FOLDS,
}


# --- an activity ------------------------------------------------------------
def _fold_activity(execution: Execution, record: Any, kind: type[Record], n: int) -> None:
    activity_id: str = record.activity_id
    activity = execution.activities.get(activity_id)
    state = None if activity is None else activity.state
    if (state, kind) not in ACTIVITY_TRANSITIONS:
        return  # A recorded no-op: for instance the cancelling of what was closed already.
    after = ACTIVITY_TRANSITIONS[state, kind]
    if activity is None:
        if isinstance(record, ActivityTaskScheduled):
            activity = execution.activities[activity_id] = _scheduled(record)
            if execution.more is not None and activity_id in execution.more.again:
                activity.generation, activity.grant = execution.more.again.pop(activity_id)
        return
    if after is None:
        del execution.activities[activity_id]
        return
    activity.state = after
    if isinstance(record, LeaseGranted):
        _granted(activity, record, n)
    else:
        _ACTIVITY_FOLDS[kind](activity, record)


def _scheduled(record: ActivityTaskScheduled) -> Activity:
    return Activity(
        activity_id=record.activity_id,
        activity_type=record.activity_type,
        input=None if record.input is None else refer(record.input),
        options=record.options,
        scheduled_event_id=record.event_id,
        scheduled_ms=record.at_ms,
        generation_ms=record.at_ms,
        due_ms=record.at_ms,
    )


def _granted(activity: Activity, record: LeaseGranted, n: int) -> None:
    activity.grant = record.grant
    activity.leased_in_generation = True
    activity.last_granted_ms = record.at_ms
    activity.handed_back = ""
    activity.lease = Lease(
        worker_id=record.worker_id,
        session=record.session,
        granted_ms=record.at_ms,
        deadline_ms=record.deadline_ms,
        attempt_deadline_ms=record.attempt_deadline_ms,
        poll_id=record.poll_id,
        granted_n=n,
        stall_ms=record.stall_ms,
    )


def _heartbeat(activity: Activity, record: HeartbeatRecorded) -> None:
    lease = activity.lease
    if lease is None or record.grant != activity.grant:
        return
    activity.beat = record.beat
    activity.details = record.details
    activity.last_heartbeat_ms = record.at_ms
    _, attempt_deadline_ms = moved_deadlines(lease, activity, record.stall_ms)
    activity.lease = Lease(
        worker_id=lease.worker_id,
        session=lease.session,
        granted_ms=lease.granted_ms,
        deadline_ms=record.deadline_ms,
        attempt_deadline_ms=attempt_deadline_ms,
        poll_id=lease.poll_id,
        granted_n=lease.granted_n,
        stall_ms=max(lease.stall_ms, record.stall_ms),
    )


def _released(activity: Activity, record: LeaseReleased) -> None:
    if activity.attempt == 1:
        activity.state = ActivityState.SCHEDULED
    activity.lease = None
    activity.due_ms = record.due_ms
    activity.uncharged_in_a_row = record.uncharged
    activity.handed_back = record.reason
    activity.last_end = LastEnd(record.generation, record.grant, "released", "")
    _keep_details(activity, record.details, record.beat)


def _retry(activity: Activity, record: RetryScheduled) -> None:
    activity.lease = None
    activity.attempt = record.attempt + 1
    activity.due_ms = record.due_ms
    _charged(activity, record, ActivityState.RETRYING)


def _dead(activity: Activity, record: ActivityDeadLettered) -> None:
    activity.lease = None
    activity.dead_ms = record.at_ms
    _charged(activity, record, ActivityState.DEAD_LETTERED)


def _charged(
    activity: Activity, record: RetryScheduled | ActivityDeadLettered, state: ActivityState
) -> None:
    """What every failed attempt leaves behind."""
    failure = record.failure
    kept = AttemptFailure(
        record.generation, record.attempt, record.at_ms, record.worker_id, failure
    )
    if activity.failures_first is None:
        activity.failures_first = kept
    activity.failures_newest = [
        *activity.failures_newest[1 - limits.FAILURES_KEPT_NEWEST :],
        kept,
    ]
    activity.failures_count += 1
    died = failure.type == WORKER_DIED
    activity.deaths_in_a_row = activity.deaths_in_a_row + 1 if died else 0
    # Once the free restarts are used up, each further one in a row is charged.
    if not died or activity.uncharged_in_a_row < limits.UNCHARGED_IN_A_ROW_MAX:
        activity.uncharged_in_a_row = 0
    activity.last_end = LastEnd(record.generation, record.grant, "failed", state.value)
    _keep_details(activity, record.details, record.beat)


def _keep_details(activity: Activity, details: bytes | None, beat: int) -> None:
    """Take over the details that came with a report, unless newer ones are known: they never go
    back.
    """
    if beat > activity.beat:
        activity.beat = beat
        if details is not None:
            activity.details = details


def _redriven(activity: Activity, record: ActivityRedriven) -> None:
    activity.generation = record.generation
    activity.generation_ms = record.at_ms
    activity.leased_in_generation = False
    activity.attempt = 1
    activity.due_ms = record.at_ms
    activity.dead_ms = None
    activity.redrives += 1
    activity.deaths_in_a_row = 0
    activity.uncharged_in_a_row = 0
    activity.handed_back = ""
    if record.has_input:
        activity.input = None if record.input is None else refer(record.input)
        activity.input_event_id = record.event_id


_ACTIVITY_FOLDS: dict[type[Record], Callable[[Activity, Any], None]] = {
    HeartbeatRecorded: _heartbeat,
    LeaseReleased: _released,
    RetryScheduled: _retry,
    ActivityDeadLettered: _dead,
    ActivityRedriven: _redriven,
    LeaseDetached: execution_more.detached,
    ActivityCancelRequested: execution_more.cancel_requested,
}
