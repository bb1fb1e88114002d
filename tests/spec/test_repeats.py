"""Reports and polls that come twice: the first counts, and the second is told the same or stale."""

from __future__ import annotations

import pytest

from perdure import RetryPolicy
from perdure.failures import Failure
from tests.spec.conftest import BOOM, WORKED, begun, code_of


@pytest.mark.parametrize("restart", [False, True])
def test_the_same_completion_again_is_no_error_and_makes_no_second_event(restart):
    scene = begun()
    token = scene.take().token
    scene.engine.complete_activity_task(token, {"n": 1})
    for ends in (False, True):
        if restart:
            scene.engine.restart()
        scene.engine.complete_activity_task(token, {"n": 1})
        if ends:
            assert scene.result() == {"n": 1}
    scene.engine.complete_activity_task(token, {"n": 1})
    assert scene.kinds().count("ActivityTaskCompleted") == 1


def test_another_completion_is_stale():
    scene = begun()
    token = scene.take().token
    scene.engine.complete_activity_task(token, 1)
    assert code_of(scene.engine.complete_activity_task, token, 2) == "FAILED_PRECONDITION"
    assert code_of(scene.engine.fail_activity_task, token, BOOM) == "FAILED_PRECONDITION"
    assert code_of(scene.engine.record_heartbeat, token) == "FAILED_PRECONDITION"
    assert scene.result() == 1


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("policy", "state"),
    [(WORKED, "Retrying"), (RetryPolicy(max_attempts=1), "DeadLettered")],
)
def test_the_same_failure_again_is_told_the_same_and_counts_once(policy, state, restart):
    scene = begun(retry=policy)
    failure = Failure("Boom", "why", details={"a": [1, 2]}, cause=Failure("Deep"))
    token = scene.take().token
    assert scene.engine.fail_activity_task(token, failure) == state
    before = scene.pending()
    if restart:
        scene.engine.restart()
    assert scene.engine.fail_activity_task(token, failure) == state
    assert scene.pending() == before


def test_the_same_failure_that_ended_the_activity_again_is_told_dropped():
    scene = begun(retry=WORKED, schedule_to_close_ms=500)
    token = scene.take().token
    assert scene.engine.fail_activity_task(token, BOOM) == "Dropped"  # By the deadline.
    assert scene.engine.fail_activity_task(token, BOOM) == "Dropped"
    other = Failure("Other")
    assert code_of(scene.engine.fail_activity_task, token, other) == "FAILED_PRECONDITION"
    assert scene.kinds().count("ActivityTaskFailed") == 1


def test_another_failure_of_an_attempt_that_has_failed_is_stale():
    scene = begun(retry=WORKED)
    token = scene.take().token
    scene.engine.fail_activity_task(token, BOOM)
    before = scene.pending()
    other = Failure("Boom", "another text")
    assert code_of(scene.engine.fail_activity_task, token, other) == "FAILED_PRECONDITION"
    assert code_of(scene.engine.complete_activity_task, token, 1) == "FAILED_PRECONDITION"
    assert scene.pending() == before


def test_a_report_that_equals_the_engines_own_failure_is_no_repeat():
    scene = begun(retry=WORKED, start_to_close_ms=100)
    token = scene.take().token
    scene.at(100)
    failure = Failure("StartToCloseTimeout", "me too")
    assert code_of(scene.engine.fail_activity_task, token, failure) == "FAILED_PRECONDITION"


def test_the_same_poll_again_gets_the_same_task_while_its_lease_lives():
    scene = begun(retry=WORKED)
    first = scene.client.poll_activity_task(worker_id="w1", request_id="p1")
    assert scene.client.poll_activity_task(worker_id="w1", request_id="p1") == first
    scene.engine.restart()
    assert scene.client.poll_activity_task(worker_id="w1", request_id="p1") == first
    assert scene.client.poll_activity_task(worker_id="w1", request_id="p2") is None
    assert scene.client.poll_activity_task(worker_id="w2", request_id="p1") is None
    assert (scene.pending().attempt, scene.pending().state) == (1, "Leased")
    scene.engine.fail_activity_task(first.token, BOOM)
    assert scene.client.poll_activity_task(worker_id="w1", request_id="p1") is None
    scene.at(1_000)
    second = scene.client.poll_activity_task(worker_id="w1", request_id="p1")
    assert (second.attempt, second.token != first.token) == (2, True)


def test_a_poll_takes_only_its_queue_and_types():
    scene = begun(task_queue="q")
    assert scene.poll() is None
    assert scene.poll(task_queue="q", types=["other"]) is None
    assert scene.poll(task_queue="q", types=["other", "step"]) is not None
    assert scene.poll(task_queue="q") is None


def test_two_polls_never_get_one_attempt():
    scene = begun()
    assert scene.poll(worker_id="w1") is not None
    assert scene.poll(worker_id="w2") is None
    scene.engine.restart()
    assert scene.poll(worker_id="w2") is None
