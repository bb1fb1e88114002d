"""What the gateway answers from the store: one short read each, of what is durable."""

from __future__ import annotations

from typing import Any

import msgspec

from actors.gateway_commands import result_of
from perdure import views, wire
from perdure.core.commands import Closed
from perdure.core.limits import FRAME_BYTES, PAGE_MAX
from perdure.core.links import ActivityTask, Fetch, Page
from perdure.core.records import (
    ActivityTaskScheduled,
    Event,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowStarted,
    decode_event,
)
from perdure.core.state import Execution
from perdure.errors import DeadlineExceeded, NotFound
from perdure.store.protocol import Reader, WorkflowFilter
from perdure.values import is_reference

LIST_LIMIT = 100


def look(reader: Reader, request: wire.Request, now_ms: int) -> dict[str, Any]:
    """The `ok` of a request that only looks. Raises a PerdureError, NotFound among them."""
    match request.args:
        case wire.DescribeWorkflow(workflow_id=workflow_id):
            return describe(reader, workflow_id)
        case wire.GetHistory() as args:
            return history(reader, args)
        case wire.GetResult(workflow_id=workflow_id):
            return result(reader, request.form, workflow_id)
        case wire.ListWorkflows() as args:
            return list_workflows(reader, args, now_ms)
        case _:
            raise AssertionError(f"{request.op} is not answered from the store")


def describe(reader: Reader, workflow_id: str) -> dict[str, Any]:
    """As `wf describe --json`."""
    execution = _execution(reader, workflow_id)
    first = _event(reader, workflow_id, 1)
    closing = None if execution.is_open else _event(reader, workflow_id, execution.last_event_id)
    details = {
        activity_id: reader.details(workflow_id, activity_id)
        for activity_id, activity in execution.activities.items()
        if activity.details is not None and is_reference(activity.details)
    }
    start = first.input if isinstance(first, WorkflowStarted) else None
    return views.describe(execution, start, closing, details)


def history(reader: Reader, args: wire.GetHistory) -> dict[str, Any]:
    """Events after `after`; `next_after` is what to ask with next, null when there were no more."""
    after, limit = args.after or 0, args.limit or PAGE_MAX
    execution = _execution(reader, args.workflow_id)
    raw = reader.events(args.workflow_id, after, limit, FRAME_BYTES)
    shown = views.events(map(decode_event, raw), after, limit)
    last = shown[-1]["event_id"] if shown else after
    has_more = bool(shown) and last < execution.last_event_id
    return {"events": shown, "next_after": last if has_more else None}


def result(reader: Reader, form: wire.Form, workflow_id: str) -> dict[str, Any]:
    """The result of a workflow that has ended; DeadlineExceeded if it has not."""
    execution = _execution(reader, workflow_id)
    if execution.is_open:
        raise DeadlineExceeded(f"workflow {workflow_id!r} has not ended yet")
    return result_of(form, workflow_id, closed(reader, execution))


def closed(reader: Reader, execution: Execution) -> Closed:
    """How an execution that is not open ended, with its whole result."""
    match _event(reader, execution.workflow_id, execution.last_event_id):
        case WorkflowCompleted(result=payload):
            return Closed(execution.status.value, payload, None)
        case WorkflowFailed(failure=failure):
            return Closed(execution.status.value, None, failure)
        case _:
            return Closed(execution.status.value, None, None)


def list_workflows(reader: Reader, args: wire.ListWorkflows, now_ms: int) -> dict[str, Any]:
    """One page of workflows, newest first."""
    where = WorkflowFilter(
        workflow_type=args.type,
        status=args.status,
        pending_state=args.pending_state,
        failure_type=args.failure_type,
        activity_type=args.activity_type,
        older_than_ms=None if args.older_than_ms is None else now_ms - args.older_than_ms,
    )
    found, next_page = reader.list_workflows(where, args.limit or LIST_LIMIT, args.page)
    return {"workflows": [views.summary(it) for it in found], "next_page": next_page}


def whole_dead_letter(reader: Reader, entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of the dead letters' list with what `wf dlq show` adds, where it still is one."""
    workflow_id, activity_id = entry["workflow_id"], entry["activity_id"]
    execution = reader.execution(workflow_id)
    activity = None if execution is None else execution.activities.get(activity_id)
    if activity is None:
        return entry
    payload, details = activity.input, activity.details
    if payload is not None and is_reference(payload):
        payload = _scheduled_input(reader, workflow_id, activity.scheduled_event_id)
    if details is not None and is_reference(details):
        details = reader.details(workflow_id, activity_id)
    return {**entry, **views.dead_letter_rest(activity, payload, details)}


def page(reader: Reader, fetch: Fetch) -> Page:
    """Events for a worker that replays: about 1 MiB of them."""
    execution = reader.execution(fetch.workflow_id)
    if execution is None:
        return Page(fetch.n, None, True)
    raw = reader.events(fetch.workflow_id, fetch.after, PAGE_MAX, FRAME_BYTES)
    last = decode_event(raw[-1]).event_id if raw else fetch.after
    is_complete = not raw or last >= execution.last_event_id
    return Page(fetch.n, tuple(map(msgspec.Raw, raw)), is_complete)


def has_reference(task: ActivityTask) -> bool:
    """Whether a payload of the task is kept elsewhere."""
    return (task.input is not None and is_reference(task.input)) or (
        task.details is not None and is_reference(task.details)
    )


def resolved(reader: Reader, task: ActivityTask) -> ActivityTask:
    """The task with its payloads in the place of references."""
    payload, details = task.input, task.details
    if payload is not None and is_reference(payload):
        payload = _scheduled_input(reader, task.workflow_id, task.scheduled_event_id)
    if details is not None and is_reference(details):
        details = reader.details(task.workflow_id, task.activity_id)
    return msgspec.structs.replace(task, input=payload, details=details)


def _scheduled_input(reader: Reader, workflow_id: str, event_id: int) -> bytes | None:
    event = _event(reader, workflow_id, event_id)
    return event.input if isinstance(event, ActivityTaskScheduled) else None


def _event(reader: Reader, workflow_id: str, event_id: int) -> Event | None:
    raw = reader.event(workflow_id, event_id)
    return None if raw is None else decode_event(raw)


def _execution(reader: Reader, workflow_id: str) -> Execution:
    execution = reader.execution(workflow_id)
    if execution is None:
        raise NotFound(f"there is no workflow {workflow_id!r}")
    return execution
