"""Activities on a real node that hang, run programs, or are finished by somebody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.conftest import APPS, RealNode, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def marks(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("marks") / "marks"


@pytest.fixture(scope="module")
def acts(tmp_path_factory, marks):
    with RealNode(
        tmp_path_factory.mktemp("n"),
        apps=("acts_app",),
        workers=1,
        slots=2,
        python_path=str(APPS),
        environment={"ACTS_MARKS": str(marks)},
    ) as node:
        node.start()
        with node.client(timeout_ms=30_000) as client:
            yield node, client


def test_activities_that_hang_cost_no_slot_though_they_swallow_everything(acts, marks):
    _, client = acts
    marks.write_text("")
    args = ("BaseException", 4, 800, 200)
    ended = client.start_workflow("hung", *args, workflow_id="hung").result(timeout_ms=30_000)
    assert ended == ["ActivityFailed"] * 4
    handles = [client.start_workflow("one", "nothing", workflow_id=f"n{i}") for i in range(10)]
    assert [each.result(timeout_ms=30_000) for each in handles] == [f"n{i}/a" for i in range(10)]
    for pid in map(int, marks.read_text().split()):
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"the end of {pid}")


def test_a_program_that_failed_goes_on_from_its_checkpoint(acts, tmp_path):
    _, client = acts
    handle = client.start_workflow("one", "program", str(tmp_path), workflow_id="program")
    assert handle.result(timeout_ms=30_000) == ""
    assert (tmp_path / "said").read_text() == "1:\n2:step 3\n"


def test_an_attempt_that_is_left_open_survives_its_worker_and_its_node(acts, marks):
    node, client = acts
    marks.write_text("")
    handle = client.start_workflow("one", "ask", workflow_id="asked")
    token = until(lambda: marks.read_text().strip(), "the token")
    # What the worker reports behind it is done only when that is.
    client.start_workflow("one", "nothing", workflow_id="behind").result(timeout_ms=30_000)
    node.kill("worker-1")
    node.kill_all()
    node.start()
    client.complete_activity_task(token, "granted")
    assert handle.result(timeout_ms=30_000) == "granted"
    assert marks.read_text().split() == [token]
