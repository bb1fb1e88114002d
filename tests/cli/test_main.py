from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import psutil
import pytest

import perdure
from perdure import node_client
from perdure.cli import main, output
from perdure.cli.main import run

POLICY = ["check", "fix", "report", "plot", "simulate", "import", "snippet", "app", "self-test"]
COMMANDS = [
    ["up"],
    ["ps"],
    ["worker"],
    ["wf", "start"],
    ["wf", "list"],
    ["wf", "describe"],
    ["wf", "history"],
    ["wf", "result"],
    ["wf", "dlq", "list"],
    ["wf", "dlq", "show"],
    ["wf", "dlq", "redrive"],
    ["wf", "dlq", "fail"],
    ["wf", "dlq", "complete"],
    ["drill", "list"],
    ["drill", "run"],
    *(["policy", name] for name in POLICY),
]


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERDURE_ENDPOINT", raising=False)
    return tmp_path


@pytest.mark.parametrize("command", [[], ["wf"], ["wf", "dlq"], ["drill"], *COMMANDS])
def test_every_command_has_help_with_an_example(command, capsys):
    assert run([*command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Usage: perdure" in out
    assert "Example" in out
    assert " ".join(["perdure", *command]).strip() in out.split("Example")[1]


@pytest.mark.parametrize("command", [["ps"], ["wf", "start"], ["wf", "list"], ["wf", "describe"]])
def test_what_shows_something_shows_it_as_json_too(command, capsys):
    run([*command, "--help"])
    assert "--json" in capsys.readouterr().out


def test_a_noun_alone_prints_its_help(capsys):
    assert run(["wf"]) == 0
    assert "start" in capsys.readouterr().out


def test_the_command_alone_prints_its_help(capsys):
    assert run([]) == 0
    assert "up " in capsys.readouterr().out


@pytest.mark.parametrize("command", [[], ["wf"], ["wf", "dlq"], *COMMANDS])
def test_help_has_a_short_form(command, capsys):
    assert run([*command, "-h"]) == 0
    assert "Usage: perdure" in capsys.readouterr().out


@pytest.mark.process
def test_an_error_that_nobody_reads_keeps_its_exit_code():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "perdure.cli.main", "wf", "list", "--timeout", "0.05"]
    done = subprocess.run(command, stdout=write, stderr=write, timeout=20, check=False)
    os.close(write)
    assert done.returncode == 4


@pytest.mark.process
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_what_has_no_room_on_standard_output_is_one_line_and_exit_code_1():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "perdure.cli.main", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=20,
            check=False,
        )
    said = b"perdure: cannot write standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_what_a_terminal_cannot_show_is_escaped(monkeypatch):
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(main, "run", lambda _: output.say("order-\u00fc"))
    with pytest.raises(SystemExit):
        main.main([])
    assert screen.buffer.getvalue() == b"order-\\xfc\n"


def test_the_version_is_the_packages(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"perdure {perdure.__version__}\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["wf", "strat"], "Did you mean 'start'?"),
        (["wf", "list", "--stauts", "x"], "--stauts"),
        (["wf", "list", "--status", "Complete"], "did you mean Completed?"),
        (["wf", "start", "T", "--input", "{nope"], "--input: this is no JSON"),
        (["wf", "start", "T", "--timeout", "soon"], "--timeout"),
        (["wf", "start"], "TYPE"),
        (["wf", "dlq", "complete", "a", "b", "--result", "{nope"], "--result: this is no JSON"),
        (["drill", "run", "fluky"], "did you mean flaky?"),
        (["drill", "run", "flaky", "--seed", str(2**64)], "--seed"),
        (["drill", "run", "flaky", "--report", "/dev/null/r"], "--report"),
        (["up", "--seed", str(2**64)], "--seed"),
        (["up", "--workers", "many"], "--workers"),
        (["signal"], "No such command"),
        (["worker", "--app", "x", "--queue", "a b"], "queue 'a b' must be"),
    ],
)
def test_bad_usage_is_one_clear_line_first_and_exit_code_2(args, message, capsys):
    assert run(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("perdure: ")
    assert message in err.splitlines()[0]


def test_an_unknown_key_of_the_configuration_stops_up_before_it_starts(nowhere, capsys):
    (nowhere / "perdure.toml").write_text("[durable]\ndlq_after_attempt = 3\n")
    assert run(["up"]) == 2
    assert "did you mean durable.dlq_after_attempts?" in capsys.readouterr().err
    assert not (nowhere / ".perdure").exists()


@pytest.mark.parametrize(
    "args",
    [
        ["wf", "list", "--timeout", "0.05"],
        ["wf", "start", "T", "--wait", "--timeout", "0.05"],
        ["ps", "--timeout", "0.05"],
        ["worker", "--app", "perdure.demo", "--timeout", "0.05"],
        ["wf", "dlq", "list", "--timeout", "0.05", "--endpoint", "ipc:///nowhere/public"],
    ],
)
def test_where_no_node_answers_the_exit_code_is_4_and_the_line_says_what_to_do(args, capsys):
    assert run(args) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert "perdure up" in err.splitlines()[0]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["wf", "list", "--older-than-ms", "10m"], "'--older-than-ms': '10m' is no whole number"),
        (["up", "--workers", "two"], "'--workers': 'two' is no whole number"),
        (["ps", "--timeout", "5s"], "'--timeout': '5s' is no number"),
    ],
)
def test_what_is_no_number_is_said_to_be_none(args, says, capsys):
    assert run(args) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"perdure: Invalid value for {says}"


def test_of_a_node_that_is_there_and_silent_it_is_said_where_to_look(nowhere, capsys):
    info = node_client.NodeInfo(
        pid=os.getpid(),
        pid_started=psutil.Process().create_time(),
        node="n",
        endpoint=f"ipc://{nowhere}/e",
        root="ipc://r",
        run_dir="run",
    )
    Path(".perdure").mkdir()
    file = Path(".perdure") / node_client.NODE_FILE
    file.write_bytes(msgspec.json.encode(info))
    assert run(["wf", "list", "--timeout", "0.05"]) == 4
    said = (
        f"perdure: the node of ./.perdure (process {os.getpid()}) does not answer: see `perdure ps`"
    )
    assert capsys.readouterr().err.splitlines() == [said]
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(info, pid_started=1.0)))
    assert run(["wf", "list", "--timeout", "0.05"]) == 4
    assert "start one with `perdure up`" in capsys.readouterr().err


def test_ps_waits_for_a_node_that_is_only_starting(nowhere):
    found = []
    waiting = threading.Thread(target=lambda: found.append(node_client.await_node("d", 20_000)))
    waiting.start()
    info = node_client.NodeInfo(
        pid=1, pid_started=1.0, node="n", endpoint="ipc://e", root="ipc://r", run_dir="run"
    )
    Path("d").mkdir()
    Path("d/new").write_bytes(msgspec.json.encode(info))
    Path("d/new").rename(Path("d") / node_client.NODE_FILE)
    waiting.join(20)
    assert found == [info]


def test_the_drills_are_listed_for_machines(capsys):
    assert run(["drill", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "flaky" in [each["name"] for each in found]
    assert all(each["does"] and each["inconclusive"] for each in found)


def test_an_option_that_means_nothing_to_a_drill_is_refused_with_those_it_takes(capsys):
    assert run(["drill", "run", "flaky", "--depth", "2"]) == 2
    assert "it takes --seed, --workflows" in " ".join(capsys.readouterr().err.split())


@pytest.mark.process
def cpu_s():
    """The time that processors have spent on our children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_loads_nothing_of_the_application_and_is_quick(nowhere):
    code = (
        "import sys\nfrom perdure.cli.main import run\nrun(['wf', 'start', '--help'])\n"
        "heavy = {'zmq', 'supervisors', 'actors', 'chaos', 'rich', 'psutil'}\n"
        "print(sorted(heavy & sys.modules.keys()), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    took = []
    for _ in range(3):
        began_s = cpu_s()
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
            env=environment,
        )
        took.append(cpu_s() - began_s)
        assert done.stderr == "[]\n"
    # The promise is 0.3 s on an idle machine; tests share theirs, so what counts is its own work.
    assert min(took) < 0.8


def test_a_level_of_the_log_that_there_is_not_stops_up_before_it_makes_anything(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERDURE_LOG_LEVEL", "loud")
    assert run(["up", "--app", "shop"]) == 2
    assert "PERDURE_LOG_LEVEL is 'loud'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_list_of_drills_fits_a_page_and_names_each_with_what_it_proves_nothing_without(capsys):
    assert run(["drill", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    named = [line.split()[0] for line in lines if line[:1].isalpha() and line[:1] != "p"]
    assert {"flaky", "actors", "storm"} <= set(named)
    assert len([line for line in lines if "proves nothing when" in line]) >= len(named)
