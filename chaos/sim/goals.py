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
from perdure.core.records import (
    ActivityDeadLettered,
    ActivityRedriven,
    ActivityTaskCancelled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskScheduled,
    CommitBody,
    HeartbeatRecorded,
    LeaseGranted,
    LeaseReleased,
    Record,
    RetryScheduled,
    TimerCancelled,
    TimerFired,
    TimerStarted,
    WorkflowCompleted,
    WorkflowTaskFailed,
)
from perdure.failures import (
    HEARTBEAT_TIMEOUT,
    SCHEDULE_TO_CLOSE_TIMEOUT,
    SCHEDULE_TO_START_TIMEOUT,
    START_TO_CLOSE_TIMEOUT,
    WORKER_DIED,
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
