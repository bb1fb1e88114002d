"""Take a workflow back to an earlier event of its history, and have it go on from there.

Nothing is removed: the event WorkflowReset says that those between it and `to_event` do not count
any more, and carries the execution as it stands from then on: whoever follows the log needs no
history for it. What was open is given up, and what was open at `to_event` is made again: as a new
generation, so that no report of the one before can be taken for one of the new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from perdure.core import records as r
from perdure.core.commands import EffectAgain, ResetWorkflow, SaidLater, WasReset
from perdure.core.facts import Decision, Facts, refuse, scoped
from perdure.core.ids import idempotency_key
from perdure.core.interaction_records import WorkflowReset
from perdure.core.more import More
from perdure.core.records import Record
from perdure.core.reset_points import Past, counting, no_point, points
from perdure.core.state import Activity, Execution, Status
from perdure.errors import no_workflow
from perdure.failures import engine_failure
from perdure.values import refer

RESET = "WorkflowReset"  # The failure of updates whose answer a reset has taken away.
# Of an activity that was given up the history does not say how often it was granted: the fence goes
# on so far behind what it says.
GRANTS_SKIPPED = 1_000_000
TOLD_MAX = 1_000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Execution).decode


def restored(record: Any) -> Execution:
    """The execution as it stands once `record` is committed: a fresh one at each call."""
    return _decode(record.state)


def newest(records: Sequence[Record]) -> int:
    """Where among these the newest reset stands; -1: there is none."""
    at = -1
    for i, record in enumerate(records):
        if type(record) is WorkflowReset:
            at = i
    return at


# --- the fence ----------------------------------------------------------------
def fences(execution: Execution, events: Iterable[Any]) -> dict[str, tuple[int, int]]:
    """Of every activity there ever was: a generation and a grant that none of it has had, but for
    the grant, which the next one is above.
    """
    found: dict[str, tuple[int, int]] = {}
    unknown: set[str] = set()

    def saw(activity_id: str, generation: int, grant: int) -> None:
        before = found.get(activity_id, (0, 0))
        found[activity_id] = (max(before[0], generation), max(before[1], grant))

    for event in events:
        if isinstance(event, WorkflowReset):
            again = restored(event)
            for one in again.activities.values():
                saw(one.activity_id, one.generation, one.grant)
                unknown.add(one.activity_id)  # From there on it may have been granted again.
            if again.more is not None:
                for activity_id, (generation, grant) in again.more.again.items():
                    saw(activity_id, generation, grant)
        elif isinstance(event, r.ActivityTaskScheduled | r.ActivityRedriven):
            saw(event.activity_id, getattr(event, "generation", 1), 0)
            unknown.add(event.activity_id)
        elif isinstance(
            event, r.ActivityTaskCompleted | r.ActivityTaskFailed | r.ActivityDeadLettered
        ):
            saw(event.activity_id, event.generation, event.grant)
            unknown.discard(event.activity_id)
    for activity in execution.activities.values():
        saw(activity.activity_id, activity.generation, activity.grant)
        unknown.discard(activity.activity_id)
    return {
        activity_id: (generation + 1, grant + GRANTS_SKIPPED * (activity_id in unknown))
        for activity_id, (generation, grant) in found.items()
    }


# --- what would be done again -------------------------------------------------
def effects_again(
    execution: Execution, live: Sequence[Any], to_event: int
) -> tuple[EffectAgain, ...]:
    """What the workflow's code has had done, and would ask for again, in the order in which it was
    asked for.
    """
    types = {e.activity_id: e.activity_type for e in live if isinstance(e, r.ActivityTaskScheduled)}
    ends: dict[str, Any] = {}
    for event in live:
        if isinstance(
            event, r.ActivityTaskCompleted | r.ActivityTaskFailed | r.ActivityTaskCancelled
        ):
            ends.setdefault(event.activity_id, event)
    told = []
    for event in live:
        if isinstance(event, r.SignalSent) and event.event_id > to_event:
            how = "Refused" if event.code else "Sent"
            told.append(
                EffectAgain("signal", event.workflow_id, event.name, how, event.at_ms, None)
            )
        if isinstance(event, r.ExternalCancelRequested) and event.event_id > to_event:
            how = "Refused" if event.code else "Sent"
            told.append(EffectAgain("cancel", event.workflow_id, "", how, event.at_ms, None))
        if not isinstance(event, r.ActivityTaskScheduled):
            continue
        id_, end = event.activity_id, ends.get(event.activity_id)
        key = idempotency_key(execution.workflow_id, id_)
        if end is None:
            activity = execution.activities.get(id_)
            if activity is not None and not activity.grant:
                continue  # It has never run.
            outcome = "Unknown" if activity is None else activity.state.value
            told.append(EffectAgain("activity", id_, types[id_], outcome, None, key))
        elif end.event_id > to_event:
            outcome = type(end).__name__.removeprefix("ActivityTask")
            told.append(EffectAgain("activity", id_, types[id_], outcome, end.at_ms, key))
    return tuple(told)


def said_later(live: Sequence[Any], to_event: int) -> tuple[SaidLater, ...]:
    """What people and programs said to the workflow since, and what becomes of it, in order."""
    answers = {e.request_id: e for e in live if isinstance(e, r.UpdateEnded)}
    told = []
    for event in live:
        if event.event_id <= to_event:
            continue
        match event:
            case r.SignalReceived(event_id=at, name=name):
                told.append(SaidLater("signal", str(at), name, "kept", event.at_ms))
            case r.UpdateReceived(update_id=id_, name=name):
                answer = answers.get(id_)
                failure = None if answer is None else answer.failure
                # One that the reset itself has failed is in the history by the time it is repeated.
                waits = answer is None or (failure is not None and failure.type == RESET)
                becomes = "failed" if waits else "taken_back"
                told.append(SaidLater("update", id_, name, becomes, event.at_ms))
            case r.WorkflowCancelRequested(reason=reason):
                told.append(SaidLater("cancel", "", reason, "dropped", event.at_ms))
            case _:
                pass
    return tuple(told)


# --- the decision -------------------------------------------------------------
def reset(execution: Execution, command: ResetWorkflow, facts: Facts) -> Decision:
    """Back to `to_event`; with `dry_run` only what that would mean. The answer says what the
    workflow would ask for again.
    """
    known = None
    if command.request_id is not None:
        known = facts.past.requested_event(scoped(WorkflowReset, command.request_id))
    if execution.status is Status.REMOVED:
        return refuse("NOT_FOUND", no_workflow(command.workflow_id).message)
    events = facts.past.history()
    if isinstance(known, WorkflowReset):
        if (known.to_event, known.reason) != (command.to_event, command.reason):
            text = f"request_id {command.request_id!r} was used with another to_event or reason"
            return refuse("FAILED_PRECONDITION", text)
        before = [e for e in events if e.event_id < known.event_id]  # type: ignore[attr-defined]
        return Decision((), _answer(known.event_id, execution, counting(before), known.to_event))
    if execution.status is Status.CONTINUED_AS_NEW:
        return refuse("FAILED_PRECONDITION", "the run has continued as new: reset the newest run")
    live = counting(events)
    found = points(live)
    if found.get(command.to_event) != "":
        return refuse("INVALID_ARGUMENT", no_point(command.to_event, found))
    answer = _answer(0, execution, live, command.to_event)
    if command.dry_run:
        return Decision((), answer)
    past, now = Past(), Past()
    for event in live:
        now.take(event)
        if event.event_id <= command.to_event:
            past.take(event)
    ended = tuple(
        r.UpdateEnded(
            execution.last_event_id + at,
            facts.now_ms,
            update_id,
            None,
            engine_failure(RESET, "the workflow was taken back to before this update came"),
            False,
        )
        for at, update_id in enumerate(_lost_updates(execution, past), start=1)
    )
    event_id = execution.last_event_id + len(ended) + 1
    state = _state(execution, past, fences(execution, events), event_id, facts)
    record = WorkflowReset(
        event_id,
        facts.now_ms,
        command.to_event,
        past.commands,
        command.reason,
        command.request_id,
        _encode(state),
    )
    later = [event for event in live if event.event_id > command.to_event]
    copies = _kept(later, state, event_id, facts.now_ms)
    return Decision((*ended, record, *copies), msgspec.structs.replace(answer, event_id=event_id))


def _answer(event_id: int, execution: Execution, live: Sequence[Any], to_event: int) -> WasReset:
    told, said = effects_again(execution, live, to_event), said_later(live, to_event)
    most = TOLD_MAX
    return WasReset(event_id, told[:most], len(told), said[:most], len(said))


def _lost_updates(execution: Execution, past: Past) -> list[str]:
    """Whoever waits for these would wait for ever."""
    updates = {} if execution.more is None else execution.more.updates
    return [update_id for update_id in updates if update_id not in past.updates]


def _opened(past: Past, known: dict[str, tuple[int, int]], now_ms: int) -> dict[str, Activity]:
    """What was open is ready for a first attempt."""
    activities = {}
    for activity_id, scheduled in past.open.items():
        newer = past.inputs.get(activity_id)
        payload = scheduled.input if newer is None else newer.input
        generation, grant = known[activity_id]
        activities[activity_id] = Activity(
            activity_id=activity_id,
            activity_type=scheduled.activity_type,
            input=None if payload is None else refer(payload),
            options=scheduled.options,
            scheduled_event_id=scheduled.event_id,
            scheduled_ms=scheduled.at_ms,
            generation=generation,
            generation_ms=now_ms,
            grant=grant,
            due_ms=now_ms,
            input_event_id=0 if newer is None else newer.event_id,
        )
    return activities


def _state(
    execution: Execution,
    past: Past,
    known: dict[str, tuple[int, int]],
    event_id: int,
    facts: Facts,
) -> Execution:
    activities = _opened(past, known, facts.now_ms)
    old = execution.more or More()
    timeout_at_ms = old.timeout_at_ms
    if not execution.is_open and timeout_at_ms <= facts.now_ms:
        timeout_at_ms = 0  # It would end again at once.
    more = More(
        parent=old.parent,
        first_started_ms=old.first_started_ms,
        timeout_at_ms=timeout_at_ms,
        cancel_requested=past.cancel is not None,
        cancel_reason=past.cancel or "",
        paused=old.paused,
        paused_reason=old.paused_reason,
        paused_ms=old.paused_ms,
        children=past.children,
        updates=past.updates,
        attributes=past.attributes,
        pauses=old.pauses,
        signals=past.signals,
        dropped=old.dropped,
        again={one: fence for one, fence in known.items() if one not in activities},
    )
    return msgspec.structs.replace(
        execution,
        status=Status.RUNNING,
        closed_ms=None,
        last_event_id=event_id,
        last_wake_id=event_id,
        consumed=event_id - 1,  # A cursor that no worker has in memory as what it is.
        commands=past.commands,
        task_failures=0,
        task_due_ms=0,
        task_failure=None,
        task_reason="",
        more=more,
        activities=activities,
        timers=past.timers,
    )


def _kept(later: Sequence[Any], state: Execution, event_id: int, now_ms: int) -> list[Record]:
    """What others have said meanwhile and would not say again, as new events: signals, and the
    ends of children that were running at the point.
    """
    assert state.more is not None
    kept: list[Record] = []
    for event in later:
        is_signal = isinstance(event, r.SignalReceived)
        is_end = isinstance(event, r.ChildWorkflowCompleted | r.ChildWorkflowFailed)
        if is_signal or (is_end and event.child_id in state.more.children):
            at = event_id + len(kept) + 1
            copy = msgspec.structs.replace(event, event_id=at, at_ms=now_ms)
            kept.append(msgspec.structs.replace(copy, request_id=None) if is_signal else copy)
    return kept
