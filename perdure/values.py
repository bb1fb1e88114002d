"""Values as they travel and are kept: payloads, and their way in and out of Python functions.

A payload is bytes: one tag, then the data. Tag `m` is MessagePack, as Python code sends it; `j` is
JSON, as it came over an edge, where a text may stand for bytes; `#` is a reference to a payload
(its length and digest) that is kept elsewhere. What is in a payload is what JSON has, and bytes.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import functools
import hashlib
import math
import pathlib
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.binding import BadInput, bind, object_of, result_annotation
from perdure.conversion import BadValue, build_foreign, convert, is_native, refuse
from perdure.errors import InvalidArgument

__all__ = [
    "PAYLOAD_MAX",
    "REFERENCE_FROM",
    "BadInput",
    "BadResult",
    "BadValue",
    "PayloadTooLarge",
    "bind_input",
    "check_size",
    "decode",
    "decode_result",
    "digest",
    "encode",
    "encode_input",
    "encode_result",
    "from_json",
    "from_json_value",
    "is_reference",
    "refer",
    "to_builtins",
    "to_json",
]

PAYLOAD_MAX = 2 * 1024 * 1024
"""The largest payload, in bytes of data (the tag not counted)."""

REFERENCE_FROM = 1_024
"""A payload longer than this may be replaced by a reference."""

INT_MIN, INT_MAX = -(2**63), 2**64 - 1
DIGEST_BYTES = 16

_MSGPACK, _JSON, _REFERENCE = b"m", b"j", b"#"
_REFERENCE_BYTES = 1 + 8 + DIGEST_BYTES

# What the fast encoder lets through and JSON does not have: a float whose exponent is all ones (or
# nearly) and timestamps, which would lose their offset. A match by chance costs a second look.
# Each by itself: one expression for all takes a hundred times as long for a large payload.
_FLOAT_UP, _FLOAT_DOWN = b"\xcb\x7f", b"\xcb\xff"
_TIME_SHORT, _TIME_LONG, _TIME_FAR = b"\xd6\xff", b"\xd7\xff", b"\xc7\x0c\xff"


class BadResult(InvalidArgument):
    """A result that can't be encoded. Its effect is done, so it is not run again."""

    failure_type = "BadResult"


class PayloadTooLarge(InvalidArgument):
    """A payload above the limit; the message names what and the limit."""

    failure_type = "PayloadTooLarge"


# --- encode ------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """The payload of any value that JSON has, bytes, dates, Decimal, UUID, Enum, or a record.

    Equal values give equal payloads, whatever the order of their keys. InvalidArgument, naming
    the place, for anything else: NaN and infinities, integers that need more than 64 bits, keys
    that are no texts, what contains itself.
    """
    try:
        data = _encoder.encode(value)
        if (
            _FLOAT_UP in data
            or _FLOAT_DOWN in data
            or _TIME_SHORT in data
            or _TIME_LONG in data
            or _TIME_FAR in data
        ):
            data = _encoder.encode(_plain(value, "$", set()))
    except InvalidArgument:
        raise
    except Exception:  # noqa: BLE001 - foreign values; the second look names what is wrong
        data = _encode_slowly(value)
    return _MSGPACK + data


def _encode_slowly(value: Any) -> bytes:
    try:
        return _encoder.encode(_plain(value, "$", set()))
    except InvalidArgument:
        raise
    except RecursionError:
        raise InvalidArgument("the value is nested too deeply") from None
    except Exception as problem:
        raise InvalidArgument(f"the value can't be encoded: {_described(problem)}") from problem


def _simpler(value: Any) -> Any:
    """One step from a foreign value towards plain data; TypeError where there is none."""
    # The base's own method: a subclass may show itself otherwise.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if isinstance(value, collections.abc.Mapping):
        return dict(value)
    if isinstance(value, (collections.deque, collections.abc.Set)):
        return list(value) if isinstance(value, collections.deque) else set(value)
    raise TypeError(f"{type(value).__name__} is no type of values that can be sent")


_encoder = msgspec.msgpack.Encoder(enc_hook=_simpler, order="deterministic")
_json_encoder = msgspec.json.Encoder(order="deterministic")


def _plain(value: Any, where: str, outer: set[int]) -> Any:
    """`value` as None, bool, int, float, str, bytes, list and dict; InvalidArgument names where."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return _plain(value.value, where, outer)
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, int):
        _accept(INT_MIN <= value <= INT_MAX, where, "an integer that needs more than 64 bits")
        return int.__int__(value)
    if isinstance(value, float):
        _accept(math.isfinite(value), where, "a number that JSON has not (NaN or infinity)")
        return float.__float__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if type(value) in _AS_TEXT:
        return msgspec.to_builtins(value)
    _accept(id(value) not in outer, where, "a value that contains itself")
    outer.add(id(value))
    try:
        return _plain_parts(value, where, outer)
    finally:
        outer.discard(id(value))


_AS_TEXT = (
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    uuid.UUID,
)


def _plain_parts(value: Any, where: str, outer: set[int]) -> Any:
    if isinstance(value, collections.abc.Mapping):
        return {
            _key(key, where): _plain(item, f"{where}[{key!r}]", outer)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple, collections.deque)):
        return [_plain(item, f"{where}[{i}]", outer) for i, item in enumerate(value)]
    if isinstance(value, collections.abc.Set):
        items = [_plain(item, f"{where}{{}}", outer) for item in value]
        try:
            return sorted(items)
        except TypeError:  # Of several kinds, which have no order of their own.
            return sorted(items, key=_encoder.encode)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {
            name: _plain(getattr(value, name), f"{where}.{name}", outer)
            for name in names
            if hasattr(value, name)
        }
    try:
        simpler = (
            msgspec.to_builtins(value, builtin_types=(bytes, float), enc_hook=_simpler)
            if isinstance(value, msgspec.Struct) or hasattr(value, "__attrs_attrs__")
            else _simpler(value)
        )
    except TypeError as problem:
        raise InvalidArgument(f"the value at {where} can't be sent: {problem}") from problem
    return _plain(simpler, where, outer)


def _key(key: Any, where: str) -> str:
    key = key.value if isinstance(key, enum.Enum) else key
    _accept(isinstance(key, str), where, f"the key {key!r}, which is no text")
    return _text(key, where)


def _text(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"at {where}: a text that is no Unicode (lone surrogate)") from None
    return str.__str__(text)


def _accept(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise InvalidArgument(f"the value can't be sent: at {where} is {what}")


def _described(problem: Exception) -> str:
    try:
        return f"{type(problem).__name__}: {problem}"
    except Exception:  # noqa: BLE001 - a foreign __str__; its class is named all the same
        return type(problem).__name__


# --- decode ------------------------------------------------------------------

_msgpack_any = msgspec.msgpack.Decoder()
_json_any = msgspec.json.Decoder()


@functools.lru_cache(maxsize=2_048)
def _typed(tag: bytes, annotation: Any) -> Callable[[bytes], Any]:
    if tag == _JSON:
        return msgspec.json.Decoder(annotation, dec_hook=build_foreign).decode
    return msgspec.msgpack.Decoder(annotation, dec_hook=build_foreign).decode


def decode(payload: bytes, annotation: Any = Any) -> Any:
    """The value in `payload`, as `annotation` has it. BadValue, with the path, if it does not fit.

    Nothing is guessed: "1" is no int. A text becomes a datetime, date, Decimal, UUID or Enum where
    one is asked for, and bytes (from base64) if the payload came as JSON.
    """
    tag = payload[:1]
    if tag not in (_MSGPACK, _JSON):
        raise BadValue("$", _no_payload(tag))
    try:
        if annotation is Any:
            return (_msgpack_any if tag == _MSGPACK else _json_any).decode(payload[1:])
        if is_native(annotation):
            try:
                decoder = _typed(tag, annotation)
            except TypeError:  # An annotation that can't be hashed has no cached decoder.
                decoder = _typed.__wrapped__(tag, annotation)
            return decoder(payload[1:])
        value = (_msgpack_any if tag == _MSGPACK else _json_any).decode(payload[1:])
    except Exception as problem:  # noqa: BLE001 - constructors are foreign code; raised as ours
        refuse(problem)
    return convert(value, annotation, base64_bytes=tag == _JSON)


def _no_payload(tag: bytes) -> str:
    if tag == _REFERENCE:
        return "this is a reference: the payload itself is kept elsewhere"
    return f"no payload begins with {tag!r}" if tag else "an empty payload"


def to_builtins(payload: bytes | None) -> Any:
    """The plain data in `payload` (bytes stay bytes); None where there is none."""
    return None if payload is None else decode(payload)


def to_json(payload: bytes | None) -> bytes:
    """The JSON text of `payload`, bytes as base64; `null` where there is none."""
    if payload is None:
        return b"null"
    try:
        return _json_encoder.encode(decode(payload))
    except BadValue:
        raise
    except Exception as problem:
        raise InvalidArgument(f"the payload has no JSON: {_described(problem)}") from problem


def from_json_value(value: Any) -> bytes:
    """The payload of a value that came over a JSON edge, where a text may stand for bytes."""
    return _JSON + _json_encoder.encode(decode(encode(value)))


def from_json(text: bytes | str) -> bytes:
    """The payload of a JSON text; InvalidArgument if it is none."""
    try:
        value = _json_any.decode(text)
    except (msgspec.MsgspecError, RecursionError, ValueError) as problem:
        raise InvalidArgument(f"no JSON: {_described(problem)}") from problem
    return from_json_value(value)


# --- functions ---------------------------------------------------------------


def bind_input(
    function: Callable[..., Any], payload: bytes | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The `(args, kwargs)` with which to call `function`, converted by its annotations.

    An array is the positional arguments, an object the keyword arguments, anything else a single
    argument, None no arguments. BadInput, naming the argument, for one that is missing,
    unexpected or does not fit.
    """
    if payload is None:
        return bind(function, (), {}, base64_bytes=False)
    try:
        value = decode(payload)
    except BadValue as problem:
        raise BadInput("input", problem.reason) from problem
    base64_bytes = payload[:1] == _JSON
    if isinstance(value, dict):
        return bind(function, (), value, base64_bytes=base64_bytes)
    args = tuple(value) if isinstance(value, list) else (value,)
    return bind(function, args, {}, base64_bytes=base64_bytes)


def encode_input(
    function: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bytes | None:
    """The payload that carries these arguments: an array, or an object where names are given.

    Both together are bound to the signature of `function`. InvalidArgument where there is no
    function to bind them to or they do not fit it; PayloadTooLarge above the limit.
    """
    if not args and not kwargs:
        return None
    if not kwargs:
        payload = encode(list(args))
    elif function is not None:
        payload = encode(object_of(function, args, kwargs))
    elif args:
        raise InvalidArgument(
            "positional and keyword arguments together need the function, not only its name",
            field="input",
        )
    else:
        payload = encode(kwargs)
    return check_size(payload, "input")


def encode_result(value: Any) -> bytes:
    """The payload of a function's result; BadResult or PayloadTooLarge where it can't be kept."""
    try:
        payload = encode(value)
    except InvalidArgument as problem:
        raise BadResult(f"result: {problem.message}", field="result") from problem
    return check_size(payload, "result")


def decode_result(function: Callable[..., Any] | None, payload: bytes | None) -> Any:
    """A result as the return annotation of `function` has it; plain data without a function."""
    if payload is None:
        return None
    return decode(payload, Any if function is None else result_annotation(function))


def check_size(payload: bytes, what: str) -> bytes:
    """`payload` itself; PayloadTooLarge, naming `what`, if it is above the limit."""
    size = len(payload) - 1
    if size > PAYLOAD_MAX:
        raise PayloadTooLarge(
            f"{what} is {size} bytes; the limit is {PAYLOAD_MAX} bytes (2 MiB) a payload",
            field=what,
        )
    return payload


# --- digests and references --------------------------------------------------


def digest(payload: bytes | None, *more: bytes | str | int | None) -> bytes:
    """16 bytes that are equal for equal values, however they were encoded.

    JSON or MessagePack and the order of keys make no difference; bytes are their base64 text.
    `more` are further payloads, texts or integers that belong to what is compared.
    """
    framed: list[bytes] = []
    for part in (payload, *more):
        canonical = _canonical(part)
        framed += (len(canonical).to_bytes(8, "big"), canonical)
    return hashlib.blake2b(b"".join(framed), digest_size=DIGEST_BYTES).digest()


def _canonical(part: bytes | str | int | None) -> bytes:
    if isinstance(part, str):
        return b"s" + part.encode()
    if part is None:
        return b"n"
    if isinstance(part, int):
        return b"i%d" % part
    if part[:1] in (_MSGPACK, _JSON):
        try:
            return b"v" + to_json(part)
        except InvalidArgument:  # Not a value after all: compared byte by byte.
            return b"r" + part
    return b"r" + part


def refer(payload: bytes) -> bytes:
    """`payload` itself if it is short, else a reference: its length and the digest of its bytes."""
    if len(payload) <= REFERENCE_FROM:
        return payload
    hashed = hashlib.blake2b(payload, digest_size=DIGEST_BYTES).digest()
    return _REFERENCE + len(payload).to_bytes(8, "big") + hashed


def is_reference(payload: bytes) -> bool:
    """Whether these bytes only refer to a payload."""
    return len(payload) == _REFERENCE_BYTES and payload[:1] == _REFERENCE
