"""What the auditor knows of a workflow and its activities while it reads the log."""

from __future__ import annotations

from array import array
from typing import Any

SCHEDULED = "Scheduled"
LEASED = "Leased"
RETRYING = "Retrying"
DEAD = "DeadLettered"

RUNNING = "Running"
COMPLETED = "Completed"
FAILED = "Failed"
CANCELLED = "Cancelled"
TERMINATED = "Terminated"
CONTINUED = "ContinuedAsNew"

Grant = tuple[int, int, int]  # generation, grant, attempt


class Activity:
    """An open activity. The fields that the store keeps too bear the store's names."""

    __slots__ = (
        "activity_id",
        "activity_type",
        "attempt",
        "beat",
        "cancel_requested",
        "dead_ms",
        "deaths_in_a_row",
        "detached_grant",
        "details",
        "due_ms",
        "failures_count",
        "failures_first",
        "failures_newest",
        "generation",
        "generation_ms",
        "grant",
        "grants",
        "handed_back",
        "input",
        "input_event_id",
        "last_end",
        "last_granted_ms",
        "last_heartbeat_ms",
        "lease",
        "leased_in_generation",
        "options",
        "redrives",
        "scheduled_event_id",
        "scheduled_ms",
        "state",
        "uncharged_in_a_row",
    )

    def __init__(self, record: list[Any]) -> None:
        """From an ActivityTaskScheduled."""
        self.scheduled_event_id: int = record[1]
        self.scheduled_ms: int = record[2]
        self.activity_id: str = record[3]
        self.activity_type: str = record[4]
        self.input: bytes | None = record[5]
        self.options: list[Any] = record[6]
        self.generation = 1
        self.generation_ms = self.scheduled_ms
        self.leased_in_generation = False
        self.last_granted_ms: int | None = None
        self.state = SCHEDULED
        self.attempt = 1
        self.grant = 0
        self.due_ms = self.scheduled_ms
        # worker_id, session, granted_ms, deadline_ms, attempt_deadline_ms, poll_id, granted_n
        self.lease: list[Any] | None = None
        self.details: bytes | None = None
        self.beat = 0
        self.last_heartbeat_ms: int | None = None
        # generation, attempt, at_ms, worker_id, failure
        self.failures_first: list[Any] | None = None
        self.failures_newest: list[list[Any]] = []
        self.failures_count = 0
        self.deaths_in_a_row = 0
        self.uncharged_in_a_row = 0
        self.redrives = 0
        self.dead_ms: int | None = None
        self.last_end: list[Any] | None = None  # generation, grant, how, state
        self.handed_back = ""
        self.cancel_requested = ""
        self.detached_grant = 0  # The one whose attempt was left to whoever has its token.
        self.input_event_id = 0
        self.grants: list[Grant] = []

    # Of the options: retry, task_queue, start_to_close, heartbeat, schedule_to_start, to_close, …
    @property
    def policy(self) -> list[Any]:
        """The retry policy: initial, backoff, cap, attempts, non-retryable names, floor."""
        policy: list[Any] = self.options[0]
        return policy

    @property
    def max_attempts(self) -> int:
        """How many attempts a generation has."""
        attempts: int = self.options[0][3]
        return attempts

    @property
    def close_ms(self) -> int | None:
        """When the caller's deadline for all of it passes."""
        length_ms = self.options[5]
        return self.generation_ms + length_ms if length_ms else None


class Closed:
    """What is kept of an activity that ended: how, and what ledgers are compared with."""

    __slots__ = ("activity_type", "grants", "how", "result")

    def __init__(
        self, activity_type: str, grants: list[Grant], how: str, result: bytes | None
    ) -> None:
        self.activity_type = activity_type
        self.grants = grants
        self.how = how
        self.result = result


class Workflow:
    """One execution. In a pruned log some may have begun before its first commit: then
    `is_partial`, and what was not seen is None.
    """

    __slots__ = (
        "activities",
        "again",
        "asked_children",
        "children",
        "closed",
        "closed_ms",
        "commands",
        "consumed",
        "digest",
        "events",
        "faults",
        "is_partial",
        "last_event_id",
        "last_wake_id",
        "more",
        "newest_ms",
        "parent",
        "paused",
        "request_id",
        "requests",
        "resets",
        "started_ms",
        "started_n",
        "status",
        "steps_due",
        "task_due_ms",
        "task_failure",
        "task_failures",
        "task_queue",
        "task_reason",
        "timeout_at_ms",
        "timers",
        "timers_gone",
        "updates",
        "workflow_id",
        "workflow_type",
    )

    def __init__(self, workflow_id: str, *, is_partial: bool) -> None:
        self.workflow_id = workflow_id
        self.is_partial = is_partial
        # What was wrong, by activity ("" is the workflow itself) with the commit that showed it:
        # what follows from a wrong record is not reported as well.
        self.faults: dict[str, int] = {}
        self.workflow_type = ""
        self.newest_ms = 0  # The instant of the newest event.
        self.task_queue = ""
        self.started_ms = 0
        self.started_n = 0
        self.request_id: str | None = None
        self.digest = b""
        self.status = RUNNING
        self.closed_ms: int | None = None
        self.last_event_id: int | None = None if is_partial else 0
        self.last_wake_id: int | None = None if is_partial else 0
        self.consumed: int | None = None if is_partial else 0
        self.commands: int | None = None if is_partial else 0
        self.paused = False
        self.task_failures = 0
        self.task_due_ms = 0
        self.task_failure: Any = None
        self.task_reason = ""
        self.steps_due: int | None = 0  # None: as many as there are, until the end of the batch.
        self.activities: dict[str, Activity] = {}
        self.closed: dict[str, Closed] = {}
        # What resets took back, as (to_event, event_id); and of activities that may be scheduled
        # anew since, the generation and the grant that they go on from.
        self.resets: list[tuple[int, int]] = []
        self.again: dict[str, tuple[int, int]] = {}
        self.timers: dict[int, int] = {}
        self.timers_gone: set[int] = set()
        # (tag of the record, request id) -> activity id, of operators' requests.
        self.requests: dict[tuple[int, str], str] = {}
        # Open children, open updates, whose child it is ([execution, child id, close]), and when
        # its time is over.
        self.children: dict[str, str] = {}
        self.asked_children: set[str] = set()  # All that its code has ever asked for.
        self.updates: dict[str, int] = {}  # update_id -> the event that brought it.
        # What else the store keeps of what is more than plain, where it is not empty.
        self.more: dict[str, Any] = {}
        self.parent: list[Any] | None = None
        self.timeout_at_ms = 0
        # event id and checksum of each stored event, in the log's order.
        self.events = array("Q")

    @property
    def is_tainted(self) -> bool:
        """True where something was wrong, so that its state says nothing about the tables."""
        return bool(self.faults)

    @property
    def is_open(self) -> bool:
        """True until its end was read."""
        return self.status == RUNNING

    @property
    def task_ready(self) -> bool:
        """True where something woke the workflow that it has not seen."""
        return (
            self.is_open
            and self.last_wake_id is not None
            and self.consumed is not None
            and self.last_wake_id > self.consumed
        )
