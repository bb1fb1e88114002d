"""`perdure reload` on a real node: new code for its workers, and a fresh history under load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.harness import flat
from perdure import node_client, wire
from perdure.client import Client
from tests.process.conftest import RealNode, until

pytestmark = pytest.mark.process

CODE = """
from perdure import activity, workflow

@activity.define
def version() -> str:
    return "{version}"

@workflow.define
async def waits() -> list[str]:
    told = [await workflow.execute_activity(version, activity_id="{first}")]
    await workflow.receive("go").get()
    return [*told, await workflow.execute_activity(version, activity_id="then")]
"""


def write(directory: Path, version: str, first: str = "first") -> None:
    text = CODE.format(version=version, first=first) if version else "def broken(:\n"
    (directory / "reload_app.py").write_text(text)


def workers(node: RealNode) -> dict[str, tuple[int, str]]:
    return {
        one["name"]: (one["pid"], one["build"])
        for one in flat(node.tree())
        if one["kind"] == "worker"
    }


def perdure(node: RealNode, *words: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(node.directory), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-P", "-m", "perdure.cli.main", *words, "--data", str(node.data)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_workers_get_new_code_one_after_the_other_unless_it_would_break_something(
    tmp_path: Path,
) -> None:
    write(tmp_path, "one")
    with RealNode(
        tmp_path, apps=("reload_app",), workers=2, slots=4, python_path=str(tmp_path)
    ) as node:
        node.start()
        before = workers(node)
        with node.client() as client:
            client.start_workflow("waits", workflow_id="w")
            until(lambda: len(client.history("w")) >= 4, "the first activity")
            write(tmp_path, "")
            broken = perdure(node, "reload", "--workers")
            assert (broken.returncode, workers(node)) == (2, before)
            assert "SyntaxError" in broken.stderr
            write(tmp_path, "two", first="another")
            misfit = perdure(node, "reload", "--workers")
            assert (misfit.returncode, workers(node)) == (1, before)
            assert "differs: w, at event 2" in misfit.stderr
            write(tmp_path, "two")
            done = perdure(node, "reload", "--workers")
            assert done.returncode == 0, done.stderr
            assert done.stdout.splitlines()[-1] == "replaced: worker-1 worker-2"
            after = workers(node)
            assert {pid for pid, _ in after.values()}.isdisjoint(p for p, _ in before.values())
            (build,) = {build for _, build in after.values()}
            assert build not in {build for _, build in before.values()}
            client.signal_workflow("w", "go")
            assert client.result("w", timeout_ms=30_000) == ["one", "two"]


def test_a_history_that_is_replaced_under_load_loses_nothing(node: RealNode) -> None:
    before = node.pid_of("history")
    with node.client() as client:
        steps = node_client.reload(node.data, {"what": "history"}, 60_000)
        events = [next(steps)["event"]]
        ids = [f"under-load-{n}" for n in range(20)]
        for id_ in ids:
            client.start_workflow("double", id_, workflow_id=id_)
        events += [step["event"] for step in steps]
        assert events == ["stopping", "ready", "done"]
        assert [client.result(id_, timeout_ms=30_000) for id_ in ids] == [[id_] * 2 for id_ in ids]
    assert node.pid_of("history") != before


def elsewhere(node: RealNode) -> subprocess.Popen[str]:
    """`perdure worker` beside the node, with the node's own modules and a queue of its own."""
    paths = os.pathsep.join([str(node.directory), os.environ.get("PYTHONPATH", "")])
    words = ["worker", "--app", "reload_app", "--queue", "side", "--connect", node.endpoint]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "perdure.cli.main", *words],
        cwd=node.directory,
        env={**os.environ, "PYTHONPATH": paths},
        stderr=subprocess.DEVNULL,
        text=True,
    )


def of_elsewhere(client: Client) -> list[dict[str, Any]]:
    [answer] = client.call_many([wire.WorkerTypes()])
    return [one for one in answer["workers"] if not one["local"]]


def test_a_worker_from_elsewhere_begins_anew_with_new_code_unless_that_does_not_load(
    tmp_path: Path,
) -> None:
    write(tmp_path, "one")
    with (
        RealNode(
            tmp_path, apps=("reload_app",), workers=1, slots=4, python_path=str(tmp_path)
        ) as node,
        node.client() as client,
    ):
        node.start()
        worker = elsewhere(node)
        try:
            [before] = until(lambda: of_elsewhere(client), "the worker")
            client.start_workflow("waits", workflow_id="w", task_queue="side")
            until(lambda: len(client.history("w")) >= 4, "the first activity")
            write(tmp_path, "two")
            done = perdure(node, "reload", "--workers")
            assert done.returncode == 0, done.stderr
            # The same process, another session; what it had is gone on with.
            [after] = of_elsewhere(client)
            assert before["pid"] == after["pid"]
            assert before["worker_id"] != after["worker_id"]
            assert done.stdout.splitlines()[-1] == f"began anew: {after['worker_id']}"
            client.signal_workflow("w", "go")
            assert client.result("w", timeout_ms=20_000) == ["one", "two"]
            write(tmp_path, "")
            assert client.call_many([wire.RestartWorker(after["worker_id"])]) == [{}]
            [stays] = until(lambda: [it for it in of_elsewhere(client) if it["trouble"]], "why")
            assert stays["worker_id"] == after["worker_id"]
            assert "SyntaxError" in stays["trouble"]
            client.start_workflow("waits", workflow_id="v", task_queue="side")
            until(lambda: len(client.history("v")) >= 4, "what it serves")
            worker.terminate()
            assert worker.wait(20) == 0
        finally:
            worker.kill()
            worker.wait()
