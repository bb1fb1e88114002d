"""Answers that come from the store: one short read each, of what is durable.

Plain data as perdure.views makes it, for the gateway and for LocalEngine alike. Every function
raises NotFound where there is no such workflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure import views, waiting, wire
from perdure.core import closings
from perdure.core.commands import Closed
from perdure.core.dead_letters import DeadLetter
from perdure.core.gates import Gates
from perdure.core.ids import execution_id, of_execution
from perdure.core.limits import FRAME_BYTES, GRACE_MS, PAGE_MAX
from perdure.core.links import ActivityTask
from perdure.core.records import (
    ActivityRedriven,
    ActivityTaskScheduled,
    Event,
    Payload,
    SignalReceived,
    WorkflowStarted,
    decode_event,
)
from perdure.core.state import Activity, Execution, Status, graced_ms
from perdure.errors import NotFound, no_workflow, removed_workflow
from perdure.store.protocol import Reader, WorkflowFilter
from perdure.stuck import Judge
from perdure.values import is_reference

# What the first run of a chain is, of which there are later ones.
_HAS_LATER = frozenset({Status.CONTINUED_AS_NEW, Status.REMOVED})
SIGNALS_SHOWN_MAX = 100
FAILURE_TYPES_MAX = 100
LIST_LIMIT = 100  # Entries of a list where the asker names no limit.


def execution(reader: Reader, workflow_id: str, run: int | None = None) -> Execution:
    """The newest run, or run `run`, with what is open in it."""
    found = reader.execution(workflow_id)
    if found is None:
        raise no_workflow(workflow_id)
    if run is not None and run > 1:
        found = reader.execution(execution_id(workflow_id, run))
        if found is None:
            raise NotFound(f"workflow {workflow_id!r} has no run {run}")
    elif run is None and found.status in _HAS_LATER:
        newest = newest_run(reader, workflow_id)
        found = reader.execution(execution_id(workflow_id, newest)) or found
    if found.status is Status.REMOVED:
        raise removed_workflow(workflow_id)
    return found


def newest_run(reader: Reader, workflow_id: str) -> int:
    """The number of the newest run; 1 where there is none."""
    return max(1, reader.newest_run(workflow_id))


def describe(
    reader: Reader,
    args: wire.DescribeWorkflow,
    offers: Sequence[waiting.Offer],
    now_ms: int,
    *,
    in_engine: bool = False,
    grace_ms: int = GRACE_MS,
) -> dict[str, Any]:
    """As `wf describe --json`; what is due and served by none of `offers` says so.

    `grace_ms`: what leases get that are older than the present epoch.
    """
    found = execution(reader, args.workflow_id, args.run)
    workflow_id = found.workflow_id
    first = _event(reader, workflow_id, 1)
    closing = None if found.is_open else _event(reader, workflow_id, found.last_event_id)
    details = {
        activity_id: details_of(reader, workflow_id, activity)
        for activity_id, activity in found.activities.items()
    }
    start = first.input if isinstance(first, WorkflowStarted) else None
    waits = waiting.of_execution(found, offers, now_ms, in_engine=in_engine)
    gates = Gates(reader.gates())
    held = waiting.behind_gates(found, gates)
    by_id, task = {**waits.activities, **held.activities}, held.task or waits.task
    word = Judge(offers, gates, now_ms, in_engine=in_engine).word(found)
    shown = views.describe(found, start, closing, details, by_id, task, word)
    _grace(reader, found, shown["pending_activities"], grace_ms)
    return {**shown, "signals": unread_signals(reader, found)}


def _grace(reader: Reader, found: Execution, shown: list[dict[str, Any]], grace_ms: int) -> None:
    """Have deadlines as they are since the last restart."""
    leased = {one.activity_id: one for one in found.activities.values() if one.lease is not None}
    began_ms = reader.began_ms() if leased else 0
    for view in shown:
        held = leased.get(view["activity_id"])
        if held is not None and held.lease is not None:
            least_ms = graced_ms(held.lease, held, began_ms, grace_ms)
            view["lease_deadline_ms"] = max(view["lease_deadline_ms"], least_ms)


def unread_signals(reader: Reader, found: Execution) -> list[dict[str, Any]]:
    """Signals that no workflow task has brought to the code (of one that has ended: none ever
    will), oldest first.
    """
    if found.more is None or found.more.last_message_id <= found.consumed:
        return []
    raw = reader.events(found.workflow_id, found.consumed, SIGNALS_SHOWN_MAX, FRAME_BYTES)
    return [
        {
            "name": event.name,
            "input": views.value(event.input),
            "at_ms": event.at_ms,
            "event_id": event.event_id,
        }
        for event in map(decode_event, raw)
        if isinstance(event, SignalReceived)
    ]


def history(reader: Reader, args: wire.GetHistory) -> dict[str, Any]:
    """Events after `after`; `next_after` is what to ask with next, null when there are no more."""
    after, limit = args.after or 0, args.limit or PAGE_MAX
    found = execution(reader, args.workflow_id, args.run)
    raw = reader.events(found.workflow_id, after, limit, FRAME_BYTES)
    shown = views.events(map(decode_event, raw), after, limit)
    if shown and after == 0:
        # So that a history, kept by itself, says whose it is.
        shown[0]["workflow_id"], shown[0]["run"] = of_execution(found.workflow_id)
    last = shown[-1]["event_id"] if shown else after
    has_more = bool(shown) and last < found.last_event_id
    return {"events": shown, "next_after": last if has_more else None}


def closed(reader: Reader, found: Execution) -> Closed:
    """How an execution that is not open ended, with its whole result."""
    return closings.closed(found.status, _event(reader, found.workflow_id, found.last_event_id))


def list_workflows(
    reader: Reader,
    args: wire.ListWorkflows,
    offers: Sequence[waiting.Offer],
    now_ms: int,
    *,
    in_engine: bool = False,
) -> dict[str, Any]:
    """One page of workflows, newest first; those that are stuck say so. Where there is none with
    the failure type that is asked for, `failure_types` are those that there are.
    """
    judge = Judge(offers, Gates(reader.gates()), now_ms, in_engine=in_engine)
    where = WorkflowFilter(
        workflow_type=args.type,
        status=args.status,
        pending_state=args.pending_state,
        failure_type=args.failure_type,
        activity_type=args.activity_type,
        older_than_ms=None if args.older_than_ms is None else now_ms - args.older_than_ms,
        younger_than_ms=None if args.younger_than_ms is None else now_ms - args.younger_than_ms,
        attempts=args.attempts,
        attributes=tuple((args.attributes or {}).items()),
        parent=args.parent,
        judge=(lambda it: judge.word(it) is not None) if args.stuck else None,
    )
    found, next_page = reader.list_workflows(where, args.limit or LIST_LIMIT, args.page)
    shown = [views.summary(it, judge.word(it)) for it in found]
    answer: dict[str, Any] = {"workflows": shown, "next_page": next_page}
    if args.failure_type is not None and not (found or args.page or next_page):
        answer["failure_types"] = reader.failure_types(FAILURE_TYPES_MAX)
    return answer


def dead_letter(reader: Reader, entry: DeadLetter, *, whole: bool) -> dict[str, Any]:
    """One dead letter of a list; `whole` adds what `wf dlq show` does."""
    workflow_id, activity = entry.workflow_id, entry.activity
    shown = views.dead_letter(workflow_id, entry.workflow_type, activity)
    if whole:
        payload = input_of(reader, workflow_id, activity)
        details = details_of(reader, workflow_id, activity)
        shown |= views.dead_letter_rest(activity, payload, details)
    return shown


# --- payloads that are kept by reference ------------------------------------
def input_of(reader: Reader, workflow_id: str, activity: Activity | ActivityTask) -> Payload | None:
    """The activity's input, wherever it stands."""
    payload = activity.input
    if payload is None or not is_reference(payload):
        return payload
    at = activity.scheduled_event_id
    if isinstance(activity, Activity) and activity.input_event_id:
        at = activity.input_event_id
    event = _event(reader, workflow_id, at)
    return event.input if isinstance(event, ActivityTaskScheduled | ActivityRedriven) else None


def details_of(
    reader: Reader, workflow_id: str, activity: Activity | ActivityTask
) -> Payload | None:
    """The open activity's newest heartbeat details, wherever they stand."""
    details = activity.details
    if details is None or not is_reference(details):
        return details
    return reader.details(workflow_id, activity.activity_id)


def _event(reader: Reader, workflow_id: str, event_id: int) -> Event | None:
    raw = reader.event(workflow_id, event_id)
    return None if raw is None else decode_event(raw)
