"""Settings in YAML and JSON: values together with the lines that they stand on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from perdure.audit import documents, given
from perdure.errors import InvalidArgument

Path = tuple[str | int, ...]

VALUES_MAX = 1_000_000
DEPTH_MAX = 100

_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|us|ns|s|m|h)")
_UNITS_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6}


class Text:
    """One parsed document. Paths lead through maps by key and lists by index."""

    def __init__(self, data: Any, lines: dict[Path, int], file: str) -> None:
        self.data = data
        self.file = file
        self._lines = lines

    def line(self, path: Path) -> int | None:
        """The line of the value at `path`, or of what is around it."""
        for length in range(len(path), -1, -1):
            if path[:length] in self._lines:
                return self._lines[path[:length]]
        return None

    def get(self, path: Path) -> Any:
        """The value at `path`, None where there is none."""
        value = self.data
        for step in path:
            if isinstance(value, list):
                is_item = isinstance(step, int) and step < len(value)
                value = value[step] if is_item else None  # type: ignore[index]
            else:
                value = value.get(step) if isinstance(value, dict) else None
        return value

    def where(self, path: Path) -> str:
        """How messages name a place."""
        return f"{self.file}:{self.line(path)}, {'.'.join(str(step) for step in path)}"

    def walk(self, path: Path = ()) -> Iterator[tuple[Path, dict[Any, Any]]]:
        """Every map at or below `path`, outer ones first."""
        yield from self._walk(path, self.get(path) if path else self.data, [0])

    def _walk(
        self, path: Path, value: Any, walked: list[int]
    ) -> Iterator[tuple[Path, dict[Any, Any]]]:
        # YAML's aliases make a small file stand for a huge one.
        walked[0] += 1
        if walked[0] > VALUES_MAX or len(path) > DEPTH_MAX:
            raise InvalidArgument(f"{self.file} holds too much, or is nested too deeply")
        if isinstance(value, dict):
            yield path, value
            for key, each in value.items():
                yield from self._walk((*path, key), each, walked)
        elif isinstance(value, list):
            for index, each in enumerate(value):
                yield from self._walk((*path, index), each, walked)

    def duration_ms(self, path: Path) -> float | None:
        """A duration ("1.5s", "250ms", or seconds and nanos), None where none is given."""
        value = self.get(path)
        if value is None:
            return None
        if isinstance(value, dict) and value.keys() <= {"seconds", "nanos"}:
            parts = [float(value.get(key) or 0) for key in ("seconds", "nanos")]
            return parts[0] * 1e3 + parts[1] / 1e6
        if isinstance(value, str):
            found = list(_DURATION.finditer(value.strip()))
            if found and "".join(each[0] for each in found) == value.strip():
                return sum(float(each["number"]) * _UNITS_MS[each["unit"]] for each in found)
        raise InvalidArgument(
            f'{self.where(path)}: must be a duration such as "1.5s", not {given.shown(value)}'
        )

    def whole(self, path: Path, at_least: int = 0) -> int | None:
        """A whole number, None where none is given. Wrapped values ({value: 3}) count too."""
        value = self.get(path)
        if isinstance(value, dict) and value.keys() == {"value"}:
            value = value["value"]
        if value is None:
            return None
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        return given.whole(value, self.where(path), at_least=at_least, at_most=2**32)

    def number(self, path: Path, at_least: float = 0) -> float | None:
        """A number, None where none is given. Wrapped values count too."""
        value = self.get(path)
        if isinstance(value, dict) and value.keys() == {"value"}:
            value = value["value"]
        return None if value is None else given.number(value, self.where(path), at_least=at_least)


def read(file: str) -> list[Text]:
    """Every document of a YAML file, or the one of a JSON file, with its lines."""
    return parse(documents.read_text(file), file)


def parse(text: str, file: str) -> list[Text]:
    """Every document in `text`. InvalidArgument, on one line, if it can't be read."""
    from perdure.audit import yaml_lines

    name = documents.shown(file)
    if text.lstrip()[:1] in ("{", "["):
        data = documents.parse(text, "-" if not file.endswith(".json") else file)
        try:
            # Tabs are no YAML; the values are taken from the JSON.
            lines = yaml_lines.documents(text.replace("\t", " "))[0][1]
        except ValueError:
            lines = {}
        return [Text(data, lines, file)]
    try:
        found = yaml_lines.documents(text)
    except RecursionError:
        raise InvalidArgument(f"{name} is nested too deeply") from None
    except ValueError as problem:
        raise InvalidArgument(f"{name} is not YAML: {problem}") from None
    return [Text(data, lines, file) for data, lines in found if data is not None]
