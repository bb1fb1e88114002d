"""`perdure verify`: its words, its exit codes, and that it needs nothing of the application."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.cli.main import run

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "verify"


@pytest.fixture
def perdure(loaded, monkeypatch, capfd):
    """Runs a command among the examples; (exit code, standard output, standard error)."""
    monkeypatch.chdir(EXAMPLES)

    def call(*args):
        code = run(["verify", *args])
        out, err = capfd.readouterr()
        return code, out, err

    return call


def test_a_right_workflow_passes_with_the_number_of_schedules_tried(perdure):
    code, out, err = perdure("right:checkout", "--order", "o-1", "--cents", "5")
    assert (code, err) == (0, "")
    assert out.startswith(
        "checkout: proved: 3 effects (mail, parcel, payment), each once, in 56 sc"
    )


def test_a_wrong_one_exits_1_and_names_activity_and_schedule(perdure):
    code, out, _ = perdure("no_key", "--input", '["c-1"]')
    assert code == 1
    assert out.startswith("doubled: mail: its effect mail would be doubled\n  1. mail, attempt 1,")
    assert "reminder: violated: 1 finding in 24 schedules from 12 crash points" in out


def test_as_json_it_is_one_object(perdure):
    code, out, _ = perdure("first_attempt_only", "--json")
    found = json.loads(out)
    assert code == 1
    assert found["verdict"] == "violated"
    assert (found["schedules"], found["crash_points"], found["depth"]) == (24, 12, 1)
    [finding] = found["findings"]
    assert (finding["kind"], finding["activity_id"], finding["effect"]) == (
        "lost",
        "ship",
        "parcel",
    )
    assert finding["schedule"][-1].endswith("the workflow ends Completed without parcel")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("rihgt",), 2, "there is no module 'rihgt'; did you mean right?"),
        (("right:chekout",), 2, "did you mean checkout?"),
        (("right", "--cents", "many"), 2, "argument 'cents'"),
        (("right", "--depth", "3"), 2, "--depth"),
        (("right", "--max-schedules", "3"), 3, "more than 3 schedules"),
    ],
)
def test_what_can_not_be_verified_is_said_in_one_line(perdure, args, code, said):
    found, out, err = perdure(*args)
    assert (found, out) == (code, "")
    assert said in err.splitlines()[0]


@pytest.mark.process
def test_it_loads_nothing_of_the_application_that_serves_workflows():
    program = (
        "import sys; from perdure.cli.main import run; code = run(['verify', 'random_key']); "
        "print(code, sorted({'actors', 'supervisors', 'chaos', 'zmq', 'pykka'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )
    assert done.stdout.splitlines()[-1] == "1 []"
