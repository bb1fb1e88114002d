"""Bounds of the public protocol: ids, names, nesting. A check names the field it refuses."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from typing import Any

from perdure import values
from perdure.errors import InvalidArgument

ID_BYTES_MAX = 200
NAME_CHARS_MAX = 128
TEXT_BYTES_MAX = 4_096
NAMES_MAX = 1_000
PAGE_MAX = 1_000
INTEGER_MAX = 2**53
NESTING_MAX = 200
ATTRIBUTES_MAX = 20
ATTRIBUTES_BYTES_MAX = 8 * 1024

Attribute = str | int | float | bool
"""The value of one search attribute, as it is kept."""
Findable = Attribute | datetime.datetime
"""What one may be given as: an instant is kept as a text, see `instant`."""

_name = re.compile(r"[A-Za-z0-9_.-]{1,128}").fullmatch
_control = re.compile(r"[\x00-\x1f\x7f-\x9f]").search


def check_id(field: str, value: Any) -> None:
    """Workflow, activity and request ids: 1 to 200 bytes of UTF-8 without control characters."""
    if isinstance(value, str) and value.isascii() and value.isprintable():
        if 0 < len(value) <= ID_BYTES_MAX:
            return
    elif isinstance(value, str) and not _control(value) and _is_short(value, ID_BYTES_MAX):
        return
    raise InvalidArgument(
        f"{field} must be 1 to {ID_BYTES_MAX} bytes of UTF-8 without control characters",
        field=field,
    )


def check_name(field: str, value: Any) -> None:
    """Types, task queues and worker names: 1 to 128 characters of A-Z a-z 0-9 _ . -"""
    if not isinstance(value, str) or not _name(value):
        raise InvalidArgument(
            f"{field} must be 1 to {NAME_CHARS_MAX} of the characters A-Z a-z 0-9 _ . -",
            field=field,
        )


def check_names(field: str, names: tuple[str, ...]) -> None:
    """A list of names, 1 000 at most."""
    if len(names) > NAMES_MAX:
        raise InvalidArgument(f"{field} must be at most {NAMES_MAX} names", field=field)
    for name in names:
        check_name(field, name)


def check_length(field: str, value: Any, *, optional: bool = True) -> None:
    """A length or an instant in whole milliseconds, 0 to 2^53; or None, where it is `optional`."""
    if value is None and optional:
        return
    if not _is_whole(value):
        raise InvalidArgument(f"{field} must be whole milliseconds, 0 to 2^53", field=field)


def check_count(field: str, value: Any) -> None:
    """A whole number, 0 to 2^53; or None."""
    if value is None:
        return
    if not _is_whole(value):
        raise InvalidArgument(f"{field} must be a whole number, 0 to 2^53", field=field)


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int) and 0 <= value <= INTEGER_MAX


def check_text(field: str, value: Any) -> None:
    """Any text of at most 4 096 bytes, or None: filters, page tokens, task tokens."""
    if value is not None and not (isinstance(value, str) and _is_short(value, TEXT_BYTES_MAX)):
        raise InvalidArgument(f"{field} must be a text of 1 to {TEXT_BYTES_MAX} bytes", field=field)


def check_string(field: str, value: Any) -> None:
    """Any text, the empty one included."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{field} must be a text, not a {type(value).__name__}", field=field)


def texts_of(field: str, value: Any) -> tuple[str, ...] | None:
    """A list of texts as a request has it; a text alone is none, nor are its letters."""
    if value is None:
        return None
    if not isinstance(value, list | tuple | set | frozenset):
        text = f"{field} must be a list of texts, not a {type(value).__name__}"
        raise InvalidArgument(text, field=field)
    for item in value:
        check_string(field, item)
    # A set has no order of its own; a request that is sent again must have one.
    return tuple(sorted(value) if isinstance(value, set | frozenset) else value)


def instant(field: str, value: datetime.datetime) -> str:
    """A search attribute that is an instant, as it is kept: in UTC, in whole milliseconds, so that
    the same instant is the same text in whatever time zone it was said.
    """
    if value.tzinfo is None:
        raise InvalidArgument(f"{field} must have a time zone: {value.isoformat()}", field=field)
    try:
        in_utc = value.astimezone(datetime.UTC)
    except OverflowError:
        raise InvalidArgument(f"{field} is out of range: {value!r:.80}", field=field) from None
    return in_utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def attributes_of(field: str, value: Any) -> dict[str, Attribute] | None:
    """A mapping of search attributes as a request has it."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        text = f"{field} must be a mapping of names, not a {type(value).__name__}"
        raise InvalidArgument(text, field=field)
    return {
        name: instant(field, one) if isinstance(one, datetime.datetime) else one
        for name, one in value.items()
    }


def check_attributes(field: str, attributes: dict[str, Attribute] | None) -> None:
    """Search attributes: 20 names at most, 8 KiB in all, and numbers that are finite."""
    if attributes is None:
        return
    if len(attributes) > ATTRIBUTES_MAX:
        raise InvalidArgument(f"{field} must be at most {ATTRIBUTES_MAX} names", field=field)
    size = 0
    for name, value in attributes.items():
        check_name(field, name)
        if isinstance(value, float) and not math.isfinite(value):
            text = f"{field}: {name} must be a finite number"
            raise InvalidArgument(text, field=field)
        if isinstance(value, int) and abs(value) > INTEGER_MAX:
            raise InvalidArgument(f"{field}: {name} must be at most 2^53", field=field)
        size += len(name) + (len(value.encode("utf-8", "replace")) if isinstance(value, str) else 8)
    if size > ATTRIBUTES_BYTES_MAX:
        text = f"{field} must be at most {ATTRIBUTES_BYTES_MAX} bytes (8 KiB) in all"
        raise InvalidArgument(text, field=field)


def _is_short(value: str, bytes_max: int) -> bool:
    if not 0 < len(value) <= bytes_max:
        return False
    try:
        return len(value.encode()) <= bytes_max
    except UnicodeEncodeError:  # Lone surrogates are no UTF-8.
        return False


# Every byte that does not begin an array or a map: without them only the openers are left.
_JSON_REST = bytes(b for b in range(256) if b not in b"[{")
_MSGPACK_OPENERS = {*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF}
_MSGPACK_REST = bytes(b for b in range(256) if b not in _MSGPACK_OPENERS)


def check_nesting(payload: bytes) -> None:
    """At most 200 containers in each other, so that whoever decodes it later can, too."""
    if len(payload) <= NESTING_MAX:
        return
    rest = _JSON_REST if payload[:1] == b"j" else _MSGPACK_REST
    if len(payload.translate(None, rest)) <= NESTING_MAX:
        return
    level = [values.decode(payload)]
    for _ in range(NESTING_MAX + 1):
        containers = [item for item in level if isinstance(item, dict | list)]
        if not containers:
            return
        level = [
            child
            for item in containers
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    raise InvalidArgument(f"nested more than {NESTING_MAX} deep")


# Opcodes of maps (a key may be no text), floats (not finite, perhaps) and extension types.
_beyond_plain = re.compile(rb"[\x80-\x8f\xc1\xc7-\xcb\xd4-\xd8\xde\xdf]").search


def is_surely_plain(payload: bytes) -> bool:
    """Whether what decodes from this MessagePack needs no further look.

    False too often: a byte of a text or a number may look like an opcode.
    """
    return _beyond_plain(payload) is None


# Opcodes of extension types; a match inside a text costs a second look.
_extension = re.compile(rb"[\xc7-\xc9\xd4-\xd8]").search


def check_plain(payload: bytes) -> None:
    """Nothing but what JSON has, and bytes: MessagePack's extension types are refused.

    A timestamp is a text by then.
    """
    if _extension(payload):
        values.to_json(payload)


_id_in_json = re.compile(rb'\s*\{\s*"id"\s*:\s*(-?[0-9]{1,15}|"[ !#-\[\]-~]{0,200}")\s*[,}]').match
_id_in_msgpack = re.compile(
    rb"(?:[\x80-\x8f]|\xde..|\xdf....)\xa2id"
    rb"([\x00-\x7f]|\xcc.|\xcd..|\xce.{4}|[\xa0-\xbf](?=(.{0,31})))",
    re.DOTALL,
).match


def id_at_start(body: bytes) -> bytes | None:
    """The encoded id of a request that can't be decoded, where it stands first and is simple."""
    if body[:1] == b"{":
        found = _id_in_json(body)
        return found[1] if found else None
    found = _id_in_msgpack(body)
    if found is None:
        return None
    if found[2] is None:
        return found[1]
    text = found[2][: found[1][0] & 0x1F]
    return found[1] + text if text.isascii() and len(text) == found[1][0] & 0x1F else None
