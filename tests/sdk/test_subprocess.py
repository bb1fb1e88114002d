"""Programs that activities run: real processes, real signals."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import perdure.subprocess
from perdure import activity, values
from perdure.clock import boottime_ms
from perdure.errors import FailedPrecondition, InvalidArgument
from perdure.failures import is_non_retryable
from perdure.subprocess import arun, run
from perdure.worker.context import activity_context

PATIENCE_MS = 30_000
# Lets go of its parent, its group and its session, and lives on in a process of another name.
ESCAPES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(f"{os.getpid()}\\n")
        time.sleep(600)
    os._exit(0)
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read().endswith("\\n"):
    time.sleep(0.01)
"""


@contextmanager
def attempt(details: object = None, beats: list | None = None):
    """Inside of this runs an attempt; what it records lands in `beats`."""
    context = activity_context(
        workflow_id="order/1",
        workflow_type="checkout",
        activity_id="charge",
        activity_type="charge",
        generation=1,
        grant=3,
        attempt=2,
        token="t1",
        details=None if details is None else values.encode(details),
        heartbeat=lambda payload: None if beats is None else beats.append(payload),
    )
    with activity.bound(context):
        yield context


def python(code: str, *args: object) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *map(str, args)]


def gone(pid: int) -> bool:
    """Whether that process ends in time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], PATIENCE_MS / 1000)[0])
    finally:
        os.close(fd)


def appears(path: Path) -> str:
    """The first line of a file, once it is whole."""
    pause, until_ms = threading.Event(), boottime_ms() + PATIENCE_MS
    while boottime_ms() < until_ms:
        if path.exists() and path.read_text().endswith("\n"):
            return path.read_text().splitlines()[0]
        pause.wait(0.01)
    raise AssertionError(f"{path} was not written")


def cancels_once(path: Path, context: activity.ActivityContext) -> threading.Thread:
    """Cancel the attempt as soon as the program has said that it runs."""

    def wait() -> None:
        appears(path)
        context.cancel("timeout")

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_the_output_of_a_program_that_ends_with_0_is_returned():
    with attempt():
        assert run(["printf", "%s|", "a b", "$HOME", "*"]) == "a b|$HOME|*|"


def test_the_program_knows_the_key_the_attempt_and_the_details_of_the_one_before():
    code = (
        "import os; print(*(os.environ['PERDURE_' + n] for n in"
        " ('IDEMPOTENCY_KEY', 'ATTEMPT', 'HEARTBEAT_DETAILS')), sep='|', end='')"
    )
    with attempt("step-7.ckpt"):
        assert run(python(code)) == "order%2F1/charge|2|step-7.ckpt"
    with attempt({"row": 5}):
        assert run(python(code), env={"X": "1"}) == 'order%2F1/charge|2|{"row":5}'
    with attempt():
        assert run(python(code)) == "order%2F1/charge|2|"


def test_the_environment_is_the_one_given_and_the_program_runs_in_cwd(tmp_path):
    code = "import os; print(os.getcwd(), os.environ.get('HOME'), os.environ['X'])"
    with attempt():
        assert run(python(code), env={"X": "1"}, cwd=tmp_path) == f"{tmp_path} None 1\n"


def test_the_program_leads_a_process_group_of_its_own_and_reads_nothing():
    code = "import os, sys; print(os.getpgid(0) == os.getpid(), repr(sys.stdin.read()))"
    with attempt():
        assert run(python(code)) == "True ''\n"


@pytest.mark.parametrize(
    ("code", "kind", "exit_code"),
    [
        ("import sys; sys.stderr.write('bad row 3\\n'); sys.exit(65)", "ExitCode65", 65),
        ("import os; os.kill(os.getpid(), 9)", "SignalSIGKILL", -9),
        ("import os; os.abort()", "SignalSIGABRT", -6),
    ],
)
def test_how_the_program_ended_is_the_type_of_the_failure(code, kind, exit_code):
    with attempt(), pytest.raises(activity.Error) as caught:
        run(python(code))
    assert caught.value.type == kind
    assert not caught.value.non_retryable
    assert caught.value.details["exit_code"] == exit_code
    if exit_code > 0:
        assert "bad row 3" in str(caught.value)


def test_a_program_that_is_not_there_is_not_tried_again(tmp_path):
    with attempt(), pytest.raises(activity.NonRetryable) as caught:
        run(["no-such-program-here", "x"])
    assert caught.value.type == "ProgramNotFound"
    (tmp_path / "data.txt").write_text("no program")
    with attempt(), pytest.raises(activity.NonRetryable) as caught:
        run([tmp_path / "data.txt"])
    assert caught.value.type == "ProgramNotExecutable"


def test_arguments_that_can_not_be_are_refused_by_name(tmp_path):
    with attempt():
        for wrong, field in (
            ({"argv": "ls -l"}, "argv"),
            ({"argv": []}, "argv"),
            ({"argv": ["a\0b"]}, "argv"),
            ({"argv": ["true"], "grace_ms": -1}, "grace_ms"),
            ({"argv": ["true"], "env": {"A": 1}}, "env"),
            ({"argv": ["true"], "cwd": tmp_path / "nowhere"}, "cwd"),
        ):
            with pytest.raises(InvalidArgument) as caught:
                run(wrong.pop("argv"), **wrong)
            assert caught.value.field == field
            # A directory may be made meanwhile; the rest no attempt could run.
            assert is_non_retryable(caught.value) == (field != "cwd")


def test_outside_of_an_activity_and_on_an_event_loop_it_says_so():
    async def wrong() -> None:
        run(["true"])

    with pytest.raises(FailedPrecondition):
        run(["true"])
    with attempt(), pytest.raises(FailedPrecondition, match="arun"):
        asyncio.run(wrong())


def test_a_flood_of_output_keeps_its_beginning_and_its_end(monkeypatch):
    monkeypatch.setattr(perdure.subprocess, "OUTPUT_BYTES_MAX", 1_000)
    with attempt():
        output = run(python("print('first'); print('x' * 500_000); print('last')"))
    assert output.startswith("first\n")
    assert output.endswith("last\n")
    assert "bytes left out" in output
    assert len(output) < 1_200


@pytest.mark.parametrize(
    ("end", "newest"), [("sys.exit(3)", "in one piece"), ("os.kill(os.getpid(), 9)", "step 2")]
)
def test_the_newest_line_of_the_file_is_the_checkpoint_if_it_can_not_be_torn(tmp_path, end, newest):
    path, beats = tmp_path / "beat", []
    path.write_text("of an earlier attempt\n")
    code = (
        "import os, sys; f = open(sys.argv[1], 'a')\n"
        "for i in range(3): f.write(f'step {i}\\n')\n"
        f"f.write('in one piece'); f.flush(); {end}"
    )
    with attempt(beats=beats), pytest.raises(activity.Error):
        run(python(code, path), heartbeat_file=path)
    said = [values.decode(payload) for payload in beats if payload is not None]
    assert said[-1] == newest
    assert "of an earlier attempt" not in said


def test_a_file_that_nobody_writes_says_nothing(tmp_path):
    path, beats = tmp_path / "beat", []
    path.write_text("of an earlier attempt\n")
    with attempt(beats=beats):
        run(["true"], heartbeat_file=path)
    assert set(beats) == {None}


def test_signs_of_life_are_sent_where_there_is_no_file():
    beats: list = []
    with attempt(beats=beats):
        run(["true"])
    assert None in beats


def test_a_cancelled_attempt_terminates_the_program_which_may_still_tidy_up(tmp_path):
    code = (
        "import signal, sys, time\n"
        "def end(*_): open(sys.argv[2], 'w').write('tidied\\n'); sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "open(sys.argv[1], 'w').write('runs\\n'); time.sleep(600)"
    )
    with attempt() as context:
        cancels_once(tmp_path / "runs", context)
        with pytest.raises(activity.Cancelled):
            run(python(code, tmp_path / "runs", tmp_path / "tidied"))
    assert (tmp_path / "tidied").read_text() == "tidied\n"


def test_a_program_that_does_not_listen_is_killed_after_its_grace(tmp_path):
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open(sys.argv[1], 'w').write(f'{os.getpid()}\\n'); time.sleep(600)"
    )
    with attempt() as context:
        cancels_once(tmp_path / "runs", context)
        with pytest.raises(activity.Cancelled):
            run(python(code, tmp_path / "runs"), grace_ms=100)
    assert gone(int((tmp_path / "runs").read_text()))


def test_no_grandchild_survives_the_program_not_even_one_that_left_its_session(tmp_path):
    with attempt():
        run(python(ESCAPES, tmp_path / "pid"))
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_program_whose_guardian_is_killed_goes_with_it(tmp_path):
    code = (
        "import os, sys, time\n"
        "open(sys.argv[1], 'w').write(f'{os.getpid()} {os.getppid()}\\n'); time.sleep(600)"
    )

    def kill() -> None:
        os.kill(int(appears(tmp_path / "pids").split()[1]), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    with attempt(), pytest.raises(activity.Error) as caught:
        run(python(code, tmp_path / "pids"))
    assert caught.value.type == "GuardianDied"
    assert gone(int((tmp_path / "pids").read_text().split()[0]))


def test_async_code_awaits_and_its_cancellation_ends_the_program(tmp_path):
    code = "import sys, time; open(sys.argv[1], 'w').write('runs\\n'); time.sleep(600)"

    async def both() -> str:
        output = await arun(["echo", "hello"])
        task = asyncio.create_task(arun(python(code, tmp_path / "runs")))
        await asyncio.to_thread(appears, tmp_path / "runs")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return output

    with attempt():
        assert asyncio.run(both()) == "hello\n"


def test_nothing_of_the_program_survives_a_worker_that_is_killed(tmp_path):
    """Neither the program, nor its escaped grandchild, nor the guardian."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from tests.sdk.test_subprocess import ESCAPES, attempt, python, run\n"
        "with attempt():\n"
        "    run(python(ESCAPES + 'time.sleep(600)', sys.argv[1]))"
    )
    root = Path(__file__).resolve().parents[2]
    worker = subprocess.Popen([sys.executable, "-c", code, tmp_path / "pid", root])
    try:
        escaped = int(appears(tmp_path / "pid"))
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert gone(escaped)
