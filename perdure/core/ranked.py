"""A set of things, each at a rank, the lowest first: deadlines, and tasks that wait for a worker.

What comes in the order of its rank, as nearly all does, stands in a line; the rest in a heap.
Changing and removing are dictionary operations: what lies outdated in either is skipped when it
comes up, and swept once it is the larger part, so that a set that lives for months stays as large
as its contents.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

K = TypeVar("K")
Held = tuple[Any, int, K]  # (rank, ticket, key); tickets are in the order of coming.

SWEEP_FROM = 256


class Ranked(Generic[K]):
    """Keys by rank (whole numbers, or tuples of them); equal ranks in the order of their coming."""

    __slots__ = ("_heap", "_line", "_live", "_ticket")

    def __init__(self) -> None:
        self._live: dict[K, Held[K]] = {}
        self._line: deque[Held[K]] = deque()
        self._heap: list[Held[K]] = []
        self._ticket = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def put(self, key: K, rank: Any) -> None:
        """Hold `key` at `rank`, wherever it was before."""
        self._ticket += 1
        held = self._live[key] = (rank, self._ticket, key)
        line = self._line
        if not line or rank >= line[-1][0]:
            line.append(held)
        else:
            heappush(self._heap, held)
        if len(line) + len(self._heap) > SWEEP_FROM:
            self._sweep()

    def remove(self, key: K) -> bool:
        """Let go of `key`; False when it was not held."""
        if self._live.pop(key, None) is None:
            return False
        if len(self._line) + len(self._heap) > SWEEP_FROM:
            self._sweep()
        return True

    def rank(self, key: K) -> Any:
        """The rank of `key`, or None."""
        held = self._live.get(key)
        return None if held is None else held[0]

    def first(self) -> tuple[Any, K] | None:
        """(rank, key) of the lowest, or None where nothing is held."""
        found = self._first()
        return None if found is None else (found[0], found[2])

    def lowest(self) -> Any:
        """The rank of `first`, or None."""
        found = self._first() if self._live else None
        return None if found is None else found[0]

    def _first(self) -> Held[K] | None:
        live, line, heap = self._live, self._line, self._heap
        while line and live.get(line[0][2]) is not line[0]:
            line.popleft()
        while heap and live.get(heap[0][2]) is not heap[0]:
            heappop(heap)
        if not heap:
            return line[0] if line else None
        return min(line[0], heap[0]) if line else heap[0]

    def pop(self) -> K | None:
        """Take out the lowest; None where nothing is held."""
        found = self._first()
        if found is None:
            return None
        del self._live[found[2]]
        return found[2]

    def pop_up_to(self, rank: Any) -> K | None:
        """Take out the lowest if its rank is at most `rank`."""
        if not self._live:
            return None
        found = self._first()
        if found is None or found[0] > rank:
            return None
        del self._live[found[2]]
        return found[2]

    def keys(self) -> Iterator[K]:
        """What is held, in no order."""
        return iter(self._live)

    def in_order(self) -> list[tuple[Any, K]]:
        """(rank, key) of everything held, the lowest first. Costs a sort."""
        return [(rank, key) for rank, _, key in sorted(self._live.values())]

    def _sweep(self) -> None:
        if len(self._line) + len(self._heap) > 4 * len(self._live):
            self._line = deque(sorted(self._live.values()))
            self._heap.clear()


def all_in_order(queues: Iterable[Ranked[Any]]) -> list[Any]:
    """The keys of all of these, by rank."""
    held = [item for ready in queues for item in ready.in_order()]
    held.sort(key=lambda item: item[0])
    return [key for _, key in held]
