"""What history states as done: the vocabulary of the commit log.

A record never speaks of the future and is never edited. Those with an `event_id` are events: they
are the workflow's own history, what replay needs. The others change the task table only (a retry
costs a workflow's history nothing). A payload is bytes whose first byte is its encoding
(perdure.values); the log holds those above 1 KiB by reference.

Instants (`at_ms`, `due_ms`, `deadline_ms`) are history's own clock, whole milliseconds since the
Unix epoch.
"""

from __future__ import annotations

import msgspec

from perdure.core.ids import Session
from perdure.core.interaction_records import ActivityCancelRequested as ActivityCancelRequested
from perdure.core.interaction_records import ChildCancelRequested as ChildCancelRequested
from perdure.core.interaction_records import ChildWorkflowCompleted as ChildWorkflowCompleted
from perdure.core.interaction_records import ChildWorkflowFailed as ChildWorkflowFailed
from perdure.core.interaction_records import ChildWorkflowStarted as ChildWorkflowStarted
from perdure.core.interaction_records import (
    ExternalCancelRequested as ExternalCancelRequested,
)
from perdure.core.interaction_records import GateSet as GateSet
from perdure.core.interaction_records import LeaseDetached as LeaseDetached
from perdure.core.interaction_records import MarkerRecorded as MarkerRecorded
from perdure.core.interaction_records import RetriedNow as RetriedNow
from perdure.core.interaction_records import SearchAttributesSet as SearchAttributesSet
from perdure.core.interaction_records import SignalNotes as SignalNotes
from perdure.core.interaction_records import SignalReceived as SignalReceived
from perdure.core.interaction_records import SignalSent as SignalSent
from perdure.core.interaction_records import SignalsNoted as SignalsNoted
from perdure.core.interaction_records import UpdateEnded as UpdateEnded
from perdure.core.interaction_records import UpdateReceived as UpdateReceived
from perdure.core.interaction_records import WorkflowCancelled as WorkflowCancelled
from perdure.core.interaction_records import WorkflowCancelRequested as WorkflowCancelRequested
from perdure.core.interaction_records import WorkflowContinuedAsNew as WorkflowContinuedAsNew
from perdure.core.interaction_records import WorkflowPaused as WorkflowPaused
from perdure.core.interaction_records import WorkflowReset as WorkflowReset
from perdure.core.interaction_records import WorkflowTerminated as WorkflowTerminated
from perdure.core.record_base import Count as Count
from perdure.core.record_base import Payload as Payload
from perdure.core.record_base import Record as Record
from perdure.core.schedule_state import (
    ScheduleDeleted,
    ScheduleFired,
    SchedulePaused,
    ScheduleRunEnded,
    ScheduleSet,
)
from perdure.core.start import StartTerms
from perdure.failures import Failure
from perdure.policy import RetryPolicy


class ActivityOptions(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How one activity is tried: complete, defaults filled in. 0 means none, except where noted."""

    retry: RetryPolicy
    task_queue: str = "default"
    start_to_close_ms: Count = 600_000
    heartbeat_ms: Count = 0
    schedule_to_start_ms: Count = 0
    schedule_to_close_ms: Count = 0
    priority: int = 0
    on_exhausted: str = "park"
    # What cancelling it means to the workflow: "try", "wait" or "abandon".
    cancellation: str = "try"
    isolation: str = "thread"  # Or "process".
    grace_ms: Count = 5_000  # From being told to end until it is ended, where it has a process.


# --- the workflow -----------------------------------------------------------
class WorkflowStarted(Record, frozen=True, tag=1):
    """The id is taken for ever, and the first workflow task is ready."""

    event_id: int
    at_ms: int
    workflow_type: str
    task_queue: str
    input: Payload | None
    request_id: str | None
    digest: bytes
    terms: StartTerms | None = None  # None: a plain start.


class WorkflowCompleted(Record, frozen=True, tag=2):
    """The workflow function returned; nothing of this execution is open any more."""

    event_id: int
    at_ms: int
    result: Payload | None


class WorkflowFailed(Record, frozen=True, tag=3):
    """An exception left the workflow function; nothing of this execution is open any more."""

    event_id: int
    at_ms: int
    failure: Failure


class WorkflowTaskCompleted(Record, frozen=True, tag=4):
    """The cursor: events up to `consumed` were fed, `commands` commands were issued in all."""

    consumed: int
    commands: int


class WorkflowTaskFailed(Record, frozen=True, tag=5):
    """A workflow task did not work out; `failures` in a row, and not again before `due_ms`."""

    at_ms: int
    reason: str
    failure: Failure | None
    failures: int
    due_ms: int


# --- timers -----------------------------------------------------------------
class TimerStarted(Record, frozen=True, tag=6):
    """A durable timer runs; `timer_id` counts from 1 within the execution."""

    event_id: int
    at_ms: int
    timer_id: int
    due_ms: int


class TimerFired(Record, frozen=True, tag=7):
    """The timer's time came; it is gone."""

    event_id: int
    at_ms: int
    timer_id: int


class TimerCancelled(Record, frozen=True, tag=8):
    """The workflow no longer wants the timer; `noop` when it had fired already."""

    event_id: int
    at_ms: int
    timer_id: int
    noop: bool


# --- activities: events -----------------------------------------------------
class ActivityTaskScheduled(Record, frozen=True, tag=9):
    """The activity exists in generation 1, ready for attempt 1."""

    event_id: int
    at_ms: int
    activity_id: str
    activity_type: str
    input: Payload | None
    options: ActivityOptions


class ActivityTaskCompleted(Record, frozen=True, tag=10):
    """The activity is closed with a result.

    With `started_ms` it stands for two events: Started is `event_id - 1`.

    `request_id` is set where an operator completed it by hand (`started_ms` is None then).
    """

    event_id: int
    at_ms: int
    activity_id: str
    generation: int
    grant: int
    attempt: int
    result: Payload | None
    started_ms: int | None
    worker_id: str
    request_id: str | None = None


class ActivityTaskFailed(Record, frozen=True, tag=11):
    """The activity is closed with an error that the workflow sees.

    Two events where `started_ms` is set, as above.
    """

    event_id: int
    at_ms: int
    activity_id: str
    generation: int
    grant: int
    attempt: int
    failure: Failure
    started_ms: int | None
    worker_id: str
    request_id: str | None = None


class ActivityTaskCancelled(Record, frozen=True, tag=12):
    """The workflow gave the activity up, or ended; `noop` when it was closed already."""

    event_id: int
    at_ms: int
    activity_id: str
    noop: bool


class ActivityDeadLettered(Record, frozen=True, tag=13):
    """The last attempt failed; the activity waits for an operator and the workflow waits for it."""

    event_id: int
    at_ms: int
    activity_id: str
    generation: int
    grant: int
    attempt: int
    failure: Failure
    worker_id: str
    details: Payload | None
    beat: int


class ActivityRedriven(Record, frozen=True, tag=14):
    """An operator sent a dead letter round again: a new generation at attempt 1.

    With `has_input` it has this `input` from now on. `by`: who it was, where they said so.
    """

    event_id: int
    at_ms: int
    activity_id: str
    generation: int
    request_id: str | None
    input: Payload | None = None
    has_input: bool = False
    by: str = ""


# --- activities: the task table ---------------------------------------------
class LeaseGranted(Record, frozen=True, tag=15):
    """One worker may run one attempt, until `deadline_ms`, heartbeats apart; never past
    `attempt_deadline_ms`. Both move by what the stalls of history have grown since `stall_ms`.
    """

    at_ms: int
    activity_id: str
    generation: int
    grant: int
    attempt: int
    worker_id: str
    session: Session | None
    deadline_ms: int
    attempt_deadline_ms: int
    poll_id: str | None = None
    stall_ms: int = 0


class HeartbeatRecorded(Record, frozen=True, tag=16):
    """The holder was heard; `details` are what the next attempt starts with."""

    at_ms: int
    activity_id: str
    generation: int
    grant: int
    beat: int
    details: Payload | None
    deadline_ms: int
    stall_ms: int = 0


class LeaseReleased(Record, frozen=True, tag=17):
    """The lease ended uncharged: the same attempt number is ready again at `due_ms`.

    `uncharged` counts the node's own restarts in a row (0 for other reasons).
    """

    at_ms: int
    activity_id: str
    generation: int
    grant: int
    reason: str
    due_ms: int
    uncharged: int
    details: Payload | None
    beat: int


class RetryScheduled(Record, frozen=True, tag=18):
    """Attempt `attempt` failed; the next is due at `due_ms`.

    `delay_ms` is the drawn delay, never drawn again.
    """

    at_ms: int
    activity_id: str
    generation: int
    grant: int
    attempt: int
    failure: Failure
    delay_ms: int
    due_ms: int
    worker_id: str
    details: Payload | None
    beat: int


Event = (
    WorkflowStarted
    | WorkflowCompleted
    | WorkflowFailed
    | TimerStarted
    | TimerFired
    | TimerCancelled
    | ActivityTaskScheduled
    | ActivityTaskCompleted
    | ActivityTaskFailed
    | ActivityTaskCancelled
    | ActivityDeadLettered
    | ActivityRedriven
    | WorkflowCancelRequested
    | WorkflowCancelled
    | WorkflowTerminated
    | WorkflowContinuedAsNew
    | SignalReceived
    | SignalSent
    | UpdateReceived
    | UpdateEnded
    | ChildWorkflowStarted
    | ChildWorkflowCompleted
    | ChildWorkflowFailed
    | ChildCancelRequested
    | MarkerRecorded
    | SearchAttributesSet
    | ActivityCancelRequested
    | ExternalCancelRequested
    | WorkflowReset
)

# Beside the events, what changes the task table only, or is of no workflow.
AnyRecord = (
    Event
    | WorkflowTaskCompleted
    | WorkflowTaskFailed
    | LeaseGranted
    | HeartbeatRecorded
    | LeaseReleased
    | RetryScheduled
    | WorkflowPaused
    | SignalsNoted
    | LeaseDetached
    | RetriedNow
    | GateSet
    | ScheduleSet
    | ScheduleFired
    | ScheduleRunEnded
    | SchedulePaused
    | ScheduleDeleted
)

EVENT_TYPES: frozenset[type[Record]] = frozenset(Event.__args__)
# What wakes a workflow: after one of these a workflow task is ready. (And after a SignalSent, where
# its code is told.)
WAKE_TYPES: frozenset[type[Record]] = frozenset(
    {
        WorkflowStarted,
        TimerFired,
        ActivityTaskCompleted,
        ActivityTaskFailed,
        WorkflowCancelRequested,
        SignalReceived,
        UpdateReceived,
        ChildWorkflowCompleted,
        ChildWorkflowFailed,
        ExternalCancelRequested,
        WorkflowReset,
    }
)
CLOSING_TYPES: frozenset[type[Record]] = frozenset(
    {
        WorkflowCompleted,
        WorkflowFailed,
        WorkflowCancelled,
        WorkflowTerminated,
        WorkflowContinuedAsNew,
    }
)

_encoder = msgspec.msgpack.Encoder()
_event_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


class Group(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one commit states about one workflow execution, in order."""

    workflow_id: str
    records: tuple[AnyRecord, ...]


class CommitBody(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One commit: the chain's link, the feed's frame and the auditor's evidence, in one form."""

    n: int
    epoch: int
    at_ms: int
    groups: tuple[Group, ...]
    opened: str | None = None  # The writer's incarnation, in the first commit of an epoch.
    # There, too, where it is not GRACE_MS: what leases of before get of it.
    recovery_grace_ms: int | None = None


_body_decoder = msgspec.msgpack.Decoder(CommitBody)


def encode_event(event: Record) -> bytes:
    """The stored form of an event, payloads included."""
    return _encoder.encode(event)


def decode_event(raw: bytes) -> Event:
    """The event that `encode_event` made `raw` from; msgspec.DecodeError for anything else."""
    return _event_decoder.decode(raw)


def encode_body(body: CommitBody) -> bytes:
    """The bytes of a commit, as hashed, stored and published."""
    return _encoder.encode(body)


def decode_body(raw: bytes) -> CommitBody:
    """The commit that `encode_body` made `raw` from; msgspec.DecodeError for anything else."""
    return _body_decoder.decode(raw)
