"""Standard streams that hurt nobody, in processes of their own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import subprocess
import sys
import threading

import pytest

from perdure import streams
from perdure.streams import LossyWriter

pytestmark = pytest.mark.process

SETUP = "import os, sys\nfrom perdure import logs, streams\nstreams.protect_streams()\n"


def run(code, **options):
    """The exit status of a process that protects its streams and then runs this code."""
    done = subprocess.run([sys.executable, "-c", SETUP + code], timeout=20, check=False, **options)
    return done.returncode


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        try:
            os.close(fd)
        except OSError:
            continue


def fill(write):
    """Write until nothing more goes in; nobody else's description of the pipe changes."""
    own = os.open(f"/proc/self/fd/{write}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(own, b"x" * 4_096)
    except BlockingIOError:
        os.close(own)


PRINTS = (
    "logs.configure(True)\n"
    "for stream in (sys.stdout, sys.stderr):\n"
    "    for n in range(20): print('line', n, file=stream, flush=True)\n"
    "    print('no newline at the end', end='', file=stream)\n"
    "logs.logger().warning('said')\n"
)


def test_a_reader_that_has_gone_fails_nothing_not_even_the_end_of_the_interpreter(pipe):
    read, write = pipe
    os.close(read)
    assert run(PRINTS, stdout=write, stderr=write) == 0


def test_a_reader_that_has_stopped_holds_nobody_up_and_sharing_it_changes_nothing(pipe):
    _, write = pipe
    fill(write)
    assert run(PRINTS, stdout=write, stderr=write) == 0
    assert not fcntl.fcntl(write, fcntl.F_GETFL) & os.O_NONBLOCK


def test_a_full_disk_fails_nothing():
    with open("/dev/full", "wb") as full:
        assert run(PRINTS, stdout=full, stderr=full) == 0


def test_a_terminal_that_is_held_holds_nobody_up():
    ours, theirs = pty.openpty()
    os.write(ours, b"\x13")  # Ctrl-S.
    assert run(PRINTS * 20, stdout=theirs, stderr=theirs, stdin=theirs) == 0
    os.close(ours)
    os.close(theirs)


def test_closed_streams_lead_nowhere_and_no_file_takes_their_number(tmp_path):
    code = (
        f"fd = os.open({str(tmp_path / 'f')!r}, os.O_WRONLY | os.O_CREAT)\n"
        "print('x', file=sys.stderr, flush=True)\n"
        "os._exit(fd)\n"
    )
    command = ["sh", "-c", 'exec "$0" "$@" >&- 2>&-', sys.executable, "-c", SETUP + code]
    assert subprocess.run(command, timeout=20, check=False).returncode > 2
    assert (tmp_path / "f").read_bytes() == b""


def test_what_has_a_reader_arrives_whole_even_when_it_is_much():
    code = "print('x' * 3_000_000)\nprint('end')\n"
    done = subprocess.run(
        [sys.executable, "-c", SETUP + code], capture_output=True, timeout=20, check=True
    )
    assert done.stdout == b"x" * 3_000_000 + b"\nend\n"


def test_a_stream_that_was_redirected_is_followed(tmp_path):
    code = (
        f"os.dup2(os.open({str(tmp_path / 'f')!r}, os.O_WRONLY | os.O_CREAT), 1)\nprint('there')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", SETUP + "print('here')\n" + code], capture_output=True, check=True
    )
    assert done.stdout == b"here\n"
    assert (tmp_path / "f").read_text() == "there\n"


def test_the_next_line_that_gets_through_tells_how_many_did_not(pipe):
    read, write = pipe
    fill(write)
    code = (
        "logs.configure(True)\n"
        "for n in range(3): logs.logger().info('lost')\n"
        "os.write(1, b'.')\n"
        "sys.stdin.read(1)\n"
        "logs.logger().info('first')\n"
        "logs.logger().info('second')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", SETUP + code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=write,
    )
    with process:
        assert process.stdout.read(1) == b"."
        os.close(write)
        os.set_blocking(read, False)
        with contextlib.suppress(BlockingIOError):
            while os.read(read, 65_536):
                continue
        os.set_blocking(read, True)
        process.stdin.write(b".")
        process.stdin.close()
        with open(read, closefd=False) as lines:
            first, second = map(json.loads, lines)
    assert (first["event"], first["lost_lines"]) == ("first", 3)
    assert "lost_lines" not in second


# --- without a process ---------------------------------------------------------------


def test_a_line_after_one_that_was_cut_begins_a_new_one(pipe, monkeypatch):
    monkeypatch.setattr(streams, "PATIENCE_MS", 0)
    read, write = pipe
    size = fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4_096)
    writer = LossyWriter(write, "<test>")
    assert writer.write(b"a" * size + b"b\n") == size + 2
    assert writer.lost == 1
    assert os.read(read, 2 * size) == b"a" * size
    writer.write(b"whole\n")
    assert os.read(read, size) == b"\nwhole\n"
    assert writer.lost == 1


def test_a_reader_that_is_merely_slow_is_waited_for_a_little(pipe, monkeypatch):
    monkeypatch.setattr(streams, "PATIENCE_MS", 20_000)
    read, write = pipe
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4_096)
    fill(write)
    writer = LossyWriter(write, "<test>")
    reader = threading.Timer(0.02, os.read, (read, 4_096))
    reader.start()
    writer.write(b"late\n")
    reader.join()
    assert writer.lost == 0
    assert os.read(read, 4_096) == b"late\n"
