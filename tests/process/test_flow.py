"""Pauses and the operator's rules on a real node, whose every process is killed meanwhile."""

from __future__ import annotations

import pytest

from chaos.auditor import audit_data_dir
from tests.process.conftest import APPS, RealNode, until

pytestmark = pytest.mark.process

CONFIG = """
[activities."twice"]
concurrency = 1
start_to_close_ms = 12_345
"""


def test_a_pause_survives_the_death_of_every_process_and_explain_names_it(tmp_path):
    (tmp_path / "perdure.toml").write_text(CONFIG, encoding="utf-8")
    with (
        RealNode(tmp_path, apps=("wire_app",), workers=1, slots=4, python_path=str(APPS)) as node,
        node.client(timeout_ms=30_000) as client,
    ):
        node.start()
        client.pause_activity_type("twice", "no quota")
        client.start_workflow("double", 1, workflow_id="a")
        until(lambda: client.describe_workflow("a").pending_activities, "the activity")
        node.kill_all()
        node.start()
        why = client.explain_workflow("a", "a")
        assert (why.details["gate"], why.at_ms) == ("paused", None)
        assert "no quota" in why.reason
        [scheduled] = [e for e in client.history("a") if e.kind == "ActivityTaskScheduled"]
        assert scheduled.options["start_to_close_ms"] == 12_345
        client.pause_queue("default")
        client.start_workflow("double", 2, workflow_id="b")
        client.resume_activity_type("twice")
        assert client.explain_workflow("b").details["gate"] == "paused"
        client.resume_queue("default")
        assert client.result("a", timeout_ms=30_000) == [1, 1]
        assert client.result("b", timeout_ms=30_000) == [2, 2]
        assert client.explain_workflow("a").state == "Completed"
        node.stop()
    assert audit_data_dir(node.data).violations == ()
