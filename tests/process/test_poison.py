"""Activities and workflows that hurt the process they run in."""

from __future__ import annotations

import threading

import pytest

pytestmark = pytest.mark.process


def dead_letter(client, workflow_id):
    pause = threading.Event()
    for _ in range(1_000):
        if found := client.list_dead_letters(workflow_id=workflow_id):
            return found[0]
        pause.wait(0.01)
    raise AssertionError(f"no dead letter of {workflow_id}")


@pytest.mark.parametrize("how", ["kill", "exit"])
def test_an_activity_that_ends_its_worker_is_dead_lettered_after_its_attempts(hurt, how):
    node = hurt()
    with node.client(timeout_ms=15_000) as client:
        others = [f"n{number}" for number in range(30)]
        for workflow_id in others:
            client.start_workflow("one", 50, workflow_id=workflow_id)
        client.start_workflow("poisoned", how, workflow_id="p")
        letter = dead_letter(client, "p")
        assert (letter.attempts, letter.last_failure.type) == (3, "WorkerDied")
        for workflow_id in others:
            assert client.result(workflow_id, timeout_ms=10_000) == f"{workflow_id}/e"
    attempts = [(attempt, pid) for _, attempt, pid in node.calls("p/%")]
    assert [attempt for attempt, _ in attempts] == [1, 2, 3]
    assert len({pid for _, pid in attempts}) == 3


def test_an_exit_that_is_raised_is_a_failure_and_no_end_of_the_worker(hurt):
    node = hurt(workers=1)
    pid = node.pid_of("worker-1")
    with node.client(timeout_ms=15_000) as client:
        for is_async in (False, True):
            for how in ("SystemExit", "KeyboardInterrupt"):
                workflow_id = f"{how}-{is_async}"
                client.start_workflow("poisoned", how, is_async, workflow_id=workflow_id)
                letter = dead_letter(client, workflow_id)
                assert (letter.attempts, letter.last_failure.type) == (3, how)
        assert client.start_workflow("one", workflow_id="after").result() == "after/e"
    assert node.pid_of("worker-1") == pid


def test_a_workflow_that_would_block_is_parked_and_told_what_to_use_instead(hurt):
    node = hurt(workers=1)
    with node.client(timeout_ms=15_000) as client:
        client.start_workflow("blocks", workflow_id="b")
        # Behind it, on the same thread of the same worker.
        assert client.start_workflow("one", workflow_id="after").result() == "after/e"
        task = client.describe_workflow("b").workflow_task
        assert (task.reason, task.failure.type) == ("mismatch", "NonDeterminism")
        assert "time.sleep" in task.failure.message
        assert "asyncio.sleep" in task.failure.message
