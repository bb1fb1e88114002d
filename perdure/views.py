"""How executions, events and dead letters are shown: the JSON objects that the contract names.

Used by the gateway and by LocalEngine alike. Every function returns plain data of its own; bytes
in a user's value stay bytes (an answer in JSON has them as base64). Payloads come in resolved: one
that is only a reference, or damaged, is shown as a text that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from perdure import progress, values
from perdure.core.decide_interactions import outcome
from perdure.core.ids import idempotency_key, of_execution
from perdure.core.more import More
from perdure.core.records import (
    CLOSING_TYPES,
    ActivityDeadLettered,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskScheduled,
    Event,
    Payload,
    Record,
    WorkflowCompleted,
    WorkflowStarted,
)
from perdure.core.start import StartTerms
from perdure.core.state import Activity, ActivityState, AttemptFailure, Execution
from perdure.errors import PerdureError
from perdure.failures import Failure

View = dict[str, Any]


def value(payload: Payload | None) -> Any:
    """The plain data in `payload`; a text in brackets where it can't be shown."""
    if payload is None:
        return None
    if values.is_reference(payload):
        return "<kept elsewhere>"
    try:
        return values.to_builtins(payload)
    except PerdureError as problem:
        return f"<can't be decoded: {problem.message}>"


def failure(it: Failure | None) -> View | None:
    """A failure with every field, its causes included."""
    if it is None:
        return None
    return {
        "type": it.type,
        "message": it.message,
        "non_retryable": it.non_retryable,
        "retry_after_ms": it.retry_after_ms,
        "details": it.details,
        "stack": it.stack,
        "cause": failure(it.cause),
        "type_chain": list(it.type_chain),
    }


# --- workflows ---------------------------------------------------------------
def summary(execution: Execution, stuck: str | None = None) -> View:
    """One workflow as `wf list` shows it. `stuck`: see perdure.stuck."""
    workflow_id, run = of_execution(execution.workflow_id)
    return {
        "workflow_id": workflow_id,
        "run": run,
        "type": execution.workflow_type,
        "status": str(execution.status),
        "task_queue": execution.task_queue,
        "started_ms": execution.started_ms,
        "closed_ms": execution.closed_ms,
        "history_length": execution.last_event_id,
        "stuck": stuck,
    }


def describe(
    execution: Execution,
    first: Payload | None,
    closing: Record | None,
    details: Mapping[str, Payload | None] | None = None,
    waits: Mapping[str, str] | None = None,
    task_waits: str | None = None,
    stuck: str | None = None,
) -> View:
    """One workflow as `wf describe` shows it.

    `first` is its input, `closing` the event that ended it (None while it is open), `details` the
    heartbeat details by activity id that an activity holds only by reference. `waits`: whom an
    activity waits for, by activity id; `task_waits`: whom the workflow's own code waits for.
    """
    activities = sorted(execution.activities.values(), key=lambda a: a.scheduled_event_id)
    known = details or {}
    return {
        **summary(execution, stuck),
        "input": value(first),
        "result": value(closing.result) if isinstance(closing, WorkflowCompleted) else None,
        "failure": failure(outcome(closing)[2]),
        "pending_activities": [
            pending_activity(
                execution.workflow_id,
                a,
                known.get(a.activity_id, a.details),
                (waits or {}).get(a.activity_id),
            )
            for a in activities
        ],
        "pending_timers": [
            {"timer_id": timer_id, "due_ms": due_ms}
            for timer_id, due_ms in sorted(execution.timers.items())
        ],
        **more(execution.more),
        "workflow_task": {
            "ready": execution.task_ready,
            "failures": execution.task_failures,
            "due_ms": execution.task_due_ms or None,
            "reason": execution.task_reason or None,
            "failure": failure(execution.task_failure),
            "waiting_for": task_waits,
        },
    }


def more(it: More | None) -> View:
    """What only some workflows have: people's wishes, children, updates, what it is found by."""
    it = it or More()
    parent = None if it.parent is None else of_execution(it.parent.workflow_id)
    return {
        "parent": None if parent is None else {"workflow_id": parent[0], "run": parent[1]},
        "children": [
            {"workflow_id": child_id, "parent_close": close}
            for child_id, close in it.children.items()
        ],
        "signals": [],
        "updates": [
            {"update_id": update_id, "event_id": event_id}
            for update_id, event_id in it.updates.items()
        ],
        "takes_signals": list(it.takes),
        "untaken_signals": [{"name": name, "count": count} for name, count in it.untaken],
        "dropped_signals": [
            {"name": name, "at_ms": at_ms, "reason": why} for at_ms, name, why in it.dropped
        ],
        "search_attributes": dict(it.attributes),
        "cancel_requested": it.cancel_requested,
        "cancel_reason": it.cancel_reason or None,
        "paused": it.paused,
        "paused_reason": it.paused_reason or None,
        "paused_ms": it.paused_ms or None,
        "first_started_ms": it.first_started_ms or None,
        "timeout_at_ms": it.timeout_at_ms or None,
    }


def pending_activity(
    workflow_id: str,
    activity: Activity,
    details: Payload | None,
    waiting_for: str | None = None,
) -> View:
    """One open activity, a dead letter included, with the fields that `wf describe` promises."""
    lease = activity.lease
    waits = activity.state in (ActivityState.SCHEDULED, ActivityState.RETRYING)
    return {
        "activity_id": activity.activity_id,
        "type": activity.activity_type,
        "state": str(activity.state),
        "attempt": activity.attempt,
        "max_attempts": activity.options.retry.max_attempts,
        "last_failure": failure(activity.last_failure),
        "due_ms": activity.due_ms if waits else None,
        "lease_deadline_ms": lease.deadline_ms if lease else None,
        "worker_id": lease.worker_id if lease else None,
        "heartbeat_details": (shown := value(details)),
        "progress": progress.view(shown),
        "last_heartbeat_ms": activity.last_heartbeat_ms,
        "scheduled_ms": activity.scheduled_ms,
        "idempotency_key": idempotency_key(workflow_id, activity.activity_id),
        "task_queue": activity.options.task_queue,
        "generation": activity.generation,
        "cancel_requested": bool(activity.cancel_requested),
        "handed_back": activity.handed_back or None,
        "waiting_for": waiting_for,
    }


# --- history -----------------------------------------------------------------
# Of the stored form; shown otherwise or not at all.
_HIDDEN = frozenset(
    {"event_id", "at_ms", "digest", "started_ms", "grant", "beat", "details", "state"}
)
_PAYLOADS = frozenset({"input", "result"})


def events(records: Iterable[Event], after: int = 0, limit: int | None = None) -> list[View]:
    """Events with an id above `after`, in order, `limit` at most, as `wf history` shows them.

    A closing record that carries its start makes two: ActivityTaskStarted and the end.
    """
    shown = [view for record in records for view in _event(record) if view["event_id"] > after]
    return shown if limit is None else shown[:limit]


def _event(record: Event) -> list[View]:
    view: View = {
        "event_id": record.event_id,
        "kind": type(record).__name__,
        "at_ms": record.at_ms,
    }
    for name in record.__struct_fields__:
        if name not in _HIDDEN:
            view[name] = _field(name, getattr(record, name))
    match record:
        case ActivityTaskCompleted() | ActivityTaskFailed() if record.started_ms is not None:
            return [_started(record, record.started_ms), view]
        case WorkflowStarted():
            view["type"] = record.workflow_type
        case ActivityTaskScheduled():
            view["type"] = record.activity_type
        case ActivityDeadLettered():
            view["attempts"] = record.attempt
            view["last_failure"] = view["failure"]
            view["heartbeat_details"] = value(record.details)
        case _:
            pass
    return [view]


def _started(record: ActivityTaskCompleted | ActivityTaskFailed, at_ms: int) -> View:
    return {
        "event_id": record.event_id - 1,
        "kind": "ActivityTaskStarted",
        "at_ms": at_ms,
        "activity_id": record.activity_id,
        "generation": record.generation,
        "attempt": record.attempt,
        "worker_id": record.worker_id,
    }


def _field(name: str, it: Any) -> Any:
    if name in _PAYLOADS:
        return value(it)
    if isinstance(it, Failure):
        return failure(it)
    if name == "attributes":
        return dict(it)
    if isinstance(it, StartTerms):
        return terms(it)
    if name == "options":
        return {**msgspec.structs.asdict(it), "retry": msgspec.structs.asdict(it.retry)}
    return it


def terms(it: StartTerms) -> View:
    """How an execution began, where it was no plain start."""
    return {
        "delay_ms": it.delay_ms or None,
        "timeout_ms": it.timeout_ms or None,
        "timeout_at_ms": it.timeout_at_ms or None,
        "first_started_ms": it.first_started_ms or None,
        "parent": None if it.parent is None else msgspec.structs.asdict(it.parent),
        "attributes": dict(it.attributes),
        "signals": [{"name": name, "input": value(payload)} for name, payload in it.signals],
        "signalled": it.signalled,
        "children": [
            {"workflow_id": child_id, "parent_close": close} for child_id, close in it.children
        ],
    }


def closes(record: Record) -> bool:
    """True for the event that ended its workflow."""
    return type(record) in CLOSING_TYPES


# --- dead letters ------------------------------------------------------------
def dead_letter(workflow_id: str, workflow_type: str, activity: Activity) -> View:
    """One dead letter as `wf dlq list` shows it."""
    newest = activity.failures_newest[-1] if activity.failures_newest else None
    first = activity.failures_first or newest
    id_, run = of_execution(workflow_id)
    return {
        "workflow_id": id_,
        "run": run,
        "workflow_type": workflow_type,
        "activity_id": activity.activity_id,
        "activity_type": activity.activity_type,
        "task_queue": activity.options.task_queue,
        "attempts": activity.attempt,
        "first_failure": failure(first.failure) if first else None,
        "last_failure": failure(newest.failure) if newest else None,
        "scheduled_ms": activity.scheduled_ms,
        "dead_ms": activity.dead_ms,
        "redrives": activity.redrives,
        "idempotency_key": idempotency_key(workflow_id, activity.activity_id),
    }


def dead_letter_rest(activity: Activity, first: Payload | None, details: Payload | None) -> View:
    """What `wf dlq show` adds: every failure that is kept, the input and the heartbeat details."""
    kept = list(activity.failures_newest)
    if activity.failures_first is not None and activity.failures_first not in kept:
        kept.insert(0, activity.failures_first)
    return {
        "failures": [_attempt(it) for it in kept],
        "failures_count": activity.failures_count,
        "input": value(first),
        "heartbeat_details": value(details),
    }


def _attempt(it: AttemptFailure) -> View:
    return {
        "generation": it.generation,
        "attempt": it.attempt,
        "at_ms": it.at_ms,
        "worker_id": it.worker_id,
        "failure": failure(it.failure),
    }
