"""Three samples on a real node, of which everything, history or a worker is killed half-way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chaos.auditor import audit_data_dir
from tests.process.conftest import RealNode, until
from tests.samples.conftest import SAMPLES

pytestmark = pytest.mark.process

WAIT_MS = 30_000


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RealNode(
        Path(tmp_path_factory.mktemp("n")),
        apps=("window", "counter", "import_file"),
        workers=2,
        slots=4,
        python_path=str(SAMPLES),
    ) as process:
        process.start()
        yield process
    assert audit_data_dir(process.data).is_clean


def test_a_batch_and_its_children_go_on_when_everything_is_killed(node):
    with node.client() as client:
        handle = client.start_workflow("batch", 12, 4, 5, workflow_id="b")
        until(lambda: handle.describe().run >= 2)
        node.kill_all()
        node.start()
        assert handle.result(timeout_ms=WAIT_MS) == 12
        done = client.list_workflows(type="one_record", status="Completed")
        assert len(done.workflows) == 12


def test_a_counter_counts_each_call_once_while_history_and_workers_are_killed(node):
    with node.client(timeout_ms=WAIT_MS) as client, ThreadPoolExecutor(4) as threads:
        client.start_workflow("counter", 0, 7, workflow_id="c")

        def add(number: int) -> int:
            made = client.update_workflow(
                "c", "add", 1, request_id=f"r{number}", timeout_ms=WAIT_MS
            )
            new: int = made["new"]
            return new

        calls = [threads.submit(add, number) for number in range(40)]
        for number, role in ((5, "worker-1"), (15, "history"), (25, "worker-2")):
            calls[number].result()
            node.kill(role)
        assert sorted(call.result() for call in calls) == list(range(1, 41))
        assert client.query_workflow("c", "get", timeout_ms=WAIT_MS) == 40
        assert client.describe_workflow("c").run >= 3
        assert [add(number) for number in (0, 39)] == [calls[0].result(), calls[39].result()]


def test_an_import_goes_on_at_its_row_when_its_worker_is_killed(node):
    with node.client() as client:
        handle = client.start_workflow("import_file", 120, 20, workflow_id="i")

        def at_work():
            [task] = handle.describe().pending_activities or [None]
            return task if task is not None and (task.heartbeat_details or 0) > 20 else None

        node.kill(until(at_work).worker_id.partition("@")[0])
        assert 0 < handle.result(timeout_ms=WAIT_MS) < 110
