"""Nod: workflows that do next to nothing, and one whose result is large."""

from __future__ import annotations

from perdure import workflow

LARGE_CHARS = 1_000_000


@workflow.define(name="Nod")
async def nod(number: int) -> int:
    """The number again."""
    return number


@workflow.define(name="Large")
async def large() -> str:
    """A million characters."""
    return "x" * LARGE_CHARS
