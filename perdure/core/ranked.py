"""A set of things, each at a rank, the lowest first: deadlines, and tasks that wait for a worker.

Changing and removing are dictionary operations: what lies outdated in the heap is skipped when it
comes up, and swept once it is the larger part, so that a set that lives for months stays as large
as its contents.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

K = TypeVar("K")

SWEEP_FROM = 256


class Ranked(Generic[K]):
    """Keys by rank (whole numbers, or tuples of them); equal ranks in the order of their coming."""

    __slots__ = ("_heap", "_live", "_ticket")

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, K]] = []
        self._live: dict[K, tuple[int, Any]] = {}
        self._ticket = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def put(self, key: K, rank: Any) -> None:
        """Hold `key` at `rank`, wherever it was before."""
        self._ticket = ticket = self._ticket + 1
        self._live[key] = (ticket, rank)
        heappush(self._heap, (rank, ticket, key))
        if len(self._heap) > SWEEP_FROM:
            self._sweep()

    def remove(self, key: K) -> bool:
        """Let go of `key`; False when it was not held."""
        if self._live.pop(key, None) is None:
            return False
        if len(self._heap) > SWEEP_FROM:
            self._sweep()
        return True

    def rank(self, key: K) -> Any:
        """The rank of `key`, or None."""
        held = self._live.get(key)
        return None if held is None else held[1]

    def first(self) -> tuple[Any, K] | None:
        """(rank, key) of the lowest, or None where nothing is held."""
        heap, live = self._heap, self._live
        while heap:
            rank, ticket, key = heap[0]
            held = live.get(key)
            if held is not None and held[0] == ticket:
                return rank, key
            heappop(heap)
        return None

    def pop(self) -> K | None:
        """Take out the lowest; None where nothing is held."""
        found = self.first()
        if found is None:
            return None
        heappop(self._heap)
        del self._live[found[1]]
        return found[1]

    def pop_up_to(self, rank: Any) -> K | None:
        """Take out the lowest if its rank is at most `rank`."""
        found = self.first()
        if found is None or found[0] > rank:
            return None
        heappop(self._heap)
        del self._live[found[1]]
        return found[1]

    def keys(self) -> Iterator[K]:
        """What is held, in no order."""
        return iter(self._live)

    def in_order(self) -> list[tuple[Any, K]]:
        """(rank, key) of everything held, the lowest first. Costs a sort."""
        held = sorted((rank, ticket, key) for key, (ticket, rank) in self._live.items())
        return [(rank, key) for rank, _, key in held]

    def _sweep(self) -> None:
        if len(self._heap) > 4 * len(self._live):
            self._heap = [(rank, ticket, key) for key, (ticket, rank) in self._live.items()]
            heapify(self._heap)
