"""Signals, queries, updates, ends, events and bulk work against a real node."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from chaos.harness import NodeProcess
from perdure import Client, errors
from perdure.cli.main import run
from tests.process.conftest import until

pytestmark = pytest.mark.process

APPS = Path(__file__).parent / "apps"
WAIT_MS = 30_000


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    directory = tmp_path_factory.mktemp("node")
    with NodeProcess(
        directory, apps=("people_app",), workers=2, slots=4, python_path=str(APPS)
    ) as process:
        process.start()
        yield process


@pytest.fixture
def client(node):
    with Client(data_dir=node.data) as made:
        yield made


@pytest.fixture
def perdure(node, monkeypatch, capsys):
    """Runs a command beside the node: (exit code, standard output, standard error)."""
    monkeypatch.chdir(node.directory)
    monkeypatch.delenv("PERDURE_ENDPOINT", raising=False)

    def call(*args):
        capsys.readouterr()
        code = run([*args, "--timeout", "30"])
        return (code, *capsys.readouterr())

    return call


def test_a_workflow_is_talked_to_from_program_and_command_line(client, perdure):
    handle = client.start_workflow("order", workflow_id="o1")
    assert perdure("wf", "signal", "o1", "add", "3")[0] == 0
    assert perdure("wf", "query", "o1", "count")[1] == "3\n"
    assert handle.query("count") == 3
    assert handle.update("say", "right", timeout_ms=WAIT_MS) == "right"
    assert perdure("wf", "update", "o1", "say", '["right"]')[1] == '"right"\n'
    code, _, err = perdure("wf", "update", "o1", "say", '""')
    assert (code, "say something" in err) == (1, True)
    assert perdure("wf", "query", "o1", "nothing")[0] == 5
    handle.signal("add", 7)
    assert handle.result(timeout_ms=WAIT_MS) == 10
    assert handle.query("count") == 10
    assert perdure("wf", "signal", "o1", "add")[0] == 6


def test_a_message_starts_the_workflow_that_is_not_there(client, perdure):
    start = ("--start", "order")
    first, again = (perdure("wf", "signal", "s1", "add", "3", *start) for _ in range(2))
    assert first[:2] == (0, "started and signalled: s1\n")
    assert again[:2] == (0, "signalled: s1\n")
    assert perdure("wf", "query", "s1", "count")[1] == "6\n"
    assert perdure("wf", "update", "s2", "say", '["right"]', *start)[1] == '"right"\n'
    said = {"update": "say", "update_args": ["right"], "answer_timeout_ms": WAIT_MS}
    assert client.update_with_start("order", workflow_id="s3", **said) == "right"
    assert perdure("wf", "signal", "s1", "add", "3", "--input", "[]")[0] == 2
    # A name that its code does not take, as far as that has run.
    code, out, err = perdure("wf", "signal", "s3", "ad", "3")
    assert (code, out) == (0, "signalled: s3\n")
    assert "takes no signal 'ad'" in err
    assert client.handle("s3").query("count") == 0
    until(lambda: client.describe_workflow("s3").untaken_signals)
    assert "signals that its code does not take: ad (1)" in perdure("wf", "describe", "s3")[1]


def test_runs_are_followed_and_each_can_be_looked_at(client, perdure):
    assert client.start_workflow("runs", 1, 3, workflow_id="r").result(timeout_ms=WAIT_MS) == 3
    assert json.loads(perdure("wf", "describe", "r", "--json")[1])["run"] == 3
    shown = json.loads(perdure("wf", "describe", "r", "--run", "1", "--json")[1])
    assert (shown["run"], shown["status"], shown["input"]) == (1, "ContinuedAsNew", [1, 3])
    assert json.loads(perdure("wf", "result", "r", "--json")[1])["result"] == 3


def test_many_are_cancelled_or_terminated_after_they_were_counted(client, perdure):
    for n in range(5):
        client.start_workflow("forever", workflow_id=f"f{n}", search_attributes={"n": n})
    assert perdure("wf", "cancel", "--all", "--type", "forever", "--dry-run")[1] == (
        "5 workflows match\n"
    )
    code, out, _ = perdure("wf", "terminate", "--all", "--attr", "n=0", "--reason", "one")
    assert (code, out) == (0, "terminated 1 of 1\n")
    code, out, _ = perdure("wf", "cancel", "--all", "--type", "forever", "--json")
    assert (code, json.loads(out)["done"]) == (0, 4)
    for n in range(5):
        with pytest.raises(errors.WorkflowFailed) as caught:
            client.result(f"f{n}", timeout_ms=WAIT_MS)
        assert caught.value.status == ("Terminated" if n == 0 else "Cancelled")
    assert perdure("wf", "cancel", "f1")[0] == 6
    assert perdure("wf", "cancel")[0] == 2
    assert perdure("wf", "cancel", "f1", "--type", "forever")[0] == 2


def test_dead_letters_are_grouped_and_redriven_with_a_canary(client, perdure):
    for n in range(3):
        client.start_workflow("picky", workflow_id=f"p{n}")
    until(lambda: len(client.list_dead_letters(activity_type="strict")) == 3)
    listed = perdure("wf", "dlq", "list", "--by-failure", "--type", "strict", "--json")
    [group] = json.loads(listed[1])
    assert (group["failure_type"], group["count"]) == ("ValueError", 3)
    redrive = ("wf", "dlq", "redrive", "--all", "--type", "strict", "--canary")
    code, _, err = perdure(*redrive)
    assert (code, "nothing else was done" in err) == (1, True)
    assert max(it.redrives for it in client.list_dead_letters(activity_type="strict")) == 1
    # Long enough to be kept by reference.
    right = json.dumps(["right" + " " * 2_000])
    code, out, err = perdure(*redrive, "--input", right, "--by", "ann", "--rate", "50")
    assert (code, out, "canary" in err) == (0, "redriven 2 of 2\n", True)
    assert [client.result(f"p{n}", timeout_ms=WAIT_MS) for n in range(3)] == ["right"] * 3


def test_the_feed_tells_each_death_of_an_activity_once_and_goes_on_over_a_crash(node, client):
    """Also when the way there is the death of the worker, and the node dies behind it."""
    after = client.read_events("now").next
    heard, stop = [], threading.Event()

    def listen():
        at = after
        with Client(data_dir=node.data, timeout_ms=WAIT_MS) as ours:
            while not stop.is_set():
                page = ours.read_events(at, kinds=["ActivityDeadLettered"], wait_ms=500)
                heard.extend(page.events)
                at = page.next

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        client.start_workflow("poison", workflow_id="x1")
        until(lambda: heard)
        node.kill_all()
        node.start()
        client.start_workflow("picky", workflow_id="x2")
        until(lambda: len(heard) == 2)
    finally:
        stop.set()
        thread.join(30)
    assert [(it.workflow_id, it.failure.type) for it in heard] == [
        ("x1", "WorkerDied"),
        ("x2", "ValueError"),
    ]
    for workflow_id in ("x1", "x2"):  # Other tests look for dead letters, too.
        client.terminate_workflow(workflow_id)
    again = list(client.events(after, ["ActivityDeadLettered"], follow=False))
    assert [it.id for it in again] == [it.id for it in heard]
