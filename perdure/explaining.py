"""Why something of a workflow does not run, what happens next, and when: one plain answer. Pure.

Judged from what a scheduler knows: what is open, who is there, what limits and operators hold back.
An answer is JSON: state, reason, next, at_ms (null where no clock decides), and details, whose
`gate` names the reason in one word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from perdure import failure_text, views, waiting
from perdure.core.admission import Admission, Hold
from perdure.core.commands import Closed
from perdure.core.gates import QUEUE, Gate
from perdure.core.ids import of_execution
from perdure.core.matching import Matching
from perdure.core.open_work import ALONE, Entry, Key, Work
from perdure.core.state import Activity, ActivityState, Execution, Status
from perdure.core.task_queues import TaskQueues
from perdure.errors import NotFound
from perdure.failures import Failure
from perdure.policy import attempt_of

View = dict[str, Any]
LISTED_MAX = 20
MESSAGE_CHARS = 300
# What of several open activities is told first: where somebody has to act, then what waits.
_ORDER = (
    "dead_letter",
    "no_worker",
    "paused",
    "breaker",
    "retry_budget",
    "concurrency",
    "rate",
    "quarantine",
    "slots",
    "backoff",
    "ready",
    "running",
)


class Look(NamedTuple):
    """All that is looked at. `room` gives (workers that serve a kind, their free slots), None in an
    engine in memory, where whoever polls is served.
    """

    queues: TaskQueues
    admission: Admission
    offers: Sequence[waiting.Offer]
    now_ms: int
    room: Callable[[Key, bool], tuple[int, int]] | None = None


class Why(NamedTuple):
    """One reason."""

    gate: str
    reason: str
    next: str
    at_ms: int | None = None
    more: tuple[tuple[str, Any], ...] = ()

    def view(self, state: str, **details: Any) -> View:
        """The answer."""
        return {
            "state": state,
            "reason": self.reason,
            "next": self.next,
            "at_ms": self.at_ms,
            "details": {"gate": self.gate, **dict(self.more), **details},
        }


def of_matching(mind: Matching, now_ms: int) -> Look:
    """What a scheduler knows at this moment."""
    offers = [
        waiting.Offer(
            seat.queues,
            tuple(kind for kind in seat.activity_types if (False, kind) not in seat.refused),
            tuple(kind for kind in seat.workflow_types if (True, kind) not in seat.refused),
        )
        for seat in mind.seats.values()
        if not (seat.draining or seat.retired)
    ]
    return Look(mind.queues, mind.admission, offers, now_ms, mind.room)


def explain(look: Look, workflow_id: str, activity_id: str | None = None) -> View | None:
    """The answer about an open workflow, or one open activity of it; None: it is not open.

    Raises NotFound where the workflow has no such open activity.
    """
    work = look.queues.works.get(workflow_id)
    if work is None:
        return None
    if activity_id is None:
        return _workflow(look, work)
    entry = work.entries.get(activity_id)
    if entry is None:
        name = of_execution(workflow_id)[0]
        raise NotFound(f"workflow {name!r} has no open activity {activity_id!r}")
    activity = entry.activity
    return _activity(look, entry).view(str(activity.state), **_facts(activity))


def closed(execution: Execution, ending: Closed) -> View:
    """The answer about a workflow that has ended, with why it failed."""
    workflow_id = of_execution(execution.workflow_id)[0]
    failure, status = ending.failure, execution.status
    then = "nothing: it is over"
    if failure is None:
        reason = _ENDED.get(status, f"it has ended: {status}")
    elif status is Status.FAILED:
        reason = f"it failed{_said(failure)}{failure_text.where(failure.stack)}"
        *_, first = failure_text.causes(views.failure(failure))
        if failure.cause is not None:
            reason += f"; the cause: {first['type']}: {_in_line(first['message'])}"
            reason += failure_text.where(first["stack"])
        then = f"nothing by itself: `perdure wf reset {workflow_id} --to EVENT` takes it back"
    else:
        said = _in_line(failure.message)
        reason = f"it was {status.lower()}{': ' if said else ''}{said}"
    why = Why("closed", reason, then)
    shown = views.failure(failure)
    return why.view(str(status), closed_ms=execution.closed_ms, failure=shown)


_ENDED = {
    Status.COMPLETED: "it has completed",
    Status.CONTINUED_AS_NEW: "it has continued as new",
}


def _facts(activity: Activity) -> View:
    return {
        "activity_id": activity.activity_id,
        "type": activity.activity_type,
        "task_queue": activity.options.task_queue,
        "attempt": activity.attempt,
        "max_attempts": activity.options.retry.max_attempts,
        "due_ms": activity.due_ms,
        "schedule_to_close_at_ms": activity.schedule_to_close_at_ms,
    }


# --- a workflow -----------------------------------------------------------------
def _workflow(look: Look, work: Work) -> View:
    execution = work.execution
    why = _task(look, work) or _waits(look, work)
    details: View = {"workflow_task_ready": execution.task_ready, **_open(look, work)}
    return why.view(str(execution.status), **details)


def _open(look: Look, work: Work) -> View:
    """What is open of it, in short."""
    listed = []
    for entry in list(work.entries.values())[:LISTED_MAX]:
        why = _activity(look, entry)
        listed.append(
            {
                "activity_id": entry.activity.activity_id,
                "state": str(entry.activity.state),
                "gate": why.gate,
                "reason": why.reason,
                "at_ms": why.at_ms,
            }
        )
    more = work.execution.more
    return {
        "activities": listed,
        "activities_count": len(work.entries),
        "timers": sorted(work.execution.timers.values())[:LISTED_MAX],
        "children": [] if more is None else sorted(more.children)[:LISTED_MAX],
        "untaken_signals": [] if more is None else [name for name, _ in more.untaken],
    }


def _task(look: Look, work: Work) -> Why | None:
    """Why its own code does not run, where it is its turn; None: it waits for something else."""
    execution = work.execution
    workflow_id = of_execution(execution.workflow_id)[0]
    if execution.is_paused:
        return _paused_workflow(execution)
    if work.given is not None:
        worker = getattr(getattr(work.given, "seat", None), "worker_id", "") or "a worker"
        return Why(
            "running",
            f"its workflow task runs on {worker}",
            "its result, or it is given to another worker",
        )
    if not execution.task_ready:
        return None
    if execution.task_due_ms > look.now_ms:
        return _parked(execution, workflow_id)
    gate = look.admission.gates.of_queue(execution.task_queue)
    if gate is not None:
        return _paused(gate)
    unserved = _unserved(look, "workflow", execution.workflow_type, execution.task_queue)
    return unserved or _ready(look, work.key, "its workflow task", True)


def _parked(execution: Execution, workflow_id: str) -> Why:
    at_ms = execution.task_due_ms
    if not execution.task_reason:
        return Why("start_delay", "its start is delayed", "its first workflow task", at_ms)
    times = f"{execution.task_failures} times in a row" if execution.task_failures > 1 else "once"
    failure, retry = execution.task_failure, f"`perdure wf retry {workflow_id}`"
    match execution.task_reason:
        case "mismatch":
            said = "" if failure is None else f": {_in_line(failure.message)}"
            reason = f"its code does not fit its history{said}"
            then = f"it is tried again, in vain unless the code fits; {retry} tries it at once"
        case "history_limit":
            said = "" if failure is None else f" ({_in_line(failure.message)})"
            reason = f"its history may not grow any more{said}"
            then = (
                "it is tried again, in vain unless the limit under [limits] is raised (the node"
                " reads it when it starts), or new code ends it or continues as new; or else"
                f" `perdure wf terminate {workflow_id}`"
            )
        case "unknown_type":
            reason = "the worker that was given its workflow task does not have its type"
            then = f"it is given to another; {retry} does so at once"
        case "timeout":
            reason = f"its workflow task took too long, {times}{_said(failure)}"
            then = f"it is tried again; {retry} tries it at once"
        case "worker_died":
            reason = f"the worker that ran its workflow task died, {times}"
            then = f"it is tried again; {retry} tries it at once"
        case _:
            reason = f"its workflow task failed {times}{_said(failure)}"
            then = f"it is tried again; {retry} tries it at once"
    return Why("parked", reason, then, at_ms, (("task_reason", execution.task_reason),))


def _waits(look: Look, work: Work) -> Why:
    """What a workflow waits for whose own code has nothing to do."""
    execution = work.execution
    if work.entries:
        whys = [(_activity(look, entry), entry) for entry in work.entries.values()]
        why, entry = min(whys, key=lambda it: (_ORDER.index(it[0].gate), it[1].activity.due_ms))
        name = entry.activity.activity_id
        rest = len(whys) - 1
        others = f" (and {rest} more)" if rest else ""
        reason = f"it waits for activity {name!r}{others}: {why.reason}"
        return why._replace(reason=reason, more=(*why.more, ("activity_id", name)))
    if execution.timers:
        at_ms = min(execution.timers.values())
        reason = "it waits for a timer; a signal or an update may wake it before"
        return Why("timer", reason, "the timer fires", at_ms)
    more = execution.more
    if more is not None and more.children:
        children = sorted(more.children)
        names = ", ".join(map(repr, children[:3]))
        first = of_execution(children[0])[0]
        then = f"the child's end; `perdure wf explain {first}` says what that waits for"
        return Why("child", f"it waits for a child workflow: {names}", then)
    reason = "it waits for a signal or an update: nothing else of it is open"
    if more is not None and more.untaken:
        came = ", ".join(repr(name) for name, _ in more.untaken[:3])
        takes = ", ".join(map(repr, more.takes[:10])) or "none"
        reason += f" (its code does not take those that came: {came}; it takes: {takes})"
    return Why(
        "signal",
        reason,
        f"`perdure wf signal {of_execution(execution.workflow_id)[0]} NAME` wakes it",
        more.timeout_at_ms or None if more is not None else None,
    )


def _paused_workflow(execution: Execution) -> Why:
    more = execution.more
    assert more is not None
    said = f": {more.paused_reason}" if more.paused_reason else ""
    return Why(
        "paused",
        f"the workflow is paused by an operator{said}",
        f"`perdure wf resume {of_execution(execution.workflow_id)[0]}` lets it go",
        None,
        (("paused", "workflow"), ("since_ms", more.paused_ms)),
    )


# --- an activity ------------------------------------------------------------------
def _activity(look: Look, entry: Entry) -> Why:
    activity, execution = entry.activity, entry.work.execution
    if activity.state is ActivityState.DEAD_LETTERED:
        return _dead(execution.workflow_id, activity)
    if activity.lease is not None:
        return _running(activity)
    if execution.is_paused:
        return _paused_workflow(execution)
    queue, kind = activity.options.task_queue, activity.activity_type
    gate = look.admission.gates.of_activity(queue, kind)
    if gate is not None:
        return _paused(gate)
    if activity.due_ms > look.now_ms:
        return _backoff(execution.workflow_id, activity)
    unserved = _unserved(look, "activity", kind, queue)
    if unserved is not None:
        return unserved
    hold = look.admission.hold(entry.key, look.now_ms)
    if hold is not None:
        return _held(hold)
    return _ready(look, entry.key, f"attempt {activity.attempt}", False)


def _dead(workflow_id: str, activity: Activity) -> Why:
    name = f"{of_execution(workflow_id)[0]} {activity.activity_id}"
    times = attempt_of(activity.attempt, activity.options.retry.max_attempts)
    return Why(
        "dead_letter",
        f"it is a dead letter: {times} failed{_said(activity.last_failure)}",
        f"nothing by itself: `perdure wf dlq redrive {name}` tries it again,"
        f" `perdure wf dlq fail {name}` gives it up,"
        f" `perdure wf dlq complete {name} --result JSON` says that it is done",
        None,
        (("dead_ms", activity.dead_ms),),
    )


def _running(activity: Activity) -> Why:
    lease = activity.lease
    assert lease is not None
    times = attempt_of(activity.attempt, activity.options.retry.max_attempts)
    given_up = ", and is told to end" if activity.cancel_requested else ""
    return Why(
        "running",
        f"{times} runs on {lease.worker_id}{given_up}",
        "its report; without one its lease ends",
        lease.deadline_ms,
        (("worker_id", lease.worker_id), ("since_ms", lease.granted_ms)),
    )


def _backoff(workflow_id: str, activity: Activity) -> Why:
    name = f"{of_execution(workflow_id)[0]} {activity.activity_id}"
    return Why(
        "backoff",
        f"backoff: attempt {activity.attempt - 1} failed{_said(activity.last_failure)}",
        f"{attempt_of(activity.attempt, activity.options.retry.max_attempts)} may begin;"
        f" `perdure wf retry {name}` lets it begin at once",
        activity.due_ms,
    )


def _paused(gate: Gate) -> Why:
    what = "queue" if gate.kind == QUEUE else "activity type"
    verb = "queue" if gate.kind == QUEUE else "activity"
    said = f": {gate.reason}" if gate.reason else ""
    return Why(
        "paused",
        f"{what} {gate.name!r} is paused by an operator{said}",
        f"`perdure {verb} resume {gate.name}` lets it go",
        None,
        (("paused", gate.kind), ("name", gate.name), ("since_ms", gate.since_ms)),
    )


def _held(hold: Hold) -> Why:
    what = f"{'queue' if hold.of == 'queue' else 'activity type'} {hold.name!r}"
    more = (("of", hold.of), ("name", hold.name), ("limit", hold.number))
    number = f"{hold.number:g}"
    match hold.why:
        case "breaker":
            reason = f"the circuit breaker of {what} is {hold.text}, after {number} failures"
            then = "a probe may begin"
            if hold.at_ms is None:
                then = "the probe that runs says whether it closes"
            return Why("breaker", reason, then, hold.at_ms, more)
        case "concurrency":
            reason = f"concurrency limit: {what} runs {number} at a time, as many as it may"
            return Why("concurrency", reason, "the next of them that ends makes room", None, more)
        case "rate":
            reason = f"rate limit: {what} starts {number} a second at most"
            return Why("rate", reason, "the next start of this kind", hold.at_ms, more)
        case _:
            reason = f"retry budget: of {what} {number} retries are allowed in this window"
            then = "a retry may begin, or sooner after more first attempts"
            return Why("retry_budget", reason, then, hold.at_ms, more)


# --- both ---------------------------------------------------------------------------
def _unserved(look: Look, kind: waiting.Kind, type_: str, queue: str) -> Why | None:
    in_engine = look.room is None
    text = waiting.sentence(kind, type_, queue, look.offers, in_engine=in_engine)
    if text is None or (in_engine and kind == "activity"):
        return None
    return Why("no_worker", f"it waits for {text}", "nothing by itself, until such a worker comes")


def _ready(look: Look, key: Key, what: str, workflows: bool) -> Why:
    if ALONE in key[2:]:
        return Why(
            "quarantine",
            f"{what} killed or hung its workers before: it runs in quarantine, alone on a worker",
            "a worker of its own comes free",
        )
    ready = look.queues.workflows if workflows else look.queues.activities
    waiting_count = len(ready.get(key, ()))
    if look.room is not None:
        workers, free = look.room(key, workflows)
        if not free:
            slots = (
                "all slots are busy of the one worker"
                if workers == 1
                else (f"all slots are busy of the {workers} workers")
            )
            return Why(
                "slots",
                f"{slots} that could run {what}",
                "a slot comes free",
                None,
                (("workers", workers), ("waiting", waiting_count)),
            )
    return Why("ready", f"{what} is ready", "a worker takes it", look.now_ms)


def _said(failure: Failure | None) -> str:
    """The failure, behind a text, in one line."""
    if failure is None:
        return ""
    message = _in_line(failure.message)
    return f" with {failure.type}: {message}" if message else f" with {failure.type}"


def _in_line(message: str) -> str:
    return " ".join(message.split())[:MESSAGE_CHARS]
