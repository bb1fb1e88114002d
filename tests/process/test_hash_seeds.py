"""A node that is killed half-way, and goes on under another hash seed, time zone and locale."""

from __future__ import annotations

import os
import signal

import pytest

from tests.process.conftest import APPS, RealNode, until

pytestmark = pytest.mark.process
WORDS = ["ash", "beech", "cedar", "elm", "fir", "larch", "maple", "oak"]


def node_of(directory, **environment):
    return RealNode(
        directory,
        apps=("orders_app",),
        workers=1,
        slots=4,
        python_path=str(APPS),
        environment=environment,
    )


def test_a_workflow_goes_on_under_another_hash_seed_and_time_zone_as_if_nothing_had_been(tmp_path):
    ids = [f"w{number}" for number in range(4)]
    with node_of(tmp_path, PYTHONHASHSEED="1", TZ="UTC") as node, node.client() as client:
        node.start()
        for workflow_id in ids:
            client.start_workflow("ordered", WORDS, workflow_id=workflow_id)
        for workflow_id in ids:
            until(lambda of=workflow_id: "TimerFired" in kinds(client, of), "half of it")
        before = {workflow_id: kinds(client, workflow_id) for workflow_id in ids}
        os.kill(node.pid, signal.SIGKILL)
        until(lambda: not node.is_running, "the end of the node")
    other = {"PYTHONHASHSEED": "2", "TZ": "Asia/Kathmandu", "LC_ALL": "C"}
    with node_of(tmp_path, **other) as node, node.client() as client:
        node.start()
        for workflow_id in ids:
            client.signal_workflow(workflow_id, "go_on", "now")
            result = client.handle(workflow_id).result(timeout_ms=30_000)
            first, second = result[:6], result[7:]
            assert result[6] == "now"
            for part in (first, second):
                assert len({*part[:4]} & {word.upper() for word in WORDS}) == 4
                assert part[5:] == ["once"]
            after = kinds(client, workflow_id)
            assert after[: len(before[workflow_id])] == before[workflow_id]
            assert "WorkflowTaskFailed" not in after
            assert after[-1] == "WorkflowCompleted"


def kinds(client, workflow_id):
    return [event.kind for event in client.history(workflow_id)]
