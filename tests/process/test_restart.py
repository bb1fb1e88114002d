"""A node ends, in order or not, and comes back on the same data."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.process.conftest import until

pytestmark = pytest.mark.process

VERSIONED = """\
from perdure import activity, workflow

@activity.define
def first():
    return 1

@activity.define
def second():
    return 2

@workflow.define
async def versioned():
    {step}
    await workflow.sleep_ms({nap_ms})
    return await workflow.execute_activity(second, activity_id="z")
"""
OLD = 'await workflow.execute_activity(first, activity_id="x")'
NEW = 'await workflow.execute_activity(second, activity_id="y")'


def begin(client, workflow, count, *args, prefix="w"):
    ids = [f"{prefix}{number}" for number in range(count)]
    for workflow_id in ids:
        client.start_workflow(workflow, *args, workflow_id=workflow_id)
    return ids


def until_calls(node, count):
    until(lambda: len(node.calls()) >= count, f"delivery {count}")


def test_restarts_of_the_node_charge_no_attempt_and_leave_no_socket_behind(hurt, tmp_path):
    node, over = hurt(workers=1), tmp_path / "over"
    with node.client(timeout_ms=30_000) as client:
        ids = begin(client, "one_until", 3, str(over))
        sockets = set()
        for number in range(1, 4):
            until_calls(node, 3 * number)
            sockets.add(len(list((node.data / "run" / "node").iterdir())))
            if number < 3:
                node.restart()
        over.touch()
        assert [client.result(each, timeout_ms=30_000) for each in ids] == [f"{w}/e" for w in ids]
    assert {attempt for _, attempt, _ in node.calls()} == {1}
    assert len(node.calls()) == 9
    assert len(sockets) == 1
    run = node.data / "run"
    node.stop()
    assert list(run.iterdir()) == []


def test_timers_that_fell_due_while_no_node_ran_fire_once_and_the_others_in_time(hurt):
    node = hurt(workers=1)
    with node.client(timeout_ms=30_000) as client:
        began = time.monotonic()
        soon, later = (begin(client, "naps", 5, ms, prefix=str(ms)) for ms in (500, 3_000))
        node.kill_all()
        threading.Event().wait(0.6)
        node.start()
        for workflow_id in soon:
            assert client.result(workflow_id, timeout_ms=30_000) == "awake"
        for workflow_id in later:
            assert client.result(workflow_id, timeout_ms=30_000) == "awake"
        assert time.monotonic() - began >= 3
        for workflow_id in soon + later:
            kinds = [event.kind for event in client.history(workflow_id)]
            assert kinds.count("TimerFired") == 1


def test_an_orderly_stop_under_load_hands_back_what_it_holds_uncharged(hurt):
    node = hurt()
    with node.client(timeout_ms=30_000) as client:
        ids = begin(client, "one", 40, 200)
        until_calls(node, 6)
        assert node.end_by(signal.SIGTERM) == 0
        assert len(node.calls()) < 40
        node.start()
        for workflow_id in ids:
            assert client.result(workflow_id, timeout_ms=30_000) == f"{workflow_id}/e"
    assert {attempt for _, attempt, _ in node.calls()} == {1}
    assert node.effects() == 40


def test_a_workflow_that_its_new_code_does_not_fit_waits_until_the_old_code_is_back(hurt, tmp_path):
    app = tmp_path / "versioned_app.py"

    def write(step):
        app.write_text(VERSIONED.format(step=step, nap_ms=300))

    write(OLD)
    node = hurt(app="versioned_app", workers=1)
    with node.client(timeout_ms=30_000) as client:
        client.start_workflow("versioned", workflow_id="v")
        until(lambda: "TimerStarted" in [event.kind for event in client.history("v")], "its timer")
        node.kill_all()
        write(NEW)
        node.start()
        until(lambda: client.describe_workflow("v").workflow_task.failures, "the mismatch")
        task = client.describe_workflow("v").workflow_task
        assert (task.reason, task.failure.type) == ("mismatch", "NonDeterminism")
        assert "'x'" in task.failure.message
        assert "'y'" in task.failure.message
        assert client.start_workflow("versioned", workflow_id="new").result(30_000) == 2
        assert client.describe_workflow("v").status == "Running"
        node.kill_all()
        write(OLD)
        node.start()
        assert client.result("v", timeout_ms=30_000) == 2


def test_a_worker_elsewhere_comes_back_to_a_node_that_was_killed_and_started_again(hurt):
    node = hurt(workers=0)
    command = [sys.executable, "-m", "perdure.cli.main", "worker", "--app", "hurt_app"]
    with subprocess.Popen(
        [*command, "--connect", node.endpoint],
        cwd=node.directory,
        env=node.environment,
        stderr=subprocess.DEVNULL,
    ) as worker:
        try:
            with node.client(timeout_ms=30_000) as client:
                ids = begin(client, "one", 4, 700)
                until_calls(node, 4)
                node.restart()
                ids += begin(client, "one", 4, prefix="after")
                for workflow_id in ids:
                    assert client.result(workflow_id, timeout_ms=30_000) == f"{workflow_id}/e"
            # It had them all the time: nothing was given out twice.
            assert [attempt for _, attempt, _ in node.calls()] == [1] * 8
        finally:
            worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
