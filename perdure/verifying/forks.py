"""A call in a forked process of its own: what it changes in memory is gone with it."""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

_HEAD_BYTES = 8


class ProcessEnded(Exception):
    """The process ended, or had to be killed, before it had a result; the message says how."""


class CallFailed(Exception):
    """The call raised; the message is the traceback."""


def in_child(call: Callable[[], Any], timeout_ms: int) -> Any:
    """What `call` returns, which must pickle. Its output goes nowhere.

    ProcessEnded if the process dies or takes longer than `timeout_ms`; CallFailed if it raises.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    pid = _fork()
    if pid == 0:
        os.close(reading)
        _be_child(call, writing)
    os.close(writing)
    ended = False
    try:
        body = _read(reading, timeout_ms)
        ended = body is not None
    finally:
        os.close(reading)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if body is None:
        raise ProcessEnded(f"it was not done within {timeout_ms} ms")
    if not body:
        raise ProcessEnded(_how(os.waitstatus_to_exitcode(status)))
    has_result, value = pickle.loads(body)
    if not has_result:
        raise CallFailed(value)
    return value


def _fork() -> int:
    with warnings.catch_warnings():
        # An application that starts threads while it is loaded: they are not in the child.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _be_child(call: Callable[[], Any], writing: int) -> NoReturn:
    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        try:
            answer: tuple[bool, Any] = (True, call())
        except BaseException:  # noqa: BLE001 - whatever it is, the parent hears of it
            answer = (False, traceback.format_exc())
        body = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        with open(writing, "wb") as pipe:
            pipe.write(len(body).to_bytes(_HEAD_BYTES) + body)
        code = 0
    finally:
        # Nothing of the parent's is to be flushed, closed or joined here.
        os._exit(code)


def _read(reading: int, timeout_ms: int) -> bytes | None:
    """The body; empty if the writer is gone without one; None if the time is over.

    Its length stands before it: a process of the user's own may hold the pipe open for ever.
    """
    until = time.monotonic() + timeout_ms / 1_000
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    found = bytearray()
    wanted = _HEAD_BYTES
    while len(found) < wanted:
        if not poll.poll(max(0, (until - time.monotonic()) * 1_000)):
            return None
        piece = os.read(reading, 1 << 20)
        if not piece:
            return b""
        found += piece
        if len(found) >= _HEAD_BYTES:
            wanted = _HEAD_BYTES + int.from_bytes(found[:_HEAD_BYTES])
    return bytes(found[_HEAD_BYTES:])


def _how(code: int) -> str:
    if code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"
