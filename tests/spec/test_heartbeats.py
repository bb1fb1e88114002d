"""spec/activities.md, "Heartbeats": deadlines that move, details that carry over."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import RetryPolicy, activity, workflow
from perdure.failures import Failure
from perdure.testing import LocalEngine, ManualClock
from tests.spec.conftest import BOOM, WORKED, begun, code_of


# --- the deadline ------------------------------------------------------------
def test_a_heartbeat_moves_the_deadline_to_now_plus_heartbeat_ms():
    scene = begun(retry=WORKED, heartbeat_ms=5_000)
    token = scene.take().token
    scene.at(3_000)
    assert scene.engine.record_heartbeat(token, {"row": 1}) == 8_000
    assert scene.pending().lease_deadline_ms == 8_000
    scene.at(7_999)
    assert scene.pending().state == "Leased"
    scene.at(8_000)
    assert scene.pending().last_failure.type == "HeartbeatTimeout"


def test_heartbeats_keep_an_attempt_alive_as_long_as_they_come():
    scene = begun(heartbeat_ms=1_000, start_to_close_ms=100_000)
    token = scene.take().token
    for _ in range(90):
        scene.clock.advance_ms(999)
        assert scene.engine.record_heartbeat(token) == scene.clock.now_ms + 1_000
    assert scene.pending().attempt == 1


def test_describe_shows_the_heartbeat():
    scene = begun(heartbeat_ms=5_000)
    token = scene.take().token
    assert scene.pending().last_heartbeat_ms is None
    assert scene.pending().heartbeat_details is None
    scene.at(1_234)
    scene.engine.record_heartbeat(token, {"row": 7})
    pending = scene.pending()
    assert pending.last_heartbeat_ms == 1_234
    assert pending.heartbeat_details == {"row": 7}
    assert pending.lease_deadline_ms == 6_234


def test_a_heartbeat_without_a_timeout_keeps_its_details_and_moves_nothing():
    scene = begun(retry=WORKED, start_to_close_ms=50_000)
    token = scene.take().token
    scene.at(20_000)
    assert scene.engine.record_heartbeat(token, {"row": 500}) == 50_000
    scene.engine.fail_activity_task(token, BOOM)
    scene.at(21_000)
    assert scene.take().heartbeat_details == {"row": 500}


# --- the details -------------------------------------------------------------
def test_the_first_attempt_starts_without_details():
    assert begun().take().heartbeat_details is None


def test_a_heartbeat_without_details_keeps_those_before():
    scene = begun(retry=WORKED, heartbeat_ms=5_000)
    token = scene.take().token
    scene.engine.record_heartbeat(token, [1, 2])
    scene.engine.record_heartbeat(token)
    assert scene.pending().heartbeat_details == [1, 2]


def test_the_newest_details_count():
    scene = begun(retry=WORKED)
    token = scene.take().token
    for left in (4, 3, 2, 1):
        scene.engine.record_heartbeat(token, left)
    scene.engine.fail_activity_task(token, BOOM)
    scene.at(1_000)
    assert scene.take().heartbeat_details == 1


@pytest.mark.parametrize("details", [0, False, "", [], {}, {"a": b"\x00\xff"}, "d" * 100_000])
def test_any_payload_can_be_details(details: Any):
    scene = begun(retry=WORKED)
    token = scene.take().token
    scene.engine.record_heartbeat(token, details)
    assert scene.pending().heartbeat_details == details
    scene.engine.fail_activity_task(token, BOOM)
    scene.at(1_000)
    assert scene.take().heartbeat_details == details


def test_details_outlive_a_reported_failure_a_timeout_and_a_redrive():
    scene = begun(retry=RetryPolicy(max_attempts=3), heartbeat_ms=5_000)
    scene.engine.record_heartbeat(scene.take().token, "one")
    scene.at(5_000)  # HeartbeatTimeout.
    scene.at(6_000)
    task = scene.take()
    assert task.heartbeat_details == "one"
    scene.engine.fail_activity_task(task.token, BOOM)
    scene.at(8_000)
    task = scene.take()
    assert task.heartbeat_details == "one"
    scene.engine.record_heartbeat(task.token, "two")
    scene.engine.fail_activity_task(task.token, BOOM)
    assert scene.dead().heartbeat_details == "two"
    scene.engine.redrive_dead_letter("w", "a")
    assert scene.take().heartbeat_details == "two"


def test_details_outlive_a_restart():
    scene = begun(retry=WORKED, heartbeat_ms=5_000)
    token = scene.take().token
    scene.engine.record_heartbeat(token, "d" * 5_000)
    scene.engine.restart()
    assert scene.pending().heartbeat_details == "d" * 5_000
    scene.engine.fail_activity_task(token, BOOM)
    scene.engine.restart()
    scene.at(1_000)
    assert scene.take().heartbeat_details == "d" * 5_000


def test_heartbeats_leave_no_trace_in_the_history():
    scene = begun()
    token = scene.take().token
    for _ in range(10):
        scene.engine.record_heartbeat(token, "x")
    assert scene.kinds() == ["WorkflowStarted", "ActivityTaskScheduled"]


# --- stale leases ------------------------------------------------------------
def lost_lease(**options: Any) -> tuple[Any, str, Any]:
    """A scene, the token of attempt 1, which timed out, and the task of attempt 2, which runs."""
    scene = begun(retry=WORKED, start_to_close_ms=60_000, heartbeat_ms=5_000, **options)
    stale = scene.take().token
    scene.at(6_000)
    live = scene.take(worker_id="w2")
    assert live.attempt == 2
    return scene, stale, live


@pytest.mark.parametrize("report", ["complete", "fail", "heartbeat"])
def test_a_stale_lease_can_do_nothing_and_the_live_attempt_is_untouched(report):
    scene, stale, live = lost_lease()
    engine = scene.engine
    scene.at(8_000)
    before = (scene.pending(), scene.kinds())
    call: tuple[Any, ...] = {
        "complete": (engine.complete_activity_task, stale, "late"),
        "fail": (engine.fail_activity_task, stale, Failure("Late", non_retryable=True)),
        "heartbeat": (engine.record_heartbeat, stale, "late"),
    }[report]
    assert code_of(*call) == "FAILED_PRECONDITION"
    assert (scene.pending(), scene.kinds()) == before
    assert scene.pending().lease_deadline_ms == 11_000
    assert engine.record_heartbeat(live.token, "alive") == 13_000
    engine.complete_activity_task(live.token, "done")
    assert scene.result() == "done"


def test_the_token_of_a_failed_attempt_is_stale_once_the_next_runs():
    scene = begun(retry=WORKED)
    first = scene.take().token
    scene.engine.fail_activity_task(first, BOOM)
    scene.at(1_000)
    scene.take()
    assert code_of(scene.engine.fail_activity_task, first, BOOM) == "FAILED_PRECONDITION"
    assert code_of(scene.engine.complete_activity_task, first, 1) == "FAILED_PRECONDITION"
    assert (scene.pending().state, scene.pending().attempt) == ("Leased", 2)


@pytest.mark.parametrize("token", ["", "nonsense", "AAAA", "ü", "x" * 500, "a.b"])
def test_a_token_that_nobody_gave_out_is_refused(token):
    scene = begun()
    scene.take()
    engine = scene.engine
    codes = {
        code_of(engine.complete_activity_task, token, 1),
        code_of(engine.fail_activity_task, token, BOOM),
        code_of(engine.record_heartbeat, token),
    }
    assert codes <= {"FAILED_PRECONDITION", "INVALID_ARGUMENT"}
    assert (scene.pending().state, scene.pending().attempt) == ("Leased", 1)


def test_a_token_changed_in_one_character_is_refused():
    scene = begun()
    token = scene.take().token
    for at in range(len(token.rstrip("=")) - 1):
        other = token[:at] + ("B" if token[at] != "B" else "C") + token[at + 1 :]
        assert code_of(scene.engine.complete_activity_task, other, 1) == "FAILED_PRECONDITION"
    assert scene.pending().state == "Leased"


def test_a_token_of_another_engine_is_refused():
    foreign = begun().take().token
    scene = begun()
    assert scene.take().token != foreign
    assert code_of(scene.engine.complete_activity_task, foreign, 1) == "FAILED_PRECONDITION"


# --- inside an activity ------------------------------------------------------
def test_the_code_of_an_attempt_sees_the_details_of_the_one_before():
    seen: list[Any] = []

    @activity.define(retry=WORKED)
    def resumes() -> str:
        seen.append((activity.attempt(), activity.heartbeat_details(), activity.fence()))
        activity.record_heartbeat({"row": activity.attempt() * 100})
        activity.record_heartbeat()
        if activity.attempt() < 3:
            raise ValueError("again")
        return "done"

    @workflow.define
    async def one() -> str:
        return await workflow.execute_activity(resumes)

    engine = LocalEngine([one], [resumes], ManualClock(0))
    handle = engine.client.start_workflow(one, workflow_id="w")
    engine.run_until_idle()
    assert handle.result() == "done"
    assert seen == [(1, None, 1), (2, {"row": 100}, 2), (3, {"row": 200}, 3)]


def test_code_that_lost_its_lease_is_told_by_its_next_heartbeat():
    seen: list[Any] = []
    clock = ManualClock(0)

    @activity.define(retry=RetryPolicy(max_attempts=1), heartbeat_ms=1_000)
    def slow() -> None:
        clock.advance_ms(1_000)
        seen.append(activity.cancelled())
        activity.record_heartbeat("late")
        seen.append(activity.cancelled())
        try:
            activity.record_heartbeat("later")
        except activity.Cancelled:
            seen.append("Cancelled")
            raise

    @workflow.define
    async def one() -> None:
        await workflow.execute_activity(slow, activity_id="a")

    engine = LocalEngine([one], [slow], clock)
    engine.client.start_workflow(one, workflow_id="w")
    engine.run_until_idle()
    assert seen == [False, True, "Cancelled"]
    (dead,) = engine.list_dead_letters(workflow_id="w", activity_id="a")
    assert dead.last_failure.type == "HeartbeatTimeout"
    assert dead.heartbeat_details is None
