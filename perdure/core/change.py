"""What one commit writes: made by the ledger, made durable by a store in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.core.gates import Gate
from perdure.core.schedule_state import Schedule
from perdure.core.state import Activity, Execution


class StoredEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event record of one workflow, encoded whole.

    `closes`: the activity id that it closes, else None.
    """

    workflow_id: str
    event_id: int
    at_ms: int
    kind: str  # The record's class name.
    body: bytes
    closes: str | None = None
    request_id: str | None = (
        None  # Of the operator's command that made it (redrive, fail, complete).
    )


class Change(msgspec.Struct, frozen=True):
    """All that one commit writes, in one transaction."""

    n: int
    epoch: int
    at_ms: int
    previous_hash: bytes
    hash: bytes
    body: bytes
    started: Sequence[Execution] = ()  # New rows.
    touched: Sequence[Execution] = ()  # Rows to update (never those in `started`).
    events: Sequence[StoredEvent] = ()
    activities: Sequence[tuple[str, Activity]] = ()  # (workflow_id, activity): insert or replace.
    activities_closed: Sequence[tuple[str, str]] = ()
    timers: Sequence[tuple[str, int, int]] = ()  # (workflow_id, timer_id, due_ms): insert.
    timers_closed: Sequence[tuple[str, int]] = ()
    gates: Sequence[Gate] = ()  # Insert or replace.
    schedules: Sequence[Schedule] = ()  # Insert or replace.
    # (workflow_id, event): before all else, no stored event after that one closes an activity any
    # more, and the execution is open.
    resets: Sequence[tuple[str, int]] = ()
    stall_ms: int = 0  # Sum of all stalls of all histories until then.
