"""What the people of the drill `features` share: each is a thread that does one kind of thing to a
node that is being killed, until it is told to stop and has done enough.

What nobody answered is asked again, under the same request id, until there is an answer. What they
did and were told is noted in the Fair; what must hold of it is in features_notes.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from chaos.drill_kit import Arena, Load
from chaos.drills.features_notes import Bell, Pause, Row, Stall
from chaos.harness import NodeProcess
from perdure.errors import (
    DeadlineExceeded,
    ResourceExhausted,
    Unavailable,
    WorkflowFailed,
)

T = TypeVar("T")
CALL_MS = 1_000
RESULT_MS = 1_000
LOOK_S = 0.03
REST_S = (0.02, 0.3)
OUTBOX = "orders.db"


class GaveUp(Exception):
    """The drill's time is over."""


class Fair:
    """What all people share. Lists are appended to by one person each."""

    def __init__(self, arena: Arena, node: NodeProcess, load: Load) -> None:
        self.arena = arena
        self.node = node
        self.load = load
        self.ledger = str(load.ledger_path)
        self.is_over = threading.Event()  # No more faults: finish what is begun.
        self.did: Counter[str] = Counter()
        self.troubles: list[str] = []
        self.stalls: list[Stall] = []
        self.bells: dict[str, list[Bell]] = {}
        self.rung = (0, 0)  # From when to when the schedule was there that nobody paused.
        self.hushes: list[Pause] = []  # Of the other one.
        self.rows: list[Row] = []
        self.gates: list[Pause] = []
        self.offered: dict[str, list[str]] = {}

    def id_of(self, what: str, number: int) -> str:
        """The id of a workflow that is told of in the ledger and in its history."""
        workflow_id = f"{what}-{self.arena.options.seed}-{number}"
        self.load.others.append(workflow_id)
        return workflow_id


class Person(threading.Thread):
    """Acts again and again: until the drill says so, and `enough` times at least."""

    def __init__(self, fair: Fair, name: str, enough: int) -> None:
        super().__init__(name=name, daemon=True)
        self.fair = fair
        self.enough = enough
        self.client = fair.arena.client(fair.node, timeout_ms=CALL_MS)
        self.dice = fair.arena.dice(name)
        self.acts = 0

    def run(self) -> None:
        """Acts, and notes what goes wrong."""
        try:
            self._begin()
            while self.acts < self.enough or not self.fair.is_over.is_set():
                self.acts += 1
                self._act(self.acts)
                self.rest(self.dice.uniform(*REST_S))
            self._finish()
        except GaveUp:
            self.fair.troubles.append(f"{self.name} had not finished when the time was over")
        except Exception as error:  # noqa: BLE001 - told by the drill: a thread that ends is silent.
            self.fair.troubles.append(f"{self.name}: {type(error).__name__}: {error}")

    def _begin(self) -> None:
        """Before the first act."""

    def _act(self, number: int) -> None:
        """Does it for the `number`th time, from 1."""
        raise NotImplementedError

    def _finish(self) -> None:
        """After the last act; nobody is killed any more."""

    def rest(self, length_s: float) -> None:
        """Waits. Raises GaveUp where there is no time left."""
        if self.fair.arena.over():
            raise GaveUp
        threading.Event().wait(length_s)

    def insist(self, ask: Callable[[], T]) -> T:
        """The answer to `ask`, which is asked until there is one."""
        while True:
            try:
                return ask()
            except (Unavailable, ResourceExhausted, DeadlineExceeded):
                self.fair.did["asked again"] += 1
                self.rest(LOOK_S)

    def until(self, look: Callable[[], bool]) -> None:
        """Looks until it is so."""
        while not self.insist(look):
            self.rest(LOOK_S)

    def begin_workflow(self, type_: str, workflow_id: str, **arguments: Any) -> None:
        """Starts it, once."""
        self.insist(
            lambda: self.client.start_workflow(
                type_,
                workflow_id=workflow_id,
                request_id=workflow_id,
                ledger=self.fair.ledger,
                **arguments,
            )
        )

    def end_of(self, workflow_id: str) -> str:
        """How it ended, waited for."""
        try:
            self.insist(lambda: self.client.result(workflow_id, timeout_ms=RESULT_MS))
        except WorkflowFailed as error:
            return error.status
        return "Completed"

    def violate(self, text: str) -> None:
        """What must not be."""
        self.fair.troubles.append(text)
