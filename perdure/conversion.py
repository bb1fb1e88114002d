"""From plain data to the type that an annotation asks for. Used through perdure.values.

msgspec converts what it supports. The rest (a union of two texts such as `datetime | str`, an
Enum of mixed values, and whatever holds one) is converted here, by the same rules.
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import enum
import functools
import inspect
import pathlib
import types
import typing
from typing import Any, NoReturn, TypeVar

import msgspec

from perdure.errors import InvalidArgument

_Key = TypeVar("_Key")

# Passed through as they are, so that a text is no bytes unless the data came as JSON.
_BYTES = (bytes, bytearray, memoryview)

# Between what is wrong and where, in an error that a hook raises: msgspec adds where the hook was.
_INSIDE = "\0"

# msgspec leaves these to the hook.
_MADE_FROM_MAPPINGS = (collections.OrderedDict, collections.defaultdict, collections.Counter)

# How msgspec shows a key of an object.
_SOME_KEY = "[...]"
_NOT_SUPPORTED = "is not supported"

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
    """The hook for classes that msgspec does not know: pydantic models, deque, OrderedDict and the
    like, paths, subclasses of scalars.
    """
    bare = typing.get_origin(kind) or kind
    if isinstance(value, bare):
        return value
    if hasattr(bare, "model_validate"):
        return _model(bare, value)
    if bare is collections.deque or bare in _MADE_FROM_MAPPINGS:
        try:
            return _container(value, bare, typing.get_args(kind), "$", False)
        except BadValue as problem:
            raise ValueError(f"{problem.reason}{_INSIDE}{problem.path[1:]}") from problem
    for base in (str, int, float):
        if issubclass(bare, base) and type(value) is base:
            return bare(value)
    if issubclass(bare, pathlib.PurePath) and type(value) is str:
        return bare(value)
    raise TypeError(f"expected {bare.__name__}, got {type(value).__name__}")


def _model(kind: Any, value: Any) -> Any:
    """A pydantic model, by the names of its fields or by their aliases."""
    try:
        return kind.model_validate(value, **_names_too(kind))
    except ValueError as problem:
        if not hasattr(problem, "errors"):
            raise
        first, *more = problem.errors()
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]
        )
        others = f" (and {len(more)} more)" if more else ""
        raise ValueError(f"{first['msg']}{others}{_INSIDE}{place}") from problem


@functools.lru_cache(maxsize=256)
def _names_too(kind: Any) -> dict[str, bool]:
    # Before pydantic 2.11 a model takes its aliases only, unless it says otherwise itself.
    known = inspect.signature(kind.model_validate).parameters
    return {"by_name": True, "by_alias": True} if "by_name" in known else {}


def refuse(problem: Exception, path: str = "$") -> NoReturn:
    """Raise the BadValue that says what a decoder found."""
    if isinstance(problem, BadValue):
        raise BadValue(_joined(path, problem.path), problem.reason) from problem
    if isinstance(problem, RecursionError):
        raise BadValue(path, "the value is nested too deeply") from None
    text = str(problem) if isinstance(problem, msgspec.MsgspecError) else _described(problem)
    message, at, place = text.rpartition(" - at `")
    if not at:
        message, place = text, "$"
    message, _, inside = message.partition(_INSIDE)
    raise BadValue(_joined(path, place.rstrip("`") + inside), message) from problem


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
        try:
            refuse(problem, path)
        except BadValue as found:
            if _SOME_KEY in found.path:
                _locate(value, annotation, path, base64_bytes)
            raise


def _locate(value: Any, annotation: Any, path: str, base64_bytes: bool) -> None:
    """Raise the BadValue of a value that does not fit, with the key at which it does not."""
    try:
        _by_parts(value, annotation, path, base64_bytes)
    except BadValue as exact:
        if _SOME_KEY not in exact.path and not exact.reason.endswith(_NOT_SUPPORTED):
            raise


def _loose(value: Any, annotation: Any, path: str, base64_bytes: bool) -> Any:
    if annotation is Any or isinstance(annotation, TypeVar):
        return value
    if is_native(annotation):
        return _convert_natively(value, annotation, base64_bytes, path)
    return _by_parts(value, annotation, path, base64_bytes)


def _by_parts(value: Any, annotation: Any, path: str, base64_bytes: bool) -> Any:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        return _loose(value, arguments[0], path, base64_bytes)
    if origin is typing.Literal:
        return _literal(value, arguments, path)
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
        if issubclass(annotation, tuple) and hasattr(annotation, "_field_defaults"):
            return _named_tuple(value, annotation, path, base64_bytes)
    raise BadValue(path, f"the annotation {annotation!r} {_NOT_SUPPORTED}")


def _member_of(value: Any, members: tuple[Any, ...], path: str, base64_bytes: bool) -> Any:
    if value is None and type(None) in members:
        return None

    def rank(member: Any) -> int:
        bare = typing.get_origin(member) or member
        return _TRIED_LAST.index(bare) if bare in _TRIED_LAST else -1

    some = sorted((m for m in members if m is not type(None)), key=rank)
    if len(some) == 1:
        return _loose(value, some[0], path, base64_bytes)
    for member in some:
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
        key_type, item_type = (*arguments, int)[:2]  # A Counter counts.
        items = {
            _loose(k, key_type, f"{path} key {k!r}", base64_bytes): _loose(
                v, item_type, f"{path}[{k!r}]", base64_bytes
            )
            for k, v in value.items()
        }
        return _mapping(origin, items, item_type)
    if not issubclass(origin, collections.abc.Iterable):
        raise BadValue(path, f"the annotation {origin.__name__} {_NOT_SUPPORTED}")
    _expect(isinstance(value, (list, tuple, set, frozenset)), "an array", value, path)
    item_types: list[Any] = [arguments[0]] * len(value)
    if issubclass(origin, tuple) and arguments[-1] is not Ellipsis:
        item_types = list(arguments)
        _expect(len(item_types) == len(value), f"an array of {len(item_types)}", value, path)
    made = [
        _loose(item, item_type, f"{path}[{i}]", base64_bytes)
        for i, (item, item_type) in enumerate(zip(value, item_types, strict=True))
    ]
    for kind in (tuple, frozenset, set, collections.deque):
        if issubclass(origin, kind):
            return kind(made)
    return set(made) if issubclass(origin, collections.abc.Set) else made


def _mapping(origin: Any, items: dict[Any, Any], item_type: Any) -> Any:
    if issubclass(origin, collections.defaultdict):
        bare = typing.get_origin(item_type) or item_type
        return origin(bare if isinstance(bare, type) else None, items)
    return origin(items) if issubclass(origin, _MADE_FROM_MAPPINGS) else items


def _literal(value: Any, choices: tuple[Any, ...], path: str) -> Any:
    """One of the choices, which may be members of an Enum."""
    for choice in choices:
        plain = choice.value if isinstance(choice, enum.Enum) else choice
        if value is choice or (type(plain) is type(value) and plain == value):
            return choice
    raise BadValue(path, f"{_kind(value)} is none of {', '.join(map(repr, choices))}")


def _named_tuple(value: Any, kind: Any, path: str, base64_bytes: bool) -> Any:
    if isinstance(value, kind):
        return value
    _expect(isinstance(value, (list, tuple)), "an array", value, path)
    names = kind._fields
    fewest = len(names) - len(kind._field_defaults)
    _expect(fewest <= len(value) <= len(names), f"an array of {len(names)}", value, path)
    hints = typing.get_type_hints(kind, include_extras=True)
    return kind(
        *(
            _loose(item, hints.get(name, Any), f"{path}[{i}]", base64_bytes)
            for i, (name, item) in enumerate(zip(names, value, strict=False))
        )
    )


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
    if value is None:
        return "null"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
