"""What a workflow's code waits for by a predicate: looked at whenever its loop has come to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Conditions:
    """Predicates with a future each, in the order in which they were asked for."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, predicate: Callable[[], Any], future: asyncio.Future[None]) -> None:
        """Have `future` done when `predicate()` is true; not looked at now."""
        self._waiting.append((predicate, future))

    def look(self) -> None:
        """Complete the futures whose time has come, and forget those that nobody waits for."""
        waiting, self._waiting = self._waiting, []
        for predicate, future in waiting:
            if future.done():
                continue
            try:
                holds = bool(predicate())
            except Exception as problem:  # noqa: BLE001 - raised where the condition is awaited
                future.set_exception(problem)
                continue
            if holds:
                future.set_result(None)
            else:
                self._waiting.append((predicate, future))

    def clear(self) -> None:
        """Forget them all."""
        self._waiting.clear()
