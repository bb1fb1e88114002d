"""The command line against a real node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from chaos.harness import NodeProcess, flat
from perdure.cli.main import run
from tests.process.conftest import until

pytestmark = pytest.mark.process

PERDURE = [sys.executable, "-m", "perdure.cli.main"]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    directory = tmp_path_factory.mktemp("node")
    with NodeProcess(directory, apps=("perdure.demo",), workers=2, slots=4) as process:
        process.start()
        yield process


@pytest.fixture
def perdure(node, monkeypatch, capsys):
    """Runs a command beside the node: (exit code, standard output, standard error)."""
    monkeypatch.chdir(node.directory)
    monkeypatch.delenv("PERDURE_ENDPOINT", raising=False)

    def call(*args):
        capsys.readouterr()
        code = run(list(args))
        return (code, *capsys.readouterr())

    return call


def dead_letter(perdure, workflow_id):
    args = ("--id", workflow_id, "--fail-rate", "1", "--max-attempts", "1", "--activities", "1")
    assert perdure("wf", "start", "FlakyDemo", *args, "--work-ms", "0")[0] == 0
    [letter] = until(lambda: json.loads(perdure("wf", "dlq", "list", workflow_id, "--json")[1]))
    return letter


def test_a_flaky_workflow_is_started_waited_for_and_its_result_printed(perdure):
    code, out, err = perdure(
        "wf", "start", "FlakyDemo", "--fail-rate", "0.5", "--work-ms=10", "--id", "f1", "--wait"
    )
    assert (code, err) == (0, "started f1\n")
    receipts = json.loads(out)
    assert [receipt.split(" by ")[0] for receipt in receipts] == [
        "f1/step-1",
        "f1/step-2",
        "f1/step-3",
    ]
    assert json.loads(perdure("wf", "result", "f1", "--json")[1]) == {
        "workflow_id": "f1",
        "status": "Completed",
        "result": receipts,
    }


def test_without_an_id_one_is_made_and_printed(perdure):
    code, out, _ = perdure("wf", "start", "FlakyDemo", "--activities", "0")
    assert code == 0
    made = out.strip()
    assert made.startswith("FlakyDemo-")
    assert json.loads(perdure("wf", "describe", made, "--json")[1])["type"] == "FlakyDemo"


def test_an_id_that_exists_is_refused(perdure):
    assert perdure("wf", "start", "FlakyDemo", "--activities", "0", "--id", "twice")[0] == 0
    code, out, err = perdure("wf", "start", "FlakyDemo", "--activities", "0", "--id", "twice")
    assert (code, out) == (6, "")
    assert "twice" in err


@pytest.mark.parametrize("command", ["describe", "history", "result"])
def test_a_workflow_that_nobody_started_is_not_found(perdure, command):
    code, out, err = perdure("wf", command, "nobody")
    assert (code, out) == (5, "")
    assert "nobody" in err.splitlines()[0]


def test_a_workflow_that_fails_under_wait_is_exit_code_1_and_says_why(perdure):
    code, out, err = perdure("wf", "start", "FlakyDemo", "--fail-rate", "7", "--wait")
    assert (code, out) == (1, "")
    assert "fail_rate must be between 0 and 1" in err.splitlines()[-1]


def test_input_that_does_not_fit_fails_the_workflow_naming_the_argument(perdure):
    code, _, err = perdure("wf", "start", "FlakyDemo", "--nosuch", "7", "--wait")
    assert code == 1
    assert "nosuch" in err


def test_a_result_that_is_not_there_yet_is_refused_and_not_failed(perdure):
    perdure("wf", "start", "NoWorkerHasThis", "--id", "waits")
    code, out, err = perdure("wf", "result", "waits", "--timeout", "0.5")
    assert (code, out) == (6, "")
    assert "has not ended within 500 ms" in err


def test_an_unknown_type_is_accepted_with_a_warning_that_names_the_nearest(perdure):
    code, out, err = perdure("wf", "start", "FlakyDemmo", "--id", "typo")
    assert (code, out) == (0, "typo\n")
    assert "FlakyDemmo" in err
    assert "FlakyDemo (nearest)" in err
    assert perdure("wf", "start", "FlakyDemo", "--activities", "0")[2] == ""


def test_history_is_told_in_order(perdure):
    perdure("wf", "start", "FlakyDemo", "--fail-rate=0", "--activities=1", "--id", "h1", "--wait")
    events = json.loads(perdure("wf", "history", "h1", "--json")[1])
    assert [event["kind"] for event in events] == [
        "WorkflowStarted",
        "ActivityTaskScheduled",
        "ActivityTaskStarted",
        "ActivityTaskCompleted",
        "WorkflowCompleted",
    ]
    assert [event["event_id"] for event in events] == [1, 2, 3, 4, 5]
    readable = perdure("wf", "history", "h1")[1]
    assert readable.splitlines()[0].split() == ["#", "AT", "KIND", "OF", "DETAILS"]
    assert "ActivityTaskCompleted  step-1" in readable


def test_lists_are_filtered(perdure):
    perdure("wf", "start", "FlakyDemo", "--activities", "0", "--id", "done1", "--wait")
    perdure("wf", "start", "Absent", "--id", "open1")
    listed = json.loads(perdure("wf", "list", "--status", "Running", "--json")[1])
    assert "open1" in {each["workflow_id"] for each in listed}
    assert {each["status"] for each in listed} == {"Running"}
    assert len(json.loads(perdure("wf", "list", "--limit", "1", "--json")[1])) == 1
    assert "open1" in perdure("wf", "list", "--type", "Absent")[1]
    assert "done1" not in perdure("wf", "list", "--type", "Absent")[1]
    stuck = json.loads(perdure("wf", "list", "--stuck", "--type", "Absent", "--json")[1])
    assert ("open1", "no_worker") in {(each["workflow_id"], each["stuck"]) for each in stuck}


def test_a_failure_type_that_there_is_not_is_told_with_those_that_there_are(perdure):
    dead_letter(perdure, "kinds1")
    for command in (["wf", "list"], ["wf", "dlq", "list"]):
        code, out, err = perdure(*command, "--failure-type", "Flakky", "--json")
        assert (code, out) == (0, "[]\n")
        assert "nothing of these failed with 'Flakky'; there is: " in err


def test_a_wait_with_a_timeout_ends_with_it(perdure):
    args = ("Absent", "--id", "waits1", "--wait", "--timeout", "0.5")
    code, _, err = perdure("wf", "start", *args)
    assert (code, "waits1 has not ended within 500 ms" in err) == (6, True)
    code, _, err = perdure("wf", "result", "waits1", "--wait", "--timeout", "0.5")
    assert (code, "has not ended within 500 ms" in err) == (6, True)


def test_what_is_paused_or_scheduled_and_known_to_no_worker_is_done_with_a_warning(perdure):
    code, out, err = perdure("queue", "pause", "nowhere1", "--json")
    assert (code, json.loads(out)["warning"] in err) == (0, True)
    assert "no worker serves queue 'nowhere1'" in err
    assert "no worker has activity type 'absent1'" in perdure("activity", "pause", "absent1")[2]
    args = ("schedule", "create", "absent1", "Absent", "--every-ms", "3600000", "--paused")
    code, out, err = perdure(*args)
    assert (code, "made: absent1" in out) == (0, True)
    assert "warning: each of its runs waits for a worker that has workflow 'Absent'" in err
    for command in (["queue", "resume", "nowhere1"], ["activity", "resume", "absent1"]):
        assert perdure(*command)[2] == ""
    assert perdure("schedule", "delete", "absent1")[0] == 0


def test_describe_shows_what_waits_and_why(perdure):
    dead_letter(perdure, "d1")
    found = json.loads(perdure("wf", "describe", "d1", "--json")[1])
    [pending] = found["pending_activities"]
    assert (pending["state"], pending["attempt"], pending["max_attempts"]) == ("DeadLettered", 1, 1)
    readable = perdure("wf", "describe", "d1")[1]
    for word in ("d1", "Running", "step-1", "DeadLettered", "1 of 1", "Flaky: attempt 1 failed"):
        assert word in readable


def test_a_dead_letter_is_shown_with_the_stack_of_its_failure(perdure):
    letter = dead_letter(perdure, "d2")
    assert (letter["activity_id"], letter["idempotency_key"]) == ("step-1", "d2/step-1")
    shown = perdure("wf", "dlq", "show", "d2", "step-1")[1]
    assert "Traceback" in shown
    assert "attempt 1" in shown
    code, out, _ = perdure("wf", "dlq", "show", "d2", "step-9")
    assert (code, out) == (5, "")


def test_a_dead_letter_is_redriven_completed_or_failed(perdure):
    dead_letter(perdure, "d3")
    assert perdure("wf", "dlq", "redrive", "d3", "step-1")[0] == 0
    [again] = until(lambda: json.loads(perdure("wf", "dlq", "list", "d3", "--json")[1]))
    assert again["redrives"] == 1
    assert perdure("wf", "dlq", "complete", "d3", "step-1", "--result", '"by hand"')[0] == 0
    assert json.loads(perdure("wf", "result", "d3")[1]) == ["by hand"]
    dead_letter(perdure, "d4")
    assert perdure("wf", "dlq", "fail", "d4", "step-1")[0] == 0
    assert perdure("wf", "result", "d4")[0] == 1
    assert perdure("wf", "dlq", "redrive", "d4", "step-1")[0] == 5


def test_ps_shows_the_tree_even_while_the_gateway_is_dead(perdure, node):
    tree = json.loads(perdure("ps", "--json")[1])
    nodes = {each["name"]: each for each in flat(tree)}
    names = {"history", "lease_keeper", "scheduler", "dlq", "gateway", "worker-1", "worker-2"}
    assert names <= nodes.keys()
    os.kill(nodes["gateway"]["pid"], signal.SIGKILL)
    assert perdure("ps", "--json")[0] == 0
    readable = until(lambda: perdure("ps")[1])
    columns = ["NAME", "PID", "STATE", "RESTARTS", "UP", "MEMORY", "BUILD"]
    assert readable.splitlines()[0].split() == columns
    restarted = until(
        lambda: [
            each
            for each in flat(json.loads(perdure("ps", "--json")[1]))
            if each["name"] == "gateway" and each["restarts"] == 1 and each["state"] == "running"
        ]
    )
    assert restarted[0]["pid"] != nodes["gateway"]["pid"]


def test_a_second_node_on_the_same_data_is_refused(node):
    done = subprocess.run(
        [*PERDURE, "up"],
        cwd=node.directory,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (6, "")
    assert str(node.pid) in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--app", "no.such.module"], "no.such.module"),
        (["--data", "a_file"], "a_file"),
        (["--bind", "tcp://0.0.0.0:7000"], "tcp://0.0.0.0:7000"),
        (["--config", "absent.toml"], "absent.toml"),
    ],
)
def test_up_with_bad_input_starts_nothing_and_says_what_is_wrong(tmp_path, args, word):
    (tmp_path / "a_file").write_text("")
    done = subprocess.run(
        [*PERDURE, "up", *args],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    lines = [line for line in done.stderr.splitlines() if "no --app given" not in line]
    assert len(lines) == 1
    assert lines[0].startswith("perdure: ")
    assert word in lines[0]
    assert not (tmp_path / ".perdure").exists()


def test_a_worker_whose_application_defines_nothing_warns_of_it(tmp_path):
    (tmp_path / "nothing_here.py").write_text("")
    command = [*PERDURE, "worker", "--app", "nothing_here", "--connect", f"ipc://{tmp_path}/public"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as worker:
        warning = json.loads(worker.stderr.readline())
        worker.kill()  # It still looks for a node.
        worker.stderr.read()
    assert (warning["event"], warning["apps"]) == ("worker.empty", ["nothing_here"])


def test_a_worker_of_its_own_serves_its_queue(perdure, node):
    command = [*PERDURE, "worker", "--app", "perdure.demo", "--queue", "side"]
    with subprocess.Popen(command, cwd=node.directory, stderr=subprocess.DEVNULL) as worker:
        try:
            args = ("--queue", "side", "--activities", "0", "--id", "side1", "--wait")
            assert perdure("wf", "start", "FlakyDemo", *args)[:2] == (0, "[]\n")
        finally:
            worker.send_signal(signal.SIGTERM)
        assert worker.wait(15) == 0
