"""A call in a process of its own: what it gives back, and how its end is told."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from perdure.verifying.forks import CallFailed, ProcessEnded, in_child

LONG_MS = 20_000


def test_what_a_call_returns_comes_back_and_what_it_changes_does_not():
    state = []

    def call():
        state.append(1)
        return os.getpid(), state

    pid, seen = in_child(call, LONG_MS)
    assert (pid != os.getpid(), seen, state) == (True, [1], [])


def test_a_large_result_comes_back_whole():
    assert in_child(lambda: b"x" * 5_000_000, LONG_MS) == b"x" * 5_000_000


def test_its_output_goes_nowhere(capfd):
    in_child(lambda: os.write(1, b"out") + os.write(2, b"err"), LONG_MS)
    assert capfd.readouterr() == ("", "")


def test_what_it_raises_is_told_with_its_traceback():
    with pytest.raises(CallFailed, match="ZeroDivisionError"):
        in_child(lambda: 1 / 0, LONG_MS)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: os._exit(9), "exit code 9"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by SIGKILL"),
    ],
)
def test_an_end_without_a_result_is_told(act, said):
    with pytest.raises(ProcessEnded, match=said):
        in_child(act, LONG_MS)


def test_a_call_that_takes_too_long_is_killed():
    reading, writing = os.pipe()
    with pytest.raises(ProcessEnded, match="within 100 ms"):
        in_child(lambda: threading.Event().wait(), 100)
    os.close(writing)
    assert os.read(reading, 1) == b""  # Nobody is left who has the other end.
    os.close(reading)


def test_a_process_that_it_leaves_behind_is_not_waited_for():
    reading, writing = os.pipe()

    def call():
        if os.fork() == 0:
            os.close(writing)
            os.read(reading, 1)  # Until the test closes the other end.
            os._exit(0)
        return "done"

    assert in_child(call, LONG_MS) == "done"
    os.close(writing)
    os.close(reading)
