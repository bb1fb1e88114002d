"""What a simulation changes in its Python process while it runs, and puts back afterwards.

Limits of the engine get the plan's values, crash points are heard, logging is silent, and whoever
asks for the real time or for chance that no seed has is stopped.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NoReturn

import structlog

from perdure import crash_points
from perdure.core import limits
from perdure.crash_points import CrashPoint
from perdure.errors import InvalidArgument

ROOMS = ("perdure", "actors", "supervisors")
# A new store makes its key by chance; the simulated disk puts another in its place.
PASSED_THROUGH = frozenset({"perdure.store.sqlite_schema"})
_FORBIDDEN = (
    (time, "time"),
    (time, "time_ns"),
    (time, "monotonic"),
    (time, "monotonic_ns"),
    (time, "perf_counter"),
    (time, "clock_gettime_ns"),
    (time, "clock_gettime"),
    (time, "sleep"),
    (random, "random"),
    (random, "randrange"),
    (random, "uniform"),
    (random, "choice"),
    (os, "urandom"),
)


class RealWorld(Exception):
    """Simulated code has asked the real world for something."""


@contextlib.contextmanager
def simulated(
    changes: Mapping[str, int], reached: Callable[[CrashPoint], None] | None
) -> Iterator[None]:
    """For as long as this lasts, this process is the simulation's.

    `changes` name limits of perdure.core.limits, or "module:NAME" for a constant of one module.
    InvalidArgument for one that is not there. `reached` hears of crash points.
    """
    with contextlib.ExitStack() as stack:
        for name, value in changes.items():
            _change(stack, name, value)
        if reached is not None:
            _set(stack, crash_points, "_armed", reached)
            for module in _holders("ARMED", len(sys.modules)):
                if "CrashPoint" in vars(module):
                    _set(stack, module, "ARMED", True)
        for module, name in _FORBIDDEN:
            _set(stack, module, name, _forbidden(getattr(module, name)))
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Log nothing for as long as this lasts."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.configure(
        processors=[_drop], wrapper_class=structlog.make_filtering_bound_logger("critical")
    )
    try:
        yield
    finally:
        if before is None:
            structlog.reset_defaults()
        else:
            structlog.configure(**before)


def _drop(logger: Any, name: str, event: Any) -> Any:
    raise structlog.DropEvent


def _modules() -> list[ModuleType]:
    return [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in ROOMS and isinstance(module, ModuleType)
    ]


def _change(stack: contextlib.ExitStack, name: str, value: int) -> None:
    where, _, constant = name.rpartition(":")
    if where:
        module = sys.modules.get(where)
        if module is None or constant not in vars(module):
            raise InvalidArgument(f"limits: there is no {name}", field="limits")
        _set(stack, module, constant, value)
        return
    if name not in vars(limits):
        raise InvalidArgument(f"limits: perdure.core.limits has no {name}", field="limits")
    for module in _holders(name, len(sys.modules)):
        _set(stack, module, name, value)


@functools.cache
def _holders(name: str, loaded: int) -> list[ModuleType]:
    """The modules that have this name, for as long as so many are loaded."""
    return [module for module in _modules() if name in vars(module)]


def _set(stack: contextlib.ExitStack, module: ModuleType, name: str, value: Any) -> None:
    stack.callback(setattr, module, name, getattr(module, name))
    setattr(module, name, value)


def _forbidden(original: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Any:
        asker = sys._getframe(1).f_globals.get("__name__", "")
        is_simulated = asker.partition(".")[0] in (*ROOMS, "chaos", "asyncio")
        if is_simulated and asker not in PASSED_THROUGH:
            _stop(original, asker)
        return original(*args, **kwargs)

    return guarded


def _stop(original: Callable[..., Any], asker: str) -> NoReturn:
    raise RealWorld(f"{asker} asks for {original.__module__}.{original.__name__} in a simulation")
