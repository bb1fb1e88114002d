"""Stops workflow code that would not replay: clocks, chance, threads, files, sockets, processes.

The worker process installs it once. It acts only while a workflow's loop runs on the calling
thread; elsewhere it costs one look at a thread's own variable. Imports and logging pass through.
Functions that were imported by name before, and `datetime.now`, are out of its reach.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import random
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, NoReturn, Protocol

# What is called by these may look at the clock or open a file: no workflow depends on that.
PASSED_THROUGH = frozenset(
    {"importlib", "logging", "structlog", "traceback", "linecache", "warnings"}
)
LOOP_MODULE = "perdure.worker.loop"


class Guarded(Protocol):
    """A loop that runs workflow code."""

    def violate(self, message: str) -> NoReturn:
        """Stop the code that runs."""


class _Running(threading.local):
    loop: Guarded | None = None


_running = _Running()


def enter(loop: Guarded) -> Guarded | None:
    """From now on this thread runs code of `loop`'s workflow. Gives what it ran before."""
    before, _running.loop = _running.loop, loop
    return before


def leave(before: Guarded | None) -> None:
    """The end of `enter`."""
    _running.loop = before


def current() -> Guarded | None:
    """The loop whose workflow this thread runs now."""
    return _running.loop


_CLOCK = "use workflow.now_ms()"
_SLEEP = "use `await asyncio.sleep(…)` or `await workflow.sleep_ms(…)`"
_CHANCE = "use workflow.random()"
_UUID = "use workflow.uuid4()"
_ACTIVITY = "do it in an activity"

_PLACES: list[tuple[Any, str, str]] = [
    *((time, name, _CLOCK) for name in ("time", "time_ns", "monotonic", "monotonic_ns")),
    *((time, name, _CLOCK) for name in ("perf_counter", "perf_counter_ns")),
    (time, "sleep", _SLEEP),
    # The module's functions are methods of one hidden generator; a generator of one's own is fine.
    *(
        (random, name, _CHANCE)
        for name in random.__all__
        if isinstance(getattr(getattr(random, name), "__self__", None), random.Random)
    ),
    (random, "_urandom", _CHANCE),  # Behind SystemRandom and the module secrets.
    (uuid, "uuid1", _UUID),
    (uuid, "uuid4", _UUID),
    (os, "urandom", _CHANCE),
    (os, "system", _ACTIVITY),
    (threading.Thread, "start", _ACTIVITY),
    (builtins, "open", _ACTIVITY),
    (io, "open", _ACTIVITY),
    (socket.socket, "__init__", _ACTIVITY),
    (subprocess.Popen, "__init__", _ACTIVITY),
]
_originals: list[tuple[Any, str, Any]] = []


def install() -> None:
    """Put the guards in place, in this process. Once is enough; again does nothing."""
    if _originals:
        return
    for place, name, advice in _PLACES:
        original = getattr(place, name)
        _originals.append((place, name, original))
        where = place.__name__
        if not isinstance(place, ModuleType):
            where = f"{place.__module__}.{where}"
        what = "open()" if name == "open" else f"{where}.{name}".removesuffix(".__init__")
        setattr(place, name, _guarded(original, what, advice))


def uninstall() -> None:
    """Take the guards away again, for tests."""
    while _originals:
        place, name, original = _originals.pop()
        setattr(place, name, original)


def _guarded(original: Callable[..., Any], what: str, advice: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        loop = _running.loop
        if loop is not None and not _is_passed_through():
            loop.violate(f"{what} in a workflow would not replay: {advice}")
        return original(*args, **kwargs)

    return guarded


def _is_passed_through() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module == LOOP_MODULE:
            return False
        if module.partition(".")[0] in PASSED_THROUGH:
            return True
        frame = frame.f_back
    return False
