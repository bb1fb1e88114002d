"""The state that records fold into: one workflow execution with what is open in it.

History holds these in memory, the store keeps them beside the events, projections read them once
when they begin. They are plain and mutable; only `perdure.core.execution.evolve` changes them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from perdure.core.ids import Session, idempotency_key
from perdure.core.more import More
from perdure.core.records import ActivityOptions, Payload
from perdure.failures import Failure


class Status(StrEnum):
    """Of a workflow execution."""

    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    TERMINATED = "Terminated"
    CONTINUED_AS_NEW = "ContinuedAsNew"
    # Not seen by users: it ended, retention has removed its history, its id stays taken.
    REMOVED = "Removed"


_RUNNING = Status.RUNNING  # An enum's member takes longer to look up than all that is done with it.


class ActivityState(StrEnum):
    """Of an open activity. A closed one is in the events only."""

    SCHEDULED = "Scheduled"
    LEASED = "Leased"
    RETRYING = "Retrying"
    DEAD_LETTERED = "DeadLettered"


class AttemptFailure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One failed attempt, as a dead letter lists it."""

    generation: int
    attempt: int
    at_ms: int
    worker_id: str
    failure: Failure


class Lease(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who runs the attempt, until when. `session` is None for a task polled by hand.

    The deadlines are as of `stall_ms`, a sum of history's stalls: they move by what it grows.
    """

    worker_id: str
    session: Session | None
    granted_ms: int
    deadline_ms: int
    attempt_deadline_ms: int
    poll_id: str | None = None
    granted_n: int = 0  # The commit that granted it; 0 where that is not known.
    stall_ms: int = 0


class LastEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The report that ended the last grant, so that the same report sent again gets the same
    answer.

    how: "failed" (state is what it was answered), "released", or "" where no report ended it.
    """

    generation: int
    grant: int
    how: str
    state: str


class Activity(msgspec.Struct, array_like=True):
    """An open activity: one row of the task table.

    `attempt` is the running or the next one, from 1.
    """

    activity_id: str
    activity_type: str
    # By reference above 1 KiB: then it stands in the event `scheduled_event_id`.
    input: Payload | None
    options: ActivityOptions
    scheduled_event_id: int
    scheduled_ms: int
    generation: int = 1
    # When this generation began: what schedule_to_start and schedule_to_close are counted from.
    generation_ms: int = 0
    leased_in_generation: bool = False  # Once it was, schedule_to_start is over.
    last_granted_ms: int | None = None
    state: ActivityState = ActivityState.SCHEDULED
    attempt: int = 1
    grant: int = 0  # The newest grant's number, over all generations; 0: never granted.
    due_ms: int = 0
    lease: Lease | None = None
    details: Payload | None = None
    beat: int = 0
    last_heartbeat_ms: int | None = None
    failures_first: AttemptFailure | None = None
    failures_newest: list[AttemptFailure] = []
    failures_count: int = 0
    deaths_in_a_row: int = 0
    uncharged_in_a_row: int = 0
    redrives: int = 0
    dead_ms: int | None = None
    last_end: LastEnd | None = None
    handed_back: str = ""  # Why the last grant came back unrun ("unknown_type", ...), for describe.
    cancel_requested: str = ""  # "wait" or "abandon", once the workflow gave it up and it goes on.
    # The redrive that brought the input, if it is another than that it was scheduled with; else 0.
    input_event_id: int = 0

    @property
    def last_failure(self) -> Failure | None:
        """The newest failure of any generation."""
        return self.failures_newest[-1].failure if self.failures_newest else None

    @property
    def schedule_to_close_at_ms(self) -> int | None:
        """When the caller's deadline passes, or None where there is none."""
        length = self.options.schedule_to_close_ms
        return self.generation_ms + length if length else None

    def key(self, workflow_id: str) -> str:
        """The idempotency key of this activity's effect."""
        return idempotency_key(workflow_id, self.activity_id)


def moved_deadlines(lease: Lease, activity: Activity, stall_ms: int) -> tuple[int, int]:
    """(deadline_ms, attempt_deadline_ms) of a lease, when the sum of all stalls is `stall_ms`.

    The caller's own deadline is never held back.
    """
    grown_ms = stall_ms - lease.stall_ms
    if grown_ms <= 0:
        return lease.deadline_ms, lease.attempt_deadline_ms
    attempt_ms = lease.attempt_deadline_ms + grown_ms
    close_ms = activity.schedule_to_close_at_ms
    if close_ms is not None:
        attempt_ms = min(attempt_ms, close_ms)
    return min(lease.deadline_ms + grown_ms, attempt_ms), attempt_ms


def graced_ms(lease: Lease, activity: Activity, began_ms: int, grace_ms: int) -> int:
    """Until when a lease lasts in any case that is older than a history's beginning at `began_ms`;
    0 for others.

    Our downtime is not held against its holder, who may have been trying to report all the while.
    """
    if lease.granted_ms >= began_ms:
        return 0
    whole_ms = lease.attempt_deadline_ms - lease.granted_ms
    length_ms = min(activity.options.heartbeat_ms or whole_ms, whole_ms)
    return began_ms + min(length_ms, grace_ms)


class Execution(msgspec.Struct):
    """One workflow execution and what is open in it."""

    workflow_id: str
    workflow_type: str
    task_queue: str
    started_ms: int
    request_id: str | None
    digest: bytes
    shard: int = 0
    status: Status = Status.RUNNING
    closed_ms: int | None = None
    last_event_id: int = 0
    last_wake_id: int = 0  # The newest event that wakes the workflow.
    consumed: int = 0
    commands: int = 0
    task_failures: int = 0
    task_due_ms: int = 0
    task_failure: Failure | None = None
    task_reason: str = ""
    more: More | None = None
    activities: dict[str, Activity] = {}
    timers: dict[int, int] = {}  # timer_id -> due_ms

    @property
    def is_open(self) -> bool:
        """True until the workflow has ended."""
        return self.status is _RUNNING

    @property
    def is_paused(self) -> bool:
        """True while an operator holds its tasks back."""
        return self.more is not None and self.more.paused

    @property
    def task_ready(self) -> bool:
        """True when there is something the workflow has not seen: a workflow task is due (from
        `task_due_ms` on).
        """
        return self.last_wake_id > self.consumed and self.status is _RUNNING

    @property
    def is_waiting(self) -> bool:
        """True when its workflow task waits for a worker, perhaps after failures; not where it was
        started for later, for that may be years.
        """
        return self.task_ready and not (self.task_due_ms and not self.task_reason)
