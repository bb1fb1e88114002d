"""Workflows that an operator took back to an earlier event: what their record may say."""

from __future__ import annotations

from typing import Any

import msgspec

from chaos.auditor import names
from chaos.auditor.leases import Place, Record
from chaos.auditor.state import RUNNING, Activity, Closed, Workflow

RESET = names.TAGS["WorkflowReset"]
ANSWER_LOST = "WorkflowReset"  # The failure of updates that a reset has taken back.
_EVENT_ID_BITS = 32
_AT_MORE = {name: at for at, name in enumerate(names.MORE)}
_ELSEWHERE = frozenset({"parent", "children", "updates", "timeout_at_ms", "paused", "again"})
_decode = msgspec.msgpack.Decoder(strict=False).decode


def is_taken_back(workflow: Workflow, event_id: int) -> bool:
    """Whether this event does not count any more."""
    return any(low < event_id < high for low, high in workflow.resets)


def reset(fold: Place, workflow: Workflow, record: Record) -> None:
    """Believe the state that the record gives, once it is held against what is known."""
    event_id, to_event, commands = record[1], record[3], record[4]
    state: dict[str, Any] = _decode(record[7])
    if not _counts(workflow, to_event, event_id) and not workflow.is_partial:
        fold.wrong(workflow, 34, "", f"it goes back to event {to_event}, which does not count")
    expected = (workflow.workflow_id, RUNNING, event_id, event_id, event_id - 1, commands)
    fields = ("workflow_id", "status", "last_event_id", "last_wake_id", "consumed", "commands")
    found = tuple(state[name] for name in fields)
    if found != expected:
        fold.wrong(workflow, 34, "", f"a reset says {found}, and means {expected}")
    workflow.resets.append((to_event, event_id))
    workflow.status, workflow.closed_ms = RUNNING, None
    workflow.consumed, workflow.commands, workflow.steps_due = event_id - 1, commands, 0
    workflow.task_failures = workflow.task_due_ms = 0
    workflow.task_failure, workflow.task_reason = None, ""
    for one in workflow.activities.values():
        workflow.closed[one.activity_id] = Closed(one.activity_type, one.grants, "reset", None)
    workflow.activities.clear()
    for body in state["activities"].values():
        _made_again(fold, workflow, body)
    more = state["more"] or []
    workflow.again = dict(more[_AT_MORE["again"]]) if more else {}
    for activity_id, (generation, grant) in workflow.again.items():
        _check_fence(fold, workflow, activity_id, generation, grant)
    workflow.timers = dict(state["timers"])
    workflow.timers_gone.clear()
    if more:
        workflow.more = {
            name: more[at]
            for name, at in _AT_MORE.items()
            if name not in _ELSEWHERE and at < len(more)
        }
        workflow.children = dict(more[_AT_MORE["children"]])
        workflow.updates = dict(more[_AT_MORE["updates"]])
        workflow.timeout_at_ms = more[_AT_MORE["timeout_at_ms"]]


def _counts(workflow: Workflow, to_event: int, before: int) -> bool:
    if not 0 < to_event < before or is_taken_back(workflow, to_event):
        return False
    return any(one >> _EVENT_ID_BITS == to_event for one in workflow.events)


def _made_again(fold: Place, workflow: Workflow, body: list[Any]) -> None:
    at = {name: body[i] for i, name in enumerate(names.ACTIVITY) if i < len(body)}
    activity_id = at["activity_id"]
    known = workflow.closed.pop(activity_id, None)
    if known is None and not workflow.is_partial:
        fold.wrong(workflow, 36, activity_id, "a reset opens what was never scheduled")
    activity = Activity([0, *(at[name] for name in _SCHEDULED)])
    for name, value in at.items():
        setattr(activity, name, value)
    activity.grants = [] if known is None else known.grants
    _check_grants(fold, workflow, activity_id, activity.generation, activity.grant, activity.grants)
    if activity.lease is not None:
        fold.wrong(workflow, 15, activity_id, "a reset opens it with a lease")
        activity.lease = None
    workflow.activities[activity_id] = activity


_SCHEDULED = (
    "scheduled_event_id",
    "scheduled_ms",
    "activity_id",
    "activity_type",
    "input",
    "options",
)


def _check_fence(
    fold: Place, workflow: Workflow, activity_id: str, generation: int, grant: int
) -> None:
    known = workflow.closed.get(activity_id)
    grants = [] if known is None else known.grants
    _check_grants(fold, workflow, activity_id, generation, grant, grants)


def _check_grants(
    fold: Place,
    workflow: Workflow,
    activity_id: str,
    generation: int,
    grant: int,
    grants: list[tuple[int, int, int]],
) -> None:
    """Nothing that was granted before may be granted again."""
    for before, fence, _ in grants:
        if generation <= before or grant < fence:
            text = f"a reset goes on from {generation}, {grant}; {before}, {fence} was granted"
            fold.wrong(workflow, 16, activity_id, text)
            return
