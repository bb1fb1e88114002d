"""Another time and other chance for a process that comes after a crash.

Verified processes follow each other within milliseconds, forked from one: without this a key made
from the date, the second or `random` would be the same in the next one, as it never is in earnest.
The wall clock of a later process is a good day ahead.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import random
import sys
import time
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

# A day, an hour, a minute and a second, and some: whatever part of an instant is used, it differs.
AHEAD_MS = 90_061_123


def begin(crashes: int, seed: str, modules: Iterable[ModuleType]) -> None:
    """Be the process after that many crashes, for good. `seed` is of its chance.

    `modules` are the application's: what they took by name before is changed in them.
    """
    random.seed(seed)
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(random.getrandbits(32))
    clocks = _put_ahead(crashes * AHEAD_MS) if crashes else {}
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
                value.seed(f"{seed} {module.__name__}.{name}")
            elif id(value) in clocks:
                setattr(module, name, clocks[id(value)])


def _put_ahead(ahead_ms: int) -> dict[int, Callable[..., Any]]:
    """Change the wall clocks; what stands for each, by the id of what it stands for."""
    now, now_ns = time.time, time.time_ns

    def later() -> float:
        return now() + ahead_ms / 1_000

    def later_ns() -> int:
        return now_ns() + ahead_ms * 1_000_000

    def broken_down(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda secs=None: function(later() if secs is None else secs)

    def formatted(layout: str, parts: Any = None) -> str:
        return strftime(layout, time.localtime() if parts is None else parts)

    strftime = time.strftime
    clocks: dict[int, Callable[..., Any]] = {}
    stand_ins: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (now, later),
        (now_ns, later_ns),
        (strftime, formatted),
        *((each, broken_down(each)) for each in (time.gmtime, time.localtime, time.ctime)),
    ]
    for function, clock in stand_ins:
        setattr(time, function.__name__, clock)
        # Guarded or not, as the module found it.
        clocks[id(function)] = clocks[id(getattr(function, "__wrapped__", function))] = clock
    ahead = datetime.timedelta(milliseconds=ahead_ms)
    for name in ("now", "utcnow"):
        _replace(datetime.datetime, name, ahead)
    return clocks  # The two `today` ask time.time.


def _replace(kind: type, name: str, ahead: datetime.timedelta) -> None:
    """Put a class method of a class in C ahead, in its own dictionary: the class stays the same,
    for everybody who has it, as an annotation for example.
    """
    original = vars(kind)[name]

    def read(cls: type, *args: Any, **kwargs: Any) -> Any:
        return original.__get__(None, cls)(*args, **kwargs) + ahead

    [methods] = [one for one in gc.get_referents(vars(kind)) if isinstance(one, dict)]
    methods[name] = classmethod(read)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
