"""What a node does about its store: it starts on the right one only, and never makes a new one of
what is left.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from perdure.cli.main import run
from perdure.errors import NotFound

pytestmark = pytest.mark.process


def test_a_node_refuses_to_start_on_a_store_that_has_lost_commits(hurt):
    node = hurt(workers=0)
    with node.client() as client:
        client.start_workflow("several", 0, workflow_id="w", request_id="r")
    node.kill_all()
    for name in ("perdure.db-wal", "perdure.db-shm"):
        (node.data / name).unlink()
    before = (node.data / "perdure.db").read_bytes()
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "supervisors", "--app", "hurt_app", "--data", str(node.data)],
        env=node.environment,
        cwd=node.directory,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 6
    assert ended.stdout == ""
    said = [line for line in ended.stderr.splitlines() if line.startswith("perdure: ")][-1]
    assert "1 commits are lost" in said
    assert f"perdure restore --accept --data {node.data}" in said
    assert (node.data / "perdure.db").read_bytes() == before


def test_a_running_node_is_backed_up_and_a_stopped_one_restored(hurt, tmp_path, capsys):
    node, copy = hurt(workers=1), str(tmp_path / "copy.db")
    data = ["--data", str(node.data)]
    with node.client(timeout_ms=20_000) as client:
        client.start_workflow("several", 0, workflow_id="before")
        expected = client.result("before")
        assert run(["backup", copy, *data, "--json"]) == 0
        copied = json.loads(capsys.readouterr().out)
        client.start_workflow("several", 0, workflow_id="after")
        client.result("after")
    assert run(["backup", copy, *data]) == 6
    assert "is there already" in capsys.readouterr().err
    assert run(["restore", copy, *data]) == 6, "a node that runs is left alone"
    assert f"held by process {node.pid}" in capsys.readouterr().err
    node.end_by(signal.SIGTERM)
    assert run(["restore", copy, *data, "--json"]) == 0
    restored = json.loads(capsys.readouterr().out)
    assert (restored["store"]["n"], restored["store"]["hash"]) == (copied["n"], copied["hash"])
    assert restored["lost"] > 0
    node.start()
    with node.client(timeout_ms=20_000) as client:
        assert client.result("before") == expected
        with pytest.raises(NotFound):
            client.describe_workflow("after")
    assert run(["restore", "--accept", *data]) == 6
    assert run(["restore", *data]) == 2
    assert run(["restore", str(tmp_path / "absent.db"), *data]) == 5
    assert run(["backup", copy, "--data", str(tmp_path / "absent")]) == 5
