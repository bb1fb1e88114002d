"""Any process of a node dies by SIGKILL, again and again, while it works."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading

import pytest
import zmq

from chaos.harness import flat
from perdure.client import Client

pytestmark = pytest.mark.process

ROLES = ("history", "lease_keeper", "scheduler", "dlq", "gateway", "worker-1", "worker-2")
WORKFLOWS = 40
KILLS = 16


def begin(client, workflow, count, *args, prefix="w"):
    ids = [f"{prefix}{number}" for number in range(count)]
    for workflow_id in ids:
        client.start_workflow(workflow, *args, workflow_id=workflow_id, request_id="r")
    return ids


def assert_all_done_once(node, client, ids):
    for workflow_id in ids:
        expected = [f"{workflow_id}/e%2F{number}" for number in range(2)] + [f"{workflow_id}/@1"]
        assert client.result(workflow_id, timeout_ms=30_000) == expected
    assert node.effects() == 3 * len(ids)


def kill_running(node, rng, count):
    """SIGKILL `count` of the processes that are there, chosen by chance; which."""
    there = [n["pid"] for n in flat(node.tree()) if n["name"] in ROLES and n.get("pid")]
    chosen = rng.sample(there, min(count, len(there)))
    for pid in chosen:
        kill(pid)
    return chosen


def wait_till_all_run(node, pause, stop):
    while not stop.is_set():
        if all(n["state"] == "running" for n in flat(node.tree()) if n["name"] in ROLES):
            return
        pause.wait(0.02)


def kill(pid):
    with contextlib.suppress(ProcessLookupError):  # It may have gone since.
        os.kill(pid, signal.SIGKILL)


def test_kills_of_anybody_at_any_moment_lose_nothing_and_double_nothing(hurt, sockets):
    node, rng, pause = hurt(), random.Random(11), threading.Event()
    stop, enough, killed = threading.Event(), threading.Event(), []

    def killer():
        while not stop.is_set():
            killed.extend(kill_running(node, rng, rng.choice([1, 1, 2, 3])))
            if len(killed) >= KILLS:
                enough.set()
            pause.wait(rng.uniform(0.02, 0.25))
            if rng.random() < 0.3:
                # Else nothing is ever ready where the machine is slower than the killer.
                wait_till_all_run(node, pause, stop)

    thread = threading.Thread(target=killer)
    with node.client(timeout_ms=30_000) as client:
        thread.start()
        try:
            ids = begin(client, "several", WORKFLOWS, 20)
            assert enough.wait(30)
        finally:
            stop.set()
            thread.join()
        assert_all_done_once(node, client, ids)
        restarts = sum(n["restarts"] for n in flat(node.tree()) if n["name"] in ROLES)
        assert restarts > KILLS / 2
        # What lies in its sockets and can't be read harms nobody, and is logged as everything is.
        for path in (node.data / "run" / "node").iterdir():
            if path.name.startswith("listener-"):
                continue  # The forkserver's own.
            noise = sockets(zmq.DEALER, f"ipc://{path}")
            for frames in ([b""], [b"", b"\xc1"], [b"x", b"y", b"z"], [b"", os.urandom(10_000)]):
                noise.send_multipart(frames)
        assert client.ping().node
        assert client.result(ids[0]) is not None
    node.stop()
    for line in node.log_path.read_text().splitlines():
        assert "event" in json.loads(line)


def test_the_whole_tree_dies_under_load_and_clients_of_its_endpoint_live_on(hurt):
    node = hurt()
    endpoint = node.endpoint
    with Client(endpoint, timeout_ms=30_000) as client:
        ids = begin(client, "several", WORKFLOWS, 30)
        node.kill_all()
        ids += begin_beside(node, client)
        node.restart()
        assert node.endpoint == endpoint
        assert_all_done_once(node, client, ids)


def begin_beside(node, client):
    """Start more by a client whose calls begin while no node is there."""
    started = []
    thread = threading.Thread(
        target=lambda: started.extend(begin(client, "several", 10, prefix="later"))
    )
    thread.start()
    node.start()
    thread.join()
    return started


def test_children_that_are_killed_before_they_are_ready_do_not_take_the_node_down(hurt):
    node = hurt(workers=1)
    killed, waits = set(), threading.Event()
    while len(killed) < 12:
        for entry in flat(node.tree()):
            pid = entry.get("pid")
            if entry["name"] in ("scheduler", "lease_keeper") and pid and pid not in killed:
                kill(pid)
                killed.add(pid)
        waits.wait(0.005)
    with node.client(timeout_ms=30_000) as client:
        assert client.start_workflow("one", workflow_id="after").result() == "after/e"
