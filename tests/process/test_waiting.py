"""What no worker serves says so, also where the workers are no children of the node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from chaos.harness import flat
from perdure.cli.main import run
from tests.process.conftest import APPS, RealNode, until

pytestmark = pytest.mark.process

WORKER = [sys.executable, "-m", "perdure.cli.main", "worker", "--app", "typo_app", "--connect"]


@pytest.fixture
def perdure(monkeypatch, capsys):
    """Runs a command: (exit code, standard output, standard error)."""

    def call(*args):
        capsys.readouterr()
        code = run(list(args))
        return (code, *capsys.readouterr())

    return call


def remote(node):
    return [each for each in flat(node.tree()) if each["name"] == "remote"]


def test_a_misspelt_activity_and_type_name_whom_they_wait_for(tmp_path, monkeypatch, perdure):
    with RealNode(tmp_path, apps=(), workers=0, slots=1) as node, node.client() as client:
        endpoint = node.start()
        monkeypatch.setenv("PERDURE_ENDPOINT", endpoint)
        code, _, err = perdure("wf", "start", "checkout", "--id", "early")
        assert code == 0
        assert "no worker is connected" in err
        assert remote(node) == []
        worker = subprocess.Popen(
            [*WORKER, endpoint],
            cwd=APPS,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            stderr=subprocess.DEVNULL,
        )
        try:
            [group] = until(lambda: remote(node), "the worker")
            assert [(each["kind"], each["pid"], each["state"]) for each in group["children"]] == [
                ("worker", None, "running")
            ]
            # It counts, though the node has not started it.
            assert perdure("wf", "start", "checkout", "--id", "typo")[2] == ""
            warning = perdure("wf", "start", "chekout", "--id", "w2")[2]
            assert "checkout (nearest)" in warning
            assert "queue 'side'" in perdure("wf", "start", "checkout", "--queue", "side")[2]

            [activity] = until(lambda: client.describe_workflow("typo").pending_activities)
            text = (
                "a worker that has activity 'chrage' on queue 'default'; "
                "workers have: charge (nearest)"
            )
            assert activity.waiting_for == text
            assert f"pay: waits for {text}" in perdure("wf", "describe", "typo")[1]
            found = json.loads(perdure("wf", "describe", "w2", "--json")[1])
            assert "workflow 'chekout'" in found["workflow_task"]["waiting_for"]
        finally:
            worker.send_signal(signal.SIGKILL)
            worker.wait(15)
        until(lambda: not remote(node), "the worker's end")
        [activity] = client.describe_workflow("typo").pending_activities
        assert activity.waiting_for.endswith("no worker is connected")
