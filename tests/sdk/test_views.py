from __future__ import annotations

from perdure import values, views
from perdure.core.records import (
    ActivityDeadLettered,
    ActivityOptions,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskScheduled,
    TimerStarted,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowStarted,
)
from perdure.core.state import Activity, ActivityState, AttemptFailure, Execution, Lease, Status
from perdure.failures import Failure
from perdure.policy import RetryPolicy

OPTIONS = ActivityOptions(RetryPolicy(max_attempts=4))
BOOM = Failure("Boom", "why")
STARTED = WorkflowStarted(1, 10, "T", "default", values.encode([1]), "r", b"d")


def execution(**changes):
    fields = {
        "workflow_id": "w",
        "workflow_type": "T",
        "task_queue": "default",
        "started_ms": 10,
        "request_id": None,
        "digest": b"",
        "last_event_id": 4,
    }
    return Execution(**{**fields, **changes})


def activity(**changes):
    fields = {
        "activity_id": "a/1",
        "activity_type": "charge",
        "input": values.encode([1]),
        "options": OPTIONS,
        "scheduled_event_id": 2,
        "scheduled_ms": 11,
        "due_ms": 50,
    }
    return Activity(**{**fields, **changes})


def test_describe_has_the_fields_of_the_contract():
    shown = views.describe(execution(), STARTED.input, None)
    assert {
        "workflow_id",
        "type",
        "status",
        "input",
        "result",
        "failure",
        "started_ms",
        "closed_ms",
        "history_length",
        "pending_activities",
        "pending_timers",
        "signals",
    } <= shown.keys()
    assert (shown["status"], shown["input"], shown["history_length"]) == ("Running", [1], 4)


def test_describe_shows_how_it_ended():
    done = execution(status=Status.COMPLETED)
    shown = views.describe(done, None, WorkflowCompleted(4, 20, values.encode(b"x")))
    assert (shown["result"], shown["failure"]) == (b"x", None)
    shown = views.describe(execution(status=Status.FAILED), None, WorkflowFailed(4, 20, BOOM))
    assert (shown["result"], shown["failure"]["type"]) == (None, "Boom")


def test_a_pending_activity_has_the_fields_of_the_specification():
    waiting = activity(
        state=ActivityState.RETRYING,
        attempt=2,
        failures_newest=[AttemptFailure(1, 1, 12, "w1", BOOM)],
        details=values.encode({"at": 3}),
        last_heartbeat_ms=13,
    )
    [shown] = views.describe(execution(activities={"a/1": waiting}), None, None)[
        "pending_activities"
    ]
    assert shown["state"] == "Retrying"
    assert (shown["attempt"], shown["max_attempts"]) == (2, 4)
    assert shown["last_failure"]["type"] == "Boom"
    assert (shown["due_ms"], shown["scheduled_ms"], shown["last_heartbeat_ms"]) == (50, 11, 13)
    assert (shown["lease_deadline_ms"], shown["worker_id"]) == (None, None)
    assert shown["heartbeat_details"] == {"at": 3}
    assert shown["idempotency_key"] == "w/a%2F1"
    assert (shown["activity_id"], shown["type"]) == ("a/1", "charge")


def test_a_leased_activity_shows_its_holder_and_no_due_time():
    leased = activity(state=ActivityState.LEASED, lease=Lease("w1", None, 20, 90, 100))
    shown = views.pending_activity("w", leased, None)
    assert (shown["worker_id"], shown["lease_deadline_ms"], shown["due_ms"]) == ("w1", 90, None)


def test_details_that_are_kept_elsewhere_are_given_by_the_caller():
    big = values.refer(values.encode("x" * 2_000))
    held = execution(activities={"a/1": activity(details=big)})
    shown = views.describe(held, None, None, {"a/1": values.encode("whole")})
    assert shown["pending_activities"][0]["heartbeat_details"] == "whole"
    shown = views.describe(held, None, None)
    assert shown["pending_activities"][0]["heartbeat_details"] == "<kept elsewhere>"


def test_a_damaged_payload_is_said_and_hides_nothing_else():
    assert "can't be decoded" in views.value(b"m\xc1")
    assert "can't be decoded" in views.value(b"?")


def test_a_close_that_carries_its_start_is_two_events():
    done = ActivityTaskCompleted(4, 30, "a", 1, 1, 2, values.encode(7), 25, "w1")
    started, completed = views.events([done])
    assert started == {
        "event_id": 3,
        "kind": "ActivityTaskStarted",
        "at_ms": 25,
        "activity_id": "a",
        "generation": 1,
        "attempt": 2,
        "worker_id": "w1",
    }
    assert (completed["event_id"], completed["kind"], completed["result"]) == (
        4,
        "ActivityTaskCompleted",
        7,
    )
    failed = ActivityTaskFailed(6, 30, "a", 1, 1, 2, BOOM, None, "w1")
    [only] = views.events([failed])
    assert (only["kind"], only["failure"]["type"]) == ("ActivityTaskFailed", "Boom")


def test_events_are_cut_by_their_own_ids():
    done = ActivityTaskCompleted(4, 30, "a", 1, 1, 2, None, 25, "w1")
    assert [event["event_id"] for event in views.events([done], after=3)] == [4]
    assert [event["event_id"] for event in views.events([done], limit=1)] == [3]


def test_every_event_has_id_kind_and_time():
    records = [
        STARTED,
        ActivityTaskScheduled(2, 11, "a", "charge", None, OPTIONS),
        TimerStarted(3, 11, 1, 99),
        ActivityDeadLettered(4, 12, "a", 1, 1, 4, BOOM, "w1", values.encode(1), 1),
    ]
    shown = views.events(records)
    assert [event["kind"] for event in shown] == [type(record).__name__ for record in records]
    assert [event["at_ms"] for event in shown] == [10, 11, 11, 12]
    assert shown[0]["input"] == [1]
    assert (shown[1]["activity_type"], shown[1]["options"]["retry"]["max_attempts"]) == (
        "charge",
        4,
    )
    assert shown[2]["due_ms"] == 99
    assert (shown[3]["attempts"], shown[3]["last_failure"]["type"]) == (4, "Boom")


def test_a_dead_letter_lists_its_first_and_its_newest_failures():
    failures = [AttemptFailure(1, n, n, "w1", Failure(f"E{n}")) for n in (1, 2, 3)]
    dead = activity(
        state=ActivityState.DEAD_LETTERED,
        attempt=3,
        failures_first=failures[0],
        failures_newest=failures[1:],
        failures_count=3,
        dead_ms=40,
        redrives=1,
    )
    shown = views.dead_letter("w", "T", dead)
    assert (shown["attempts"], shown["redrives"], shown["dead_ms"]) == (3, 1, 40)
    assert (shown["first_failure"]["type"], shown["last_failure"]["type"]) == ("E1", "E3")
    assert shown["idempotency_key"] == "w/a%2F1"
    rest = views.dead_letter_rest(dead, values.encode([1]), None)
    assert [it["failure"]["type"] for it in rest["failures"]] == ["E1", "E2", "E3"]
    assert (rest["input"], rest["heartbeat_details"]) == ([1], None)
