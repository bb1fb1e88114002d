"""Children, runs, and what is given up, on a real node whose processes are killed meanwhile."""

from __future__ import annotations

import pytest

from chaos.auditor import audit_data_dir
from perdure.errors import WorkflowFailed
from tests.process.conftest import until

pytestmark = pytest.mark.process

FAMILIES, CHILDREN = 8, 4
AMOUNTS = range(1, 16)


def test_families_and_sums_survive_kills_and_the_auditor_finds_them_right(hurt):
    node = hurt(app="family_app")
    with node.client(timeout_ms=30_000) as client:
        for number in range(FAMILIES):
            client.start_workflow("parent", CHILDREN, workflow_id=f"p{number}", request_id="r")
        client.start_workflow("adds", workflow_id="sum")
        for amount in AMOUNTS:
            client.signal_workflow("sum", "add", amount, request_id=f"r{amount}")
            if amount % 5 == 0:
                node.kill(("history", "worker-1", "scheduler")[amount // 5 % 3])
        client.signal_workflow("sum", "add", 0)
        for number in range(FAMILIES):
            children = [f"p{number}/@{child + 1}" for child in range(CHILDREN)]
            keys = [f"{name.replace('/', '%2F')}/work" for name in children]
            assert client.result(f"p{number}", timeout_ms=30_000) == keys
        assert client.result("sum", timeout_ms=30_000) == sum(AMOUNTS)
        assert client.describe_workflow("sum").run == len(AMOUNTS) + 1
        _given_up(client)
        _trees(client, 25)
    node.stop()
    report = audit_data_dir(node.data)
    assert report.violations == ()


def _given_up(client):
    """What runs is told at once, for it never beats; and what tidies up still runs."""
    client.start_workflow("stops", workflow_id="stops")

    def is_leased():
        pending = client.describe_workflow("stops").pending_activities
        return pending and pending[0].state == "Leased"

    until(is_leased, "the attempt")
    client.cancel_workflow("stops", "enough")
    with pytest.raises(WorkflowFailed) as caught:
        client.result("stops", timeout_ms=30_000)
    assert caught.value.status == "Cancelled"
    kinds = [event.kind for event in client.history("stops")]
    assert kinds[-2:] == ["ActivityTaskCompleted", "WorkflowCancelled"]


def _trees(client, count):
    """Ending the root of a tree ends all of it."""
    for number in range(count):
        client.start_workflow("tree", 2, workflow_id=f"t{number}")
    running = {"status": "Running", "limit": 1_000}
    until(lambda: len(client.list_workflows(**running).workflows) == 3 * count, "the trees")
    for number in range(count):
        client.terminate_workflow(f"t{number}", "over")
    assert client.list_workflows(**running).workflows == []
