"""Judge a command against the state of a workflow execution: the records that follow, and the
answer.

Nothing is changed here and nothing is read but the arguments: no clock, no chance, no store. What a
decision needs of the outside stands in `Facts`. Commands about one activity are judged in
decide_activity.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from perdure.core import decide_activity, decide_dead_letter, limits
from perdure.core.commands import (
    AnyAnswer,
    CancelActivity,
    CancelTimer,
    Command,
    CompleteActivity,
    CompleteDeadLetter,
    CompleteWorkflow,
    CompleteWorkflowTask,
    Done,
    EndLease,
    ExpireLease,
    FailActivity,
    FailDeadLetter,
    FailWorkflow,
    FailWorkflowTask,
    FireTimer,
    GrantLease,
    Hire,
    RecordHeartbeat,
    RedriveDeadLetter,
    Refusal,
    ReleaseActivity,
    ScheduleActivity,
    Started,
    StartTimer,
    StartWorkflow,
    Step,
    TimeOutActivity,
    TimeOutWorkflowTask,
)
from perdure.core.facts import Decision, Facts, refuse
from perdure.core.records import (
    ActivityOptions,
    ActivityTaskCancelled,
    ActivityTaskScheduled,
    Record,
    TimerCancelled,
    TimerFired,
    TimerStarted,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowStarted,
    WorkflowTaskCompleted,
    WorkflowTaskFailed,
)
from perdure.core.state import Execution, Status
from perdure.errors import no_workflow
from perdure.failures import engine_failure

# Ends of a workflow task that say nothing about the workflow: not counted towards parking.
UNCOUNTED = frozenset({"handed_back", "unknown_type"})


def decide(execution: Execution | None, command: Command, facts: Facts) -> Decision:
    """What `command` does to `execution` (None: there is none of that id).

    Raises on our own bugs only.
    """
    if type(command) is StartWorkflow:
        return _start(execution, command, facts)
    if execution is None:
        workflow_id = getattr(command, "workflow_id", None)  # A token hides it.
        text = "there is no workflow of this id"
        return refuse("NOT_FOUND", no_workflow(workflow_id).message if workflow_id else text)
    return _DECIDERS[type(command)](execution, command, facts)


def _start(execution: Execution | None, command: StartWorkflow, facts: Facts) -> Decision:
    if execution is None:
        return Decision(
            (
                WorkflowStarted(
                    1,
                    facts.now_ms,
                    command.workflow_type,
                    command.task_queue,
                    command.input,
                    command.request_id,
                    command.digest,
                ),
            ),
            Started(),
        )
    if command.request_id is None or command.request_id != execution.request_id:
        is_what = execution.status.value
        if execution.status is Status.REMOVED:
            is_what = "closed and removed by retention"
        return refuse(
            "ALREADY_EXISTS",
            f"workflow_id {command.workflow_id!r} is taken, by a {execution.workflow_type} that is"
            f" {is_what}; ids are never used again",
        )
    if command.digest != execution.digest:
        return refuse(
            "FAILED_PRECONDITION",
            f"request_id {command.request_id!r} was used for workflow {command.workflow_id!r}"
            " with other arguments",
        )
    return Decision((), Started())


# --- workflow tasks ---------------------------------------------------------
def _at_cursor(execution: Execution, consumed: int, commands: int) -> Decision | None:
    """The refusal of a workflow task's end that is not about the present cursor, or None."""
    if not execution.is_open:
        return refuse("FAILED_PRECONDITION", f"the workflow is {execution.status.value}")
    if (execution.consumed, execution.commands) != (consumed, commands):
        return refuse(
            "FAILED_PRECONDITION",
            f"the workflow has gone on: it stands at event {execution.consumed},"
            f" command {execution.commands}, not at {consumed}, {commands}",
        )
    return None


def _complete_task(execution: Execution, command: CompleteWorkflowTask, facts: Facts) -> Decision:
    after = (command.consumed, command.commands_from + len(command.steps))
    if (execution.consumed, execution.commands) == after and after != (
        command.consumed_from,
        command.commands_from,
    ):
        return Decision((), Done())  # The same result again, or its equal from another worker.
    stale = _at_cursor(execution, command.consumed_from, command.commands_from)
    if stale is not None:
        return stale
    if not command.consumed_from < command.consumed <= execution.last_event_id:
        return refuse("INVALID_ARGUMENT", f"consumed: event {command.consumed} does not exist")
    records: list[Record] = [WorkflowTaskCompleted(*after)]
    steps = _Steps(execution, facts, command.hire)
    for step in command.steps:
        wrong = steps.take(step)
        if wrong is not None:
            failure = engine_failure("BadWorkflowTask", wrong)
            return Decision(
                (_failed_task(execution, "error", failure, facts),),
                Refusal("INVALID_ARGUMENT", wrong),
            )
    records.extend(steps.records)
    return Decision(tuple(records), Done())


class _Steps:
    """Turns the steps of one workflow task into events, in order."""

    def __init__(self, execution: Execution, facts: Facts, hire: Hire | None) -> None:
        self.records: list[Record] = []
        self._hire = hire
        self._execution = execution
        self._facts = facts
        self._event_id = execution.last_event_id
        self._scheduled: set[str] = set()
        self._timers: set[int] = set()
        self._gone: set[str | int] = set()
        self._closed = False

    def take(self, step: Step) -> str | None:
        """Add the events of `step`; a text where it makes no sense."""
        if self._closed:
            return "a step follows the end of the workflow"
        self._event_id += 1
        return _STEPS[type(step)](self, step)

    def _schedule(self, step: ScheduleActivity) -> str | None:
        activity_id = step.activity_id
        if (
            activity_id in self._execution.activities
            or activity_id in self._scheduled
            # Before its first command nothing of a workflow can have been closed: no look-up.
            or (self._execution.commands and self._facts.closing_event(activity_id) is not None)
        ):
            return f"activity_id {activity_id!r} is used twice in one run"
        if not 1 <= len(activity_id.encode("utf-8")) <= limits.ID_BYTES_MAX:
            return f"activity_id must have 1 to {limits.ID_BYTES_MAX} bytes"
        self._scheduled.add(activity_id)
        options = resolve_options(step.options, self._facts.dlq_after_attempts)
        self._add(ActivityTaskScheduled, activity_id, step.activity_type, step.input, options)
        if self._hire is not None and activity_id in self._hire.activity_ids:
            self.records.append(
                decide_activity.hired(activity_id, options, self._hire, self._facts)
            )
        return None

    def _start_timer(self, step: StartTimer) -> str | None:
        if step.timer_id in self._execution.timers or step.timer_id in self._timers:
            return f"timer {step.timer_id} is started twice"
        self._timers.add(step.timer_id)
        due_ms = min(self._facts.now_ms + max(step.duration_ms, 0), limits.INTEGER_MAX)
        self._add(TimerStarted, step.timer_id, due_ms)
        return None

    def _cancel_timer(self, step: CancelTimer) -> str | None:
        known = step.timer_id in self._execution.timers or step.timer_id in self._timers
        self._add(TimerCancelled, step.timer_id, not known or step.timer_id in self._gone)
        self._gone.add(step.timer_id)
        return None

    def _cancel_activity(self, step: CancelActivity) -> str | None:
        activity_id = step.activity_id
        known = activity_id in self._execution.activities or activity_id in self._scheduled
        self._add(ActivityTaskCancelled, activity_id, not known or activity_id in self._gone)
        self._gone.add(activity_id)
        return None

    def _complete(self, step: CompleteWorkflow) -> str | None:
        self._closed = True
        self._add(WorkflowCompleted, step.result)
        return None

    def _fail(self, step: FailWorkflow) -> str | None:
        self._closed = True
        self._add(WorkflowFailed, step.failure)
        return None

    def _add(self, kind: Callable[..., Record], *fields: Any) -> None:
        self.records.append(kind(self._event_id, self._facts.now_ms, *fields))


_STEPS: dict[type, Callable[[_Steps, Any], str | None]] = {
    ScheduleActivity: _Steps._schedule,
    StartTimer: _Steps._start_timer,
    CancelTimer: _Steps._cancel_timer,
    CancelActivity: _Steps._cancel_activity,
    CompleteWorkflow: _Steps._complete,
    FailWorkflow: _Steps._fail,
}


@lru_cache(maxsize=1024)
def resolve_options(options: ActivityOptions, dlq_after_attempts: int) -> ActivityOptions:
    """`options` with every unset value at its default, as they stand in the log from then on."""
    return msgspec.structs.replace(
        options,
        retry=options.retry.resolved(dlq_after_attempts),
        start_to_close_ms=options.start_to_close_ms or limits.START_TO_CLOSE_MS,
    )


def _fail_task(execution: Execution, command: FailWorkflowTask, facts: Facts) -> Decision:
    stale = _at_cursor(execution, command.consumed_from, command.commands_from)
    if stale is not None:
        return stale
    return Decision((_failed_task(execution, command.reason, command.failure, facts),), Done())


def _time_out_task(execution: Execution, command: TimeOutWorkflowTask, facts: Facts) -> Decision:
    stale = _at_cursor(execution, command.consumed, command.commands)
    if stale is not None:
        return stale
    return Decision((_failed_task(execution, command.reason, None, facts),), Done())


def _failed_task(
    execution: Execution, reason: str, failure: Any, facts: Facts
) -> WorkflowTaskFailed:
    """Twice in a row is given out again at once; from the third on with doubling waits, up to ten
    minutes.
    """
    failures, wait_ms = execution.task_failures, 0
    if reason == "unknown_type":
        wait_ms = limits.WORKFLOW_TASK_BACKOFF_MS
    if reason not in UNCOUNTED:
        failures += 1
        extra = failures - limits.WORKFLOW_TASK_FAILURES_FREE
        if extra > 0:
            doubled = limits.WORKFLOW_TASK_BACKOFF_MS * 2 ** min(extra - 1, 20)
            wait_ms = min(doubled, limits.WORKFLOW_TASK_BACKOFF_MAX_MS)
    return WorkflowTaskFailed(facts.now_ms, reason, failure, failures, facts.now_ms + wait_ms)


def _fire_timer(execution: Execution, command: FireTimer, facts: Facts) -> Decision:
    due_ms = execution.timers.get(command.timer_id)
    if due_ms is None:
        return refuse("NOT_FOUND", f"timer {command.timer_id} is not running")
    if facts.now_ms < due_ms:
        return refuse("FAILED_PRECONDITION", f"timer {command.timer_id}: too early", due_ms)
    event_id = execution.last_event_id + 1
    return Decision((TimerFired(event_id, facts.now_ms, command.timer_id),), Done())


_DECIDERS: dict[type[Command], Callable[[Execution, Any, Facts], Decision]] = {
    CompleteWorkflowTask: _complete_task,
    FailWorkflowTask: _fail_task,
    TimeOutWorkflowTask: _time_out_task,
    FireTimer: _fire_timer,
    GrantLease: decide_activity.grant,
    CompleteActivity: decide_activity.complete,
    FailActivity: decide_activity.fail,
    ReleaseActivity: decide_activity.release,
    RecordHeartbeat: decide_activity.heartbeat,
    ExpireLease: decide_activity.expire,
    EndLease: decide_activity.end,
    TimeOutActivity: decide_activity.time_out,
    RedriveDeadLetter: decide_dead_letter.redrive,
    FailDeadLetter: decide_dead_letter.fail_dead_letter,
    CompleteDeadLetter: decide_dead_letter.complete_dead_letter,
}

__all__ = ["AnyAnswer", "decide", "resolve_options"]
