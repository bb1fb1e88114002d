"""The life of an activity: its table is what commands can bring about, and the fold is total."""

from __future__ import annotations

from collections import deque

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import commands as c
from perdure.core import records as r
from perdure.core.decide import decide
from perdure.core.execution import ACTIVITY_TRANSITIONS, begin, evolve
from perdure.core.facts import Facts, Standing
from perdure.core.ids import Address, Session
from perdure.core.state import Activity, ActivityState, Execution
from perdure.failures import Failure
from perdure.policy import RetryPolicy

ACTIVITY = "a"
SESSION = Session("node.1", 1)
OPTIONS = r.ActivityOptions(
    RetryPolicy(max_attempts=2, non_retryable=("Bad",)),
    schedule_to_start_ms=1_000,
    schedule_to_close_ms=100_000,
)


def started() -> Execution:
    execution = begin("w", r.WorkflowStarted(1, 0, "T", "default", None, None, b""))
    return evolve(execution, r.WorkflowTaskCompleted(0, 0))


def copy(execution: Execution) -> Execution:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(execution), type=Execution)


def every_command(execution: Execution) -> list[tuple[c.Command, Address | None]]:
    activity = execution.activities.get(ACTIVITY)
    generation = activity.generation if activity else 1
    grant = activity.grant if activity else 1
    attempt = activity.attempt if activity else 1
    address = Address("w", ACTIVITY, generation, grant)
    schedule = c.ScheduleActivity(ACTIVITY, "t", None, OPTIONS)
    cursor = (execution.consumed, execution.commands, execution.last_event_id)
    return [
        (c.CompleteWorkflowTask("w", *cursor, (schedule,)), None),
        (c.CompleteWorkflowTask("w", *cursor, (c.CancelActivity(ACTIVITY),)), None),
        (c.CompleteWorkflowTask("w", *cursor, (c.CancelActivity(ACTIVITY, "wait"),)), None),
        (c.CompleteWorkflowTask("w", *cursor, (c.CancelActivity(ACTIVITY, "abandon"),)), None),
        (c.DetachLease(""), address),
        (c.GrantLease("w", ACTIVITY, generation, grant + 1, attempt, "w1", SESSION), None),
        (c.CompleteActivity("", b"mr"), address),
        (c.FailActivity("", Failure("Oops", "again")), address),
        (c.FailActivity("", Failure("Bad", "never again")), address),
        (c.ReleaseActivity("", "shutdown"), address),
        (c.RecordHeartbeat("", 0, None, False), address),
        (c.ExpireLease(address), address),
        (c.EndLease(address, "worker_died"), address),
        (c.EndLease(address, "node_restart"), address),
        (c.TimeOutActivity("w", ACTIVITY, generation, "schedule_to_start"), None),
        (c.TimeOutActivity("w", ACTIVITY, generation, "schedule_to_close"), None),
        (c.RedriveDeadLetter("w", ACTIVITY), None),
        (c.FailDeadLetter("w", ACTIVITY), None),
        (c.CompleteDeadLetter("w", ACTIVITY, None), None),
    ]


def state_of(execution: Execution) -> ActivityState | None:
    activity = execution.activities.get(ACTIVITY)
    return None if activity is None else activity.state


def take(
    execution: Execution,
    command: c.Command,
    address: Address | None,
    now_ms: int,
    reached: dict[tuple[ActivityState | None, type[r.Record]], set[ActivityState | None]],
) -> Execution:
    facts = Facts(now_ms, Standing(lambda: 0.5), address)
    for record in decide(execution, command, facts).records:
        before = state_of(execution)
        evolve(execution, record)
        about = getattr(record, "activity_id", None) == ACTIVITY
        if about and not getattr(record, "noop", False):
            reached.setdefault((before, type(record)), set()).add(state_of(execution))
    return execution


def shape(execution: Execution) -> object:
    activity = execution.activities.get(ACTIVITY)
    if activity is None:
        return None
    generation = min(activity.generation, 2)
    given_up = activity.cancel_requested
    return (activity.state, activity.attempt, generation, activity.leased_in_generation, given_up)


def test_the_rows_that_commands_reach_are_exactly_the_table() -> None:
    reached: dict[tuple[ActivityState | None, type[r.Record]], set[ActivityState | None]] = {}
    seen: set[object] = set()
    todo = deque([(started(), 0)])
    while todo:
        execution, now_ms = todo.popleft()
        for command, address in every_command(execution):
            for later_ms in (now_ms + 900, now_ms + 50_000, now_ms + 700_000):
                after = take(copy(execution), command, address, later_ms, reached)
                mark = shape(after)
                if mark not in seen:
                    seen.add(mark)
                    todo.append((after, later_ms))
    assert reached.keys() == ACTIVITY_TRANSITIONS.keys()
    for row, states in reached.items():
        # A first attempt that was handed back is Scheduled again, not Retrying.
        allowed = {ACTIVITY_TRANSITIONS[row]}
        if row[1] is r.LeaseReleased:
            allowed.add(ActivityState.SCHEDULED)
        assert states <= allowed, row


def activity_in(state: ActivityState | None) -> Execution:
    execution = started()
    if state is None:
        return execution
    evolve(execution, r.ActivityTaskScheduled(2, 0, ACTIVITY, "t", None, OPTIONS))
    execution.activities[ACTIVITY].state = state
    return execution


RECORDS: list[r.Record] = [
    r.ActivityTaskScheduled(9, 5, ACTIVITY, "t", None, OPTIONS),
    r.ActivityTaskCompleted(9, 5, ACTIVITY, 1, 1, 1, None, 4, "w1"),
    r.ActivityTaskFailed(9, 5, ACTIVITY, 1, 1, 1, Failure("x", "y"), 4, "w1"),
    r.ActivityTaskCancelled(9, 5, ACTIVITY, False),
    r.ActivityDeadLettered(9, 5, ACTIVITY, 1, 1, 1, Failure("x", "y"), "w1", None, 0),
    r.ActivityRedriven(9, 5, ACTIVITY, 2, None),
    r.LeaseGranted(5, ACTIVITY, 1, 1, 1, "w1", None, 50, 50),
    r.HeartbeatRecorded(5, ACTIVITY, 1, 1, 1, None, 60),
    r.LeaseReleased(5, ACTIVITY, 1, 1, "shutdown", 5, 0, None, 0),
    r.RetryScheduled(5, ACTIVITY, 1, 1, 1, Failure("x", "y"), 1, 6, "w1", None, 0),
    r.TimerStarted(9, 5, 1, 6),
    r.TimerFired(9, 5, 1),
    r.TimerCancelled(9, 5, 1, False),
    r.WorkflowTaskCompleted(9, 1),
    r.WorkflowTaskFailed(5, "mismatch", None, 1, 5),
    r.WorkflowCompleted(9, 5, None),
    r.WorkflowFailed(9, 5, Failure("x", "y")),
    r.WorkflowStarted(1, 0, "T", "default", None, None, b""),
]


@pytest.mark.parametrize("state", [None, *ActivityState])
def test_no_record_in_any_state_makes_the_fold_raise(state: ActivityState | None) -> None:
    for record in RECORDS:
        evolve(activity_in(state), record)


@given(st.lists(st.sampled_from(RECORDS), max_size=12))
def test_no_sequence_of_records_makes_the_fold_raise(records: list[r.Record]) -> None:
    execution = started()
    for record in records:
        evolve(execution, record)


def test_every_kind_of_record_survives_the_log_unchanged() -> None:
    body = r.CommitBody(7, 1, 5, (r.Group("w", tuple(RECORDS)),))  # type: ignore[arg-type]
    assert r.decode_body(r.encode_body(body)) == body


def test_an_activity_row_survives_the_store_unchanged() -> None:
    execution = activity_in(ActivityState.SCHEDULED)
    evolve(execution, r.LeaseGranted(5, ACTIVITY, 1, 1, 1, "w1", SESSION, 50, 50))
    failure = Failure("x", "y", details={"a": [1]})
    evolve(execution, r.RetryScheduled(5, ACTIVITY, 1, 1, 1, failure, 1, 6, "w1", b"md", 3))
    activity = execution.activities[ACTIVITY]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(activity), type=Activity) == activity
