"""Text as data: JSON and YAML from a file or standard input, read strictly.

A key given twice is refused, since one of the two would silently win.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from perdure.errors import InvalidArgument

STANDARD_INPUT = "-"
DOCUMENT_BYTES_MAX = 16 * 1_048_576


def read_text(file: str) -> str:
    """The text of `file`, or of standard input for "-". InvalidArgument says why there is none."""
    try:
        if file == STANDARD_INPUT:
            raw = sys.stdin.buffer.read(DOCUMENT_BYTES_MAX + 1)
        else:
            with Path(file).open("rb") as opened:
                raw = opened.read(DOCUMENT_BYTES_MAX + 1)
    except FileNotFoundError:
        raise InvalidArgument(f"there is no file {file}") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise InvalidArgument(f"{file} can't be read: {reason}") from None
    if len(raw) > DOCUMENT_BYTES_MAX:
        raise InvalidArgument(f"{shown(file)} is longer than {DOCUMENT_BYTES_MAX} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InvalidArgument(f"{shown(file)} is not UTF-8: byte {problem.start}") from None
    if not text.strip():
        raise InvalidArgument(f"{shown(file)} is empty")
    return text


def shown(file: str) -> str:
    """How messages name `file`."""
    return "standard input" if file == STANDARD_INPUT else file


def read(file: str) -> Any:
    """What `file` holds as JSON or YAML: maps, lists, texts, numbers, booleans and None."""
    return parse(read_text(file), file)


def parse(text: str, file: str) -> Any:
    """What `text` says. The name's ending decides between JSON and YAML, else the first sign."""
    suffix = Path(file).suffix.lower()
    looks_like_json = text.lstrip()[:1] in ("{", "[")
    is_yaml = suffix in (".yaml", ".yml") or (suffix != ".json" and not looks_like_json)
    try:
        return _yaml(text) if is_yaml else _json(text)
    except _DuplicateKeyError as problem:
        raise InvalidArgument(f"{shown(file)}: the key {problem} is given twice") from None
    except RecursionError:
        raise InvalidArgument(f"{shown(file)} is nested too deeply") from None
    except ValueError as problem:
        kind = "YAML" if is_yaml else "JSON"
        raise InvalidArgument(f"{shown(file)} is not {kind}: {problem}") from None


class _DuplicateKeyError(Exception):
    pass


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once_each)
    except _DuplicateKeyError:
        # JSON is YAML, all but its tabs, and there a key has a line.
        with suppress(ValueError):
            _yaml(text.replace("\t", " "))
        raise


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKeyError(json.dumps(key))
        found[key] = value
    return found


def _yaml(text: str) -> Any:
    from perdure.audit import yaml_lines

    try:
        return yaml_lines.plain(text)
    except yaml_lines.DuplicateKeyError as problem:
        raise _DuplicateKeyError(str(problem)) from None
