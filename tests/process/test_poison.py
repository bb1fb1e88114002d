"""Activities and workflows that hurt the process they run in."""

from __future__ import annotations

import threading

import pytest

from chaos.harness import flat
from tests.process.conftest import until

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
    with node.client(timeout_ms=30_000) as client:
        others = [f"n{number}" for number in range(30)]
        for workflow_id in others:
            client.start_workflow("one", 50, workflow_id=workflow_id)
        client.start_workflow("poisoned", how, workflow_id="p")
        letter = dead_letter(client, "p")
        assert (letter.attempts, letter.last_failure.type) == (3, "WorkerDied")
        for workflow_id in others:
            assert client.result(workflow_id, timeout_ms=30_000) == f"{workflow_id}/e"
    attempts = [(attempt, pid) for _, attempt, pid in node.calls("p/%")]
    assert [attempt for attempt, _ in attempts] == [1, 2, 3]
    assert len({pid for _, pid in attempts}) == 3


def names(node):
    return {entry["name"]: entry for entry in flat(node.tree())}


def test_a_poison_is_dead_lettered_and_none_of_fifty_innocents_beside_it(hurt):
    node = hurt(slots=60)
    with node.client(timeout_ms=30_000) as client:
        assert "quarantine-1" not in names(node)
        client.start_workflow("innocents", 50, workflow_id="i")
        client.start_workflow("poisoned", "kill", workflow_id="p")
        letter = dead_letter(client, "p")
        assert (letter.attempts, letter.last_failure.type) == (3, "WorkerDied")
        workers = {letter.last_failure.message.split()[1].partition("@")[0]}
        assert workers <= {"quarantine-1", "quarantine-2"}
        shown = names(node)
        assert shown["quarantine-1"]["kind"] == "worker"
        results = client.result("i", timeout_ms=30_000)
        assert len(results) == 50
        # Twice beside it, and then alone: nobody was charged a third time.
        assert {int(result[-1]) for result in results} <= {1, 2, 3}
        assert [one.workflow_id for one in client.list_dead_letters()] == ["p"]
    assert node.effects() == 51


def test_a_workflow_that_kills_its_workers_does_so_three_times_and_then_alone(hurt):
    node = hurt()
    with node.client(timeout_ms=30_000) as client:
        client.start_workflow("kills_its_worker", workflow_id="k")

        def counted():
            task = client.describe_workflow("k").workflow_task
            return task is not None and task.failures >= 4

        until(counted, "a fourth failure of the workflow's task")
        shown = names(node)
        assert shown["worker-1"]["restarts"] + shown["worker-2"]["restarts"] == 3
        assert client.start_workflow("one", workflow_id="after").result() == "after/e"


def test_an_exit_that_is_raised_is_a_failure_and_no_end_of_the_worker(hurt):
    node = hurt(workers=1)
    pid = node.pid_of("worker-1")
    with node.client(timeout_ms=30_000) as client:
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
    with node.client(timeout_ms=30_000) as client:
        client.start_workflow("blocks", workflow_id="b")
        # Behind it, on the same thread of the same worker.
        assert client.start_workflow("one", workflow_id="after").result() == "after/e"
        task = client.describe_workflow("b").workflow_task
        assert (task.reason, task.failure.type) == ("mismatch", "NonDeterminism")
        assert "time.sleep" in task.failure.message
        assert "asyncio.sleep" in task.failure.message
