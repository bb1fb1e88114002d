"""`perdure replay`, as docs/replay.md shows it, and against what runs on a node."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path

import pytest

from perdure import activity, workflow
from perdure.cli import replay
from perdure.cli.main import run
from perdure.testing import LocalEngine

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "replay"
MODULES = ("before", "careless", "careful")


@pytest.fixture(autouse=True)
def _in_the_examples(monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    definitions = [(kind, len(kind)) for kind in (activity.defined, workflow.defined)]
    yield
    for name in MODULES:
        sys.modules.pop(name, None)
    for kind, length in definitions:
        del kind[length:]


def test_the_page_shows_what_the_examples_print(capsys):
    text = (ROOT / "docs" / "replay.md").read_text()
    shown = re.search(r"\$ cd docs/replay\n(.*?)\n\n", text, re.DOTALL)[1]
    for session in shown.split("    $ perdure ")[1:]:
        command, *expected = session.splitlines()
        code = run(command.split())
        out = capsys.readouterr().out
        assert [f"    {line}" for line in out.splitlines()] == expected
        assert code == (1 if "differs" in out else 0)


def test_with_json_every_history_has_its_verdict(capsys):
    assert run(["replay", "careless", "--history", "histories", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["checked"], found["fit"]) == (1, 0)
    (verdict,) = found["verdicts"]
    assert (verdict["verdict"], verdict["event_id"]) == ("differs", 2)
    assert verdict["where"].endswith("careless.py:26")


@pytest.mark.parametrize(
    "args", [[], ["--running", "--history", "histories"], ["--history", "nowhere"]]
)
def test_what_is_to_be_replayed_has_to_be_said(args, capsys):
    assert run(["replay", "before", *args]) == 2
    assert capsys.readouterr().err


def test_every_open_workflow_of_a_node_is_replayed(monkeypatch, capsys):
    import before

    engine = LocalEngine(
        workflows=[before.checkout, other], activities=[before.charge, before.ship]
    )
    for n in range(3):
        engine.client.start_workflow(before.checkout, "o-1", workflow_id=f"order-{n}")
    engine.client.start_workflow(other, workflow_id="other")
    engine.run_until_idle(skip_time=False)

    @contextlib.contextmanager
    def connected(*_):
        yield engine.client

    monkeypatch.setattr(replay, "connected", connected)
    assert run(["replay", "before", "--running", "--type", "checkout"]) == 0
    assert "3 of 3 histories fit" in capsys.readouterr().out
    assert run(["replay", "careless", "--running", "--type", "checkout", "--limit", "2"]) == 1
    out, err = capsys.readouterr()
    assert "2 of 2 histories do not fit the code" in out
    assert "there are more" in err
    assert run(["replay", "before", "--running"]) == 1
    assert "unknown_type: other, other" in capsys.readouterr().out


@workflow.define(name="other")
async def other():
    await workflow.sleep_ms(60_000)
