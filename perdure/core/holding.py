"""An operator holds a workflow back, lets it go, or has what waits for its time tried now.

A paused workflow's tasks are given to nobody. What runs goes on and may report; deadlines of
callers go on too.
"""

from __future__ import annotations

from perdure.core.commands import Done
from perdure.core.facts import Decision, Facts, refuse
from perdure.core.interaction_records import RetriedNow, WorkflowPaused
from perdure.core.interactions import PauseWorkflow, RetryNow
from perdure.core.more import More
from perdure.core.state import ActivityState, Execution

WAITING = (ActivityState.SCHEDULED, ActivityState.RETRYING)
REQUESTS_KEPT = 16


# --- decide -------------------------------------------------------------------
def pause(execution: Execution, command: PauseWorkflow, facts: Facts) -> Decision:
    """Hold it back or let it go. The same again is done already."""
    if not execution.is_open:
        return refuse("FAILED_PRECONDITION", f"the workflow is {execution.status.value}")
    more = execution.more or More()
    for request_id, paused in more.pauses:
        if request_id == command.request_id:
            if paused == command.paused:
                return Decision((), Done())
            text = f"request_id {request_id!r} was used to {'pause' if paused else 'resume'} it"
            return refuse("FAILED_PRECONDITION", text)
    reason = command.reason if command.paused else ""
    was = (more.paused, more.paused_reason)
    if was == (command.paused, reason) or (more.paused and command.paused and not reason):
        return Decision((), Done())  # Without a reason of its own the first one stays.
    record = WorkflowPaused(facts.now_ms, command.paused, reason, command.request_id)
    return Decision((record,), Done())


def retry_now(execution: Execution, command: RetryNow, facts: Facts) -> Decision:
    """Have the named activity tried now; without a name the parked workflow task, or else every
    activity in its backoff. What is being tried already is no error.
    """
    if not execution.is_open:
        return refuse("FAILED_PRECONDITION", f"the workflow is {execution.status.value}")
    if command.activity_id:
        return _retry_activity(execution, command, facts)
    now_ms, request_id = facts.now_ms, command.request_id
    if execution.task_ready:
        is_parked = execution.task_due_ms > now_ms
        records = (RetriedNow(now_ms, "", request_id),) if is_parked else ()
        return Decision(records, Done())
    activities = execution.activities.values()
    late = [it for it in activities if it.state in WAITING and it.due_ms > now_ms]
    if not late and not any(it.state is not ActivityState.DEAD_LETTERED for it in activities):
        dead = ", ".join(it.activity_id for it in activities)
        hint = f"; its dead letters wait for a redrive: {dead}" if dead else ""
        return refuse("FAILED_PRECONDITION", f"nothing of it waits to be tried again{hint}")
    return Decision(tuple(RetriedNow(now_ms, it.activity_id, request_id) for it in late), Done())


def _retry_activity(execution: Execution, command: RetryNow, facts: Facts) -> Decision:
    activity = execution.activities.get(command.activity_id)
    if activity is None:
        return refuse("NOT_FOUND", f"activity {command.activity_id!r} is not open")
    if activity.state is ActivityState.DEAD_LETTERED:
        text = f"activity {command.activity_id!r} is a dead letter: redrive it"
        return refuse("FAILED_PRECONDITION", text)
    if activity.state not in WAITING or activity.due_ms <= facts.now_ms:
        return Decision((), Done())
    record = RetriedNow(facts.now_ms, command.activity_id, command.request_id)
    return Decision((record,), Done())


# --- fold ---------------------------------------------------------------------
def fold_paused(execution: Execution, record: WorkflowPaused) -> None:
    """It is held back from now on, or no longer."""
    more = execution.more
    if more is None:
        more = execution.more = More()
    more.paused = record.paused
    more.paused_reason = record.reason
    more.paused_ms = record.at_ms if record.paused else 0
    if record.request_id is not None:
        kept = more.pauses[1 - REQUESTS_KEPT :]
        more.pauses = (*kept, (record.request_id, record.paused))


def fold_retried(execution: Execution, record: RetriedNow) -> None:
    """What waited for its time is due."""
    if not record.activity_id:
        execution.task_due_ms = min(execution.task_due_ms, record.at_ms)
        return
    activity = execution.activities.get(record.activity_id)
    if activity is not None and activity.state in WAITING:
        activity.due_ms = min(activity.due_ms, record.at_ms)
