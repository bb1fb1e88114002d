"""Sets that keep an order, for asyncio.wait and as_completed on the deterministic loop.

Both collect what they are given in plain sets. A task of ours hashes by its creation, but
coroutines and the futures of gather hash by address, so as_completed would start them in another
order in each process. Inside a running workflow, and nowhere else, asyncio's own module gets this
set instead.
"""

from __future__ import annotations

import asyncio.tasks
import builtins
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class OrderedSet(set[Any]):
    """A set that iterates over what completed in the order of completion, then as it was added."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._added: dict[Any, None] = dict.fromkeys(items)
        super().__init__(self._added)

    def add(self, item: Any) -> None:
        """As of any set."""
        super().add(item)
        self._added.setdefault(item)

    def pop(self) -> Any:
        """The first, removed. KeyError where there is none."""
        for item in self:
            self.discard(item)
            return item
        raise KeyError("pop from an empty set")

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():  # What came in by another way than `add`.
            self._added.setdefault(item)
        return iter(sorted((item for item in self._added if item in self), key=_finished))


def _finished(item: Any) -> float:
    place = getattr(item, "finished", None)
    return place if isinstance(place, int) else math.inf


def install(applies: Callable[[], bool]) -> None:
    """Give asyncio's functions this set wherever `applies()` is true when they make one."""

    def make(items: Iterable[Any] = ()) -> set[Any]:
        return OrderedSet(items) if applies() else builtins.set(items)

    # A name in the module goes before the builtin, also for `from asyncio import as_completed`.
    asyncio.tasks.set = make  # type: ignore[attr-defined]
