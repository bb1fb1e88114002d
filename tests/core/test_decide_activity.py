"""Ends of an attempt that only a node brings about, and the guards of every command on a grant."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core import records as r
from perdure.core.ids import Address
from perdure.core.state import ActivityState
from perdure.failures import WORKER_DIED, Failure
from perdure.policy import RetryPolicy
from tests.core.ledger_rig import BOOM, LOCAL, Rig


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.schedule(retry=RetryPolicy(1_000, 2.0, 10_000, 9))
    return rig


def is_refused(answer: object, code: str = "FAILED_PRECONDITION", at_ms: int = 0) -> bool:
    return isinstance(answer, c.Refusal) and (answer.code, answer.at_ms) == (code, at_ms)


# --- a worker that dies ------------------------------------------------------
def test_the_first_death_in_a_row_is_charged_and_retried_without_backoff(rig):
    rig.grant()
    rig.now_ms = 40
    assert rig.end("worker_died") == c.Done("Retrying")
    held = rig.activity()
    assert (held.state, held.attempt, held.due_ms) == (ActivityState.RETRYING, 2, 40)
    assert held.last_failure.type == WORKER_DIED
    assert "w1" in held.last_failure.message


def test_the_second_death_in_a_row_waits_the_normal_backoff(rig):
    for now_ms, due_ms in ((0, 0), (0, 2_000), (2_000, 6_000)):
        rig.now_ms = now_ms
        rig.grant()
        rig.end("worker_died")
        assert rig.activity().due_ms == due_ms


def test_deaths_with_another_failure_between_are_not_in_a_row(rig):
    rig.grant()
    rig.end("worker_died")
    rig.grant()
    rig.ask(c.FailActivity(rig.token(), BOOM))
    rig.now_ms = rig.activity().due_ms
    rig.grant()
    rig.end("worker_died")
    assert rig.activity().due_ms == rig.now_ms


def test_an_activity_that_kills_its_workers_ends_as_a_dead_letter():
    rig = Rig()
    rig.schedule(retry=RetryPolicy(1_000, 2.0, 10_000, 3))
    for state in ("Retrying", "Retrying", "DeadLettered"):
        rig.now_ms = rig.activity().due_ms
        rig.grant()
        assert rig.end("worker_died") == c.Done(state)
    assert [one.failure.type for one in rig.activity().failures_newest] == [WORKER_DIED] * 3


def test_a_death_draws_no_chance_where_it_waits_nothing():
    drawn = []
    rig = Rig(jitter=lambda delay_ms, u: drawn.append(u) or delay_ms)
    rig.schedule()
    rig.grant()
    rig.end("worker_died")
    assert drawn == []
    rig.grant()
    rig.end("worker_died")
    assert len(drawn) == 1


# --- the node's own restarts -------------------------------------------------
def test_three_node_restarts_in_a_row_are_free_and_the_fourth_is_a_death(rig):
    for uncharged in (1, 2, 3):
        rig.grant()
        assert rig.end("node_restart") == c.Done()
        held = rig.activity()
        assert (held.attempt, held.uncharged_in_a_row) == (1, uncharged)
        assert (held.state, held.due_ms, held.failures_count) == (ActivityState.SCHEDULED, 0, 0)
    rig.grant()
    assert rig.end("node_restart") == c.Done("Retrying")
    held = rig.activity()
    assert (held.attempt, held.last_failure.type, held.due_ms) == (2, WORKER_DIED, 0)


def test_from_then_on_every_restart_in_a_row_is_a_death():
    rig = Rig()
    rig.schedule(retry=RetryPolicy(max_attempts=3))
    answers = []
    while rig.activity().state is not ActivityState.DEAD_LETTERED:
        rig.now_ms = max(rig.now_ms, rig.activity().due_ms)
        rig.grant()
        answers.append(rig.end("node_restart").state)
    assert answers == ["", "", "", "Retrying", "Retrying", "DeadLettered"]


@pytest.mark.parametrize("between", ["fail", "handed back", "redriven"])
def test_restarts_are_free_again_after_anything_else(between):
    rig = Rig()
    rig.schedule(retry=RetryPolicy(1, 1.0, 1, 1 if between == "redriven" else 9))
    for _ in range(3):
        rig.grant()
        rig.end("node_restart")
    rig.grant()
    if between == "handed back":
        rig.ask(c.ReleaseActivity(rig.token(), "shutdown"))
    else:
        rig.ask(c.FailActivity(rig.token(), BOOM))
    if between == "redriven":
        rig.ask(c.RedriveDeadLetter("w", "a"))
    attempt = rig.activity().attempt
    rig.now_ms += 1
    for _ in range(3):
        rig.grant()
        assert rig.end("node_restart") == c.Done()
    assert rig.activity().attempt == attempt


def test_a_lease_that_never_reached_its_worker_is_free_however_often(rig):
    for _ in range(10):
        rig.grant()
        assert rig.end("undelivered") == c.Done()
    held = rig.activity()
    assert (held.attempt, held.grant, held.uncharged_in_a_row) == (1, 10, 0)


# --- handed back -------------------------------------------------------------
@pytest.mark.parametrize("reason", ["shutdown", "unknown_type"])
def test_a_task_handed_back_is_ready_at_once_with_the_same_number(rig, reason):
    rig.grant()
    rig.ask(c.FailActivity(rig.token(), BOOM))
    rig.now_ms = 1_500
    rig.grant()
    assert rig.ask(c.ReleaseActivity(rig.token(), reason)) == c.Done()
    held = rig.activity()
    assert (held.state, held.attempt, held.due_ms) == (ActivityState.RETRYING, 2, 1_500)
    assert (held.failures_count, held.handed_back) == (1, reason)
    rig.grant()
    assert rig.activity().handed_back == ""


def test_a_first_attempt_that_was_handed_back_is_scheduled_again(rig):
    rig.grant()
    rig.ask(c.ReleaseActivity(rig.token(), "shutdown"))
    assert rig.activity().state is ActivityState.SCHEDULED


def test_the_same_release_again_is_no_error_until_the_next_grant(rig):
    address = rig.grant()
    release = c.ReleaseActivity(rig.token(), "shutdown")
    assert rig.ask(release) == c.Done()
    assert rig.ask(release) == c.Done()
    assert rig.records() == []
    rig.open()
    assert rig.ask(release) == c.Done()
    rig.grant()
    assert is_refused(rig.ask(release))
    assert rig.activity().lease is not None
    assert rig.address() != address


def test_what_a_late_release_brings_to_light_is_the_timeout(rig):
    rig.grant()
    rig.now_ms = 600_001
    assert is_refused(rig.ask(c.ReleaseActivity(rig.token(), "shutdown")))
    assert rig.activity().last_failure.type == "StartToCloseTimeout"


# --- grants ------------------------------------------------------------------
def test_a_grant_before_its_time_says_when(rig):
    rig.grant()
    rig.ask(c.FailActivity(rig.token(), BOOM))
    grant = rig.grant_of()
    rig.now_ms = 999
    assert is_refused(rig.ask(grant), at_ms=1_000)
    assert rig.records() == []
    rig.now_ms = 1_000
    assert rig.ask(grant) == c.Done()


@pytest.mark.parametrize("field", [2, 3, 4])
def test_a_grant_that_expects_another_state_is_refused(rig, field):
    name: list[object] = ["w", "a", 1, 1, 1]
    name[field] = 2
    assert is_refused(rig.ask(c.GrantLease(*name, "w1", LOCAL)))
    assert rig.activity().grant == 0


def test_an_activity_has_one_live_lease_at_most(rig):
    first = rig.grant_of()
    assert rig.ask(first, first)[1].code == "FAILED_PRECONDITION"
    assert is_refused(rig.ask(rig.grant_of()))
    assert rig.activity().grant == 1


def test_every_grant_has_a_number_of_its_own_over_all_generations():
    rig = Rig()
    rig.schedule(retry=RetryPolicy(1, 1.0, 1, 2))
    grants = []
    for _ in range(3):
        for end in ("undelivered", "worker_died", "worker_died"):
            rig.now_ms += 1
            grants.append(rig.grant().grant)
            rig.end(end)
        rig.ask(c.RedriveDeadLetter("w", "a"))
    assert grants == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_grant_after_a_deadline_of_the_caller_brings_it_to_light():
    rig = Rig()
    rig.schedule(schedule_to_start_ms=50)
    grant = rig.grant_of()
    rig.now_ms = 50
    assert is_refused(rig.ask(grant))
    (record,) = rig.records()
    assert isinstance(record, r.ActivityTaskFailed)
    assert record.failure.type == "ScheduleToStartTimeout"
    assert rig.execution().activities == {}


# --- expiry ------------------------------------------------------------------
def test_an_expiry_before_its_time_says_when_and_changes_nothing():
    rig = Rig()
    rig.schedule(heartbeat_ms=5_000)
    address = rig.grant()
    rig.now_ms = 3_000
    rig.ask(c.RecordHeartbeat(rig.token(), 1, None, False))
    rig.now_ms = 7_999
    assert is_refused(rig.ask(c.ExpireLease(address)), at_ms=8_000)
    rig.now_ms = 8_000
    assert rig.ask(c.ExpireLease(address)) == c.Done()
    assert rig.activity().last_failure.type == "HeartbeatTimeout"
    assert is_refused(rig.ask(c.ExpireLease(address)))


def test_an_expiry_within_the_grace_after_a_restart_says_when():
    rig = Rig()
    rig.schedule(heartbeat_ms=4_000)
    address = rig.grant()
    rig.now_ms = 100_000
    rig.open()
    rig.now_ms = 103_999
    assert is_refused(rig.ask(c.ExpireLease(address)), at_ms=104_000)
    rig.now_ms = 104_000
    assert rig.ask(c.ExpireLease(address)) == c.Done()


def test_a_report_past_start_to_close_is_refused_and_commits_the_timeout():
    rig = Rig()
    rig.schedule(start_to_close_ms=10_000)
    token = rig.token(rig.grant())
    rig.now_ms = 10_000
    assert rig.ask(c.RecordHeartbeat(token, 0, None, False)) == c.Deadline(10_000)
    rig.now_ms = 10_001
    assert is_refused(rig.ask(c.CompleteActivity(token, b"mr")))
    (record,) = rig.records()
    assert isinstance(record, r.RetryScheduled)
    assert record.failure.type == "StartToCloseTimeout"


@pytest.mark.parametrize("report", ["fail", "heartbeat", "release"])
def test_so_is_any_other_report(report):
    rig = Rig()
    rig.schedule(start_to_close_ms=10_000)
    token = rig.token(rig.grant())
    rig.now_ms = 10_001
    command = {
        "fail": c.FailActivity(token, Failure("Bad", non_retryable=True)),
        "heartbeat": c.RecordHeartbeat(token, 0, None, False),
        "release": c.ReleaseActivity(token, "shutdown"),
    }[report]
    assert is_refused(rig.ask(command))
    assert rig.activity().last_failure.type == "StartToCloseTimeout"


def test_a_report_on_a_silent_lease_counts_until_its_end_is_committed():
    rig = Rig()
    rig.schedule(heartbeat_ms=1_000)
    token = rig.token(rig.grant())
    rig.now_ms = 5_000
    assert rig.ask(c.CompleteActivity(token, b"mr")) == c.Done()


# --- deadlines of the caller -------------------------------------------------
def test_a_deadline_proposed_too_early_or_for_another_generation_changes_nothing():
    rig = Rig()
    rig.schedule(schedule_to_close_ms=50, retry=RetryPolicy(max_attempts=1))
    rig.now_ms = 49
    assert is_refused(rig.ask(c.TimeOutActivity("w", "a", 1, "schedule_to_close")))
    rig.grant()
    rig.ask(c.FailActivity(rig.token(), BOOM))
    rig.ask(c.RedriveDeadLetter("w", "a"))
    rig.now_ms = 500
    assert is_refused(rig.ask(c.TimeOutActivity("w", "a", 1, "schedule_to_close")))
    assert rig.ask(c.TimeOutActivity("w", "a", 2, "schedule_to_close")) == c.Done()


def test_of_two_passed_deadlines_the_failure_names_the_earlier_however_late_it_is_noticed():
    for start_ms, close_ms, kind in ((60, 50, "Close"), (50, 60, "Start"), (50, 50, "Start")):
        rig = Rig()
        rig.schedule(schedule_to_start_ms=start_ms, schedule_to_close_ms=close_ms)
        rig.now_ms = 1_000
        rig.ask(c.TimeOutActivity("w", "a", 1, "schedule_to_start"))
        assert rig.records()[0].failure.type == f"ScheduleTo{kind}Timeout"


def test_a_deadline_of_the_caller_does_not_end_a_dead_letter():
    rig = Rig()
    rig.schedule(schedule_to_close_ms=50, retry=RetryPolicy(max_attempts=1))
    rig.grant()
    rig.ask(c.FailActivity(rig.token(), BOOM))
    rig.now_ms = 500
    assert is_refused(rig.ask(c.TimeOutActivity("w", "a", 1, "schedule_to_close")))
    assert rig.activity().state is ActivityState.DEAD_LETTERED


# --- heartbeats --------------------------------------------------------------
def test_a_beat_that_is_not_newer_changes_nothing():
    rig = Rig()
    rig.schedule(heartbeat_ms=5_000)
    token = rig.token(rig.grant())
    rig.ask(c.RecordHeartbeat(token, 5, b"mfive", True))
    rig.now_ms = 1_000
    for beat in (5, 4, 1):
        answer = rig.ask(c.RecordHeartbeat(token, beat, b"mold", True))
        assert answer == c.Deadline(5_000)
        assert rig.records() == []
    assert (rig.activity().beat, rig.activity().details) == (5, b"mfive")
    assert rig.ask(c.RecordHeartbeat(token, 6, b"msix", True)) == c.Deadline(6_000)


@pytest.mark.parametrize("end", ["fail", "release", "expire", "worker_died", "node_restart"])
def test_details_that_come_with_the_end_of_an_attempt_are_kept(end):
    rig = Rig()
    rig.schedule(heartbeat_ms=1_000, retry=RetryPolicy(1, 1.0, 1, 9))

    def ended(details: bytes | None, beat: int) -> None:
        address = rig.grant()
        if end == "fail":
            rig.ask(c.FailActivity(rig.token(), BOOM, details, beat))
        elif end == "release":
            rig.ask(c.ReleaseActivity(rig.token(), "shutdown", details, beat))
        elif end == "expire":
            rig.now_ms += 1_000
            rig.ask(c.ExpireLease(address, details, beat))
        else:
            rig.end(end, details=details, beat=beat)
        rig.now_ms = max(rig.now_ms, rig.activity().due_ms)

    ended(b"mnew", 3)
    assert (rig.activity().details, rig.activity().beat) == (b"mnew", 3)
    ended(b"molder", 2)  # They never go back,
    assert (rig.activity().details, rig.activity().beat) == (b"mnew", 3)
    ended(None, 4)  # and a mere sign of life keeps them.
    assert (rig.activity().details, rig.activity().beat) == (b"mnew", 4)
    ended(None, 0)
    assert rig.activity().details == b"mnew"


# --- the live grant ----------------------------------------------------------
@pytest.mark.parametrize("change", [{"generation": 2}, {"grant": 2}, {"activity_id": "b"}])
def test_a_sealed_address_that_is_not_the_live_grant_is_stale(rig, change):
    live = rig.grant()
    fields = {"workflow_id": "w", "activity_id": "a", "generation": 1, "grant": 1, **change}
    address = Address(**fields)
    assert address != live
    token = rig.token(address)
    commands = (
        c.CompleteActivity(token, None),
        c.FailActivity(token, BOOM),
        c.RecordHeartbeat(token, 0, None, False),
        c.ReleaseActivity(token, "shutdown"),
        c.ExpireLease(address),
        c.EndLease(address, "worker_died"),
    )
    for answer in rig.ask(*commands):
        assert is_refused(answer)
    assert rig.records() == []


def test_a_sealed_address_of_no_workflow_is_refused(rig):
    token = rig.token(Address("nobody", "a", 1, 1))
    assert rig.ask(c.CompleteActivity(token, None)).code in ("NOT_FOUND", "FAILED_PRECONDITION")
