"""Making a function a workflow."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from perdure.errors import InvalidArgument
from perdure.wire_checks import check_name

ATTRIBUTE = "__perdure_workflow__"

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Definition:
    """A workflow as it was defined: its name and its function."""

    name: str
    function: Callable[..., Any]


defined: list[Definition] = []
"""Every definition of this process, in order; perdure.registry takes an application's from it."""


@overload
def define(function: Function, /) -> Function: ...


@overload
def define(*, name: str | None = None) -> Callable[[Function], Function]: ...


def define(function: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Make an async function a workflow: `@workflow.define` or `@workflow.define(name=…)`.

    `name` is its type, by default the function's name. The function itself is returned, unchanged.
    InvalidArgument if it is not async, or the name can't be one.
    """
    if function is None:
        return functools.partial(_define, name=name)
    return _define(function, name=name)


def _define(function: Function, *, name: str | None) -> Function:
    if not inspect.iscoroutinefunction(function):
        raise InvalidArgument(_not_async(function))
    name = getattr(function, "__name__", "") if name is None else name
    check_name("name", name)
    definition = Definition(name=name, function=function)
    setattr(function, ATTRIBUTE, definition)
    defined.append(definition)
    return function


def _not_async(function: object) -> str:
    name = getattr(function, "__name__", None)
    if name is None or name == "<lambda>" or isinstance(function, type):
        return f"a workflow must be an async function, not {name or repr(function)[:80]}"
    if inspect.isasyncgenfunction(function):
        return f"a workflow returns its result once; {name} yields"
    return f"workflow functions must be async: `async def {name}`"


def definition_of(function: object) -> Definition:
    """The definition of a defined function; InvalidArgument for anything else."""
    definition = getattr(function, ATTRIBUTE, None)
    if isinstance(definition, Definition):
        return definition
    shown = getattr(function, "__qualname__", None) or repr(function)[:80]
    raise InvalidArgument(f"{shown} is no workflow: decorate it with @workflow.define")
