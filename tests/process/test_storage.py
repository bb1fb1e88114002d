"""What a node does about its store: it starts on the right one only, and never makes a new one of
what is left.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

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
