"""Checks of single values as they were given: each returns the value, or says on one line where it
stood and what is allowed.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from perdure.errors import InvalidArgument

SHOWN_CHARS_MAX = 60


def shown(value: Any) -> str:
    """`value` as a short text for a message."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**40:
        return "a huge number"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + "…"


def known_keys(data: Mapping[Any, Any], known: Iterable[str], where: str) -> None:
    """InvalidArgument for a key that is not known, with the nearest one that is."""
    names = tuple(known)
    for key in data:
        if key in names:
            continue
        near = difflib.get_close_matches(str(key).casefold(), names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
        raise InvalidArgument(f"{where}: unknown key {shown(key)}; {hint}", field=str(key))


def mapping(value: Any, known: Iterable[str], where: str) -> None:
    """InvalidArgument if `value` is no object of known keys."""
    names = tuple(known)
    if not isinstance(value, Mapping):
        raise InvalidArgument(
            f"{where}: must be an object with {', '.join(names)}, not {shown(value)}"
        )
    known_keys(value, names, where)


def text(value: Any, where: str) -> str:
    """A text that is not empty, on one line."""
    if isinstance(value, str) and value.strip() and value.isascii():
        return " ".join(value.split())
    if isinstance(value, str) and value.strip():
        # A lone surrogate can be written in JSON, and nowhere else.
        return " ".join(value.encode(errors="replace").decode().split())
    raise InvalidArgument(f"{where}: must be a text, not {shown(value)}")


def texts(value: Any, where: str) -> tuple[str, ...]:
    """A list of texts."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise InvalidArgument(f"{where}: must be a list of texts, not {shown(value)}")


def boolean(value: Any, where: str) -> bool:
    """True or false, and nothing that merely looks like it."""
    if isinstance(value, bool):
        return value
    raise InvalidArgument(f"{where}: must be true or false, not {shown(value)}")


def number(value: Any, where: str, *, at_least: float) -> float:
    """A finite number of at least `at_least`."""
    checked = _finite(value)
    if checked is None or checked < at_least:
        raise InvalidArgument(
            f"{where}: must be a finite number of at least {at_least:g}, not {shown(value)}"
        )
    return checked


def share(value: Any, where: str) -> float:
    """A number from 0 to 1."""
    checked = _finite(value)
    if checked is None or not 0 <= checked <= 1:
        raise InvalidArgument(f"{where}: must be a number from 0 to 1, not {shown(value)}")
    return checked


def whole(value: Any, where: str, *, at_least: int, at_most: int) -> int:
    """A whole number within these bounds; 3.0 is one, "3" and true are none."""
    checked = _finite(value)
    if checked is None or checked != int(checked) or not at_least <= checked <= at_most:
        raise InvalidArgument(
            f"{where}: must be a whole number from {at_least} to {at_most}, not {shown(value)}"
        )
    return int(checked)


def _finite(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    # -0.0 would be shown as such.
    return converted + 0.0 if math.isfinite(converted) else None
