"""What is open, as a scheduler sees it: with all that is needed to give it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.core.ids import Address, Session, seal
from perdure.core.limits import DEATHS_SHARED_MAX, FRAME_BYTES, WORKFLOW_TASK_FAILURES_FREE
from perdure.core.links import ActivityTask, WorkflowTask
from perdure.core.records import (
    ActivityDeadLettered,
    ActivityTaskCompleted,
    ActivityTaskScheduled,
    ChildWorkflowCompleted,
    ChildWorkflowStarted,
    LeaseGranted,
    MarkerRecorded,
    Record,
    SignalReceived,
    SignalSent,
    UpdateEnded,
    UpdateReceived,
    WorkflowStarted,
    encode_event,
)
from perdure.core.state import Activity, Execution
from perdure.values import is_reference

# A workflow with more events than this to see is given to a worker without them: it fetches pages.
EVENTS_KEPT_MAX = 200

# (task queue, type), and ALONE as a third for what must run in quarantine.
# Retries under a budget wait apart from first attempts: RETRY stands behind as well.
Key = tuple[str, ...]
ALONE = "alone"
RETRY = "retry"
# Ends of a workflow task that may have been its own fault, and that hurt whatever ran beside it.
_HARMFUL = frozenset({"worker_died", "timeout"})

_PAYLOADS: dict[type[Record], str] = {
    WorkflowStarted: "input",
    ActivityTaskScheduled: "input",
    ActivityTaskCompleted: "result",
    ActivityDeadLettered: "details",
    SignalReceived: "input",
    SignalSent: "input",
    UpdateReceived: "input",
    UpdateEnded: "result",
    ChildWorkflowStarted: "input",
    ChildWorkflowCompleted: "result",
    MarkerRecorded: "result",
}


class Work:
    """An open workflow. `given` is what the caller notes while its task is out, else None.

    Its task is among the ready (`is_ready`), waits for its time (`is_parked`), or neither.
    """

    __slots__ = (
        "entries",
        "events",
        "execution",
        "given",
        "is_parked",
        "is_ready",
        "key",
        "rank",
        "sticky",
        "timers",
        "turns",
        "workflow_id",
    )

    def __init__(self, execution: Execution, events: list[Record] | None) -> None:
        self.execution = execution
        self.workflow_id = execution.workflow_id
        self.key = workflow_key(execution)
        self.entries: dict[str, Entry] = {}
        self.timers: set[int] = set()
        self.turns: dict[int, int] | None = None  # The newest turn of its activities, by level.
        self.events = events  # Those after the cursor; None: not known, or not kept.
        self.given: Any = None
        self.is_ready = self.is_parked = False
        # Whose result was accepted last: it has the workflow cached.
        self.sticky: Session | None = None
        self.rank: tuple[int, int] = (0, 0)

    def keep_event(self, record: Record) -> None:
        """Keep an event for the next task, unless it, or what it refers to, is better fetched."""
        events = self.events
        if events is None:
            return
        field = _PAYLOADS.get(type(record))
        payload = None if field is None else getattr(record, field)
        is_elsewhere = payload is not None and is_reference(payload)
        if type(record) is WorkflowStarted and record.terms is not None:
            handed_on = record.terms.signals
            is_elsewhere = is_elsewhere or any(one and is_reference(one) for _, one in handed_on)
        if len(events) >= EVENTS_KEPT_MAX or is_elsewhere:
            self.events = None
        else:
            events.append(record)

    def consume(self, consumed: int) -> None:
        """Drop the events that the workflow has seen."""
        if consumed >= self.execution.last_event_id:
            self.events = []
        elif self.events is not None:
            self.events = [event for event in self.events if _event_id(event) > consumed]


class Entry:
    """An open activity. `sent_ms` is when its task was last sent; 0: not that we know.

    It is among the ready (`is_ready`), waits for its time (`is_parked`), or neither.
    """

    __slots__ = (
        "activity",
        "held_by",
        "is_leased",
        "is_parked",
        "is_ready",
        "key",
        "polled_by",
        "rank",
        "sent_ms",
        "token",
        "work",
    )

    def __init__(self, work: Work, activity: Activity) -> None:
        self.work = work
        self.activity = activity
        self.key = activity_key(activity)
        self.rank: tuple[int, int, int, int] = (0, 0, 0, 0)
        self.is_ready = self.is_parked = self.is_leased = False
        self.held_by: Session | None = None
        self.polled_by: tuple[str, str] | None = None
        self.token: str | None = None
        self.sent_ms = 0

    def address(self) -> Address:
        """Of the newest grant."""
        activity = self.activity
        return Address(
            self.work.workflow_id, activity.activity_id, activity.generation, activity.grant
        )

    def sealed(self, key: bytes) -> str:
        """The token of the live grant, made once."""
        if self.token is None:
            self.token = seal(self.address(), key)
        return self.token


def activity_key(activity: Activity) -> Key:
    """Among which activities it waits: what has killed its worker twice in a row waits apart."""
    key = (activity.options.task_queue, activity.activity_type)
    return key if activity.deaths_in_a_row < DEATHS_SHARED_MAX else (*key, ALONE)


def workflow_key(execution: Execution) -> Key:
    """Among which workflow tasks the next one waits: after deaths or silence, apart."""
    key = (execution.task_queue, execution.workflow_type)
    is_harmful = (
        execution.task_failures > WORKFLOW_TASK_FAILURES_FREE and execution.task_reason in _HARMFUL
    )
    return (*key, ALONE) if is_harmful else key


def workflow_task(work: Work, *, cached: bool, n: int, permits: int = 0) -> WorkflowTask:
    """The task that runs `work` on. `cached`: its worker has all before the cursor.

    The events stand in it where they are all that the worker lacks; else it fetches them.
    """
    execution = work.execution
    events: tuple[msgspec.Raw, ...] | None = None
    if work.events is not None and (cached or execution.consumed == 0):
        encoded = [encode_event(event) for event in work.events]
        if sum(map(len, encoded)) <= FRAME_BYTES:
            events = tuple(map(msgspec.Raw, encoded))
    return WorkflowTask(
        workflow_id=work.workflow_id,
        workflow_type=execution.workflow_type,
        consumed=execution.consumed,
        commands=execution.commands,
        last_event_id=execution.last_event_id,
        events=events,
        n=n,
        permits=permits,
    )


def activity_task(entry: Entry, key: bytes, now_ms: int) -> ActivityTask | None:
    """The task of the live grant, or None where there is none.

    Lengths are what is left of them at `now_ms`: a task that is sent again late ends no later.
    """
    if entry.activity.lease is None:
        return None
    return task_of(entry.work.execution, entry.activity, entry.sealed(key), now_ms)


def task_of(
    execution: Execution, activity: Activity, token: str, now_ms: int
) -> ActivityTask | None:
    """As `activity_task`."""
    lease = activity.lease
    if lease is None:
        return None
    return ActivityTask(
        token=token,
        workflow_id=execution.workflow_id,
        workflow_type=execution.workflow_type,
        activity_id=activity.activity_id,
        activity_type=activity.activity_type,
        generation=activity.generation,
        grant=activity.grant,
        attempt=activity.attempt,
        input=activity.input,
        details=activity.details,
        beat=activity.beat,
        options=activity.options,
        scheduled_event_id=activity.input_event_id or activity.scheduled_event_id,
        scheduled_ms=activity.scheduled_ms,
        deadline_ms=lease.deadline_ms,
        lease_ms=max(0, lease.deadline_ms - max(now_ms, lease.granted_ms)),
        attempt_ms=max(0, lease.attempt_deadline_ms - max(now_ms, lease.granted_ms)),
        n=lease.granted_n,
    )


def hired(records: Sequence[Record]) -> list[Record]:
    """Of these, of one workflow, the scheduling of what they lease as well: it never waits."""
    leased = [record.activity_id for record in records if type(record) is LeaseGranted]
    return [
        record
        for record in records
        if type(record) is ActivityTaskScheduled and record.activity_id in leased
    ]


def _event_id(event: Record) -> int:
    return event.event_id  # type: ignore[attr-defined,no-any-return]
