"""A follower of what happens outlives its node."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from typing import IO

import pytest

from tests.process.conftest import WAIT_S

pytestmark = pytest.mark.process


def lines_of(stream: IO[str]) -> queue.Queue[str]:
    """What is printed there, as it comes."""
    said: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in stream:
            said.put(line)

    threading.Thread(target=read, daemon=True).start()
    return said


def test_a_follower_waits_for_a_node_that_is_away_for_longer_than_its_timeout(hurt):
    node = hurt(app="wire_app")
    command = [
        *(sys.executable, "-m", "perdure.cli.main", "events", "--follow", "--json"),
        *("--timeout", "2", "--kind", "WorkflowCompleted", "--endpoint", node.endpoint),
    ]
    with (
        node.client() as client,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=node.environment,
        ) as follower,
    ):
        assert follower.stdout is not None
        assert follower.stderr is not None
        seen, told = lines_of(follower.stdout), lines_of(follower.stderr)
        try:
            client.start_workflow("double", 1, workflow_id="before")
            assert json.loads(seen.get(timeout=WAIT_S))["workflow_id"] == "before"
            node.kill_all()
            # Longer than its timeout: it has given up on the node once.
            assert told.get(timeout=2 * WAIT_S) == "no node answers: waiting for it\n"
            node.start()
            client.start_workflow("double", 1, workflow_id="after")
            assert json.loads(seen.get(timeout=2 * WAIT_S))["workflow_id"] == "after"
            assert told.get(timeout=WAIT_S) == "the node answers again\n"
        finally:
            follower.kill()


def test_where_there_never_was_a_node_a_follower_does_not_wait_for_one(tmp_path):
    command = [sys.executable, "-m", "perdure.cli.main", "events", "--follow"]
    where = ["--timeout", "0.1", "--endpoint", f"ipc://{tmp_path}/nobody"]
    done = subprocess.run([*command, *where], timeout=60, check=False, capture_output=True)
    assert done.returncode == 4
