"""What is asked of history, and what it answers.

A command wishes; history may refuse it as out of date.

Each names exactly what it expects to find (generation and grant, cursor, attempt), so that a stale
or doubled one is harmless. Commands about one grant carry its address; at the edge a token becomes
an address, or a refusal.
"""

from __future__ import annotations

import msgspec

from perdure.core.command_base import Command as Command
from perdure.core.ids import Address, Session
from perdure.core.interactions import CancelWorkflow as CancelWorkflow
from perdure.core.interactions import ChildEnded as ChildEnded
from perdure.core.interactions import DetachLease as DetachLease
from perdure.core.interactions import PauseWorkflow as PauseWorkflow
from perdure.core.interactions import ResetWorkflow as ResetWorkflow
from perdure.core.interactions import RetryNow as RetryNow
from perdure.core.interactions import SetGate as SetGate
from perdure.core.interactions import SignalWorkflow as SignalWorkflow
from perdure.core.interactions import StartWorkflow as StartWorkflow
from perdure.core.interactions import TerminateWorkflow as TerminateWorkflow
from perdure.core.interactions import TimeOutWorkflow as TimeOutWorkflow
from perdure.core.interactions import UpdateWorkflow as UpdateWorkflow
from perdure.core.records import Payload, SignalNotes
from perdure.core.schedule_commands import (
    BackfillSchedule,
    DeleteSchedule,
    FireSchedule,
    PauseSchedule,
    PutSchedule,
    TriggerSchedule,
)
from perdure.core.steps import CancelActivity as CancelActivity
from perdure.core.steps import CancelChild as CancelChild
from perdure.core.steps import CancelExternal as CancelExternal
from perdure.core.steps import CancelTimer as CancelTimer
from perdure.core.steps import CancelWorkflowStep as CancelWorkflowStep
from perdure.core.steps import CompleteWorkflow as CompleteWorkflow
from perdure.core.steps import ContinueAsNew as ContinueAsNew
from perdure.core.steps import EndUpdate as EndUpdate
from perdure.core.steps import FailWorkflow as FailWorkflow
from perdure.core.steps import RecordMarker as RecordMarker
from perdure.core.steps import ScheduleActivity as ScheduleActivity
from perdure.core.steps import SendSignal as SendSignal
from perdure.core.steps import SetSearchAttributes as SetSearchAttributes
from perdure.core.steps import StartChild as StartChild
from perdure.core.steps import StartTimer as StartTimer
from perdure.core.steps import Step as Step
from perdure.failures import Failure


# --- from clients -----------------------------------------------------------
class RedriveDeadLetter(Command, frozen=True, tag=2):
    """Sent by the gateway for an operator: once more; with another `input`, if `has_input`."""

    workflow_id: str
    activity_id: str
    request_id: str | None = None
    input: Payload | None = None
    has_input: bool = False
    by: str = ""


class FailDeadLetter(Command, frozen=True, tag=3):
    """Sent by the gateway for an operator: let the workflow see the last failure."""

    workflow_id: str
    activity_id: str
    request_id: str | None = None


class CompleteDeadLetter(Command, frozen=True, tag=4):
    """Sent by the gateway for an operator who did the work by hand."""

    workflow_id: str
    activity_id: str
    result: Payload | None
    request_id: str | None = None


# --- reports: from workers, and from clients who poll by hand ---------------
class Hire(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The reporting worker would run these activities itself: lease them to it in the commit that
    schedules them.
    """

    worker_id: str
    session: Session
    activity_ids: tuple[str, ...]


class CompleteWorkflowTask(Command, frozen=True, tag=8):
    """The workflow was run on from the cursor (consumed_from, commands_from) to `consumed`, and
    wants `steps`. `signals`: what its code makes of them; None: nothing.
    """

    workflow_id: str
    consumed_from: int
    commands_from: int
    consumed: int
    steps: tuple[Step, ...]
    hire: Hire | None = None
    signals: SignalNotes | None = None


class CompleteActivity(Command, frozen=True, tag=5):
    """The holder of `token` is done.

    `following` is what its workflow does then, where the worker has it in memory: run on from the
    event that this report becomes, if that is event `following.consumed` at `at_ms`. Otherwise it
    is dropped, and the workflow's next task made as ever (answer: STEP_DROPPED).
    """

    token: str
    result: Payload | None
    at_ms: int = 0
    following: CompleteWorkflowTask | None = None


class FailActivity(Command, frozen=True, tag=6):
    """The holder of `token` failed.

    `details` and `beat`: the newest heartbeat not yet acknowledged.
    """

    token: str
    failure: Failure
    details: Payload | None = None
    beat: int = 0


class ReleaseActivity(Command, frozen=True, tag=7):
    """The holder of `token` hands it back, uncharged. reason: "shutdown" or "unknown_type"."""

    token: str
    reason: str
    details: Payload | None = None
    beat: int = 0


class FailWorkflowTask(Command, frozen=True, tag=9):
    """The workflow task can't be done by this worker. reason: "mismatch", "unknown_type",
    "blocked", "error".

    "handed_back" is an orderly shutdown: not counted.
    """

    workflow_id: str
    consumed_from: int
    commands_from: int
    reason: str
    failure: Failure | None = None


# --- proposals --------------------------------------------------------------
class GrantLease(Command, frozen=True, tag=10):
    """Scheduler: give `attempt` to this session.

    `grant` is the number that the new grant would get.
    """

    workflow_id: str
    activity_id: str
    generation: int
    grant: int
    attempt: int
    worker_id: str
    session: Session | None
    poll_id: str | None = None


class FireTimer(Command, frozen=True, tag=11):
    """Scheduler: the timer's time has come."""

    workflow_id: str
    timer_id: int


class TimeOutActivity(Command, frozen=True, tag=12):
    """Scheduler: a deadline that is no lease's has passed. kind: "schedule_to_start" or
    "schedule_to_close".
    """

    workflow_id: str
    activity_id: str
    generation: int
    kind: str


class TimeOutWorkflowTask(Command, frozen=True, tag=13):
    """Scheduler: the workflow task given at this cursor did not come back. reason: "timeout",
    "worker_died".
    """

    workflow_id: str
    consumed: int
    commands: int
    reason: str


class RecordHeartbeat(Command, frozen=True, tag=14):
    """Lease keeper, for the holder of `token`. A beat of 0 means: one more than the last."""

    token: str
    beat: int
    details: Payload | None
    has_details: bool


class ExpireLease(Command, frozen=True, tag=15):
    """Lease keeper: this grant's deadline has passed, with what it knew of heartbeats not yet
    committed.
    """

    address: Address
    details: Payload | None = None
    beat: int = 0


class EndLease(Command, frozen=True, tag=16):
    """Lease keeper: the session is gone. reason: "worker_died", "node_restart" or "undelivered".

    Scheduler, `is_polled`: a client polled for it and went away before it could learn the token.
    """

    address: Address
    reason: str
    details: Payload | None = None
    beat: int = 0
    is_polled: bool = False


AnyCommand = (
    StartWorkflow
    | RedriveDeadLetter
    | FailDeadLetter
    | CompleteDeadLetter
    | CompleteActivity
    | FailActivity
    | ReleaseActivity
    | CompleteWorkflowTask
    | FailWorkflowTask
    | GrantLease
    | FireTimer
    | TimeOutActivity
    | TimeOutWorkflowTask
    | RecordHeartbeat
    | ExpireLease
    | EndLease
    | SignalWorkflow
    | CancelWorkflow
    | TerminateWorkflow
    | UpdateWorkflow
    | RetryNow
    | PauseWorkflow
    | SetGate
    | ResetWorkflow
    | DetachLease
    | TimeOutWorkflow
    | ChildEnded
    | PutSchedule
    | FireSchedule
    | TriggerSchedule
    | BackfillSchedule
    | PauseSchedule
    | DeleteSchedule
)


STEP_DROPPED = "StepDropped"
REPEATED = "Repeated"
NOT_TAKEN = "NotTaken"
STARTED = "Started"


# --- answers ----------------------------------------------------------------
class Done(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """Accepted.

    `state`: of the activity after a failure (Retrying, DeadLettered, Dropped); STEP_DROPPED where
    the result counts and what the workflow would have done then does not; REPEATED of a workflow
    task that history had before, maybe of another worker, where a side effect may have had another
    value: what the code saw in this worker's memory is not what counts; NOT_TAKEN of a signal
    that the workflow's code, as it stands, has nothing for, STARTED of a message with which it was
    started; else empty.
    """

    state: str = ""


class Started(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """The workflow exists."""

    run: int = 1


class Deadline(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The heartbeat is durable; the lease now ends at `deadline_ms` of history's clock."""

    deadline_ms: int
    cancel_requested: bool = False


class Closed(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """How a workflow ended (the answer to a watch)."""

    status: str
    result: Payload | None
    failure: Failure | None


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """Why not.

    `code` is one of perdure.errors; `at_ms` is when it would no longer be too early, else 0.
    """

    code: str
    message: str
    at_ms: int = 0


class Updated(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """How an update ended (the answer to a watch of it). `rejected`: its validator said no."""

    result: Payload | None
    failure: Failure | None
    rejected: bool = False


class EffectAgain(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a workflow that is taken back would ask for once more.

    kind: "activity", or "signal" or "cancel" (`id` is then the workflow that it went to). `outcome`
    of an activity: Completed, Failed, Cancelled, the state that it is in, or Unknown where the
    workflow ended before it did; `at_ms` is None while there is none.
    """

    kind: str
    id: str
    type: str
    outcome: str
    at_ms: int | None
    key: str | None  # The idempotency key of an activity.


class SaidLater(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What somebody said to a workflow behind the event that it is taken back to.

    kind: "signal" (`id` is its event), "update", "cancel". `becomes`: "kept" (a signal comes
    again), "failed" (an update that waits, whoever asked is told), "taken_back" (an update was
    answered, and what it did does not count any more), "dropped" (a request to cancel).
    """

    kind: str
    id: str
    name: str
    becomes: str
    at_ms: int


class WasReset(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """The workflow goes on from its event `event_id` (0: it was only asked what that would mean).

    `effects` are the first of `effects_count`, `said` of `said_count`.
    """

    event_id: int
    effects: tuple[EffectAgain, ...]
    effects_count: int
    said: tuple[SaidLater, ...] = ()
    said_count: int = 0


AnyAnswer = Done | Started | Deadline | Closed | Refusal | Updated | WasReset
