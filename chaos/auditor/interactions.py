"""What workflows and people do to each other, as the contract has it: children, signals, updates,
runs, and activities that are given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from chaos.auditor import names
from chaos.auditor.leases import Place, Record, find, holds, let_go
from chaos.auditor.schedules import MARK, Schedules
from chaos.auditor.state import CONTINUED, Workflow

RUN_MARK = "\x1f"
TIMED_OUT = "WorkflowTimeout"
# Of a start's terms: delay, timeout, the instant of that, parent, attributes, first start, signals,
# whether one of them follows, children of the run before.
DELAY, TIMEOUT_AT, PARENT, ATTRIBUTES, FIRST_STARTED, CHILDREN = 0, 2, 3, 4, 5, 8
# Of what is kept besides: what an operator did is looked at elsewhere.
_COMPARED = (
    "first_started_ms",
    "cancel_requested",
    "cancel_reason",
    "attributes",
    "signals",
    "last_message_id",
    "unread",
    "takes",
    "untaken",
    "dropped",
)
DROPPED_KEPT = 20
_AT_MORE = {name: at for at, name in enumerate(names.MORE)}
CLOSES = ("terminate", "cancel", "abandon")
MODES = ("wait", "abandon")


class Whole(Place, Protocol):
    """What these rules need of the fold besides."""

    @property
    def workflows(self) -> Mapping[str, Workflow]:
        """By their execution ids."""

    left_behind: list[tuple[Workflow, str, str]]
    schedules: Schedules
    base_n: int


def started(workflow: Workflow, terms: list[Any] | None) -> None:
    """What the terms of a start mean."""
    if terms is None:
        return
    if terms[DELAY]:
        workflow.task_due_ms = workflow.started_ms + terms[DELAY]
    workflow.timeout_at_ms = terms[TIMEOUT_AT]
    workflow.parent = terms[PARENT]
    workflow.more["attributes"] = dict(terms[ATTRIBUTES])
    workflow.more["first_started_ms"] = terms[FIRST_STARTED]
    if len(terms) > CHILDREN:
        workflow.children = dict(terms[CHILDREN])


def check_parent(fold: Whole, workflow: Workflow) -> None:
    """What says that it was started by another has been: no start is nobody's."""
    parent = workflow.parent
    if parent is None or RUN_MARK in workflow.workflow_id:
        return
    execution, child_id = parent[0], parent[1]
    if execution.startswith(MARK):
        is_asked = fold.schedules.has_started(execution, child_id, is_whole=fold.base_n == 0)
    else:
        above = fold.workflows.get(execution)
        is_asked = above is not None and child_id in above.asked_children
        if above is None or above.is_partial:
            is_asked = is_asked or fold.base_n > 0
    if not is_asked:
        name = execution.replace(MARK, "schedule ")
        fold.wrong(workflow, 47, "", f"it says that {name} started it, which does not say so")


def has_read(workflow: Workflow, consumed: int) -> None:
    """A workflow task has read up to this event."""
    if consumed >= workflow.more.get("last_message_id", 0):
        workflow.more["unread"] = 0


def differences(workflow: Workflow, more: Any) -> list[str]:
    """What of `more`, as the store has it, is not what the log gives."""
    found = [None] * len(names.MORE) if more is None else more
    if not isinstance(found, list) or len(found) < names.MORE_BEFORE_RESETS:
        return ["more"]
    found = found + [None] * (len(names.MORE) - len(found))
    expected = {name: workflow.more.get(name) for name in _COMPARED}
    expected |= {
        "children": workflow.children,
        "updates": workflow.updates,
        "parent": workflow.parent,
        "timeout_at_ms": workflow.timeout_at_ms,
        "paused": workflow.paused,
        "again": {key: list(fence) for key, fence in workflow.again.items()},
    }
    # Empty is empty, whether it was ever set or not.
    return [
        name
        for name, value in expected.items()
        if (value or None) != (found[_AT_MORE[name]] or None)
    ]


def _message(workflow: Workflow, event_id: int) -> None:
    workflow.more["last_message_id"] = event_id
    workflow.more["unread"] = workflow.more.get("unread", 0) + 1


def ended(fold: Whole, workflow: Workflow, record: Record) -> None:
    """What an end must be like, whichever it is."""
    if names.KINDS[record[0]].name == "WorkflowContinuedAsNew":
        expected = _run(workflow.workflow_id) + 1
        if record[3] != expected:
            text = f"goes on as run {record[3]}, {expected} is next"
            fold.wrong(workflow, 34, "", text)
    elif names.KINDS[record[0]].name == "WorkflowFailed" and record[3].get("type") == TIMED_OUT:
        at_ms = workflow.timeout_at_ms
        if not workflow.is_partial and (not at_ms or record[2] < at_ms):
            fold.wrong(workflow, 27, "", "its time is said to be over, and is not")
    if names.KINDS[record[0]].name != "WorkflowContinuedAsNew":
        fold.left_behind += [(workflow, *child) for child in workflow.children.items()]
    workflow.children.clear()
    workflow.updates.clear()
    workflow.more["unread"] = 0


def _run(execution_id: str) -> int:
    return int(execution_id.rpartition(RUN_MARK)[2]) if RUN_MARK in execution_id else 1


def _name(execution_id: str) -> str:
    return execution_id.partition(RUN_MARK)[0]


def newest_run(workflows: Mapping[str, Workflow], workflow: Workflow) -> Workflow:
    """What people mean by the id of `workflow`, which is a first run."""
    run = 1
    while (following := workflows.get(f"{workflow.workflow_id}{RUN_MARK}{run + 1}")) is not None:
        run += 1
        last = following
    return workflow if run == 1 else last


def check_left_behind(fold: Whole) -> None:
    """At the end of a commit: the children of whoever has ended in it, as their terms say."""
    for parent, child_id, close in fold.left_behind:
        child = fold.workflows.get(child_id)
        if child is None or child.is_partial or close not in CLOSES[:2]:
            continue
        if child.parent is None or _name(child.parent[0]) != _name(parent.workflow_id):
            continue  # Its id was taken: that one is nobody's child, or another's.
        child = newest_run(fold.workflows, child)
        is_told = close == "cancel" and child.more.get("cancel_requested")
        if child.is_open and not is_told:
            text = f"it is open, and its parent {parent.workflow_id} has ended"
            fold.wrong(child, 34, "", text)
    fold.left_behind.clear()


# --- signals, updates, requests -----------------------------------------------
def _cancel_requested(fold: Place, workflow: Workflow, record: Record) -> None:
    _asked(fold, workflow, record, record[4])
    workflow.task_due_ms = 0
    workflow.more["cancel_requested"], workflow.more["cancel_reason"] = True, record[3]
    workflow.more["last_message_id"] = record[1]


def _signalled(fold: Place, workflow: Workflow, record: Record) -> None:
    _asked(fold, workflow, record, record[5])
    workflow.more["signals"] = workflow.more.get("signals", 0) + 1
    _message(workflow, record[1])


def _signals_noted(fold: Place, workflow: Workflow, record: Record) -> None:
    """What its code makes of signals, and what could not be handed over."""
    takes, untaken, dropped = record[2]
    kept = [*workflow.more.get("dropped", ()), *dropped][-DROPPED_KEPT:]
    workflow.more.update(takes=takes, untaken=untaken, dropped=kept)


def _sent(fold: Place, workflow: Workflow, record: Record) -> None:
    """It wakes the sender, where that is told what came of it."""
    if record[8] and workflow.last_wake_id is not None:
        workflow.last_wake_id = record[1]


def _update_received(fold: Place, workflow: Workflow, record: Record) -> None:
    _asked(fold, workflow, record, record[5])
    workflow.updates[record[5]] = record[1]
    _message(workflow, record[1])


def _update_ended(fold: Place, workflow: Workflow, record: Record) -> None:
    update_id = record[3]
    if update_id in workflow.updates:
        del workflow.updates[update_id]
    elif not workflow.is_partial:
        fold.wrong(workflow, 32, "", f"update {update_id} is answered, and is not open")


def _asked(fold: Place, workflow: Workflow, record: Record, request_id: str | None) -> None:
    """A request makes one record."""
    if request_id is None:
        return
    request = (record[0], request_id)
    if request in workflow.requests:
        fold.wrong(workflow, 32, "", f"request {request_id} made a second record")
    workflow.requests[request] = ""


# --- children -----------------------------------------------------------------
def _child_started(fold: Place, workflow: Workflow, record: Record) -> None:
    child_id, close = record[3], record[7]
    if child_id in workflow.children:
        fold.wrong(workflow, 34, "", f"child {child_id} is started while it is open")
    if close not in CLOSES:
        fold.wrong(workflow, 34, "", f"the end of the parent of {child_id} means {close!r}")
    workflow.children[child_id] = close
    workflow.asked_children.add(child_id)


def _child_ended(fold: Place, workflow: Workflow, record: Record) -> None:
    child_id = record[3]
    if workflow.children.pop(child_id, None) is None and not workflow.is_partial:
        fold.wrong(workflow, 29, "", f"child {child_id} ends, and is not open")


def _child_cancelled(fold: Place, workflow: Workflow, record: Record) -> None:
    child_id, noop = record[3], record[4]
    if (child_id in workflow.children) == noop and not workflow.is_partial:
        text = "as if it had ended" if noop else "though it is not open"
        fold.wrong(workflow, 33, "", f"child {child_id} is to end {text}")


def _attributes_set(fold: Place, workflow: Workflow, record: Record) -> None:
    attributes = workflow.more.setdefault("attributes", {})
    for name, value in record[3]:
        attributes.pop(name, None)
        if value is not None:
            attributes[name] = value


# --- activities ---------------------------------------------------------------
def _given_up(fold: Place, workflow: Workflow, record: Record) -> None:
    activity_id, mode, noop = record[3], record[4], record[5]
    activity = let_go(fold, workflow, activity_id, "given up", noop=noop)
    if workflow.is_partial and activity is None:
        return
    if mode not in MODES:
        fold.wrong(workflow, 33, activity_id, f"given up in the way of {mode!r}")
    if activity is not None:
        activity.cancel_requested = mode


def _detached(fold: Place, workflow: Workflow, record: Record) -> None:
    _, _, activity_id, generation, grant = record[:5]
    activity = find(fold, workflow, activity_id, "LeaseDetached", 17)
    if activity is None or not holds(fold, workflow, activity, "LeaseDetached", generation, grant):
        return
    assert activity.lease is not None
    if activity.lease[1] is None:
        fold.wrong(workflow, 17, activity_id, "left open, and no session held it")
    activity.lease[1] = activity.lease[5] = None  # Its session, and its poll.
    activity.detached_grant = grant


def _nothing(fold: Place, workflow: Workflow, record: Record) -> None:
    """It changes nothing that is kept beside the history."""


# --- all of them, at the end --------------------------------------------------
def check_runs(fold: Whole, add: Callable[[int, str, str], None]) -> None:
    """Between executions: runs follow each other, and nobody's child outlives an end that takes it
    along.
    """
    for workflow_id, workflow in fold.workflows.items():
        if workflow.is_tainted:
            continue
        run = _run(workflow_id)
        name = workflow_id.partition(RUN_MARK)[0]
        following = f"{name}{RUN_MARK}{run + 1}"
        if (workflow.status == CONTINUED) != (following in fold.workflows):
            is_missing = workflow.status == CONTINUED
            text = f"run {run + 1} is missing" if is_missing else f"run {run} has not continued"
            add(34, name, text)
        parent = workflow.parent
        if parent is None or not workflow.is_open or parent[2] != "terminate":
            continue
        above = fold.workflows.get(parent[0])
        if above is not None and not above.is_open and above.status != CONTINUED:
            add(34, name, f"it is open, and its parent {parent[0]} has ended")


RULES: dict[int, Callable[[Any, Workflow, Record], None]] = {
    names.TAGS[name]: rule
    for name, rule in {
        "WorkflowCancelRequested": _cancel_requested,
        "SignalReceived": _signalled,
        "SignalSent": _sent,
        "SignalsNoted": _signals_noted,
        "ExternalCancelRequested": _nothing,
        "UpdateReceived": _update_received,
        "UpdateEnded": _update_ended,
        "ChildWorkflowStarted": _child_started,
        "ChildWorkflowCompleted": _child_ended,
        "ChildWorkflowFailed": _child_ended,
        "ChildCancelRequested": _child_cancelled,
        "MarkerRecorded": _nothing,
        "SearchAttributesSet": _attributes_set,
        "ActivityCancelRequested": _given_up,
        "LeaseDetached": _detached,
    }.items()
}
