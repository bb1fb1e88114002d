"""Commands that are SIGKILLed while they ask a node for something: nothing is half done, nothing is
done twice when they are given again.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from perdure.crash_points import POINT_VARIABLE
from tests.process.conftest import RealNode, until

pytestmark = pytest.mark.process

LETTERS = 12


def perdure(node: RealNode, *words: str, dies: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command. `dies`: the crash point, with its count, at which its process is killed."""
    environment = {**node.environment, "PERDURE_ENDPOINT": node.endpoint}
    environment.pop(POINT_VARIABLE, None)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "perdure.cli.main", *words],
        env={**environment, **({POINT_VARIABLE: dies} if dies else {})},
        cwd=node.directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if dies else 0), done.stderr
    return done


def test_resets_and_redrives_that_are_killed_are_done_whole_once_or_not_at_all(hurt):
    node = hurt(workers=1)
    with node.client() as client:
        client.start_workflow("one", workflow_id="w")
        client.result("w", timeout_ms=30_000)
        dead = [f"dead-{number}" for number in range(LETTERS)]
        for workflow_id in dead:
            client.start_workflow("poisoned", "SystemExit", workflow_id=workflow_id)
        letters = until(
            lambda: len(found := client.list_dead_letters()) == LETTERS and found, "dead letters"
        )
        assert {it.redrives for it in letters} == {0}

        # A reset that was killed before it was sent, or behind it: never, or whole.
        words = ("wf", "reset", "w", "--to", "1", "--yes")
        perdure(node, *words, dies="CLIENT_REQUEST_MADE_NOT_SENT")
        assert resets(client) == 0
        perdure(node, *words, dies="CLIENT_SENT_NOT_ANSWERED")
        until(lambda: resets(client) == 1, "the reset")
        assert client.result("w", timeout_ms=30_000) == "w/e"

        # Redrives in parts, of which the first has been answered: the rest is done by the next one.
        many = ("wf", "dlq", "redrive", "--all", "--yes", "--rate", "30")
        client.pause_activity_type("poison", "so that none dies again")
        perdure(node, *many, dies="CLIENT_ANSWERED_NOT_TOLD:3")
        left = {it.workflow_id for it in client.list_dead_letters()}
        assert 0 < len(left) < LETTERS
        done = perdure(node, *many)
        assert f"redriven {len(left)} of {len(left)}" in done.stdout
        assert list(client.list_dead_letters()) == []
        for workflow_id in dead:
            kinds = [event.kind for event in client.history(workflow_id)]
            assert kinds.count("ActivityRedriven") == 1
    assert node.effects() == 1 + LETTERS


def resets(client):
    return sum(event.kind == "WorkflowReset" for event in client.history("w"))


def test_a_reload_that_is_killed_with_the_worker_that_it_replaces_leaves_a_node_that_serves(hurt):
    node = hurt(workers=2)
    with node.client() as client:
        go = node.directory / "go"
        client.start_workflow("beats_until", str(go), workflow_id="w")
        until(node.calls, "the attempt")
        [(_, _, busy)] = node.calls()
        words = [sys.executable, "-P", "-m", "perdure.cli.main", "reload", "--workers"]
        with subprocess.Popen(
            [*words, "--data", str(node.data)],
            env={**node.environment, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        ) as reload:
            for line in reload.stdout:
                if "is told to finish" in line:
                    break
            reload.kill()
        node.kill_worker(busy)
        until(lambda: len(node.worker_pids()) == 2 and busy not in node.worker_pids(), "workers")
        go.touch()
        assert client.result("w", timeout_ms=30_000).startswith("w/b ")
        # Where the one before still goes on, this one is refused until it has ended.
        again = [*words, "--data", str(node.data)]
        until(
            lambda: (
                subprocess.run(again, env=node.environment, capture_output=True).returncode == 0
            ),
            "another reload",
        )
        client.start_workflow("one", workflow_id="after")
        assert client.result("after", timeout_ms=30_000) == "after/e"
