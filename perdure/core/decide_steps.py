"""Turn what a workflow's code wants into events: one for each step, in order.

Steps that concern other executions have follow-ons besides (see `FollowOn`); what an activity's
cancelling ends at once follows behind the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from perdure.core import decide_activity, limits
from perdure.core.attempt_ends import cancelled
from perdure.core.commands import (
    CancelActivity,
    CancelChild,
    CancelExternal,
    CancelTimer,
    CancelWorkflow,
    CancelWorkflowStep,
    ChildEnded,
    CompleteWorkflow,
    ContinueAsNew,
    EndUpdate,
    FailWorkflow,
    Hire,
    RecordMarker,
    ScheduleActivity,
    SendSignal,
    SetSearchAttributes,
    SignalWorkflow,
    StartChild,
    StartTimer,
    StartWorkflow,
    Step,
    UpdateWorkflow,
)
from perdure.core.decide_interactions import ended
from perdure.core.decide_start import child_of, end_of_child, id_taken, next_run
from perdure.core.facts import Facts, FollowOn
from perdure.core.ids import of_execution
from perdure.core.records import (
    ActivityCancelRequested,
    ActivityOptions,
    ActivityTaskCancelled,
    ActivityTaskFailed,
    ActivityTaskScheduled,
    ChildCancelRequested,
    ChildWorkflowStarted,
    ExternalCancelRequested,
    MarkerRecorded,
    Record,
    SearchAttributesSet,
    SignalSent,
    TimerCancelled,
    TimerStarted,
    UpdateEnded,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowContinuedAsNew,
    WorkflowFailed,
)
from perdure.core.start import Attribute
from perdure.core.state import Activity, ActivityState, Execution

CANCEL_MODES = ("try", "wait", "abandon")
PARENT_CLOSES = ("terminate", "cancel", "abandon")
MARKERS = ("patch", "side_effect")


class Steps:
    """The events of one workflow task. `take` its steps one by one; then `records`, and
    `follow_ons()`.

    `ending` is the event that ends the run, if one does.
    """

    def __init__(
        self, execution: Execution, facts: Facts, hire: Hire | None, consumed: int
    ) -> None:
        self.records: list[Record] = []
        self.then: list[FollowOn] = []
        self.ending: Record | None = None
        self._hire = hire
        self._consumed = consumed
        self._execution = execution
        self._facts = facts
        self._event_id = execution.last_event_id
        self._scheduled: set[str] = set()
        self._timers: set[int] = set()
        self._gone: set[str | int] = set()
        self._leases: set[str] = set()  # Of those scheduled here.
        self._given_up: dict[str, None] = {}  # Activities to be ended behind the steps.
        self._children: dict[str, str] = {}
        self._updates: set[str] = set()  # Answered here.

    def take(self, step: Step) -> str | None:
        """Add the events of `step`; a text where it makes no sense."""
        if self.ending is not None:
            return "a step follows the end of the workflow"
        self._event_id += 1
        return _STEPS[type(step)](self, step)

    def follow_ons(self) -> tuple[FollowOn, ...]:
        """What follows for other executions, in order."""
        if self.ending is not None:
            self.then += ended(self._execution, self.ending, self._children)
        return tuple(self.then)

    def finish(self) -> None:
        """All steps were taken: end the activities that no worker has to end."""
        if self.ending is not None:
            return
        for activity_id in self._given_up:
            self._event_id += 1
            activity = self._execution.activities.get(activity_id)
            generation, grant, attempt = (1, 0, 1)
            if self._has_been(activity_id) and self._execution.more is not None:
                generation, grant = self._execution.more.again[activity_id]
            if activity is not None:
                generation, grant = activity.generation, activity.grant
                attempt = activity.attempt
            self.records.append(
                ActivityTaskFailed(
                    event_id=self._event_id,
                    at_ms=self._facts.now_ms,
                    activity_id=activity_id,
                    generation=generation,
                    grant=grant,
                    attempt=attempt,
                    failure=cancelled(),
                    started_ms=None,
                    worker_id="",
                )
            )

    # --- activities and timers --------------------------------------------------
    def _schedule(self, step: ScheduleActivity) -> str | None:
        activity_id = step.activity_id
        if (
            activity_id in self._execution.activities
            or activity_id in self._scheduled
            # Before its first command nothing of a workflow can have been closed: no look-up.
            or (
                self._execution.commands and self._facts.past.closing_event(activity_id) is not None
            )
        ):
            return f"activity_id {activity_id!r} is used twice in one run"
        if not 1 <= len(activity_id.encode("utf-8")) <= limits.ID_BYTES_MAX:
            return f"activity_id must have 1 to {limits.ID_BYTES_MAX} bytes"
        bound = self._facts.standing.bounds.pending_activities
        if len(self._execution.activities) + len(self._scheduled) >= bound:
            return _beyond("pending_activities", bound, "activities open at once")
        self._scheduled.add(activity_id)
        facts, kind = self._facts, step.activity_type
        options = resolve_options(
            facts.standing.rules.over(kind, step.options), facts.standing.dlq_after_attempts
        )
        self._add(ActivityTaskScheduled, activity_id, step.activity_type, step.input, options)
        if (
            self._hire is not None
            and activity_id in self._hire.activity_ids
            and not self._has_been(activity_id)
            and decide_activity.may_hire(self._execution, kind, options.task_queue, facts)
        ):
            self._leases.add(activity_id)
            self.records.append(
                decide_activity.hired(activity_id, options, self._hire, self._facts)
            )
        return None

    def _has_been(self, activity_id: str) -> bool:
        """Whether a reset has taken back an activity of this id: its tokens go on from there."""
        more = self._execution.more
        return more is not None and activity_id in more.again

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
        if step.mode not in CANCEL_MODES:
            return f"cancellation must be one of {', '.join(CANCEL_MODES)}, not {step.mode!r}"
        activity_id = step.activity_id
        activity = self._execution.activities.get(activity_id)
        is_open = activity is not None or activity_id in self._scheduled
        is_open = is_open and activity_id not in self._gone
        self._given_up.pop(activity_id, None)  # The last word counts.
        if step.mode == "try":
            self._add(ActivityTaskCancelled, activity_id, not is_open)
            self._gone.add(activity_id)
            return None
        self._add(ActivityCancelRequested, activity_id, step.mode, not is_open)
        if is_open and step.mode == "wait" and not self._is_leased(activity_id, activity):
            self._given_up[activity_id] = None
        return None

    def _is_leased(self, activity_id: str, activity: Activity | None) -> bool:
        if activity is None:
            return activity_id in self._leases
        return activity.state is ActivityState.LEASED

    # --- other workflows --------------------------------------------------------
    def _start_child(self, step: StartChild) -> str | None:
        child_id, more = step.child_id, self._execution.more
        children = {} if more is None else more.children
        if step.parent_close not in PARENT_CLOSES:
            allowed = ", ".join(PARENT_CLOSES)
            return f"parent_close must be one of {allowed}, not {step.parent_close!r}"
        if not 1 <= len(child_id.encode("utf-8")) <= limits.ID_BYTES_MAX:
            return f"workflow_id of a child must have 1 to {limits.ID_BYTES_MAX} bytes"
        if child_id in children or child_id in self._children:
            return f"child {child_id!r} is started twice"
        bound = self._facts.standing.bounds.pending_children
        if len(children) + len(self._children) >= bound:
            return _beyond("pending_children", bound, "children open at once")
        self._children[child_id] = step.parent_close
        terms = child_of(self._execution, step)
        self._add(
            ChildWorkflowStarted,
            child_id,
            step.workflow_type,
            step.task_queue,
            step.input,
            step.parent_close,
            step.terms,
        )
        start = StartWorkflow(
            child_id, step.workflow_type, step.task_queue, step.input, None, b"", terms
        )
        self.then.append(FollowOn(start, id_taken(self._execution, child_id)))
        return None

    def _cancel_child(self, step: CancelChild) -> str | None:
        more = self._execution.more
        is_open = step.child_id in self._children or (
            more is not None and step.child_id in more.children
        )
        self._add(ChildCancelRequested, step.child_id, not is_open)
        if is_open:
            reason = f"its parent {of_execution(self._execution.workflow_id)[0]} asked for it"
            cancel = CancelWorkflow(step.child_id, reason, parent=self._execution.workflow_id)
            self.then.append(FollowOn(cancel))
        return None

    def _send_signal(self, step: SendSignal) -> str | None:
        self._add(SignalSent, step.workflow_id, step.name, step.input, "", "", step.answered)
        self._ask(SignalWorkflow(step.workflow_id, step.name, step.input))
        return None

    def _cancel_external(self, step: CancelExternal) -> str | None:
        self._add(ExternalCancelRequested, step.workflow_id, step.reason)
        self._ask(CancelWorkflow(step.workflow_id, step.reason))
        return None

    def _ask(self, command: SignalWorkflow | CancelWorkflow) -> None:
        """Another workflow is asked for what the newest event tells of."""
        asked_in = (self._execution.workflow_id, self._event_id)
        self.then.append(FollowOn(command, asked_in=asked_in))

    # --- notes and answers ------------------------------------------------------
    def _record_marker(self, step: RecordMarker) -> str | None:
        if step.marker not in MARKERS:
            return f"marker must be one of {', '.join(MARKERS)}, not {step.marker!r}"
        self._add(MarkerRecorded, step.marker, step.name, step.result)
        return None

    def _answers(self, update_id: str) -> str | None:
        """Take note that this update is dealt with; why it can't be, if it can't."""
        more = self._execution.more
        is_open = more is not None and update_id in more.updates
        if not is_open or update_id in self._updates:
            return f"update {update_id!r} is not open"
        self._updates.add(update_id)
        return None

    def _end_update(self, step: EndUpdate) -> str | None:
        if problem := self._answers(step.update_id):
            return problem
        self._add(UpdateEnded, step.update_id, step.result, step.failure, step.rejected)
        return None

    def _set_attributes(self, step: SetSearchAttributes) -> str | None:
        after = self._attributes()
        after.update(step.attributes)
        bound = self._facts.standing.bounds.search_attributes
        if sum(value is not None for value in after.values()) > bound:
            return _beyond("search_attributes", bound, "search attributes")
        if len(msgspec.msgpack.encode(step.attributes)) > limits.ATTRIBUTES_BYTES_MAX:
            return f"search attributes have more than {limits.ATTRIBUTES_BYTES_MAX} bytes"
        self._add(SearchAttributesSet, step.attributes)
        return None

    def _attributes(self) -> dict[str, Attribute | None]:
        """What the workflow is found by after the steps so far; None where that was taken away."""
        more = self._execution.more
        found: dict[str, Attribute | None] = {} if more is None else {**more.attributes}
        for record in self.records:
            if type(record) is SearchAttributesSet:
                found.update(record.attributes)
        return found

    # --- the end ----------------------------------------------------------------
    def _complete(self, step: CompleteWorkflow) -> str | None:
        self.ending = self._add(WorkflowCompleted, step.result)
        return None

    def _fail(self, step: FailWorkflow) -> str | None:
        self.ending = self._add(WorkflowFailed, step.failure)
        return None

    def _cancel(self, step: CancelWorkflowStep) -> str | None:
        self.ending = self._add(WorkflowCancelled, step.reason)
        return None

    def _continue_as_new(self, step: ContinueAsNew) -> str | None:
        for update_id, _, _ in step.updates:
            if problem := self._answers(update_id):
                return problem
        unheard = self._unheard(step)
        children = {**self._children, **dict.fromkeys((one.child_id for one in unheard), "abandon")}
        start, run = next_run(self._execution, step, self._attributes(), children)
        self.ending = self._add(
            WorkflowContinuedAsNew, run, step.workflow_type, step.task_queue, step.input
        )
        self.then.append(FollowOn(start))
        for end in unheard:
            told = msgspec.structs.replace(end, workflow_id=start.workflow_id)
            self.then.append(FollowOn(told))
        for update_id, name, payload in step.updates:
            handed_on = UpdateWorkflow(start.workflow_id, name, payload, update_id, handed_on=True)
            self.then.append(FollowOn(handed_on))
        if step.cancel_reason is not None:
            self.then.append(FollowOn(CancelWorkflow(start.workflow_id, step.cancel_reason)))
        return None

    def _unheard(self, step: ContinueAsNew) -> list[ChildEnded]:
        """The ends of children that this run's code has not heard of, and the next one is told."""
        if not step.unheard and self._execution.last_wake_id <= self._consumed:
            return []
        # What came before this task the code has heard of.
        return [
            end
            for event in self._facts.past.history(self._execution.consumed)
            if (end := end_of_child(event)) is not None
            and (event.event_id > self._consumed or end.child_id in step.unheard)  # type: ignore[attr-defined]
        ]

    def _add(self, kind: Callable[..., Record], *fields: Any) -> Record:
        record = kind(self._event_id, self._facts.now_ms, *fields)
        self.records.append(record)
        return record


_STEPS: dict[type, Callable[[Steps, Any], str | None]] = {
    ScheduleActivity: Steps._schedule,
    StartTimer: Steps._start_timer,
    CancelTimer: Steps._cancel_timer,
    CancelActivity: Steps._cancel_activity,
    StartChild: Steps._start_child,
    CancelChild: Steps._cancel_child,
    SendSignal: Steps._send_signal,
    CancelExternal: Steps._cancel_external,
    RecordMarker: Steps._record_marker,
    EndUpdate: Steps._end_update,
    SetSearchAttributes: Steps._set_attributes,
    CompleteWorkflow: Steps._complete,
    FailWorkflow: Steps._fail,
    CancelWorkflowStep: Steps._cancel,
    ContinueAsNew: Steps._continue_as_new,
}


@lru_cache(maxsize=1024)
def resolve_options(options: ActivityOptions, dlq_after_attempts: int) -> ActivityOptions:
    """`options` with every unset value at its default, as they stand in the log from then on."""
    return msgspec.structs.replace(
        options,
        retry=options.retry.resolved(dlq_after_attempts),
        start_to_close_ms=options.start_to_close_ms or limits.START_TO_CLOSE_MS,
    )


def _beyond(name: str, bound: int, what: str) -> str:
    return f"limits.{name}: one run has at most {bound} {what}"
