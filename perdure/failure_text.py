"""What people are told of a failure in short: where it came from, and what caused it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_FRAME = re.compile(r'^\s*(?:\|\s*)*File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
# Of the engine and of libraries: what called the user's code, and what that called.
_NOT_THEIRS = re.compile(r"[/\\](site-packages|lib[/\\]python3[.\d]*|perdure[/\\]\w+)[/\\]")
CAUSES_MAX = 8


class Frame(NamedTuple):
    """One call in a stack."""

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        """As editors and terminals make a link of it."""
        return f"{self.path}:{self.line} in {self.function}"


def frames(stack: str | None) -> list[Frame]:
    """The calls in the text of a stack, the innermost last: those of the user's own code, or where
    there are none, all.
    """
    found = [Frame(path, int(line), name) for path, line, name in _FRAME.findall(stack or "")]
    return [one for one in found if not _NOT_THEIRS.search(one.path)] or found


def causes(failure: Any) -> Iterator[Any]:
    """A failure, as a view, and what caused it, the cause of that, …"""
    for _ in range(CAUSES_MAX):
        if not failure:
            return
        yield failure
        failure = failure.get("cause")


def where(stack: str | None) -> str:
    """Where it was raised, behind a text; empty where that is not known."""
    found = frames(stack)
    return f", at {found[-1]}" if found else ""
