"""What the gateway reads from the store beside perdure.reads: results in a form, tasks, pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from actors.gateway_commands import result_of
from perdure import reads, schedule_views, views, wire, wire_flow
from perdure.core.ids import execution_id
from perdure.core.limits import FRAME_BYTES, GRACE_MS, PAGE_MAX
from perdure.core.links import ActivityTask, Fetch, Page
from perdure.core.records import decode_event
from perdure.errors import DeadlineExceeded
from perdure.flow_commands import pauses_view
from perdure.store.protocol import Reader
from perdure.values import is_reference
from perdure.waiting import Offer


def look(
    reader: Reader,
    request: wire.Request,
    offers: Sequence[Offer],
    now_ms: int,
    grace_ms: int = GRACE_MS,
) -> dict[str, Any]:
    """The `ok` of a request that only looks. Raises a PerdureError, NotFound among them."""
    match request.args:
        case wire.DescribeWorkflow() as args:
            return reads.describe(reader, args, offers, now_ms, grace_ms=grace_ms)
        case wire.GetHistory() as args:
            return reads.history(reader, args)
        case wire.GetResult() as args:
            return result(reader, request.form, args)
        case wire_flow.ListPauses():
            return pauses_view(reader.gates())
        case wire.ListWorkflows() as args:
            return reads.list_workflows(reader, args, offers, now_ms)
        case args:
            ok = schedule_views.look(reader, args, now_ms)
            assert ok is not None, f"{request.op} is not answered from the store"
            return ok


def result(reader: Reader, form: wire.Form, args: wire.GetResult) -> dict[str, Any]:
    """The result of a workflow that has ended; DeadlineExceeded if it has not."""
    execution = reads.execution(reader, args.workflow_id, args.run)
    if execution.is_open:
        raise DeadlineExceeded(f"workflow {args.workflow_id!r} has not ended yet")
    return result_of(form, args.workflow_id, reads.closed(reader, execution))


def whole_dead_letter(reader: Reader, entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of the dead letters' list with what `wf dlq show` adds, where it still is one."""
    workflow_id = execution_id(entry["workflow_id"], entry["run"])
    execution = reader.execution(workflow_id)
    activity = None if execution is None else execution.activities.get(entry["activity_id"])
    if activity is None:
        return entry
    payload = reads.input_of(reader, workflow_id, activity)
    details = reads.details_of(reader, workflow_id, activity)
    return {**entry, **views.dead_letter_rest(activity, payload, details)}


def page(reader: Reader, fetch: Fetch) -> Page:
    """Events for a worker that replays: about 1 MiB of them."""
    workflow_id = fetch.workflow_id
    raw = reader.events(workflow_id, fetch.after, PAGE_MAX, FRAME_BYTES)
    if not raw:
        is_there = reader.execution(workflow_id) is not None
        return Page(fetch.n, () if is_there else None, True)
    # Cheaper than the execution, which has its last event's id, but with all that is open in it.
    is_complete = not reader.events(workflow_id, decode_event(raw[-1]).event_id, 1, 1)
    return Page(fetch.n, tuple(map(msgspec.Raw, raw)), is_complete)


def has_reference(task: ActivityTask) -> bool:
    """Whether a payload of the task is kept elsewhere."""
    return (task.input is not None and is_reference(task.input)) or (
        task.details is not None and is_reference(task.details)
    )


def resolved(reader: Reader, task: ActivityTask) -> ActivityTask:
    """The task with its payloads in the place of references."""
    return msgspec.structs.replace(
        task,
        input=reads.input_of(reader, task.workflow_id, task),
        details=reads.details_of(reader, task.workflow_id, task),
    )
