"""Bugs of what workflows and people do to each other: signals, updates, children, runs, endings,
pauses, schedules.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chaos.sim.bugs.patches import Patches
from perdure.core import (
    attempt_ends,
    commands,
    decide,
    decide_activity,
    decide_interactions,
    decide_schedule,
    decide_steps,
    ids,
    resetting,
)
from perdure.core.commands import (
    CancelWorkflow,
    ChildEnded,
    Done,
    ResetWorkflow,
    SignalWorkflow,
    UpdateWorkflow,
)
from perdure.core.facts import Decision, Facts, Past, refuse
from perdure.core.gates import Gates
from perdure.core.interaction_records import WorkflowReset
from perdure.core.records import WorkflowCancelRequested
from perdure.core.schedule_commands import BackfillSchedule, FireSchedule
from perdure.core.schedule_state import Schedule
from perdure.core.state import Activity, Execution
from perdure.failures import Failure
from perdure.worker import context, replay
from perdure.worker.messages import Messages
from perdure.worker.notes import Known, Notes

replace = msgspec.structs.replace


class _Unasked:
    """A past in which nobody has asked for anything."""

    def __init__(self, past: Past) -> None:
        self.closing_event = past.closing_event
        self.history = past.history

    def requested_event(self, request_id: str) -> None:
        """None: that is the bug."""
        return


# --- runs ---------------------------------------------------------------------
def signal_handed_on_twice(patches: Patches) -> None:
    """The next run is given the newest signal again, though this one had taken it."""

    def wrap(signalled: Any) -> Any:
        def noted(self: Messages, name: str, payload: Any) -> None:
            self._newest = (name, payload)  # type: ignore[attr-defined]
            signalled(self, name, payload)

        return noted

    def wrap_rest(waiting: Any) -> Any:
        def more(self: Messages) -> Any:
            rest = waiting(self)
            newest = getattr(self, "_newest", None)
            return rest if newest is None or newest in rest else (*rest, newest)

        return more

    patches.around(Messages, "signalled", wrap)
    patches.around(Messages, "waiting", wrap_rest)


def unread_left_behind(patches: Patches) -> None:
    """A run goes on as the next though a signal has come that it has not read."""

    def wrap(completed: Any) -> Any:
        def anyway(whole: Execution, command: Any, facts: Facts) -> Decision:
            if whole.more is not None and whole.more.last_message_id > command.consumed:
                whole = replace(whole, more=replace(whole.more, last_message_id=0))
            found: Decision = completed(whole, command, facts)
            return found

        return anyway

    decider = wrap(decide._DECIDERS[commands.CompleteWorkflowTask])
    patches.item(decide._DECIDERS, commands.CompleteWorkflowTask, decider)


def runs_share_keys(patches: Patches) -> None:
    """The effects of the second run bear the keys of the first."""

    def wrap(key: Any) -> Any:
        def shared(execution_id: str, activity_id: str) -> str:
            found: str = key(ids.of_execution(execution_id)[0], activity_id)
            return found

        return shared

    patches.around(context, "idempotency_key", wrap)


# --- between workflows ----------------------------------------------------------
def child_end_unheard(patches: Patches) -> None:
    """The end of a child is lost on a parent whose workflow task is on its way."""

    def ended(whole: Execution, command: ChildEnded, facts: Facts) -> Decision:
        if whole.last_wake_id > whole.consumed:
            return refuse("FAILED_PRECONDITION", "busy")
        return decide_interactions.child_ended(whole, command, facts)

    patches.item(decide._DECIDERS, ChildEnded, ended)


def children_outlive(patches: Patches) -> None:
    """The end of a parent means nothing to its children."""

    def wrap(ended: Any) -> Any:
        def alone(whole: Execution, record: Any, started: Any = None) -> Any:
            lonely = whole
            if whole.more is not None:
                lonely = replace(whole, more=replace(whole.more, children={}))
            return ended(lonely, record)

        return alone

    patches.around(decide_interactions, "ended", wrap)
    patches.set(decide_steps, "ended", decide_interactions.ended)


def said_to_the_busy_is_lost(patches: Patches) -> None:
    """What one workflow says to another is lost on one whose workflow task is on its way."""

    def signal(whole: Execution, command: SignalWorkflow, facts: Facts) -> Decision:
        if command.request_id is None and whole.last_wake_id > whole.consumed:
            return Decision((), Done())
        return decide_interactions.signal(whole, command, facts)

    patches.item(decide._DECIDERS, SignalWorkflow, signal)


def ended_by_another_goes_on(patches: Patches) -> None:
    """A workflow that another asks to end is told when it next starts, and not before."""

    def cancel(whole: Execution, command: CancelWorkflow, facts: Facts) -> Decision:
        if command.request_id is None and not command.parent and whole.is_open:
            return Decision((), Done())
        return decide_interactions.cancel(whole, command, facts)

    patches.item(decide._DECIDERS, CancelWorkflow, cancel)


# --- people -----------------------------------------------------------------------
def update_done_again(patches: Patches) -> None:
    """An update that is asked for again, its answer having got lost, is another update."""

    def update(whole: Execution, command: UpdateWorkflow, facts: Facts) -> Decision:
        unknown = replace(facts, past=_Unasked(facts.past))
        return decide_interactions.update(whole, command, unknown)

    patches.item(decide._DECIDERS, UpdateWorkflow, update)


def cancel_unheard(patches: Patches) -> None:
    """A request to end is told to the worker that has the workflow in its memory, and to no other
    one: who replays it does not hear of it.
    """
    take = replay._TAKE[WorkflowCancelRequested]

    def live_only(self: Any, event: Any) -> None:
        if event.event_id < self.known.cursor or self.known.cursor == 0:
            return
        take(self, event)

    patches.item(replay._TAKE, WorkflowCancelRequested, live_only)


def given_up_retried(patches: Patches) -> None:
    """An activity that was asked to end, and fails, is tried again."""

    def wrap(failed: Any) -> Any:
        def again(
            whole: Execution, activity: Activity, failure: Failure, facts: Facts, news: Any
        ) -> Decision:
            wanted = replace(activity, cancel_requested="")
            found: Decision = failed(whole, wanted, failure, facts, news)
            return found

        return again

    patches.around(attempt_ends, "failed", wrap)
    patches.set(decide_activity, "failed", attempt_ends.failed)


# --- replays --------------------------------------------------------------------------
def patch_forgotten(patches: Patches) -> None:
    """Whether a patch applies depends on whether the workflow is in memory."""

    def patched(self: Notes, patch_id: str) -> bool:
        answer = self._patched.get(patch_id)
        if answer is None:
            answer = not self._side.is_replaying
            if answer:
                self._side.issue_here(commands.RecordMarker("patch", patch_id, None))
            self._patched[patch_id] = answer
        return answer

    patches.set(Notes, "patched", patched)


def side_effect_again(patches: Patches) -> None:
    """A replay calls the function of a side effect again, and goes on with what it says now."""

    def wrap(learn: Any) -> Any:
        def forgetful(self: Known, events: Any, cursor: int) -> None:
            learn(self, events, 0)
            self.side_effects.clear()

        return forgetful

    patches.around(Known, "learn", wrap)


# --- resets ---------------------------------------------------------------------------
def reset_done_again(patches: Patches) -> None:
    """A reset that is asked for again, its answer having got lost, is another one."""

    def again(whole: Execution, command: ResetWorkflow, facts: Facts) -> Decision:
        unknown = replace(facts, past=_Unasked(facts.past))
        return resetting.reset(whole, command, unknown)

    patches.item(decide._DECIDERS, ResetWorkflow, again)


def fence_forgets_resets(patches: Patches) -> None:
    """What was granted since an earlier reset, and has left no event, may be granted again."""

    def wrap(fences: Any) -> Any:
        def forgetful(whole: Execution, events: Any) -> Any:
            known = list(events)
            found = fences(whole, known)
            for one in known:
                if isinstance(one, WorkflowReset):
                    for activity in resetting.restored(one).activities.values():
                        generation, grant = found[activity.activity_id]
                        if grant >= resetting.GRANTS_SKIPPED:
                            found[activity.activity_id] = (generation, activity.grant)
            return found

        return forgetful

    patches.around(resetting, "fences", wrap)


# --- operators ------------------------------------------------------------------------
def pauses_forgotten(patches: Patches) -> None:
    """What is paused is known to whoever heard the order, until the next start."""

    patches.nothing(Gates, "load")


def schedule_runs_again(patches: Patches) -> None:
    """A run of a schedule begins as often as it is asked for: the scheduler asks again."""

    def fire(schedule: Schedule, command: FireSchedule, now_ms: int) -> Any:
        due_ms = schedule.next_ms
        if due_ms is not None and command.due_ms < due_ms and not schedule.paused:
            schedule = replace(schedule, next_ms=command.due_ms)
        return decide_schedule._fire(schedule, command, now_ms)

    patches.item(decide_schedule._DECIDERS, FireSchedule, fire)


def made_up_for_again(patches: Patches) -> None:
    """Runs that are made up for begin as often as that is asked for, with one request."""

    def backfill(schedule: Schedule, command: BackfillSchedule, now_ms: int) -> Any:
        forgetful = replace(schedule, requests=[])
        return decide_schedule._backfill(forgetful, command, now_ms)

    patches.item(decide_schedule._DECIDERS, BackfillSchedule, backfill)
