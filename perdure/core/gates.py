"""Which queues and activity types an operator has paused. What is paused begins nothing new."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

QUEUE = "queue"
ACTIVITY_TYPE = "activity_type"


class Gate(NamedTuple):
    """A closed one: since when, and why, in the operator's words."""

    kind: str  # QUEUE or ACTIVITY_TYPE.
    name: str
    since_ms: int
    reason: str


class Gates:
    """The closed ones. Whoever follows the log keeps its own."""

    __slots__ = ("_closed",)

    def __init__(self, closed: Iterable[Gate] = ()) -> None:
        self._closed = {(gate.kind, gate.name): gate for gate in closed}

    def __len__(self) -> int:
        return len(self._closed)

    def put(self, gate: Gate) -> None:
        """It is closed from now on."""
        self._closed[gate.kind, gate.name] = gate

    def open(self, kind: str, name: str) -> None:
        """It is no longer closed."""
        self._closed.pop((kind, name), None)

    def get(self, kind: str, name: str) -> Gate | None:
        """The gate, where it is closed."""
        return self._closed.get((kind, name))

    def of_activity(self, queue: str, activity_type: str) -> Gate | None:
        """What keeps an activity from starting: its queue's gate, or its type's."""
        return self._closed.get((QUEUE, queue)) or self._closed.get((ACTIVITY_TYPE, activity_type))

    def all(self) -> list[Gate]:
        """Every closed one, by kind and name."""
        return [self._closed[key] for key in sorted(self._closed)]
