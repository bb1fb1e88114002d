"""From plain data to the type that an annotation asks for. Used through perdure.values.

msgspec converts what it supports. The rest (a union of two texts such as `datetime | str`, an
Enum of mixed values, and whatever holds one) is converted here, by the same rules.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import types
import typing
from typing import Any, NoReturn, TypeVar

import msgspec

from perdure.errors import InvalidArgument

_Key = TypeVar("_Key")

# Passed through as they are, so that a text is no bytes unless the data came as JSON.
_BYTES = (bytes, bytearray, memoryview)

# Of a union, what says most is tried first: "1.5" is a Decimal before it is a text.
_TRIED_LAST = (int, float, list, dict, str, bytes, bytearray, Any, object)


class BadValue(InvalidArgument):
    """A value does not fit its annotation: `path` says where in it ("$" is all of it)."""

    def __init__(self, path: str = "$", message: str = "", *, field: str | None = None) -> None:
        super().__init__(f"{message} (at {path})" if path != "$" else message, field=field)
        self.path = path
        self.reason = message


def convert(value: Any, annotation: Any, *, base64_bytes: bool) -> Any:
    """`value` (plain data) as `annotation` has it; BadValue where it does not fit.

    Nothing is guessed: "1" is no int, 1.0 is no int, 1 is a float. A text is a datetime, date,
    Decimal or UUID where one is asked for, and bytes (base64) if `base64_bytes`.
    """
    if annotation is Any:
        return value
    if is_native(annotation):
        return _convert_natively(value, annotation, base64_bytes)
    try:
        return _loose(value, annotation, "$", base64_bytes)
    except RecursionError:
        raise BadValue("$", "the value is nested too deeply") from None


@functools.lru_cache(maxsize=2_048)
def _is_native(annotation: Any) -> bool:
    try:
        msgspec.json.Decoder(annotation, dec_hook=build_foreign)
    except Exception:  # noqa: BLE001 - annotations are foreign code; the answer is what is asked
        return False
    return True


def is_native(annotation: Any) -> bool:
    """Whether msgspec has a decoder for this annotation."""
    try:
        return _is_native(annotation)
    except TypeError:  # Not hashable, so not cached: it is decided anew each time.
        return _is_native.__wrapped__(annotation)


def build_foreign(kind: Any, value: Any) -> Any:
    """The hook for classes that msgspec does not know: pydantic models, subclasses of scalars."""
    bare = typing.get_origin(kind) or kind
    if isinstance(value, bare):
        return value
    if hasattr(bare, "model_validate"):
        return bare.model_validate(value)
    for base in (str, int, float):
        if issubclass(bare, base) and type(value) is base:
            return bare(value)
    raise TypeError(f"expected {bare.__name__}, got {type(value).__name__}")


def refuse(problem: Exception, path: str = "$") -> NoReturn:
    """Raise the BadValue that says what a decoder found."""
    if isinstance(problem, BadValue):
        raise BadValue(_joined(path, problem.path), problem.reason) from problem
    if isinstance(problem, RecursionError):
        raise BadValue(path, "the value is nested too deeply") from None
    text = str(problem) if isinstance(problem, msgspec.MsgspecError) else _described(problem)
    message, at, place = text.partition(" - at `")
    raise BadValue(_joined(path, place.rstrip("`") if at else "$"), message) from problem


def _described(problem: Exception) -> str:
    try:
        return f"{type(problem).__name__}: {problem}"
    except Exception:  # noqa: BLE001 - a foreign __str__; its class is named all the same
        return type(problem).__name__


def _joined(path: str, inner: str) -> str:
    return path + inner[1:] if inner.startswith("$") else f"{path} {inner}"


def _convert_natively(value: Any, annotation: Any, base64_bytes: bool, path: str = "$") -> Any:
    try:
        if base64_bytes:
            return msgspec.convert(value, annotation, dec_hook=build_foreign)
        return msgspec.convert(value, annotation, builtin_types=_BYTES, dec_hook=build_foreign)
    except Exception as problem:  # noqa: BLE001 - constructors are foreign code; raised as ours
        refuse(problem, path)


def _loose(value: Any, annotation: Any, path: str, base64_bytes: bool) -> Any:
    if annotation is Any or isinstance(annotation, TypeVar):
        return value
    if is_native(annotation):
        return _convert_natively(value, annotation, base64_bytes, path)
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        return _loose(value, arguments[0], path, base64_bytes)
    if origin in (typing.Union, types.UnionType):
        return _member_of(value, arguments, path, base64_bytes)
    if hasattr(annotation, "__supertype__"):
        return _loose(value, annotation.__supertype__, path, base64_bytes)
    if isinstance(origin, type):
        return _container(value, origin, arguments, path, base64_bytes)
    if isinstance(annotation, type):
        if issubclass(annotation, enum.Enum):
            return _enum(value, annotation, path)
        if dataclasses.is_dataclass(annotation) or typing.is_typeddict(annotation):
            return _record(value, annotation, path, base64_bytes)
    raise BadValue(path, f"the annotation {annotation!r} is not supported")


def _member_of(value: Any, members: tuple[Any, ...], path: str, base64_bytes: bool) -> Any:
    if value is None and type(None) in members:
        return None

    def rank(member: Any) -> int:
        bare = typing.get_origin(member) or member
        return _TRIED_LAST.index(bare) if bare in _TRIED_LAST else -1

    for member in sorted((m for m in members if m is not type(None)), key=rank):
        try:
            return _loose(value, member, path, base64_bytes)
        except BadValue:  # Not this one; if no other fits either, that is what is reported.
            continue
    names = ", ".join(getattr(member, "__name__", str(member)) for member in members)
    raise BadValue(path, f"{_kind(value)} fits none of {names}")


def _container(
    value: Any, origin: type, arguments: tuple[Any, ...], path: str, base64_bytes: bool
) -> Any:
    if issubclass(origin, collections.abc.Mapping):
        _expect(isinstance(value, dict), "an object", value, path)
        key_type, item_type = arguments
        return {
            _loose(k, key_type, f"{path} key {k!r}", base64_bytes): _loose(
                v, item_type, f"{path}[{k!r}]", base64_bytes
            )
            for k, v in value.items()
        }
    if not issubclass(origin, collections.abc.Iterable):
        raise BadValue(path, f"the annotation {origin.__name__} is not supported")
    _expect(isinstance(value, (list, tuple, set, frozenset)), "an array", value, path)
    item_types: list[Any] = [arguments[0]] * len(value)
    if issubclass(origin, tuple) and arguments[-1] is not Ellipsis:
        item_types = list(arguments)
        _expect(len(item_types) == len(value), f"an array of {len(item_types)}", value, path)
    items = [
        _loose(item, item_type, f"{path}[{i}]", base64_bytes)
        for i, (item, item_type) in enumerate(zip(value, item_types, strict=True))
    ]
    for kind in (tuple, frozenset, set):
        if issubclass(origin, kind):
            return kind(items)
    return set(items) if issubclass(origin, collections.abc.Set) else items


def _enum(value: Any, kind: type[enum.Enum], path: str) -> enum.Enum:
    if isinstance(value, kind):
        return value
    for member in kind:
        plain = msgspec.to_builtins(member.value, builtin_types=_BYTES)
        plain = list(plain) if isinstance(plain, tuple) else plain
        if type(plain) is type(value) and plain == value:  # True is not 1.
            return member
    raise BadValue(path, f"{_kind(value)} is no value of {kind.__name__}")


def _record(value: Any, kind: type, path: str, base64_bytes: bool) -> Any:
    """A dataclass or a TypedDict one of whose fields msgspec does not support."""
    if isinstance(value, kind) if dataclasses.is_dataclass(kind) else False:
        return value
    _expect(isinstance(value, dict), "an object", value, path)
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except Exception as problem:  # noqa: BLE001 - evaluates foreign text; raised as ours
        refuse(problem, path)
    if dataclasses.is_dataclass(kind):
        fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
        required = {
            name
            for name, field in fields.items()
            if field.default is field.default_factory is dataclasses.MISSING
        }
        known = fields.keys()
    else:
        required, known = set(kind.__required_keys__), hints.keys()  # type: ignore[attr-defined]
    for name in sorted(required - value.keys()):
        raise BadValue(path, f"the field {name!r} is missing")
    given = {
        name: _loose(value[name], _bare_field(hints[name]), f"{path}.{name}", base64_bytes)
        for name in known
        if name in value
    }
    try:
        return kind(**given)
    except Exception as problem:  # noqa: BLE001 - a constructor is foreign code; raised as ours
        refuse(problem, path)


def _bare_field(annotation: Any) -> Any:
    if typing.get_origin(annotation) in (typing.Required, typing.NotRequired, typing.ClassVar):
        return typing.get_args(annotation)[0]
    return annotation


def _expect(holds: bool, what: str, value: Any, path: str) -> None:
    if not holds:
        raise BadValue(path, f"expected {what}, got {_kind(value)}")


def _kind(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"
