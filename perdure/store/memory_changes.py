"""What the memory store keeps, encoded, and how a commit changes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from perdure.core.change import Change, StoredEvent
from perdure.core.state import Activity, Execution, Status
from perdure.store.protocol import CommitRow, StoreError

_encode = msgspec.msgpack.Encoder().encode
decode_activity = msgspec.msgpack.Decoder(Activity).decode
_decode_execution = msgspec.msgpack.Decoder(Execution).decode


def _encode_bare(execution: Execution) -> bytes:
    return _encode(msgspec.structs.replace(execution, activities={}, timers={}))


class Stored:
    """One execution with all that belongs to it."""

    def __init__(self, seq: int, execution: Execution) -> None:
        self.seq = seq
        self.put(execution, _encode_bare(execution))
        self.activities: dict[str, bytes] = {}
        self.timers: dict[int, int] = {}
        self.events: dict[int, StoredEvent] = {}
        self.closing: dict[str, int] = {}
        self.requested: dict[str, int] = {}

    def put(self, execution: Execution, raw: bytes) -> None:
        """Take over what `raw` is the encoding of."""
        self.is_open = execution.is_open
        self.closed_ms = execution.closed_ms or 0
        self.raw = raw

    def bury(self) -> None:
        """Keep of the execution only that its id is taken."""
        tombstone = msgspec.structs.replace(
            self.bare(), status=Status.REMOVED, task_failure=None, task_reason="", more=None
        )
        self.put(tombstone, _encode_bare(tombstone))
        self.events.clear()
        self.closing.clear()
        self.requested.clear()

    def bare(self) -> Execution:
        """The execution without what is open in it."""
        return _decode_execution(self.raw)

    def whole(self) -> Execution:
        """The execution with what is open in it, while it is open."""
        execution = self.bare()
        if self.is_open:
            for activity_id, raw in self.activities.items():
                execution.activities[activity_id] = decode_activity(raw)
            execution.timers.update(self.timers)
        return execution


# --- a commit: looked through first, so that what fails leaves nothing -------
def check(known: dict[str, Stored], change: Change) -> None:
    """Raise StoreError where `change` contradicts the store, as the embedded store's keys would."""
    new = [one.workflow_id for one in change.started]
    _all_new(change, "execution", new, known)
    named = {
        *(one.workflow_id for one in change.touched),
        *(one.workflow_id for one in change.events),
        *(workflow_id for workflow_id, _ in change.activities),
        *(workflow_id for workflow_id, _ in change.activities_closed),
        *(workflow_id for workflow_id, _, _ in change.timers),
        *(workflow_id for workflow_id, _ in change.timers_closed),
    }
    resets = dict(change.resets)
    for workflow_id in named - set(new) - known.keys():
        raise StoreError(f"workflow {workflow_id} was never started")
    for one in change.touched:
        stored = known.get(one.workflow_id)
        is_over = stored is not None and not stored.is_open
        if is_over and one.is_open and one.workflow_id not in resets:
            raise StoreError("an execution that is closed already cannot go on")
    ids = [(one.workflow_id, one.event_id) for one in change.events]
    closes = [(one.workflow_id, one.closes) for one in change.events if one.closes is not None]
    timers = [(workflow_id, timer_id) for workflow_id, timer_id, _ in change.timers]
    _all_new(change, "event", ids, _pairs(known, ids, "events"))
    still = {
        (id_, one)
        for id_, one in _pairs(known, closes, "closing")
        if id_ not in resets or known[id_].closing[one] <= resets[id_]
    }
    _all_new(change, "closing", closes, still)
    _all_new(change, "timer", timers, _pairs(known, timers, "timers"))


def _all_new(change: Change, what: str, keys: list[Any], taken: Iterable[Any]) -> None:
    unique = set(keys)
    if len(unique) < len(keys) or not unique.isdisjoint(taken):
        raise StoreError(f"commit {change.n} contradicts the store: {what} not unique")


def _pairs(
    known: dict[str, Stored], keys: Iterable[tuple[str, Any]], name: str
) -> set[tuple[str, Any]]:
    """Those of `keys` that stand in the store."""
    return {
        (workflow_id, key)
        for workflow_id, key in keys
        if workflow_id in known and key in getattr(known[workflow_id], name)
    }


def apply(known: dict[str, Stored], change: Change) -> CommitRow:
    """All of `change`, in the embedded store's order; its row of the log. What can fail, encoding,
    comes first.
    """
    started = [Stored(0, one) for one in change.started]
    touched = [(one, _encode_bare(one)) for one in change.touched]
    activities = [(id_, one.activity_id, _encode(one)) for id_, one in change.activities]
    newest_seq = next(reversed(known.values())).seq if known else 0
    for seq, (stored, execution) in enumerate(
        zip(started, change.started, strict=True), start=newest_seq + 1
    ):
        stored.seq = seq
        known[execution.workflow_id] = stored
    for workflow_id, to_event in change.resets:
        stored = known[workflow_id]
        stored.closing = {key: at for key, at in stored.closing.items() if at <= to_event}
    for event in change.events:
        stored = known[event.workflow_id]
        stored.events[event.event_id] = event
        if event.closes is not None:
            stored.closing[event.closes] = event.event_id
        if event.request_id is not None:
            stored.requested.setdefault(event.request_id, event.event_id)
    for workflow_id, activity_id, raw in activities:
        known[workflow_id].activities[activity_id] = raw
    for workflow_id, activity_id in change.activities_closed:
        known[workflow_id].activities.pop(activity_id, None)
    for workflow_id, timer_id, due_ms in change.timers:
        known[workflow_id].timers[timer_id] = due_ms
    for workflow_id, timer_id in change.timers_closed:
        known[workflow_id].timers.pop(timer_id, None)
    for execution, raw in touched:
        known[execution.workflow_id].put(execution, raw)
    return CommitRow(
        change.n,
        change.epoch,
        change.at_ms,
        change.previous_hash,
        change.hash,
        change.body,
        change.stall_ms,
    )
