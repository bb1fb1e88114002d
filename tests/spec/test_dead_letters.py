"""spec/activities.md, "Dead letters": what they hold, how they are listed, how they end."""

from __future__ import annotations

import pytest

from perdure import RetryPolicy, activity, workflow
from perdure.errors import NotFound
from perdure.failures import Failure
from perdure.testing import LocalEngine
from tests.spec.conftest import BOOM, WORKED, Scene, begun, code_of

ONCE = RetryPolicy(max_attempts=1)


def dead_scene(**options: object) -> Scene:
    """Workflow "w" whose activity is a dead letter since 7 000, with an input and four failures."""
    scene = Scene(retry=WORKED, task_queue="payments", **options)
    scene.start(what={"order": 7})
    for n, due_ms in enumerate((0, 1_000, 3_000, 7_000)):
        scene.at(due_ms)
        task = scene.take(task_queue="payments", worker_id=f"worker-{n}")
        scene.engine.record_heartbeat(task.token, {"step": n})
        scene.engine.fail_activity_task(
            task.token, Failure(f"Boom{n}", f"it broke {n}", stack=f"line {n}")
        )
    return scene


# --- what a dead letter holds ------------------------------------------------
def test_a_dead_letter_holds_what_an_operator_needs():
    scene = dead_scene()
    (entry,) = scene.engine.list_dead_letters()
    assert entry == {
        "workflow_id": "w",
        "run": 1,
        "workflow_type": "one",
        "activity_id": "a",
        "activity_type": "step",
        "task_queue": "payments",
        "attempts": 4,
        "first_failure": entry.first_failure,
        "last_failure": entry.last_failure,
        "scheduled_ms": 0,
        "dead_ms": 7_000,
        "redrives": 0,
        "idempotency_key": "w/a",
    }
    assert (entry.first_failure.type, entry.first_failure.message) == ("Boom0", "it broke 0")
    assert (entry.last_failure.type, entry.last_failure.message) == ("Boom3", "it broke 3")


def test_a_dead_letter_shown_whole_has_every_failure_with_stack_time_and_worker():
    whole = dead_scene().dead()
    assert [
        (f.generation, f.attempt, f.at_ms, f.worker_id, f.failure.type, f.failure.stack)
        for f in whole.failures
    ] == [
        (1, 1, 0, "worker-0", "Boom0", "line 0"),
        (1, 2, 1_000, "worker-1", "Boom1", "line 1"),
        (1, 3, 3_000, "worker-2", "Boom2", "line 2"),
        (1, 4, 7_000, "worker-3", "Boom3", "line 3"),
    ]
    assert whole.failures_count == 4
    assert whole.input == [{"order": 7}]
    assert whole.heartbeat_details == {"step": 3}


@pytest.mark.parametrize(("attempts", "kept"), [(20, 20), (21, 21), (22, 21), (60, 21)])
def test_of_many_failures_the_first_and_the_newest_20_are_kept(attempts, kept):
    policy = RetryPolicy(1, 1.0, 1, attempts)
    scene = begun(retry=policy)
    for n in range(1, attempts + 1):
        scene.at(n)
        scene.fail(Failure("Boom", str(n)))
    whole = scene.dead()
    assert whole.failures_count == attempts
    newest = range(max(1, attempts - 19), attempts + 1)
    assert [f.attempt for f in whole.failures] == sorted({1, *newest})
    assert len(whole.failures) == kept
    assert (whole.first_failure.message, whole.last_failure.message) == ("1", str(attempts))


def test_a_large_input_and_large_details_are_shown_whole():
    scene = Scene(retry=ONCE)
    scene.start(what="i" * 5_000)
    task = scene.take()
    assert task.input == ["i" * 5_000]
    scene.engine.record_heartbeat(task.token, "d" * 5_000)
    scene.engine.fail_activity_task(task.token, BOOM)
    for _ in range(2):
        whole = scene.dead()
        assert whole.input == ["i" * 5_000]
        assert whole.heartbeat_details == "d" * 5_000
        assert scene.pending().heartbeat_details == "d" * 5_000
        scene.engine.restart()


# --- lists -------------------------------------------------------------------
def three_dead() -> Scene:
    """w1, w2, w3 died at 10, 20, 30 with failures A, B, A."""
    scene = Scene(retry=ONCE)
    for number, kind in ((1, "A"), (2, "B"), (3, "A")):
        scene.at(number * 10)
        scene.start(f"w{number}")
        scene.fail(Failure(kind))
    return scene


def listed(scene: Scene, **filters: object) -> list[str]:
    return [entry.workflow_id for entry in scene.engine.list_dead_letters(**filters)]


def test_dead_letters_are_listed_oldest_first():
    assert listed(three_dead()) == ["w1", "w2", "w3"]


def test_dead_letters_can_be_narrowed_by_workflow_type_failure_and_age():
    scene = three_dead()
    scene.at(100)
    assert listed(scene, workflow_id="w2") == ["w2"]
    assert listed(scene, activity_type="step") == ["w1", "w2", "w3"]
    assert listed(scene, activity_type="other") == []
    assert listed(scene, failure_type="A") == ["w1", "w3"]
    assert listed(scene, older_than_ms=80) == ["w1"]
    assert listed(scene, older_than_ms=79) == ["w1", "w2"]
    assert listed(scene, failure_type="A", workflow_id="w2") == []
    assert listed(scene, workflow_id="w2", activity_id="b") == []


def test_a_long_list_is_had_page_by_page():
    scene = three_dead()
    first = scene.engine.list_dead_letters(limit=2)
    assert [entry.workflow_id for entry in first] == ["w1", "w2"]
    second = scene.engine.list_dead_letters(limit=2, page=first.next_page)
    assert [entry.workflow_id for entry in second] == ["w3"]
    assert second.next_page is None
    assert code_of(scene.engine.list_dead_letters, page="nonsense") == "INVALID_ARGUMENT"


def test_workflows_can_be_searched_by_what_is_dead_in_them():
    scene = three_dead()
    find = scene.client.list_workflows
    assert [w.workflow_id for w in find(pending_state="DeadLettered")] == ["w3", "w2", "w1"]
    assert [w.workflow_id for w in find(failure_type="B")] == ["w2"]
    assert find(pending_state="Retrying") == []
    assert find(failure_type="C") == []


# --- redrive -----------------------------------------------------------------
def test_a_redrive_delivers_attempt_1_again_with_the_full_policy():
    scene = begun(retry=WORKED)
    scene.exhaust()
    scene.at(50_000)
    scene.engine.redrive_dead_letter("w", "a")
    assert scene.engine.list_dead_letters() == []
    pending = scene.pending()
    assert (pending.state, pending.attempt, pending.due_ms) == ("Scheduled", 1, 50_000)
    assert (pending.max_attempts, pending.generation) == (4, 2)
    for due_ms in (50_000, 51_000, 53_000):
        scene.at(due_ms)
        assert scene.fail() == "Retrying"
    scene.at(57_000)
    assert scene.fail() == "DeadLettered"


def test_a_redrive_keeps_key_input_queue_policy_timeouts_and_details():
    scene = dead_scene(start_to_close_ms=40_000, heartbeat_ms=9_000)
    before = scene.pending()
    first = scene.last("ActivityTaskScheduled").options
    scene.engine.redrive_dead_letter("w", "a")
    task = scene.take(task_queue="payments")
    assert (task.attempt, task.input) == (1, [{"order": 7}])
    assert task.idempotency_key == before.idempotency_key == "w/a"
    assert task.heartbeat_details == {"step": 3}
    assert task.lease_deadline_ms == 7_000 + 9_000
    assert scene.last("ActivityTaskScheduled").options == first
    assert scene.kinds().count("ActivityTaskScheduled") == 1
    scene.at(7_000 + 8_999)
    assert scene.pending().state == "Leased"


def test_a_redrive_keeps_the_failures_of_earlier_generations():
    scene = begun(retry=RetryPolicy(1, 1.0, 1, 3))
    scene.exhaust()
    scene.engine.redrive_dead_letter("w", "a")
    scene.exhaust()
    (entry,) = scene.engine.list_dead_letters()
    assert (entry.redrives, entry.attempts) == (1, 3)
    whole = scene.dead()
    numbers = [(f.generation, f.attempt) for f in whole.failures]
    assert numbers == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]


def test_tokens_of_earlier_generations_stay_stale():
    scene = begun(retry=ONCE)
    old = scene.take()
    scene.engine.fail_activity_task(old.token, BOOM)
    scene.engine.redrive_dead_letter("w", "a")
    live = scene.take()
    assert live.token != old.token
    engine = scene.engine
    assert code_of(engine.complete_activity_task, old.token, 1) == "FAILED_PRECONDITION"
    assert code_of(engine.fail_activity_task, old.token, BOOM) == "FAILED_PRECONDITION"
    assert code_of(engine.record_heartbeat, old.token, 1) == "FAILED_PRECONDITION"
    scene.engine.complete_activity_task(live.token, "done")
    assert scene.result() == "done"


def test_a_redriven_activity_that_succeeds_ends_the_workflow():
    scene = begun(retry=WORKED)
    scene.exhaust()
    scene.engine.redrive_dead_letter("w", "a")
    scene.engine.complete_activity_task(scene.take().token, 5)
    assert scene.result() == 5
    assert scene.kinds() == [
        "WorkflowStarted",
        "ActivityTaskScheduled",
        "ActivityDeadLettered",
        "ActivityRedriven",
        "ActivityTaskStarted",
        "ActivityTaskCompleted",
        "WorkflowCompleted",
    ]


def test_a_redrive_of_what_is_no_dead_letter_is_not_found():
    scene = begun(retry=WORKED)
    redrive = scene.engine.redrive_dead_letter
    assert code_of(redrive, "w", "a") == "NOT_FOUND"  # Scheduled.
    task = scene.take()
    assert code_of(redrive, "w", "a") == "NOT_FOUND"  # Leased.
    scene.engine.fail_activity_task(task.token, BOOM)
    assert code_of(redrive, "w", "a") == "NOT_FOUND"  # Retrying.
    assert code_of(redrive, "w", "b") == "NOT_FOUND"
    assert code_of(redrive, "nobody", "a") == "NOT_FOUND"
    scene.at(1_000)
    scene.engine.complete_activity_task(scene.take().token, 1)
    assert code_of(redrive, "w", "a") == "NOT_FOUND"  # Closed.
    scene.result()
    assert code_of(redrive, "w", "a") == "NOT_FOUND"  # So is its workflow.


def test_a_redrive_that_comes_too_late_is_told_so_and_not_that_there_was_none():
    scene = begun(retry=WORKED)
    redrive = scene.engine.redrive_dead_letter

    def said(activity_id: str = "a") -> str:
        with pytest.raises(NotFound) as caught:
            redrive("w", activity_id)
        return caught.value.message

    assert "is no dead letter: it is Scheduled, attempt 1 of 4" in said()
    assert "there is no activity 'b'" in said("b")
    scene.exhaust()
    redrive("w", "a")
    assert "is redriven already: it is Scheduled, attempt 1 of 4" in said()
    scene.engine.complete_activity_task(scene.take().token, 1)
    assert "it has completed" in said()
    scene.result()
    assert "there is no activity 'b'" not in said("b")
    assert "the workflow is Completed" in said("b")


def test_of_attempts_without_end_no_number_is_said():
    scene = begun(retry=RetryPolicy(max_attempts=RetryPolicy.UNLIMITED))
    with pytest.raises(NotFound, match=r"it is Scheduled, attempt 1$"):
        scene.engine.redrive_dead_letter("w", "a")


def test_a_dead_letter_that_was_given_up_says_so():
    scene = begun(retry=WORKED)
    scene.exhaust()
    scene.client.fail_dead_letter("w", "a")
    with pytest.raises(NotFound, match="it was given up as failed"):
        scene.client.complete_dead_letter("w", "a", 1)


def test_a_second_redrive_is_not_found_and_changes_nothing():
    scene = begun(retry=ONCE)
    scene.fail()
    scene.engine.redrive_dead_letter("w", "a")
    before = (scene.kinds(), scene.pending())
    assert code_of(scene.engine.redrive_dead_letter, "w", "a") == "NOT_FOUND"
    assert (scene.kinds(), scene.pending()) == before


def test_the_same_redrive_request_again_is_answered_as_the_first_time():
    scene = begun(retry=ONCE)
    scene.fail()
    for _ in range(2):
        scene.client.redrive_dead_letter("w", "a", request_id="r1")
    scene.engine.restart()
    scene.client.redrive_dead_letter("w", "a", request_id="r1")
    assert scene.kinds().count("ActivityRedriven") == 1
    assert scene.pending().generation == 2


def test_a_redrive_request_that_comes_again_late_does_not_redrive_what_died_again():
    scene = begun(retry=ONCE)
    scene.fail()
    scene.client.redrive_dead_letter("w", "a", request_id="r1")
    scene.fail()
    scene.client.redrive_dead_letter("w", "a", request_id="r1")
    assert scene.pending().state == "DeadLettered"
    assert scene.dead().redrives == 1
    scene.client.redrive_dead_letter("w", "a", request_id="r2")
    assert scene.pending().generation == 3


def test_a_request_id_used_with_other_arguments_is_refused():
    scene = begun(retry=ONCE)
    scene.fail()
    scene.client.complete_dead_letter("w", "a", 1, request_id="r1")
    again = scene.client.complete_dead_letter
    again("w", "a", 1, request_id="r1")
    assert code_of(again, "w", "a", 2, request_id="r1") == "FAILED_PRECONDITION"
    assert code_of(again, "w", "b", 1, request_id="r1") == "FAILED_PRECONDITION"


def test_a_request_id_counts_within_one_operation():
    scene = begun(retry=ONCE)
    scene.fail()
    scene.client.redrive_dead_letter("w", "a", request_id="r1")
    scene.fail()
    scene.engine.restart()
    scene.client.fail_dead_letter("w", "a", request_id="r1")
    assert scene.result() == ["Boom", "it broke"]


# --- the other two ways ------------------------------------------------------
def test_failing_a_dead_letter_lets_the_workflow_see_the_last_failure():
    scene = dead_scene()
    scene.at(9_000)
    scene.engine.fail_dead_letter("w", "a")
    assert scene.engine.list_dead_letters() == []
    assert not scene.is_pending()
    event = scene.last("ActivityTaskFailed")
    assert (event.at_ms, event.failure.type, event.attempt) == (9_000, "Boom3", 4)
    assert scene.result() == ["Boom3", "it broke 3"]
    assert code_of(scene.engine.fail_dead_letter, "w", "a") == "NOT_FOUND"


def test_completing_a_dead_letter_gives_the_workflow_the_result():
    scene = dead_scene()
    scene.engine.complete_dead_letter("w", "a", {"by": "hand"})
    assert scene.engine.list_dead_letters() == []
    assert scene.result() == {"by": "hand"}
    assert code_of(scene.engine.complete_dead_letter, "w", "a", 1) == "NOT_FOUND"


def test_neither_works_on_what_is_no_dead_letter():
    scene = begun(retry=WORKED)
    assert code_of(scene.engine.fail_dead_letter, "w", "a") == "NOT_FOUND"
    assert code_of(scene.engine.complete_dead_letter, "w", "a", 1) == "NOT_FOUND"
    assert code_of(scene.engine.complete_dead_letter, "x", "a", 1) == "NOT_FOUND"
    assert scene.pending().state == "Scheduled"


def test_the_history_records_every_resolution_with_its_request():
    scene = begun(retry=ONCE)
    scene.fail()
    scene.client.redrive_dead_letter("w", "a", request_id="r1")
    scene.fail()
    scene.client.complete_dead_letter("w", "a", 5, request_id="r2")
    assert scene.kinds() == [
        "WorkflowStarted",
        "ActivityTaskScheduled",
        "ActivityDeadLettered",
        "ActivityRedriven",
        "ActivityDeadLettered",
        "ActivityTaskCompleted",
    ]
    assert scene.last("ActivityRedriven").request_id == "r1"
    assert scene.last("ActivityTaskCompleted").request_id == "r2"


# --- nothing else ends them --------------------------------------------------
def test_a_dead_letter_waits_for_ever():
    scene = begun(retry=WORKED, schedule_to_close_ms=60_000, schedule_to_start_ms=500)
    scene.exhaust()
    for _ in range(3):
        scene.clock.advance_ms(10**9)
        scene.engine.run_until_idle()
        scene.engine.restart()
    assert scene.pending().state == "DeadLettered"
    assert scene.kinds()[-1] == "ActivityDeadLettered"


def test_a_dead_letter_goes_with_its_workflow():
    @activity.define(retry=ONCE)
    def step() -> None:
        raise ValueError("no")

    @workflow.define
    async def leaves() -> str:
        workflow.start_activity(step, activity_id="a")
        await workflow.sleep_ms(5_000)
        return "left"

    engine = LocalEngine([leaves], [step])
    handle = engine.client.start_workflow(leaves, workflow_id="w")
    engine.run_until_idle(skip_time=False)
    assert len(engine.list_dead_letters()) == 1
    engine.run_until_idle()
    assert handle.result() == "left"
    assert engine.list_dead_letters() == []
    assert code_of(engine.redrive_dead_letter, "w", "a") == "NOT_FOUND"
