"""What the ledger needs to know of each kind of record, and the two forms in which one is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from perdure.core.change import StoredEvent
from perdure.core.facts import scoped
from perdure.core.limits import INLINE_BYTES
from perdure.core.records import (
    CLOSING_TYPES,
    EVENT_TYPES,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    AnyRecord,
    Record,
    UpdateReceived,
    WorkflowStarted,
    encode_event,
)
from perdure.core.start import StartTerms
from perdure.values import refer

_PAYLOAD_FIELDS = ("input", "result", "details")


class Traits:
    """Of one kind of record, looked up once."""

    __slots__ = ("closes", "ends", "is_event", "is_timer", "name", "payload", "request", "tells")

    def __init__(self, kind: type[Record]) -> None:
        fields = kind.__struct_fields__
        self.name = kind.__name__
        self.is_event = kind in EVENT_TYPES
        self.ends = kind in CLOSING_TYPES  # The whole execution.
        self.is_timer = "timer_id" in fields
        self.tells = "activity_id" in fields  # Of an activity.
        self.closes = kind in (ActivityTaskCompleted, ActivityTaskFailed)  # That activity.
        # By which field it is found when what made it is asked again; None: by none.
        self.request: str | None = None
        if kind is UpdateReceived:
            self.request = "update_id"
        elif "request_id" in fields and kind is not WorkflowStarted:
            self.request = "request_id"
        self.payload = next((name for name in _PAYLOAD_FIELDS if name in fields), None)


TRAITS = {kind: Traits(kind) for kind in AnyRecord.__args__}


def stored(workflow_id: str, record: Any) -> StoredEvent:
    """The event as its workflow keeps it, payloads included."""
    traits = TRAITS[type(record)]
    request_id = None if traits.request is None else getattr(record, traits.request)
    return StoredEvent(
        workflow_id,
        record.event_id,
        record.at_ms,
        traits.name,
        encode_event(record),
        record.activity_id if traits.closes else None,
        None if request_id is None else scoped(type(record), request_id),
    )


def stored_events(workflow_id: str, records: Iterable[Record]) -> list[StoredEvent]:
    """The events among `records`, each `stored`."""
    return [stored(workflow_id, record) for record in records if TRAITS[type(record)].is_event]


def slim(record: Record) -> Record:
    """The record as the log has it: large payloads by reference."""
    name = TRAITS[type(record)].payload
    if type(record) is WorkflowStarted and record.terms is not None and record.terms.signals:
        record = msgspec.structs.replace(record, terms=_slim_terms(record.terms))
    if name is not None:
        payload = getattr(record, name)
        if payload is not None and len(payload) > INLINE_BYTES:
            return msgspec.structs.replace(record, **{name: refer(payload)})
    return record


def _slim_terms(terms: StartTerms) -> StartTerms:
    handed_on = tuple(
        (name, None if payload is None else refer(payload)) for name, payload in terms.signals
    )
    return msgspec.structs.replace(terms, signals=handed_on)
