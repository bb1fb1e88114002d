"""What stands where in the bytes of the store: the auditor's own table of names.

Deliberately not taken from the engine's classes: an auditor that decoded with them would agree with
whatever they say. tests/chaos/auditor holds this table against the engine's, so that a new kind of
record, or a new field, must be looked at here before it can be released.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Kind(NamedTuple):
    """A kind of record: its fields behind the tag, how many the oldest format wrote, and where
    within the whole record a payload stands that may be kept by reference (0: nowhere).
    """

    name: str
    fields: tuple[str, ...]
    required: int
    payload: int = 0

    @property
    def is_event(self) -> bool:
        """True where it belongs to the workflow's own history."""
        return self.fields[0] == "event_id"


KINDS: dict[int, Kind] = {
    1: Kind(
        "WorkflowStarted",
        (
            "event_id",
            "at_ms",
            "workflow_type",
            "task_queue",
            "input",
            "request_id",
            "digest",
            "terms",
        ),
        7,
        payload=5,
    ),
    2: Kind("WorkflowCompleted", ("event_id", "at_ms", "result"), 3, payload=3),
    3: Kind("WorkflowFailed", ("event_id", "at_ms", "failure"), 3),
    4: Kind("WorkflowTaskCompleted", ("consumed", "commands"), 2),
    5: Kind("WorkflowTaskFailed", ("at_ms", "reason", "failure", "failures", "due_ms"), 5),
    6: Kind("TimerStarted", ("event_id", "at_ms", "timer_id", "due_ms"), 4),
    7: Kind("TimerFired", ("event_id", "at_ms", "timer_id"), 3),
    8: Kind("TimerCancelled", ("event_id", "at_ms", "timer_id", "noop"), 4),
    9: Kind(
        "ActivityTaskScheduled",
        ("event_id", "at_ms", "activity_id", "activity_type", "input", "options"),
        6,
        payload=5,
    ),
    10: Kind(
        "ActivityTaskCompleted",
        (
            "event_id",
            "at_ms",
            "activity_id",
            "generation",
            "grant",
            "attempt",
            "result",
            "started_ms",
            "worker_id",
            "request_id",
        ),
        9,
        payload=7,
    ),
    11: Kind(
        "ActivityTaskFailed",
        (
            "event_id",
            "at_ms",
            "activity_id",
            "generation",
            "grant",
            "attempt",
            "failure",
            "started_ms",
            "worker_id",
            "request_id",
        ),
        9,
    ),
    12: Kind("ActivityTaskCancelled", ("event_id", "at_ms", "activity_id", "noop"), 4),
    13: Kind(
        "ActivityDeadLettered",
        (
            "event_id",
            "at_ms",
            "activity_id",
            "generation",
            "grant",
            "attempt",
            "failure",
            "worker_id",
            "details",
            "beat",
        ),
        10,
        payload=9,
    ),
    14: Kind(
        "ActivityRedriven",
        (
            "event_id",
            "at_ms",
            "activity_id",
            "generation",
            "request_id",
            "input",
            "has_input",
            "by",
        ),
        5,
        payload=6,
    ),
    15: Kind(
        "LeaseGranted",
        (
            "at_ms",
            "activity_id",
            "generation",
            "grant",
            "attempt",
            "worker_id",
            "session",
            "deadline_ms",
            "attempt_deadline_ms",
            "poll_id",
            "stall_ms",
        ),
        9,
    ),
    16: Kind(
        "HeartbeatRecorded",
        (
            "at_ms",
            "activity_id",
            "generation",
            "grant",
            "beat",
            "details",
            "deadline_ms",
            "stall_ms",
        ),
        7,
        payload=6,
    ),
    17: Kind(
        "LeaseReleased",
        (
            "at_ms",
            "activity_id",
            "generation",
            "grant",
            "reason",
            "due_ms",
            "uncharged",
            "details",
            "beat",
        ),
        9,
        payload=8,
    ),
    18: Kind(
        "RetryScheduled",
        (
            "at_ms",
            "activity_id",
            "generation",
            "grant",
            "attempt",
            "failure",
            "delay_ms",
            "due_ms",
            "worker_id",
            "details",
            "beat",
        ),
        11,
        payload=10,
    ),
    19: Kind("WorkflowCancelRequested", ("event_id", "at_ms", "reason", "request_id"), 4),
    20: Kind("WorkflowCancelled", ("event_id", "at_ms", "reason"), 3),
    21: Kind("WorkflowTerminated", ("event_id", "at_ms", "reason", "request_id"), 4),
    22: Kind(
        "WorkflowContinuedAsNew",
        ("event_id", "at_ms", "run", "workflow_type", "task_queue", "input"),
        6,
        payload=6,
    ),
    23: Kind("SignalReceived", ("event_id", "at_ms", "name", "input", "request_id"), 5, payload=4),
    24: Kind(
        "SignalSent",
        ("event_id", "at_ms", "workflow_id", "name", "input", "refused", "code", "answered"),
        5,
        payload=5,
    ),
    25: Kind("UpdateReceived", ("event_id", "at_ms", "name", "input", "update_id"), 5, payload=4),
    26: Kind(
        "UpdateEnded",
        ("event_id", "at_ms", "request_id", "result", "failure", "rejected"),
        6,
        payload=4,
    ),
    27: Kind(
        "ChildWorkflowStarted",
        (
            "event_id",
            "at_ms",
            "child_id",
            "workflow_type",
            "task_queue",
            "input",
            "parent_close",
            "terms",
        ),
        8,
        payload=6,
    ),
    28: Kind("ChildWorkflowCompleted", ("event_id", "at_ms", "child_id", "result"), 4, payload=4),
    29: Kind("ChildWorkflowFailed", ("event_id", "at_ms", "child_id", "status", "failure"), 5),
    30: Kind("ChildCancelRequested", ("event_id", "at_ms", "child_id", "noop"), 4),
    31: Kind("MarkerRecorded", ("event_id", "at_ms", "marker", "name", "result"), 5, payload=5),
    32: Kind("SearchAttributesSet", ("event_id", "at_ms", "attributes"), 3),
    33: Kind("ActivityCancelRequested", ("event_id", "at_ms", "activity_id", "mode", "noop"), 5),
    34: Kind(
        "WorkflowReset",
        ("event_id", "at_ms", "to_event", "commands", "reason", "request_id", "state"),
        7,
    ),
    40: Kind("SignalsNoted", ("at_ms", "notes"), 2),
    39: Kind(
        "ExternalCancelRequested",
        ("event_id", "at_ms", "workflow_id", "reason", "refused", "code"),
        4,
    ),
    35: Kind("WorkflowPaused", ("at_ms", "paused", "reason", "request_id"), 4),
    36: Kind("LeaseDetached", ("at_ms", "activity_id", "generation", "grant"), 4),
    37: Kind("RetriedNow", ("at_ms", "activity_id", "request_id"), 3),
    38: Kind("GateSet", ("at_ms", "kind", "name", "paused", "reason", "request_id"), 6),
    50: Kind("ScheduleSet", ("at_ms", "spec", "next_ms", "paused", "reason", "request_id"), 6),
    51: Kind(
        "ScheduleFired",
        (
            "at_ms",
            "due_ms",
            "outcome",
            "why",
            "workflow_id",
            "count",
            "next_ms",
            "request_id",
        ),
        7,
    ),
    52: Kind("ScheduleRunEnded", ("at_ms", "workflow_id", "status"), 3),
    53: Kind("SchedulePaused", ("at_ms", "paused", "reason", "next_ms", "request_id"), 5),
    54: Kind("ScheduleDeleted", ("at_ms", "request_id"), 2),
}

# Where in its record stands what it is found by when it is asked for again.
REQUEST_AT = {
    kind.name: kind.fields.index(field) + 1
    for kind in KINDS.values()
    for field in ("request_id", "update_id")
    if field in kind.fields and kind.name != "WorkflowStarted"
}

TAGS: dict[str, int] = {kind.name: tag for tag, kind in KINDS.items()}

BODY = ("n", "epoch", "at_ms", "groups", "opened", "recovery_grace_ms")
BODY_REQUIRED = 4
OPTIONS = (
    "retry",
    "task_queue",
    "start_to_close_ms",
    "heartbeat_ms",
    "schedule_to_start_ms",
    "schedule_to_close_ms",
    "priority",
    "on_exhausted",
    "cancellation",
    "isolation",
    "grace_ms",
)
POLICY = (
    "initial_ms",
    "backoff",
    "max_interval_ms",
    "max_attempts",
    "non_retryable",
    "min_interval_ms",
)
ACTIVITY = (
    "activity_id",
    "activity_type",
    "input",
    "options",
    "scheduled_event_id",
    "scheduled_ms",
    "generation",
    "generation_ms",
    "leased_in_generation",
    "last_granted_ms",
    "state",
    "attempt",
    "grant",
    "due_ms",
    "lease",
    "details",
    "beat",
    "last_heartbeat_ms",
    "failures_first",
    "failures_newest",
    "failures_count",
    "deaths_in_a_row",
    "uncharged_in_a_row",
    "redrives",
    "dead_ms",
    "last_end",
    "handed_back",
    "cancel_requested",
    "input_event_id",
)
SCHEDULE = (
    "schedule_id",
    "spec",
    "created_ms",
    "changed_ms",
    "next_ms",
    "paused",
    "reason",
    "running",
    "buffered",
    "started",
    "skipped",
    "missed",
    "recent",
    "requests",
    "deleted",
    "changed_n",
    "runs",
)
SCHEDULE_REQUIRED = 5
MORE = (
    "parent",
    "first_started_ms",
    "timeout_at_ms",
    "cancel_requested",
    "cancel_reason",
    "paused",
    "paused_reason",
    "paused_ms",
    "children",
    "updates",
    "attributes",
    "pauses",
    "signals",
    "last_message_id",
    "unread",
    "again",
    "takes",
    "untaken",
    "dropped",
)
MORE_BEFORE_RESETS = 15  # So many fields it had at first.
LEASE = (
    "worker_id",
    "session",
    "granted_ms",
    "deadline_ms",
    "attempt_deadline_ms",
    "poll_id",
    "granted_n",
    "stall_ms",
)

_REQUIRED = {tag: kind.required for tag, kind in KINDS.items()}

REFERENCE_FROM_BYTES = 1_024
"""A payload longer than this stands in the log as its length and digest."""


def problem_of(record: Any) -> str:
    """What is wrong with the shape of a decoded record, or an empty text."""
    if type(record) is not list or not record or type(record[0]) is not int:
        return "is no record"
    required = _REQUIRED.get(record[0])
    if required is None:
        return f"is of kind {record[0]}, which nobody knows"
    if len(record) <= required:
        return f"{KINDS[record[0]].name} has {len(record) - 1} fields of {required}"
    return ""
