"""Workflow code that guards alone can't stop: the class datetime, and what was imported by name.

What a built-in class offers can't be replaced, and a name that a module took before the guards were
there stays what it was. So the code that a workflow function can reach by names is looked through
once, and where it mentions any of these, every call that it makes is looked at. Others pay nothing.
"""

from __future__ import annotations

import datetime
import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from perdure import activity
from perdure.worker import guard

_NOW = frozenset({"now", "utcnow"})
_MARK = activity.ATTRIBUTE
_FOREIGN = ("site-packages", "dist-packages")
_found: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


# --- looking through code -------------------------------------------------------
def is_suspect(function: Callable[..., Any]) -> bool:
    """Whether what this function runs may ask for the time past the guards."""
    try:
        known = _found.get(function)
    except TypeError:  # Not to be referred to weakly: looked through each time.
        return _looked_through(function)
    if known is None:
        known = _found[function] = _looked_through(function)
    return known


def _looked_through(function: Callable[..., Any]) -> bool:
    seen: set[int] = set()
    waiting: list[Any] = [function]
    originals = guard.originals()
    while waiting:
        found = _function_of(waiting.pop())
        if found is None or id(found.__code__) in seen:
            continue
        seen.add(id(found.__code__))
        for code in _codes(found.__code__):
            mentioned = list(_mentioned(found, code))
            if _NOW & set(code.co_names) and any(map(_is_datetime, mentioned)):
                return True
            if any(isinstance(each, _PLAIN) and each in originals for each in mentioned):
                return True
            waiting += (inner for each in mentioned for inner in _own(each))
    return False


_PLAIN = (types.BuiltinFunctionType, types.FunctionType, types.MethodType)


def _function_of(it: Any) -> types.FunctionType | None:
    while isinstance(it, functools.partial):
        it = it.func
    it = getattr(it, "__func__", it)
    it = getattr(it, "__wrapped__", it)
    return it if isinstance(it, types.FunctionType) else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _mentioned(function: types.FunctionType, code: CodeType) -> Iterator[Any]:
    """What the names in `code` stand for: globals, what modules have, closures; and defaults."""
    for name in code.co_names:
        found = function.__globals__.get(name)
        if found is None:
            continue
        yield found
        if isinstance(found, types.ModuleType):
            attributes = (getattr(found, other, None) for other in code.co_names)
            yield from (each for each in attributes if each is not None)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # Not filled yet.
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def _is_datetime(it: Any) -> bool:
    return it is datetime or (isinstance(it, type) and issubclass(it, datetime.datetime))


def _own(it: Any) -> Iterator[Any]:
    """The functions behind what is mentioned, where they are the application's and not run as
    activities.
    """
    module = sys.modules.get(getattr(it, "__module__", None) or "")
    if module is None or hasattr(it, _MARK) or _is_foreign(module):
        return
    if isinstance(it, type):
        yield from (each for each in vars(it).values() if _function_of(each) is not None)
    elif _function_of(it) is not None:
        yield it


def _is_foreign(module: types.ModuleType) -> bool:
    top = module.__name__.partition(".")[0]
    file = getattr(module, "__file__", None) or ""
    return (
        top == "perdure" or top in sys.stdlib_module_names or any(part in file for part in _FOREIGN)
    )


# --- looking at calls -----------------------------------------------------------
def watch(frame: FrameType, event: str, what: Any) -> None:
    """The profile function while a suspect workflow runs: stops what the guards would stop."""
    if event == "c_call":
        owner = getattr(what, "__self__", None)
        if isinstance(owner, type) and what.__name__ in _NOW and _is_datetime(owner):
            guard.refuse(f"{owner.__name__}.{what.__name__}", guard.CLOCK, frame)
            return
        found = guard.originals().get(what)
    elif event == "call":
        found = guard.original_codes().get(frame.f_code)
    else:
        return
    if found is not None:
        guard.refuse(*found, frame)
