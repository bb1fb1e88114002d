"""To which events of its history a workflow can go back, and what stood open there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from perdure.core import records as r
from perdure.core.interaction_records import WorkflowReset
from perdure.core.records import Record

_STEPS = (
    r.ActivityTaskScheduled,
    r.ActivityTaskCancelled,
    r.ActivityCancelRequested,
    r.TimerStarted,
    r.TimerCancelled,
    r.ChildWorkflowStarted,
    r.ChildCancelRequested,
    r.SignalSent,
    r.ExternalCancelRequested,
    r.MarkerRecorded,
    r.SearchAttributesSet,
    r.UpdateEnded,
)


def counting(events: Iterable[Record]) -> list[Any]:
    """Those of a whole history that count: no reset has taken them back."""
    known = list(events)
    spans = [(e.to_event, e.event_id) for e in known if isinstance(e, WorkflowReset)]
    if not spans:
        return known
    return [e for e in known if not any(low < e.event_id < high for low, high in spans)]  # type: ignore[attr-defined]


# --- where to -----------------------------------------------------------------
def points(live: Sequence[Any]) -> dict[int, str]:
    """Each event that counts, with why a workflow can't go back to it; empty where it can."""
    answered = {e.request_id for e in live if isinstance(e, r.UpdateEnded)}
    child = max((e.event_id for e in live if isinstance(e, r.ChildWorkflowStarted)), default=0)
    pending: dict[tuple[str, str], str] = {}
    found: dict[int, str] = {}
    for index, event in enumerate(live):
        _pend(pending, event, answered)
        if type(event) in r.CLOSING_TYPES:
            why = "the workflow ended with it"
        elif index == len(live) - 1:
            why = next(iter(pending.values()), "")
        elif isinstance(event, _STEPS) and isinstance(live[index + 1], _STEPS):
            why = "it lies in the midst of what one workflow task did"
        elif event.event_id < child:
            why = f"a child was started after it (event {child}), and a child's id is used once"
        else:
            why = next(iter(pending.values()), "")
        found[event.event_id] = why
    return found


def _pend(pending: dict[tuple[str, str], str], event: Any, answered: set[str]) -> None:
    """What is half done from this event on, or done with it."""
    match event:
        case r.UpdateReceived(update_id=id_) if id_ in answered:
            pending["update", id_] = f"update {id_!r} had come by then, and was answered later"
        case r.UpdateEnded(request_id=id_):
            pending.pop(("update", id_), None)
        case r.ActivityCancelRequested(activity_id=id_, mode="wait", noop=False):
            pending["activity", id_] = f"activity {id_!r} was being cancelled"
        case r.ActivityTaskCompleted() | r.ActivityTaskFailed() | r.ActivityTaskCancelled():
            pending.pop(("activity", event.activity_id), None)
        case _:
            pass


def no_point(to_event: int, found: dict[int, str]) -> str:
    """Why it can't go back to `to_event`, and the nearest that it can go back to."""
    why = found.get(to_event)
    if why is None:
        newest = max(found, default=0)
        why = (
            f"the history ends at event {newest}"
            if to_event > newest
            else "it does not count by itself"
        )
    allowed = [event_id for event_id, text in found.items() if not text]
    near = [
        max((one for one in allowed if one < to_event), default=None),
        min((one for one in allowed if one > to_event), default=None),
    ]
    told = " and ".join(str(one) for one in near if one is not None)
    says = f"the nearest it can go back to: {told}" if told else "there is none it can go back to"
    return f"to_event: event {to_event} is none to go back to: {why}; {says}"


# --- what was -----------------------------------------------------------------
class Past:
    """The state that events that count add up to."""

    def __init__(self) -> None:
        self.open: dict[str, Any] = {}  # Activities: as scheduled.
        self.inputs: dict[str, r.ActivityRedriven] = {}
        self.timers: dict[int, int] = {}
        self.children: dict[str, str] = {}
        self.updates: dict[str, int] = {}
        self.attributes: dict[str, Any] = {}
        self.cancel: str | None = None
        self.signals = 0
        self.commands = 0

    def take(self, event: Any) -> None:
        """One more event."""
        self.commands += isinstance(event, _STEPS)
        fold = _PAST.get(type(event))
        if fold is not None:
            fold(self, event)

    def _started(self, event: r.WorkflowStarted) -> None:
        if event.terms is not None:
            self.attributes.update(event.terms.attributes)
            self.children.update(event.terms.children)

    def _scheduled(self, event: r.ActivityTaskScheduled) -> None:
        self.open[event.activity_id] = event

    def _closed(self, event: Any) -> None:
        self.open.pop(event.activity_id, None)

    def _given_up(self, event: r.ActivityCancelRequested) -> None:
        if event.mode == "abandon":
            self.open.pop(event.activity_id, None)  # The workflow does not wait for it.

    def _redriven(self, event: r.ActivityRedriven) -> None:
        if event.has_input:
            self.inputs[event.activity_id] = event

    def _timer_started(self, event: r.TimerStarted) -> None:
        self.timers[event.timer_id] = event.due_ms

    def _timer_gone(self, event: r.TimerFired | r.TimerCancelled) -> None:
        self.timers.pop(event.timer_id, None)

    def _child_started(self, event: r.ChildWorkflowStarted) -> None:
        self.children[event.child_id] = event.parent_close

    def _child_ended(self, event: r.ChildWorkflowCompleted | r.ChildWorkflowFailed) -> None:
        self.children.pop(event.child_id, None)

    def _update_received(self, event: r.UpdateReceived) -> None:
        self.updates[event.update_id] = event.event_id

    def _update_ended(self, event: r.UpdateEnded) -> None:
        self.updates.pop(event.request_id, None)

    def _attributes_set(self, event: r.SearchAttributesSet) -> None:
        for name, value in event.attributes:
            self.attributes.pop(name, None)
            if value is not None:
                self.attributes[name] = value

    def _cancel_requested(self, event: r.WorkflowCancelRequested) -> None:
        self.cancel = event.reason

    def _signalled(self, event: r.SignalReceived) -> None:
        self.signals += 1


_PAST: dict[type[Record], Callable[[Past, Any], None]] = {
    r.WorkflowStarted: Past._started,
    r.ActivityTaskScheduled: Past._scheduled,
    r.ActivityTaskCompleted: Past._closed,
    r.ActivityTaskFailed: Past._closed,
    r.ActivityTaskCancelled: Past._closed,
    r.ActivityCancelRequested: Past._given_up,
    r.ActivityRedriven: Past._redriven,
    r.TimerStarted: Past._timer_started,
    r.TimerFired: Past._timer_gone,
    r.TimerCancelled: Past._timer_gone,
    r.ChildWorkflowStarted: Past._child_started,
    r.ChildWorkflowCompleted: Past._child_ended,
    r.ChildWorkflowFailed: Past._child_ended,
    r.UpdateReceived: Past._update_received,
    r.UpdateEnded: Past._update_ended,
    r.SearchAttributesSet: Past._attributes_set,
    r.WorkflowCancelRequested: Past._cancel_requested,
    r.SignalReceived: Past._signalled,
}
