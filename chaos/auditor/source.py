"""What an audit is given of a store beside its log: plain rows, whoever holds them.

Bytes stay as they are stored; the auditor decodes them itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol


class EpochRow(NamedTuple):
    """One life of history."""

    epoch: int
    incarnation: str
    now_ms: int


class ExecutionRow(NamedTuple):
    """One workflow execution. `task_failure` and `more` are encoded, or None."""

    workflow_id: str
    workflow_type: str
    task_queue: str
    started_ms: int
    request_id: str | None
    digest: bytes
    status: str
    closed_ms: int | None
    last_event_id: int
    last_wake_id: int
    consumed: int
    commands: int
    task_failures: int
    task_due_ms: int
    task_failure: bytes | None
    task_reason: str
    more: bytes | None


class EventRow(NamedTuple):
    """One event. `workflow_id` None: its execution is not in the store."""

    workflow_id: str | None
    event_id: int
    at_ms: int
    kind: str
    body: bytes
    closes: str | None
    request_id: str | None


class ActivityRow(NamedTuple):
    """One open activity."""

    workflow_id: str | None
    activity_id: str
    state: str
    activity_type: str
    failure_type: str | None
    attempt: int
    body: bytes


class TimerRow(NamedTuple):
    """One running timer."""

    workflow_id: str | None
    timer_id: int
    due_ms: int


class TombstoneRow(NamedTuple):
    """What stays of a workflow that retention has removed."""

    workflow_id: str
    digest: bytes
    closed_ms: int


class GateRow(NamedTuple):
    """A queue or an activity type that was ever paused."""

    kind: str
    name: str
    paused: bool
    since_ms: int
    reason: str


class ScheduleRow(NamedTuple):
    """One schedule, deleted or not."""

    schedule_id: str
    deleted: bool
    body: bytes


class Tables(Protocol):
    """The tables of one store as of one instant. Events come workflow by workflow, in order."""

    def epochs(self) -> Iterable[EpochRow]:
        """Every epoch; none where the store keeps no such table."""

    def executions(self) -> Iterable[ExecutionRow]:
        """Every execution."""

    def events(self) -> Iterable[EventRow]:
        """Every event."""

    def activities(self) -> Iterable[ActivityRow]:
        """Every open activity."""

    def timers(self) -> Iterable[TimerRow]:
        """Every running timer."""

    def gates(self) -> Iterable[GateRow]:
        """Every gate."""

    def schedules(self, known: Iterable[str]) -> Iterable[ScheduleRow]:
        """Every schedule. Of deleted ones a store may show those only that are `known`."""

    def tombstones(self) -> Iterable[TombstoneRow]:
        """Every tombstone."""
