"""A node restart under the manual clock: nothing is lost, and downtime is nobody's fault."""

from __future__ import annotations

import pytest

from perdure import activity, workflow
from perdure.testing import LocalEngine, ManualClock
from tests.spec.conftest import BOOM, WORKED, begun, code_of


def test_everything_shown_is_the_same_after_a_restart():
    scene = begun(retry=WORKED, heartbeat_ms=5_000)

    def all_shown():
        engine = scene.engine
        return engine.describe_workflow("w"), engine.history("w"), list(engine.list_dead_letters())

    def check():
        before = all_shown()
        scene.engine.restart()
        assert all_shown() == before

    check()
    for due_ms in (0, 1_000, 3_000, 7_000):
        scene.at(due_ms)
        task = scene.take()
        check()
        scene.engine.record_heartbeat(task.token, {"at": due_ms})
        check()
        scene.engine.fail_activity_task(task.token, BOOM)
        check()
    scene.engine.redrive_dead_letter("w", "a")
    check()
    scene.engine.complete_activity_task(scene.take().token, "done")
    check()
    assert scene.result() == "done"
    check()


def test_a_drawn_delay_is_not_drawn_again():
    scene = begun(retry=WORKED, jitter=None, seed=11)
    scene.fail()
    due_ms = scene.pending().due_ms
    scene.engine.restart()
    assert scene.pending().due_ms == due_ms
    scene.at(due_ms - 1)
    assert scene.poll() is None
    scene.at(due_ms)
    assert scene.take().attempt == 2


def test_a_backoff_that_ended_while_the_node_was_down_is_over():
    scene = begun(retry=WORKED)
    scene.fail()
    scene.at(50_000)
    scene.engine.restart()
    assert scene.pending().due_ms == 1_000
    assert scene.take().attempt == 2


@pytest.mark.parametrize(("heartbeat_ms", "grace_ms"), [(3_000, 3_000), (30_000, 10_000)])
def test_a_lease_has_its_length_or_10_seconds_before_it_can_expire(heartbeat_ms, grace_ms):
    scene = begun(retry=WORKED, heartbeat_ms=heartbeat_ms)
    scene.take()
    scene.at(heartbeat_ms - 1)
    scene.engine.restart()
    scene.at(heartbeat_ms - 1 + grace_ms - 1)
    assert scene.pending().state == "Leased"
    scene.at(heartbeat_ms - 1 + grace_ms)
    pending = scene.pending()
    assert (pending.state, pending.last_failure.type) == ("Retrying", "HeartbeatTimeout")


@pytest.mark.parametrize(("grace_ms", "lasts_ms"), [(0, 0), (2_000, 2_000), (60_000, 30_000)])
def test_the_grace_can_be_set(grace_ms, lasts_ms):
    scene = begun(retry=WORKED, heartbeat_ms=30_000, recovery_grace_ms=grace_ms)
    scene.take()
    scene.at(600_000)
    scene.engine.restart()
    if lasts_ms:
        assert scene.pending().lease_deadline_ms == 600_000 + lasts_ms
        scene.at(600_000 + lasts_ms - 1)
        assert scene.pending().state == "Leased"
    scene.at(600_000 + lasts_ms)
    assert scene.pending().state == "Retrying"


def test_a_lease_that_has_longer_to_go_keeps_its_deadline():
    scene = begun(retry=WORKED, start_to_close_ms=30_000)
    scene.take()
    scene.at(2_000)
    scene.engine.restart()
    assert scene.pending().lease_deadline_ms == 30_000
    scene.at(29_999)
    assert scene.pending().state == "Leased"
    scene.at(30_000)
    assert scene.pending().state == "Retrying"


@pytest.mark.parametrize("report", ["complete", "fail", "heartbeat"])
def test_downtime_is_not_held_against_a_holder(report):
    scene = begun(retry=WORKED, start_to_close_ms=30_000)
    token = scene.take().token
    scene.at(600_000)
    scene.engine.restart()
    scene.at(609_999)
    if report == "complete":
        scene.engine.complete_activity_task(token, "late but well")
        assert scene.result() == "late but well"
    elif report == "fail":
        assert scene.engine.fail_activity_task(token, BOOM) == "Retrying"
        assert scene.pending().last_failure.type == "Boom"
    else:
        scene.engine.record_heartbeat(token, "alive")
        assert scene.pending().heartbeat_details == "alive"


def test_after_the_grace_the_attempt_has_failed():
    scene = begun(retry=WORKED, start_to_close_ms=30_000)
    token = scene.take().token
    scene.at(600_000)
    scene.engine.restart()
    scene.at(610_000)
    assert code_of(scene.engine.complete_activity_task, token, 1) == "FAILED_PRECONDITION"
    pending = scene.pending()
    assert (pending.state, pending.last_failure.type) == ("Retrying", "StartToCloseTimeout")
    assert pending.due_ms == 611_000


def test_a_lease_given_after_the_restart_has_no_grace():
    scene = begun(retry=WORKED, start_to_close_ms=2_000)
    scene.engine.restart()
    scene.take()
    scene.at(2_000)
    assert scene.pending().state == "Retrying"


def test_a_polled_attempt_is_not_charged_for_a_restart():
    scene = begun(retry=WORKED)
    task = scene.take()
    for _ in range(5):
        scene.engine.restart()
    assert (scene.pending().state, scene.pending().attempt) == ("Leased", 1)
    scene.engine.complete_activity_task(task.token, "done")
    assert scene.result() == "done"


def test_a_waiting_attempt_is_not_charged_for_restarts():
    scene = begun(retry=WORKED)
    scene.fail()
    for _ in range(2):
        scene.engine.restart()
    assert scene.pending().attempt == 2


def test_tokens_are_the_same_stores_after_a_restart():
    scene = begun(retry=WORKED)
    token = scene.take().token
    scene.engine.restart()
    scene.engine.fail_activity_task(token, BOOM)
    scene.engine.restart()
    scene.at(1_000)
    scene.take()
    assert code_of(scene.engine.complete_activity_task, token, 1) == "FAILED_PRECONDITION"


def test_workflows_run_on_where_they_were():
    order: list[str] = []

    @activity.define(name="note")
    def note(what: str) -> str:
        order.append(what)
        return what

    @workflow.define(name="three")
    async def three() -> list[str]:
        found = [await workflow.execute_activity(note, "one")]
        await workflow.sleep_ms(60_000)
        found.append(await workflow.execute_activity(note, "two"))
        await workflow.sleep_ms(60_000)
        found.append(await workflow.execute_activity(note, "three"))
        return found

    clock = ManualClock(0)
    engine = LocalEngine([three], [note], clock)
    handle = engine.client.start_workflow(three, workflow_id="w")
    for now_ms in (0, 59_999, 60_000, 119_999, 120_000):
        clock.advance_ms(now_ms - clock.now_ms)
        for _ in range(3):
            engine.restart()
            engine.run_until_idle(skip_time=False)
    assert handle.result() == ["one", "two", "three"]
    assert order == ["one", "two", "three"]
    fired = [event.at_ms for event in engine.history("w") if event.kind == "TimerFired"]
    assert fired == [60_000, 120_000]
