"""The auditor's own reading of the log: workflow by workflow, record by record.

Every record is held against what the records before it allow. What is wrong is reported under its
number and then believed, so that one wrong record is not reported again by all that follow from it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from chaos.auditor import interactions, names
from chaos.auditor.endings import ENDING_RULES
from chaos.auditor.findings import Findings
from chaos.auditor.leases import LEASE_RULES
from chaos.auditor.pauses import PAUSE_RULES, Gates
from chaos.auditor.resets import ANSWER_LOST, RESET, reset
from chaos.auditor.retries import GRACE_MS
from chaos.auditor.schedules import MARK, Schedules
from chaos.auditor.state import (
    CANCELLED,
    COMPLETED,
    CONTINUED,
    DEAD,
    FAILED,
    RUNNING,
    TERMINATED,
    Closed,
    Workflow,
)

Record = list[Any]
STARTED = names.TAGS["WorkflowStarted"]
TASK_COMPLETED = names.TAGS["ActivityTaskCompleted"]
WAKES = frozenset(
    names.TAGS[name]
    for name in (
        "WorkflowStarted",
        "TimerFired",
        "ActivityTaskCompleted",
        "ActivityTaskFailed",
        "WorkflowCancelRequested",
        "SignalReceived",
        "UpdateReceived",
        "ChildWorkflowCompleted",
        "ChildWorkflowFailed",
        "ExternalCancelRequested",
        "WorkflowReset",
    )
)
# What only a workflow's own code may ask for.
STEPS = frozenset(
    names.TAGS[name]
    for name in (
        "ActivityTaskScheduled",
        "ActivityTaskCancelled",
        "TimerStarted",
        "TimerCancelled",
        "ActivityCancelRequested",
        "ChildWorkflowStarted",
        "ChildCancelRequested",
        "SignalSent",
        "ExternalCancelRequested",
        "MarkerRecorded",
        "SearchAttributesSet",
        "UpdateEnded",
        "WorkflowCompleted",
        "WorkflowFailed",
        "WorkflowCancelled",
        "WorkflowContinuedAsNew",
    )
)
STATUSES = {
    names.TAGS["WorkflowCompleted"]: COMPLETED,
    names.TAGS["WorkflowFailed"]: FAILED,
    names.TAGS["WorkflowCancelled"]: CANCELLED,
    names.TAGS["WorkflowTerminated"]: TERMINATED,
    names.TAGS["WorkflowContinuedAsNew"]: CONTINUED,
}
# These may stand for two events: the start of the attempt is the one before.
DOUBLE = frozenset({names.TAGS["ActivityTaskCompleted"], names.TAGS["ActivityTaskFailed"]})
STARTED_MS_AT = 8
# Ends of workflow tasks that say nothing about the workflow.
UNCOUNTED = frozenset({"handed_back", "unknown_type", "unread"})
TIMED_OUT = "WorkflowTimeout"

_encode = msgspec.msgpack.Encoder().encode


def checksum(record: Record) -> int:
    """32 bits over a record as the log has it; the same for an equal record."""
    return zlib.crc32(_encode(record))


class Fold:
    """State of every workflow after the records so far."""

    def __init__(self, found: Findings, base_n: int) -> None:
        self.found = found
        self.base_n = base_n
        self.began_ms = 0  # When the present epoch began.
        self.grace_ms = GRACE_MS  # What leases of before get of it, at the most.
        self.stall_ms = 0  # How long history has stood still until the present commit.
        self.n = 0
        self.at_ms = 0
        self.workflows: dict[str, Workflow] = {}
        self.gates = Gates()
        self.schedules = Schedules(self)
        # Of those that the present commit ended: (parent, id of an open child, what that means).
        self.left_behind: list[tuple[Workflow, str, str]] = []
        self.records = 0
        self.attempts = 0
        self.scheduled = 0
        self.follow_ups = 0  # Wrong, and about what was wrong before.
        self.skipped = 0  # Records about what a pruned log no longer tells.

    def group(self, workflow_id: str, records: list[Record]) -> None:
        """All that the present commit states about one workflow."""
        workflow = self.workflows.get(workflow_id)
        is_schedule = workflow_id.startswith(MARK)
        for record in records:
            self.records += 1
            problem = names.problem_of(record)
            if problem:
                self.found.add(13, self.where(workflow_id), problem)
                if workflow is not None:
                    workflow.faults.setdefault("", self.n)
                continue
            if is_schedule:
                self.schedules.record(workflow_id, record, is_whole=self.base_n == 0)
                continue
            if workflow is None:
                workflow = self._first(workflow_id, record)
            elif record[0] == STARTED:
                self.wrong(workflow, 6, "", "it is started a second time")
                continue
            self._record(workflow, record)
        if workflow is not None and workflow.steps_due != 0:
            due, workflow.steps_due = workflow.steps_due, 0
            if due is None:
                return
            self.wrong(workflow, 35, "", f"a workflow task issued {due} commands without an event")

    def set_gates(self, records: list[Record], *, before: bool) -> None:
        """What the present commit states about no workflow: first before all else, then behind."""
        for text in self.gates.take(records, before=before):
            if before:
                self.found.add(13, self.where("no workflow"), text)
        self.records += len(records) if before else 0

    def where(self, workflow_id: str, activity_id: str = "") -> str:
        """The place of the present record, for people."""
        item = f"{workflow_id}/{activity_id}" if activity_id else workflow_id
        return f"commit {self.n}, {item}"

    def wrong(self, workflow: Workflow, invariant: int, activity_id: str, what: str) -> None:
        """Report the present record, unless an earlier one about the same was wrong already."""
        if workflow.faults.setdefault(activity_id, self.n) == self.n:
            self.found.add(invariant, self.where(workflow.workflow_id, activity_id), what)
        else:
            self.follow_ups += 1

    # --- within ------------------------------------------------------------
    def _first(self, workflow_id: str, record: Record) -> Workflow:
        is_start = record[0] == STARTED
        workflow = Workflow(workflow_id, is_partial=not is_start)
        self.workflows[workflow_id] = workflow
        if not is_start and self.base_n == 0:
            kind = names.KINDS[record[0]].name
            self.wrong(workflow, 34, "", f"{kind} stands before its WorkflowStarted")
        return workflow

    def _record(self, workflow: Workflow, record: Record) -> None:
        trait = TRAITS[record[0]]
        try:
            if workflow.status != RUNNING and record[0] != RESET:
                self._after_the_end(workflow, record, trait.kind)
                return
            at = trait.at_ms_at
            if at and record[at] != self.at_ms and not _was_foreseen(self, workflow, record):
                text = f"{trait.kind.name} is of {record[at]}, its commit of {self.at_ms}"
                self.wrong(workflow, 10, "", text)
            if trait.is_event:
                self._event(workflow, record, trait)
                if trait.is_step and not is_no_step(record, trait.kind.name):
                    self._step(workflow, trait.kind)
            if len(record) < trait.length:
                record.extend([None] * (trait.length - len(record)))
            trait.rule(self, workflow, record)
        except Exception as problem:  # noqa: BLE001 - whatever its bytes are, they are reported
            text = f"a record of kind {record[0]} makes no sense: {problem!r}"
            self.wrong(workflow, 13, "", text)

    def _after_the_end(self, workflow: Workflow, record: Record, kind: names.Kind) -> None:
        has_token = "grant" in kind.fields and kind.name != "LeaseGranted"
        number = 17 if has_token else 34
        self.wrong(workflow, number, "", f"{kind.name} follows the end of the workflow")
        if kind.is_event:
            workflow.events.append(record[1] << 32 | checksum(record))

    def _event(self, workflow: Workflow, record: Record, trait: Trait) -> None:
        event_id = record[1]
        last = workflow.last_event_id
        if last is not None:
            is_double = trait.is_double and record[STARTED_MS_AT] is not None
            expected = last + (2 if is_double else 1)
            if event_id != expected:
                self.wrong(workflow, 34, "", f"event {event_id} stands where {expected} belongs")
        workflow.last_event_id = event_id
        if trait.wakes:
            workflow.last_wake_id = event_id
        if record[2] > workflow.newest_ms:
            workflow.newest_ms = record[2]
        workflow.events.append(event_id << 32 | checksum(record))

    def _step(self, workflow: Workflow, kind: names.Kind) -> None:
        if workflow.commands is None or workflow.steps_due is None:
            return
        if workflow.steps_due <= 0:
            self.wrong(workflow, 35, "", f"{kind.name} is no command of a workflow task")
            return
        workflow.steps_due -= 1


def is_no_step(record: Record, kind: str) -> bool:
    """Whether its code did not ask for this: the end of the time that the workflow was given, and
    of updates that a reset took back.
    """
    if kind == "UpdateEnded":
        return (record[5] or {}).get("type") == ANSWER_LOST
    return kind == "WorkflowFailed" and record[3].get("type") == TIMED_OUT


# --- the workflow -----------------------------------------------------------
def _was_foreseen(fold: Fold, workflow: Workflow, record: Record) -> bool:
    """Whether a result bears the instant at which its worker ran the workflow on from it.

    That is not before its grant, nor before what the workflow has seen, nor after its commit.
    """
    if record[0] != TASK_COMPLETED or record[STARTED_MS_AT] is None:
        return False
    at_ms: int = record[2]
    granted_ms: int = record[STARTED_MS_AT]
    return max(granted_ms, workflow.newest_ms) <= at_ms <= fold.at_ms


def _started(fold: Fold, workflow: Workflow, record: Record) -> None:
    workflow.workflow_type, workflow.task_queue = record[3], record[4]
    workflow.request_id, workflow.digest = record[6], record[7]
    workflow.started_ms, workflow.started_n = record[2], fold.n
    interactions.started(workflow, record[8])
    interactions.check_parent(fold, workflow)


def _ended(fold: Fold, workflow: Workflow, record: Record) -> None:
    workflow.status = STATUSES[record[0]]
    workflow.closed_ms = record[2]
    interactions.ended(fold, workflow, record)
    for activity_id, activity in workflow.activities.items():
        workflow.closed[activity_id] = Closed(
            activity.activity_type, activity.grants, "left open", None
        )
    workflow.activities.clear()
    workflow.timers.clear()
    workflow.timers_gone.clear()


def _task_completed(fold: Fold, workflow: Workflow, record: Record) -> None:
    consumed, commands = record[1], record[2]
    if workflow.consumed is not None and workflow.commands is not None:
        last = workflow.last_event_id or 0
        if not workflow.consumed < consumed <= last:
            text = f"a workflow task read up to event {consumed}, of {last},"
            fold.wrong(workflow, 35, "", f"{text} from {workflow.consumed}")
        elif not workflow.task_ready:
            waits = any(one.state == DEAD for one in workflow.activities.values())
            fold.wrong(workflow, 31 if waits else 35, "", "a workflow task ran that nothing woke")
        if commands < workflow.commands:
            text = f"the count of commands fell from {workflow.commands} to {commands}"
            fold.wrong(workflow, 35, "", text)
        workflow.steps_due = max(0, commands - workflow.commands)
    else:
        workflow.steps_due = None  # The task before it was pruned: how many it had issued, too.
    workflow.consumed, workflow.commands = consumed, commands
    workflow.task_failures, workflow.task_due_ms = 0, 0
    workflow.task_failure, workflow.task_reason = None, ""
    if workflow.more:
        interactions.has_read(workflow, consumed)


def _task_failed(fold: Fold, workflow: Workflow, record: Record) -> None:
    _, at_ms, reason, failure, failures, due_ms = record[:6]
    expected = workflow.task_failures + (reason not in UNCOUNTED)
    if failures != expected and not workflow.is_partial:
        fold.wrong(workflow, 35, "", f"{failures} failed workflow tasks in a row, not {expected}")
    if due_ms < at_ms:
        fold.wrong(workflow, 35, "", "a failed workflow task is due before it failed")
    workflow.task_failures, workflow.task_due_ms = failures, due_ms
    workflow.task_failure, workflow.task_reason = failure, reason


# --- timers -----------------------------------------------------------------
def _timer_started(fold: Fold, workflow: Workflow, record: Record) -> None:
    timer_id = record[3]
    if timer_id in workflow.timers or timer_id in workflow.timers_gone:
        fold.wrong(workflow, 27, "", f"timer {timer_id} is started twice")
    if record[4] < record[2]:
        fold.wrong(workflow, 27, "", f"timer {timer_id} is due before it starts")
    workflow.timers[timer_id] = record[4]


def _timer_fired(fold: Fold, workflow: Workflow, record: Record) -> None:
    timer_id = record[3]
    due_ms = workflow.timers.pop(timer_id, None)
    if due_ms is None:
        known = timer_id in workflow.timers_gone
        if known or not workflow.is_partial:
            text = "fires a second time" if known else "fires and was never started"
            fold.wrong(workflow, 27, "", f"timer {timer_id} {text}")
    elif record[2] < due_ms:
        fold.wrong(workflow, 27, "", f"timer {timer_id} fires {due_ms - record[2]} ms early")
    workflow.timers_gone.add(timer_id)


def _timer_cancelled(fold: Fold, workflow: Workflow, record: Record) -> None:
    timer_id, noop = record[3], record[4]
    runs = workflow.timers.pop(timer_id, None) is not None
    if runs == noop and not workflow.is_partial:
        text = "as if it were over" if runs else "though it did not run"
        fold.wrong(workflow, 27, "", f"timer {timer_id} is cancelled {text}")
    workflow.timers_gone.add(timer_id)


RULES: dict[int, Callable[[Fold, Workflow, Record], None]] = {
    **LEASE_RULES,
    **ENDING_RULES,
    **interactions.RULES,
    **PAUSE_RULES,
}
RULES |= {
    names.TAGS[name]: rule
    for name, rule in {
        "WorkflowStarted": _started,
        "WorkflowReset": reset,
        "WorkflowCompleted": _ended,
        "WorkflowFailed": _ended,
        "WorkflowCancelled": _ended,
        "WorkflowTerminated": _ended,
        "WorkflowContinuedAsNew": _ended,
        "WorkflowTaskCompleted": _task_completed,
        "WorkflowTaskFailed": _task_failed,
        "TimerStarted": _timer_started,
        "TimerFired": _timer_fired,
        "TimerCancelled": _timer_cancelled,
    }.items()
}


class Trait:
    """What the fold asks of a kind of record, looked up once."""

    __slots__ = ("at_ms_at", "is_double", "is_event", "is_step", "kind", "length", "rule", "wakes")

    def __init__(self, tag: int, kind: names.Kind) -> None:
        self.kind = kind
        self.length = len(kind.fields) + 1
        self.at_ms_at = kind.fields.index("at_ms") + 1 if "at_ms" in kind.fields else 0
        self.is_event = kind.is_event
        self.is_step = tag in STEPS
        self.is_double = tag in DOUBLE
        self.wakes = tag in WAKES
        self.rule = RULES[tag]


TRAITS = {tag: Trait(tag, kind) for tag, kind in names.KINDS.items() if tag in RULES}
