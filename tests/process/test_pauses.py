"""A process stands still for a while and then goes on, as a busy machine or a debugger makes it."""

from __future__ import annotations

import os
import signal
import threading

import psutil
import pytest

pytestmark = pytest.mark.process


def begin(client, workflow, count, *args, prefix="w"):
    ids = [f"{prefix}{number}" for number in range(count)]
    for workflow_id in ids:
        client.start_workflow(workflow, *args, workflow_id=workflow_id)
    return ids


def test_an_actor_that_stood_still_takes_up_its_work(hurt):
    node, pause = hurt(workers=1), threading.Event()
    roles = ("history", "gateway", "scheduler", "lease_keeper")
    with node.client(timeout_ms=30_000) as client:
        for role in roles:
            ids = begin(client, "several", 10, prefix=role)
            pid = node.kill(role, signal.SIGSTOP)
            pause.wait(1.1)  # Longer than what nobody answered waits before it is said again.
            os.kill(pid, signal.SIGCONT)
            for workflow_id in ids:
                assert len(client.result(workflow_id, timeout_ms=30_000)) == 3
            assert node.pid_of(role) == pid
    assert node.effects() == 3 * 10 * len(roles)


def test_what_a_worker_held_when_it_stood_still_is_done_by_the_other_once_its_lease_ends(hurt):
    node = hurt(workers=2, slots=6)
    with node.client(timeout_ms=30_000) as client:
        ids = begin(client, "beats", 4, 600)
        pid = pid_of_most(node, 4)
        os.kill(pid, signal.SIGSTOP)
        try:
            held = {key for key, _, of in node.calls() if of == pid}
            results = [client.result(each, timeout_ms=30_000) for each in ids]
        finally:
            os.kill(pid, signal.SIGCONT)
        # The one that hung seemed free, but drew nothing of it to itself again.
        assert {r for r in results if r.endswith(" 2")} == {f"{key} 2" for key in held}
        assert [r for r in results if not r.endswith((" 1", " 2"))] == []
        # Its late reports changed nothing, and it works again.
        assert client.start_workflow("one", workflow_id="z").result(timeout_ms=30_000) == "z/e"
        for workflow_id in ids:
            kinds = [event.kind for event in client.history(workflow_id)]
            assert kinds.count("ActivityTaskCompleted") == 1
    assert node.effects() == 5


def pid_of_most(node, count):
    """The worker that has most of `count` attempts, once all have begun."""
    pause = threading.Event()
    while len(calls := node.calls()) < count:
        pause.wait(0.005)
    pids = [pid for _, _, pid in calls]
    return max(pids, key=pids.count)


def stand_still(processes, ms):
    """SIGSTOP, all of them; and after so long they go on, in the same order."""
    for process in processes:
        process.suspend()
    threading.Event().wait(ms / 1_000)
    for process in processes:
        process.resume()


@pytest.mark.parametrize("who", ["history", "gateway", "everybody"])
def test_no_attempt_is_charged_for_a_standstill_of_the_node_that_outlasts_its_lease(
    hurt, who, tmp_path
):
    node, over = hurt(workers=2, slots=6), tmp_path / "over"
    with node.client(timeout_ms=30_000) as client:
        ids = begin(client, "beats_until", 6, str(over))
        pid_of_most(node, 6)
        stopped = node.processes()
        if who != "everybody":
            stopped = [psutil.Process(node.pid_of(who))]
        stand_still(stopped, 2_400)  # The lease lasts for 2 s.
        over.touch()
        results = [client.result(each, timeout_ms=30_000) for each in ids]
    assert results == [f"{each}/b 1" for each in ids]
