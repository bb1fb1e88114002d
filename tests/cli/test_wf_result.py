"""What `perdure wf result` says of a workflow that ended otherwise than Completed."""

from __future__ import annotations

import contextlib

import pytest

from perdure import workflow
from perdure.cli import wf
from perdure.cli.main import run
from perdure.testing import LocalEngine


@workflow.define
async def waits(fails: bool = False) -> None:
    if fails:
        raise KeyError("no price")
    await workflow.receive("never").get()


@pytest.mark.parametrize(
    ("workflow_id", "says"),
    [
        ("left", "left cancelled: the customer left"),
        ("stopped", "stopped terminated: a bad import"),
        ("broken", "broken failed: KeyError: 'no price'"),
    ],
)
def test_how_it_ended_is_said_once_with_the_reason(workflow_id, says, monkeypatch, capsys):
    engine = LocalEngine([waits])
    for one in ("left", "stopped", "broken"):
        engine.client.start_workflow(waits, one == "broken", workflow_id=one)
    engine.run_until_idle(skip_time=False)
    engine.client.cancel_workflow("left", "the customer left")
    engine.client.terminate_workflow("stopped", "a bad import")
    engine.run_until_idle(skip_time=False)

    @contextlib.contextmanager
    def connected(*_):
        yield engine.client

    monkeypatch.setattr(wf, "connected", connected)
    assert run(["wf", "result", workflow_id]) == 1
    assert capsys.readouterr().err == f"perdure: {says}\n"
