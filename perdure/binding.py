"""From plain arguments to the parameters of a function, and back. Used through perdure.values."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

from perdure.conversion import BadValue, convert
from perdure.errors import InvalidArgument

# Most arguments are one of these, and then there is nothing to convert.
_SCALARS = (str, int, float, bool, bytes)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class BadInput(BadValue):
    """Arguments that do not fit the function: `argument` names the one."""

    failure_type = "BadInput"

    def __init__(self, argument: str = "", message: str = "", path: str = "$") -> None:
        super().__init__(path, f"argument {argument!r}: {message}", field=argument)
        self.argument = argument


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How a function takes its arguments. Annotations by name, those of `*` and `**` included."""

    positional: tuple[str, ...]
    positional_only: frozenset[str]
    named: frozenset[str]
    required: tuple[str, ...]
    rest: str | None
    rest_named: str | None
    annotations: dict[str, Any]
    result: Any


_plans: weakref.WeakKeyDictionary[Any, _Plan] = weakref.WeakKeyDictionary()


def bind(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    base64_bytes: bool,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments (either kind, not both) converted and sorted; BadInput naming the wrong one."""
    plan = _plan_of(function)
    if kwargs:
        return _bind_named(plan, kwargs, base64_bytes)
    if len(args) > len(plan.positional) and plan.rest is None:
        count = len(plan.positional)
        arguments = "argument" if count == 1 else "arguments"
        raise BadInput(str(count), f"unexpected; the function takes {count} positional {arguments}")
    for name in plan.required:
        if name not in plan.positional[: len(args)]:
            raise BadInput(name, "missing")
    converted = []
    for i, value in enumerate(args):
        # Those beyond the named ones share the annotation of `*rest`.
        name = plan.positional[i] if i < len(plan.positional) else str(plan.rest)
        converted.append(_converted(plan, name, name, value, base64_bytes))
    return tuple(converted), {}


def _bind_named(
    plan: _Plan, kwargs: dict[str, Any], base64_bytes: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for name in kwargs:
        if name not in plan.named and plan.rest_named is None:
            known = ", ".join(sorted(plan.named)) or "none"
            raise BadInput(name, f"unexpected; the function has: {known}")
    for name in plan.required:
        if name not in kwargs:
            raise BadInput(name, "missing")
    converted = {
        name: _converted(
            plan, name, name if name in plan.named else str(plan.rest_named), value, base64_bytes
        )
        for name, value in kwargs.items()
    }
    args: list[Any] = []
    for name in plan.positional:
        if name not in plan.positional_only:
            break
        if name not in converted:
            _no_later(plan, name, converted)
            break
        args.append(converted.pop(name))
    return tuple(args), converted


def _no_later(plan: _Plan, left_out: str, converted: dict[str, Any]) -> None:
    """A positional-only argument can't be given when one before it is left to its default."""
    for later in plan.positional[plan.positional.index(left_out) + 1 :]:
        if later in plan.positional_only and later in converted:
            raise BadInput(left_out, f"missing; {later!r} is given and can only follow it")


def _converted(plan: _Plan, name: str, parameter: str, value: Any, base64_bytes: bool) -> Any:
    annotation = plan.annotations.get(parameter, Any)
    if annotation is Any or (annotation in _SCALARS and type(value) is annotation):
        return value
    try:
        return convert(value, annotation, base64_bytes=base64_bytes)
    except BadValue as problem:
        raise BadInput(name, problem.reason, problem.path) from problem


def object_of(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Positional and keyword arguments as one object, by the names of the signature.

    InvalidArgument if they do not fit it, or if more are given by position than have names.
    """
    plan = _plan_of(function)
    if len(args) > len(plan.positional):
        raise InvalidArgument(
            f"only {len(plan.positional)} positional arguments have a name; more of them can't be "
            "sent together with keyword arguments",
            field="input",
        )
    bound = dict(zip(plan.positional, args, strict=False))
    for name in kwargs:
        if name in bound:
            raise InvalidArgument(f"argument {name!r} is given twice", field=name)
        if name not in plan.named and plan.rest_named is None:
            raise InvalidArgument(f"argument {name!r} is unexpected", field=name)
    bound.update(kwargs)
    for name in plan.required:
        if name not in bound:
            raise InvalidArgument(f"argument {name!r} is missing", field=name)
    return bound


def result_annotation(function: Callable[..., Any]) -> Any:
    """What the function says it returns; Any where it does not say or it can't be resolved."""
    return _plan_of(function).result


def _plan_of(function: Callable[..., Any]) -> _Plan:
    try:
        plan = _plans.get(function)
    except TypeError:  # Neither hashable nor to be referred to weakly: worked out each time.
        return _make_plan(function)
    if plan is None:
        plan = _make_plan(function)
        _plans[function] = plan
    return plan


def _make_plan(function: Callable[..., Any]) -> _Plan:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as problem:
        raise InvalidArgument(f"the signature of {function!r} can't be read") from problem
    parameters = signature.parameters.values()
    by_kind = {kind: [p for p in parameters if p.kind is kind] for kind in inspect._ParameterKind}
    fixed = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    rest = by_kind[inspect.Parameter.VAR_POSITIONAL]
    rest_named = by_kind[inspect.Parameter.VAR_KEYWORD]
    raw = {p.name: p.annotation for p in parameters if p.annotation is not p.empty}
    if signature.return_annotation is not signature.empty:
        raw["return"] = signature.return_annotation
    hints = {name: _resolved(function, annotation) for name, annotation in raw.items()}
    return _Plan(
        positional=tuple(p.name for p in fixed if p.kind in _POSITIONAL),
        positional_only=frozenset(p.name for p in by_kind[inspect.Parameter.POSITIONAL_ONLY]),
        named=frozenset(p.name for p in fixed),
        required=tuple(p.name for p in fixed if p.default is p.empty),
        rest=rest[0].name if rest else None,
        rest_named=rest_named[0].name if rest_named else None,
        annotations=hints,
        result=hints.get("return", Any),
    )


def _resolved(function: Callable[..., Any], annotation: Any) -> Any:
    """The annotation with every text in it evaluated; Any where one names what is not there.

    One by one, so that an import that only type checkers do costs no other argument its type.
    """
    inner: Any = inspect.unwrap(function)
    while hasattr(inner, "func"):  # functools.partial
        inner = inspect.unwrap(inner.func)
    inner = inner.__func__ if isinstance(inner, types.MethodType) else inner
    if not hasattr(inner, "__globals__"):
        inner = getattr(type(inner).__call__, "__wrapped__", type(inner).__call__)
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        hints = typing.get_type_hints(
            holder, globalns=getattr(inner, "__globals__", {}), include_extras=True
        )
    except Exception:  # noqa: BLE001 - evaluates foreign text; what can't be resolved is Any
        return Any
    return hints["it"]
