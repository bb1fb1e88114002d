"""What should happen sometimes: a closed list, and what the log tells of it.

A generator that never makes a situation finds nothing in it. In a big run a goal that was never
reached is a failure of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from perdure.core.commands import (
    STEP_DROPPED,
    AnyAnswer,
    AnyCommand,
    CompleteActivity,
    CompleteWorkflowTask,
    Done,
    ExpireLease,
    FailActivity,
    GrantLease,
    RecordHeartbeat,
    RedriveDeadLetter,
    Refusal,
)
from perdure.core.decide_start import CHILD_ID_TAKEN
from perdure.core.records import (
    ActivityCancelRequested,
    ActivityDeadLettered,
    ActivityRedriven,
    ActivityTaskCancelled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskScheduled,
    ChildCancelRequested,
    ChildWorkflowCompleted,
    ChildWorkflowFailed,
    CommitBody,
    GateSet,
    HeartbeatRecorded,
    LeaseDetached,
    LeaseGranted,
    LeaseReleased,
    MarkerRecorded,
    Record,
    RetriedNow,
    RetryScheduled,
    SearchAttributesSet,
    SignalReceived,
    SignalSent,
    TimerCancelled,
    TimerFired,
    TimerStarted,
    UpdateEnded,
    WorkflowCancelled,
    WorkflowCancelRequested,
    WorkflowCompleted,
    WorkflowContinuedAsNew,
    WorkflowFailed,
    WorkflowPaused,
    WorkflowStarted,
    WorkflowTaskFailed,
    WorkflowTerminated,
)
from perdure.core.schedule_state import ScheduleDeleted, ScheduleFired, is_schedule
from perdure.failures import (
    HEARTBEAT_TIMEOUT,
    SCHEDULE_TO_CLOSE_TIMEOUT,
    SCHEDULE_TO_START_TIMEOUT,
    START_TO_CLOSE_TIMEOUT,
    WORKER_DIED,
    WORKFLOW_TIMEOUT,
)
from perdure.values import is_reference

# What the whole engine reaches, and in a run of many seeds must.
ENGINE = frozenset(
    {
        "a bad request was refused",
        "a batch had more than one command",
        "a commit was about several workflows",
        "a completion was refused as stale",
        "a dead letter was completed by hand",
        "a dead letter was failed by hand",
        "a dead letter was redriven",
        "a dead letter was redriven a second time",
        "a failure was refused as stale",
        "a full queue dropped a frame",
        "a grant was refused",
        "a heartbeat and a report were in one batch",
        "a heartbeat was recorded",
        "a heartbeat was refused",
        "a later attempt began",
        "a lease was granted in the commit that scheduled",
        "a lease was handed back at a shutdown",
        "a lease was never delivered",
        "a lease ended uncharged with its node",
        "a payload was kept by reference",
        "a projection was rebuilt and compared",
        "a redrive was refused",
        "a restart waited",
        "a retry fell due while nobody was there",
        "a second I/O error stopped the node",
        "a step that followed a result counted",
        "a step that followed a result was dropped",
        "a submit had an unknown outcome",
        "a task was polled by hand",
        "a timer was cancelled",
        "a timer fired",
        "a timer fired late",
        "a worker in quarantine started",
        "a workflow completed",
        "a workflow task failed",
        "a workflow task's result was out of date",
        "an activity killed its worker",
        "an activity was cancelled",
        "an activity died of its heartbeat",
        "an activity died of its start-to-close",
        "an activity died of its schedule-to-close",
        "an activity died of its schedule-to-start",
        "an activity died with its worker",
        "an activity was dead-lettered",
        "an attempt came after three others",
        "an effect was delivered twice",
        "an expiry was refused",
        "four epochs followed one another",
        "history ended at an I/O error",
        "new work was refused",
        "silence killed a child",
        "a child began",
        "a child heard all, and was heard",
        "a workflow was taken back",
        "runs of a schedule were made up for",
        "a child was asked to end",
        "a child was ended",
        "a child's id was taken",
        "a marker was recorded",
        "a parent heard that its child completed",
        "a query was answered",
        "a queue or a type was held back or let go",
        "a run of a schedule was skipped",
        "a run of a schedule was started",
        "a schedule was deleted",
        "a schedule was triggered",
        "a signal was received",
        "a workflow continued as new",
        "a workflow ended before an update was answered",
        "a workflow ended cancelled",
        "a workflow signalled another",
        "a workflow was asked to end",
        "a workflow was held back or let go",
        "a workflow was terminated",
        "a workflow's start was delayed",
        "a workflow's time was over",
        "an activity ended because it was asked to",
        "an activity was abandoned",
        "an activity was asked to end, and waited for",
        "an attempt was completed by whoever had its token",
        "an attempt was left to whoever has its token",
        "an update was answered",
        "an update was rejected",
        "search attributes were set",
        "signals moved on to the next run",
        "something was tried at once",
    }
)

# What the fast world reaches: it has no gateway, no root and no polls.
FAST = ENGINE & {
    "a batch had more than one command",
    "a commit was about several workflows",
    "a dead letter was failed by hand",
    "a dead letter was redriven",
    "a heartbeat was recorded",
    "a later attempt began",
    "a projection was rebuilt and compared",
    "a retry fell due while nobody was there",
    "a timer fired",
    "a workflow completed",
    "an activity died of its heartbeat",
    "an activity died of its schedule-to-close",
    "an activity died of its schedule-to-start",
    "an activity died of its start-to-close",
    "an activity died with its worker",
    "an activity was dead-lettered",
    "an attempt came after three others",
    "an effect was delivered twice",
    "four epochs followed one another",
}


def missing(reached: Iterable[str], world: str) -> list[str]:
    """What such a run should have reached, and has not."""
    return sorted((ENGINE if world == "engine" else FAST) - set(reached))


class LogGoals:
    """What a log tells of, commit by commit."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._timers: dict[tuple[str, int], int] = {}
        self._retries: dict[tuple[str, str], int] = {}
        self._at_ms = 0

    def take(self, body: CommitBody) -> None:
        """The next commit."""
        found = self.found
        if body.opened is not None:
            found["four epochs followed one another"] += body.epoch >= 4
            due = any(self._at_ms < due_ms <= body.at_ms for due_ms in self._retries.values())
            found["a retry fell due while nobody was there"] += due
        found["a commit was about several workflows"] += len(body.groups) > 1
        for group in body.groups:
            kinds = {type(record) for record in group.records}
            hired = {ActivityTaskScheduled, LeaseGranted} <= kinds
            found["a lease was granted in the commit that scheduled"] += hired
            for record in group.records:
                self._record(group.workflow_id, record)
        self._at_ms = body.at_ms

    def _record(self, workflow_id: str, record: Record) -> None:
        found = self.found
        failure: Any = getattr(record, "failure", None)
        if failure is not None and failure.type in _DEATHS:
            found[_DEATHS[failure.type]] += 1
        name = _EVENTS.get(type(record))
        if name is not None:
            found[name] += 1
        payload = getattr(record, "result", None) or getattr(record, "input", None)
        found["a payload was kept by reference"] += payload is not None and is_reference(payload)
        self._details(workflow_id, record)

    def _details(self, workflow_id: str, record: Record) -> None:
        found = self.found
        match record:
            case TimerStarted():
                self._timers[workflow_id, record.timer_id] = record.due_ms
            case TimerFired():
                due_ms = self._timers.pop((workflow_id, record.timer_id), record.at_ms)
                found["a timer fired late"] += record.at_ms > due_ms + LATE_MS
            case TimerCancelled():
                found["a timer was cancelled"] += not record.noop
            case ActivityTaskCancelled():
                found["an activity was cancelled"] += not record.noop
            case ActivityTaskCompleted(started_ms=None):
                found["a dead letter was completed by hand"] += 1
            case ActivityTaskFailed(request_id=str()):
                found["a dead letter was failed by hand"] += 1
            case ActivityRedriven():
                found["a dead letter was redriven a second time"] += record.generation > 2
            case RetryScheduled():
                self._retries[workflow_id, record.activity_id] = record.due_ms
            case LeaseGranted():
                found["an attempt came after three others"] += record.attempt > 3
                self._retries.pop((workflow_id, record.activity_id), None)
            case LeaseReleased(reason=reason) if reason in _RELEASES:
                found[_RELEASES[reason]] += 1
            case _:
                self._between(record)

    def _between(self, record: Record) -> None:
        """What workflows and people do to each other."""
        found = self.found
        match record:
            case WorkflowStarted(terms=terms) if terms is not None:
                found["a workflow's start was delayed"] += terms.delay_ms > 0
                found["signals moved on to the next run"] += bool(terms.signals)
                is_child = terms.parent is not None and not is_schedule(terms.parent.workflow_id)
                found["a child began"] += is_child
            case UpdateEnded(rejected=rejected, failure=failure):
                found["an update was rejected"] += rejected
                found["an update was answered"] += failure is None
            case ChildWorkflowFailed(failure=failure):
                found["a child's id was taken"] += failure.type == CHILD_ID_TAKEN
                found["a child was ended"] += failure.type != CHILD_ID_TAKEN
            case ActivityCancelRequested(mode=mode, noop=False):
                found[_MODES[mode]] += 1
            case WorkflowFailed(failure=failure):
                found["a workflow's time was over"] += failure.type == WORKFLOW_TIMEOUT
            case ScheduleFired(outcome=outcome, why=why):
                found[f"a run of a schedule was {outcome}"] += 1
                found["a schedule was triggered"] += why == "trigger"
            case _:
                pass


def of_batch(commands: Sequence[AnyCommand], answers: Sequence[AnyAnswer]) -> Iterator[str]:
    """What a judged batch tells of."""
    if len(commands) > 1:
        yield "a batch had more than one command"
        kinds = {type(command) for command in commands}
        if RecordHeartbeat in kinds and kinds & {CompleteActivity, FailActivity}:
            yield "a heartbeat and a report were in one batch"
    for command, answer in zip(commands, answers, strict=True):
        if isinstance(answer, Refusal):
            if answer.code == "RESOURCE_EXHAUSTED":
                yield "new work was refused"
            elif type(command) in _REFUSED:
                yield _REFUSED[type(command)]
        elif isinstance(command, CompleteActivity) and command.following is not None:
            is_dropped = isinstance(answer, Done) and answer.state == STEP_DROPPED
            yield "a step that followed a result " + ("was dropped" if is_dropped else "counted")


LATE_MS = 1_000
_EVENTS: dict[type[Record], str] = {
    WorkflowCompleted: "a workflow completed",
    WorkflowTaskFailed: "a workflow task failed",
    TimerFired: "a timer fired",
    ActivityDeadLettered: "an activity was dead-lettered",
    ActivityRedriven: "a dead letter was redriven",
    HeartbeatRecorded: "a heartbeat was recorded",
    ChildCancelRequested: "a child was asked to end",
    ChildWorkflowCompleted: "a parent heard that its child completed",
    GateSet: "a queue or a type was held back or let go",
    LeaseDetached: "an attempt was left to whoever has its token",
    MarkerRecorded: "a marker was recorded",
    RetriedNow: "something was tried at once",
    ScheduleDeleted: "a schedule was deleted",
    SearchAttributesSet: "search attributes were set",
    SignalReceived: "a signal was received",
    SignalSent: "a workflow signalled another",
    WorkflowCancelRequested: "a workflow was asked to end",
    WorkflowCancelled: "a workflow ended cancelled",
    WorkflowContinuedAsNew: "a workflow continued as new",
    WorkflowPaused: "a workflow was held back or let go",
    WorkflowTerminated: "a workflow was terminated",
}
_MODES = {
    "wait": "an activity was asked to end, and waited for",
    "abandon": "an activity was abandoned",
}
_DEATHS = {
    HEARTBEAT_TIMEOUT: "an activity died of its heartbeat",
    START_TO_CLOSE_TIMEOUT: "an activity died of its start-to-close",
    SCHEDULE_TO_CLOSE_TIMEOUT: "an activity died of its schedule-to-close",
    SCHEDULE_TO_START_TIMEOUT: "an activity died of its schedule-to-start",
    WORKER_DIED: "an activity died with its worker",
}
_RELEASES = {
    "shutdown": "a lease was handed back at a shutdown",
    "undelivered": "a lease was never delivered",
    "node_restart": "a lease ended uncharged with its node",
}
_REFUSED: dict[type[Any], str] = {
    CompleteActivity: "a completion was refused as stale",
    FailActivity: "a failure was refused as stale",
    GrantLease: "a grant was refused",
    ExpireLease: "an expiry was refused",
    RecordHeartbeat: "a heartbeat was refused",
    RedriveDeadLetter: "a redrive was refused",
    CompleteWorkflowTask: "a workflow task's result was out of date",
}
