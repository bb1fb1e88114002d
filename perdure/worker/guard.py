"""Stops workflow code that would not replay: clocks, chance, threads, files, sockets, processes.

The worker process installs it once. It acts only while a workflow's loop runs on the calling
thread; elsewhere it costs one look at a thread's own variable. Imports and logging pass through,
and so does what the garbage collector calls: it may run at any line, and is no doing of the line's.
Functions that were imported by name before, and `datetime.now`, are out of its reach: for those
see perdure.worker.suspects.
"""

from __future__ import annotations

import builtins
import functools
import gc
import io
import os
import random
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NoReturn, Protocol

# What is called by these may look at the clock or open a file: no workflow depends on that.
PASSED_THROUGH = frozenset(
    {"importlib", "logging", "structlog", "traceback", "linecache", "warnings", "zoneinfo"}
)
LOOP_MODULE = "perdure.worker.loop"


class Guarded(Protocol):
    """A loop that runs workflow code."""

    def violate(self, message: str) -> NoReturn:
        """Stop the code that runs."""


class _Running(threading.local):
    loop: Guarded | None = None
    is_collecting = False


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


CLOCK = "use workflow.now_ms()"
_SLEEP = "use `await asyncio.sleep(…)` or `await workflow.sleep_ms(…)`"
_CHANCE = "use workflow.random()"
_UUID = "use workflow.uuid4()"
_ACTIVITY = "do it in an activity"
_ENVIRONMENT = "it is the whole worker's: hand the value on as an argument"

_FILES = (
    *("open", "listdir", "scandir", "stat", "lstat", "access", "mkdir", "rmdir", "remove"),
    *("unlink", "rename", "replace", "link", "symlink", "truncate", "chmod", "utime", "pipe"),
)
_PROCESSES = ("system", "fork", "forkpty", "posix_spawn", "posix_spawnp", "kill", "killpg")
_NAMES = ("getaddrinfo", "gethostbyname", "gethostbyaddr", "getnameinfo")

_PLACES: list[tuple[Any, str, str]] = [
    *((time, name, CLOCK) for name in ("time", "time_ns", "monotonic", "monotonic_ns")),
    *((time, name, CLOCK) for name in ("perf_counter", "perf_counter_ns", "process_time")),
    *((time, name, CLOCK) for name in ("localtime", "gmtime", "ctime", "asctime", "strftime")),
    (time, "sleep", _SLEEP),
    # The module's functions are methods of one hidden generator; one's own is fine, given a seed.
    *(
        (random, name, _CHANCE)
        for name in random.__all__
        if isinstance(getattr(getattr(random, name), "__self__", None), random.Random)
    ),
    (random, "_urandom", _CHANCE),  # Behind SystemRandom and the module secrets.
    (random.Random, "seed", _CHANCE),
    (uuid, "uuid1", _UUID),
    (uuid, "uuid4", _UUID),
    (os, "urandom", _CHANCE),
    (os, "getrandom", _CHANCE),
    *((os, name, _ACTIVITY) for name in (*_FILES, *_PROCESSES)),
    (type(os.environ), "__setitem__", _ENVIRONMENT),
    (type(os.environ), "__delitem__", _ENVIRONMENT),
    (os, "putenv", _ENVIRONMENT),
    (os, "unsetenv", _ENVIRONMENT),
    (threading.Thread, "start", _ACTIVITY),
    (builtins, "open", _ACTIVITY),
    (io, "open", _ACTIVITY),
    (socket.socket, "__init__", _ACTIVITY),
    *((socket, name, _ACTIVITY) for name in _NAMES),
    (subprocess.Popen, "__init__", _ACTIVITY),
]
# Of an instant that is given these are no clocks, and of a seed this is no chance: from so many
# arguments on that are not None.
_GIVEN_FROM: dict[tuple[Any, str], int] = {
    (time, "localtime"): 1,
    (time, "gmtime"): 1,
    (time, "ctime"): 1,
    (time, "asctime"): 1,
    (time, "strftime"): 2,
    (random.Random, "seed"): 2,
}
_originals: list[tuple[Any, str, Any]] = []
# What is stopped, by the original, for whoever got hold of that: (what it is, what to use instead).
_known: dict[Any, tuple[str, str]] = {}
_known_codes: dict[CodeType, tuple[str, str]] = {}


def install() -> None:
    """Put the guards in place, in this process. Once is enough; again does nothing."""
    if _originals:
        return
    for place, name, advice in _PLACES:
        original = getattr(place, name, None)
        if original is None:
            continue  # This platform does not have it.
        _originals.append((place, name, original))
        what = _what(place, name)
        given_from = _GIVEN_FROM.get((place, name))
        if given_from is None and isinstance(place, ModuleType):
            _known[original] = (what, advice)
            if isinstance(original, FunctionType):
                _known_codes[original.__code__] = (what, advice)
        setattr(place, name, _guarded(original, what, advice, given_from))

    gc.callbacks.insert(0, _collection_begins)
    gc.callbacks.append(_collection_ends)


def _collection_begins(phase: str, _: object) -> None:
    if phase == "start":
        _running.is_collecting = True
        if gc.callbacks[-1] is not _collection_ends:  # What others do at its end is not ours, too.
            gc.callbacks.remove(_collection_ends)
            gc.callbacks.append(_collection_ends)


def _collection_ends(phase: str, _: object) -> None:
    if phase == "stop":
        _running.is_collecting = False


def _what(place: Any, name: str) -> str:
    if place is builtins or place is io:
        return "open()"
    if place is type(os.environ):
        return "changing os.environ"
    if place is random.Random:
        return "random.Random() without a seed"
    where = place.__name__
    if not isinstance(place, ModuleType):
        where = f"{place.__module__}.{where}"
    return f"{where}.{name}".removesuffix(".__init__")


def uninstall() -> None:
    """Take the guards away again, for tests."""
    while _originals:
        place, name, original = _originals.pop()
        setattr(place, name, original)
    _known.clear()
    _known_codes.clear()
    for callback in (_collection_begins, _collection_ends):
        if callback in gc.callbacks:
            gc.callbacks.remove(callback)


def originals() -> Mapping[Any, tuple[str, str]]:
    """The functions that are stopped, with what each is and what to use instead."""
    return _known


def original_codes() -> Mapping[CodeType, tuple[str, str]]:
    """The same by their code, of those that are written in Python."""
    return _known_codes


def _guarded(
    original: Callable[..., Any], what: str, advice: str, given_from: int | None
) -> Callable[..., Any]:
    @functools.wraps(original)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if _running.loop is not None and not _is_given(args, given_from):
            refuse(what, advice, sys._getframe(1))
        return original(*args, **kwargs)

    return guarded


def _is_given(args: tuple[Any, ...], given_from: int | None) -> bool:
    return given_from is not None and sum(each is not None for each in args) >= given_from


def refuse(what: str, advice: str, frame: FrameType) -> None:
    """Stop the workflow code that runs on this thread in `frame`, if any does."""
    loop = _running.loop
    if loop is not None and not (_running.is_collecting or _is_passed_through(frame)):
        loop.violate(f"{what} in a workflow would not replay: {advice}")


def _is_passed_through(inner: FrameType) -> bool:
    frame: FrameType | None = inner
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module == LOOP_MODULE:
            return False
        if module.partition(".")[0] in PASSED_THROUGH:
            return True
        frame = frame.f_back
    return False
