"""How far an attempt has come, as the details of a heartbeat that people and programs can read."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from perdure.errors import InvalidArgument

NOTE_CHARS_MAX = 1_000
KIND = "perdure.progress"


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag=KIND, tag_field="kind"):
    """`done` of `total` (None: nobody knows), a note for people, and a checkpoint or None.

    A whole number stays one: the next attempt may count on from `done`.
    """

    done: int | float
    total: int | float | None = None
    note: str = ""
    details: Any = None

    @classmethod
    def of(cls, done: float, total: float | None, note: str, details: Any) -> Progress:
        """The same, checked: InvalidArgument names the field; a long note is cut."""
        _check("done", done)
        if total is not None:
            _check("total", total)
        if not isinstance(note, str):
            raise InvalidArgument(f"note must be a text, not {note!r:.80}", field="note")
        return cls(done=done, total=total, note=note[:NOTE_CHARS_MAX], details=details)


def _check(field: str, value: object) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:  # type: ignore[operator, arg-type]
        raise InvalidArgument(f"{field} must be a number from 0 on, not {value!r:.80}", field=field)


def view(details: Any) -> dict[str, Any] | None:
    """What describe says of heartbeat details (plain data): done, total, note and fraction (0 to 1,
    None where there is no total); None for details of any other kind.
    """
    if not isinstance(details, dict) or details.get("kind") != KIND:
        return None
    try:
        found = msgspec.convert(details, Progress)
    except msgspec.ValidationError:  # Somebody else's, of the same name.
        return None
    fraction = None
    if found.total is not None:
        fraction = min(1.0, found.done / found.total) if found.total else 1.0
    return {
        "done": found.done,
        "total": found.total,
        "fraction": fraction,
        "note": found.note,
    }
