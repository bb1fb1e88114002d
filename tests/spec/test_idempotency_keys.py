"""spec/activities.md, "Idempotency keys and effects": one key an activity, one effect a key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import RetryPolicy, activity, workflow
from perdure.core.ids import idempotency_key
from perdure.testing import LocalEngine
from tests.spec.conftest import BOOM, WORKED, Scene, begun, code_of


def test_the_key_is_workflow_id_slash_activity_id():
    assert begun().take().idempotency_key == "w/a"


def test_the_key_is_the_same_on_every_attempt_worker_generation_and_after_a_restart():
    scene = begun(retry=RetryPolicy(1, 1.0, 1, 3))
    keys = []
    for round_number in range(2):
        for _ in range(3):
            scene.clock.advance_ms(1)
            scene.engine.restart()
            task = scene.take(worker_id=f"w{len(keys)}")
            keys.append(task.idempotency_key)
            scene.engine.fail_activity_task(task.token, BOOM)
        if round_number == 0:
            scene.engine.redrive_dead_letter("w", "a")
    keys.append(scene.pending().idempotency_key)
    keys.append(scene.dead().idempotency_key)
    assert keys == ["w/a"] * 8


@pytest.mark.parametrize(
    ("workflow_id", "activity_id", "key"),
    [
        ("order-42", "charge", "order-42/charge"),
        ("a/b", "c", "a%2Fb/c"),
        ("a", "b/c", "a/b%2Fc"),
        ("a%2Fb", "c", "a%252Fb/c"),
        ("a#2", "c", "a%232/c"),
        ("ü é", "日", "ü é/日"),
        ("%", "#", "%25/%23"),
    ],
)
def test_slashes_percents_and_hashes_inside_an_id_are_encoded(workflow_id, activity_id, key):
    @activity.define(name="step")
    def step() -> None: ...

    @workflow.define(name="one")
    async def one() -> None:
        await workflow.execute_activity(step, activity_id=activity_id)

    engine = LocalEngine([one], [])
    engine.client.start_workflow(one, workflow_id=workflow_id)
    engine.run_workflow_tasks()
    assert engine.poll_activity_task().idempotency_key == key
    assert engine.describe_workflow(workflow_id).pending_activities[0].idempotency_key == key


_IDS = st.text("ab/%#2F35", min_size=1, max_size=6)


@given(_IDS, _IDS, _IDS, _IDS)
def test_no_two_pairs_of_ids_share_a_key(w1, a1, w2, a2):
    same = (w1, a1) == (w2, a2)
    assert (idempotency_key(w1, a1) == idempotency_key(w2, a2)) == same


def test_two_activities_of_a_workflow_have_two_keys_and_so_have_two_workflows():
    @activity.define(name="step")
    def step() -> None: ...

    @workflow.define(name="two")
    async def two() -> None:
        first = workflow.start_activity(step)
        second = workflow.start_activity(step)
        await first
        await second

    engine = LocalEngine([two], [])
    for workflow_id in ("w1", "w2"):
        engine.client.start_workflow(two, workflow_id=workflow_id)
    engine.run_workflow_tasks()
    keys = [engine.poll_activity_task().idempotency_key for _ in range(4)]
    assert sorted(keys) == ["w1/@1", "w1/@2", "w2/@1", "w2/@2"]


def test_the_code_of_an_attempt_sees_the_key_of_its_task():
    seen: list[Any] = []

    @activity.define(name="step", retry=WORKED)
    def step() -> None:
        seen.append(activity.idempotency_key())
        if len(seen) < 3:
            raise ValueError("again")

    @workflow.define(name="one")
    async def one() -> None:
        await workflow.execute_activity(step, activity_id="pay")

    engine = LocalEngine([one], [step])
    engine.client.start_workflow(one, workflow_id="w/1")
    engine.run_until_idle()
    assert seen == ["w%2F1/pay"] * 3


def test_a_second_use_of_an_activity_id_in_one_run_is_refused_at_the_call():
    @activity.define(name="step")
    def step() -> str:
        return "x"

    @workflow.define(name="twice")
    async def twice() -> Any:
        await workflow.execute_activity(step, activity_id="a")
        await workflow.execute_activity(step, activity_id="a")

    engine = LocalEngine([twice], [step])
    engine.client.start_workflow(twice, workflow_id="w")
    engine.run_until_idle()
    failure = engine.describe_workflow("w").failure
    assert failure.type == "InvalidArgument"
    assert "a" in failure.message


# --- a workflow id is never used again ---------------------------------------
def test_an_id_that_exists_is_taken_open_or_closed():
    scene = begun()
    start = scene.client.start_workflow
    assert code_of(start, "one", workflow_id="w") == "ALREADY_EXISTS"
    assert code_of(start, "other", workflow_id="w") == "ALREADY_EXISTS"
    scene.engine.complete_activity_task(scene.take().token, 1)
    assert scene.result() == 1
    assert code_of(start, "one", workflow_id="w") == "ALREADY_EXISTS"
    scene.engine.restart()
    assert code_of(start, "one", workflow_id="w") == "ALREADY_EXISTS"


def test_a_start_with_the_same_request_id_is_answered_as_the_first_time():
    scene = Scene()
    start = scene.client.start_workflow
    handle = start("one", 5, workflow_id="w", request_id="r")
    assert start("one", 5, workflow_id="w", request_id="r").workflow_id == handle.workflow_id
    scene.engine.run_workflow_tasks()
    start("one", 5, workflow_id="w", request_id="r")
    scene.engine.complete_activity_task(scene.take().token, 1)
    assert scene.result() == 1
    start("one", 5, workflow_id="w", request_id="r")
    scene.engine.restart()
    again = start("one", 5, workflow_id="w", request_id="r")
    assert again.result() == 1
    assert scene.kinds().count("WorkflowStarted") == 1
    assert len(scene.client.list_workflows()) == 1


@pytest.mark.parametrize(
    ("type_name", "args", "options"),
    [("other", (5,), {}), ("one", (6,), {}), ("one", (), {}), ("one", (5,), {"task_queue": "q"})],
)
def test_the_same_request_id_with_other_arguments_is_refused_and_changes_nothing(
    type_name, args, options
):
    scene = Scene()
    start = scene.client.start_workflow
    start("one", 5, workflow_id="w", request_id="r")
    before = scene.engine.describe_workflow("w")
    call = {"workflow_id": "w", "request_id": "r", **options}
    assert code_of(start, type_name, *args, **call) == "FAILED_PRECONDITION"
    assert scene.engine.describe_workflow("w") == before


def test_a_request_id_counts_within_one_workflow_id():
    scene = Scene()
    for workflow_id in ("w1", "w2"):
        scene.client.start_workflow("one", workflow_id=workflow_id, request_id="r")
    assert len(scene.client.list_workflows()) == 2
