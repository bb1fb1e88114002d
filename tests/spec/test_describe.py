"""spec/activities.md, "What describe shows of a pending activity", state by state."""

from __future__ import annotations

import pytest

from perdure.errors import NotFound
from tests.spec.conftest import BOOM, WORKED, begun


def shown(scene, *names):
    pending = scene.pending()
    return tuple(pending[name] for name in names)


def test_an_activity_that_waits_for_its_first_attempt():
    scene = begun(retry=WORKED)
    scene.at(300)
    pending = scene.pending().to_dict()
    assert pending == pending | {
        "activity_id": "a",
        "type": "step",
        "state": "Scheduled",
        "attempt": 1,
        "max_attempts": 4,
        "last_failure": None,
        "due_ms": 0,
        "lease_deadline_ms": None,
        "worker_id": None,
        "heartbeat_details": None,
        "last_heartbeat_ms": None,
        "scheduled_ms": 0,
        "idempotency_key": "w/a",
        "cancel_requested": False,
    }


def test_an_activity_that_runs():
    scene = begun(retry=WORKED, start_to_close_ms=9_000)
    scene.at(300)
    scene.take(worker_id="w7")
    names = ("state", "attempt", "due_ms", "lease_deadline_ms", "worker_id", "scheduled_ms")
    assert shown(scene, *names) == ("Leased", 1, None, 9_300, "w7", 0)


def test_an_activity_between_two_attempts():
    scene = begun(retry=WORKED)
    scene.at(300)
    scene.fail()
    names = ("state", "attempt", "due_ms", "lease_deadline_ms", "worker_id", "scheduled_ms")
    assert shown(scene, *names) == ("Retrying", 2, 1_300, None, None, 0)
    assert scene.pending().last_failure.type == "Boom"
    # Due, and not yet taken: still said.
    scene.at(5_000)
    assert shown(scene, *names) == ("Retrying", 2, 1_300, None, None, 0)
    scene.take()
    assert shown(scene, "state", "attempt", "due_ms") == ("Leased", 2, None)
    assert scene.pending().last_failure.type == "Boom"


def test_an_activity_that_is_a_dead_letter():
    scene = begun(retry=WORKED)
    scene.exhaust()
    names = ("state", "attempt", "max_attempts", "due_ms", "lease_deadline_ms", "worker_id")
    assert shown(scene, *names) == ("DeadLettered", 4, 4, None, None, None)


def test_an_activity_that_nobody_has_says_whom_it_waits_for_while_it_is_due():
    scene = begun(retry=WORKED)
    assert scene.pending().waiting_for == (
        "a worker that has activity 'step' on queue 'default', or a poll by hand; "
        "the engine has no activity"
    )
    scene.fail()
    assert scene.pending().waiting_for is None
    scene.at(1_000)
    assert scene.pending().waiting_for is not None
    scene.take()
    assert scene.pending().waiting_for is None


def test_a_workflow_that_nobody_has_says_whom_it_waits_for():
    scene = begun()
    scene.client.start_workflow("onne", workflow_id="typo", task_queue="q")
    described = scene.engine.describe_workflow("typo")
    assert described.workflow_task.waiting_for == (
        "a worker that has workflow 'onne' on queue 'q'; the engine has: one (nearest)"
    )
    assert scene.engine.describe_workflow("w").workflow_task.waiting_for is None


def test_what_is_not_there_is_said_in_the_same_words_by_every_call():
    client = begun().client
    for call in (
        client.describe_workflow,
        client.result,
        client.history,
        lambda workflow_id: client.redrive_dead_letter(workflow_id, "a"),
    ):
        with pytest.raises(NotFound, match=r"^there is no workflow 'nobody'$"):
            call("nobody")


def test_a_closed_activity_is_pending_no_more():
    scene = begun()
    scene.engine.complete_activity_task(scene.take().token, 1)
    described = scene.engine.describe_workflow("w")
    assert described.pending_activities == []
    assert described.status == "Running"
    scene.result()
    described = scene.engine.describe_workflow("w")
    assert (described.status, described.result, described.closed_ms) == ("Completed", 1, 0)


def test_workflows_can_be_searched_by_the_state_of_their_activities():
    scene = begun(retry=WORKED)
    find = scene.client.list_workflows

    def states() -> list[str]:
        every = ("Scheduled", "Leased", "Retrying", "DeadLettered")
        return [state for state in every if find(pending_state=state)]

    assert states() == ["Scheduled"]
    token = scene.take().token
    assert states() == ["Leased"]
    scene.engine.fail_activity_task(token, BOOM)
    assert states() == ["Retrying"]
    assert len(find(failure_type="Boom")) == 1
    assert find(failure_type="it broke") == []
    assert len(find(activity_type="step", type="one", status="Running")) == 1
    assert find(type="two") == []
    scene.at(10)
    assert find(older_than_ms=10) == []
    assert len(find(older_than_ms=9)) == 1
