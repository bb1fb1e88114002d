"""A layer in the making: each setting with its origin, a default marked as assumed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.audit.chain import ATTEMPTS_MAX, JITTERS, Layer, Note, parse_layer

LIBRARY_DEFAULT = "library default"
NOT_KNOWN = "not statically known"
# How many tries stand for "no end" in the figures.
ENDLESS_ATTEMPTS = 100
WRITING_METHODS = ("POST", "PATCH")
JITTER_KINDS = JITTERS


class Draft:
    """Collects the settings of one layer. `file` is how origins name the file."""

    def __init__(self, kind: str, name: str, file: str) -> None:
        self.name = name
        self.file = file
        self.notes: list[Note] = []
        self._fields: dict[str, Any] = {"kind": kind}
        self._origin: dict[str, str] = {}
        self._assumed: list[str] = []

    def given(self, key: str, value: Any, line: int | None, what: str = "") -> None:
        """A setting that stands in the file."""
        place = self.file if line is None else f"{self.file}:{line}"
        self._set(key, value, f"{place} {what}".rstrip())

    def default(self, key: str, value: Any, why: str = LIBRARY_DEFAULT) -> None:
        """A setting that nobody has made: shown as assumed."""
        self._set(key, value, why)
        self._assumed.append(key)

    def either(
        self, key: str, value: Any, line: int | None, default: Any, what: str = "", why: str = ""
    ) -> None:
        """What is given, or the library's default where `value` is None."""
        if value is None:
            self.default(key, default, why or LIBRARY_DEFAULT)
        else:
            self.given(key, value, line, what)

    def unknown(self, key: str, fallback: Any, line: int | None, what: str) -> None:
        """A setting that is there but can't be read without running the code."""
        self.default(key, fallback, f"{NOT_KNOWN} ({self.file}:{line} {what})")
        self.note(
            "NOT_STATICALLY_KNOWN",
            f"{what} is not statically known ({self.file}:{line}); reckoned with {key} "
            f"{'none' if fallback is None else fallback}",
        )

    def note(self, code: str, detail: str) -> None:
        """A finding that only the importer can see."""
        self.notes.append(Note(code=code, detail=detail))

    def value(self, key: str) -> Any:
        """What a setting is so far, None if it is not made."""
        return self._fields.get(key)

    def endless(self) -> None:
        """It retries without an end."""
        self._fields["unbounded"] = True

    def soft_deadline(self) -> None:
        """Its deadline is looked at between tries only."""
        self._fields["deadline_is_soft"] = True

    def methods(self, methods: Iterable[str] | None, line: int | None, why: str) -> None:
        """The HTTP methods that are retried (None: all), and whether they may be repeated."""
        if methods is None:
            self.default("idempotent", False, f"{why}; say --idempotent if all calls are")
            return
        names = sorted({method.upper() for method in methods})
        self.given("methods", names, line)
        writes = any(name in WRITING_METHODS for name in names)
        self.given("idempotent", not writes, line, ", ".join(names))

    def _set(self, key: str, value: Any, origin: str) -> None:
        self._fields[key] = value
        self._origin[key] = origin
        if key in self._assumed:
            self._assumed.remove(key)

    def layer(self) -> Layer:
        """The finished layer. InvalidArgument if a setting is out of range."""
        data = {key: value for key, value in self._fields.items() if value is not None}
        attempts = data.get("attempts")
        if isinstance(attempts, int) and attempts > ATTEMPTS_MAX:
            data["attempts"] = ATTEMPTS_MAX
        data |= {key: list(each) for key, each in data.items() if isinstance(each, tuple)}
        data |= {
            "name": self.name,
            "origin": self._origin,
            "assumed": self._assumed,
            "notes": [{"code": note.code, "detail": note.detail} for note in self.notes],
        }
        return parse_layer(data, 1)
