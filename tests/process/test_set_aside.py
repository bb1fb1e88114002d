"""Commands that make history fail, among others that do not."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from perdure.cli.main import run
from perdure.errors import PerdureError
from tests.process.conftest import until

pytestmark = pytest.mark.process


def test_a_command_that_makes_history_fail_is_set_aside_and_every_other_goes_through(hurt, capsys):
    node = hurt(workers=1, environment={"PERDURE_TEST_VFS": "breaks:install"})
    pid = node.pid_of("history")
    good = [f"w{number}" for number in range(30)]
    bad = ["raises", "contradicts"]

    def start(workflow_id):
        with node.client(timeout_ms=30_000 if workflow_id in good else 600) as client:
            try:
                return client.start_workflow("one", workflow_id=workflow_id).result()
            except PerdureError as problem:
                return problem.code

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(start, [*good[:10], *bad, *good[10:]]))
    assert [answer for answer in answers if answer.endswith("/e")] == [f"{one}/e" for one in good]
    assert node.pid_of("history") == pid

    def aside():
        assert run(["aside", "--data", str(node.data), "--json"]) == 0
        return {row["workflow_id"]: row for row in json.loads(capsys.readouterr().out)}

    # Nobody is answered when they are: those who asked only waited for as long as they would.
    until(lambda: len(aside()) == len(bad), "both of them set aside")
    kept = aside()
    assert kept.keys() == set(bad)
    assert "ZeroDivisionError: in a decision" in kept["raises"]["error"]
    assert "ConstraintError: in a row" in kept["contradicts"]["error"]
    assert {row["command"] for row in kept.values()} == {"StartWorkflow"}
