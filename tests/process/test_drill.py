"""A small drill, from the command line: what it proves, and that it leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import psutil
import pytest

pytestmark = [pytest.mark.process, pytest.mark.timeout(150)]

DRILL = [sys.executable, "-m", "chaos", "run", "flaky", "--seed", "7"]
SMALL = ["--workflows", "4", "--kills", "2", "--server-restarts", "1", "--json"]


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A directory under which everything that the drill starts can be recognised."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def left_over(directory):
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        text = " ".join(process.info["cmdline"] or []) + str(process.info["cwd"])
        if str(directory) in text:
            found.append(process)
    return found


def test_a_small_drill_proves_that_every_effect_was_applied_once(scratch):
    done = subprocess.run(
        [*DRILL, *SMALL, "--report", "reports"],
        capture_output=True,
        text=True,
        cwd=scratch,
        timeout=140,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [line] = done.stdout.splitlines()
    found = json.loads(line)
    assert (found["verdict"], found["seed"], found["violations"]) == ("proved", 7, [])
    assert (found["workflows"], found["completed"]) == (4, 4)
    assert found["keys"] == found["applied_once"] == 32
    assert (found["lost"], found["doubled"]) == (0, 0)
    assert (found["kills"], found["server_restarts"]) == (2, 1)
    assert found["delivered_more_than_once"] > 0
    assert found["stale_refused"] > 0
    assert 0 <= found["recovery_ms"]["median"] <= found["recovery_ms"]["max"]
    assert "seed 7" in done.stderr.splitlines()[0]
    written = json.loads((scratch / "reports" / "report.json").read_text())
    assert written["report"] == found
    assert left_over(scratch) == []
    assert [path.name for path in scratch.iterdir()] == ["reports"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_drill_leaves_no_process_and_no_file(scratch, number):
    with subprocess.Popen(
        [*DRILL, *SMALL], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=scratch
    ) as drill:
        try:
            for line in drill.stderr:
                if "workflows started" in line:
                    break
            assert left_over(scratch)
            drill.send_signal(number)
            out, _ = drill.communicate(timeout=60)
        finally:
            drill.kill()
    assert (drill.returncode, out) == (130, "")
    assert left_over(scratch) == []
    assert list(scratch.iterdir()) == []
