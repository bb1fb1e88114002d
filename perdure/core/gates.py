"""Queues and activity types that an operator holds back: what is paused begins nothing new.

Durable: a record of history, a row of the store. A row stays when its gate is open again, so that
an operator's request which comes a second time is known.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.core.commands import AnyAnswer, Done
from perdure.core.facts import Decision, refuse
from perdure.core.interaction_records import GateSet
from perdure.core.interactions import SetGate
from perdure.core.record_base import Record
from perdure.core.state import Execution

QUEUE = "queue"
ACTIVITY_TYPE = "activity_type"
KINDS = (QUEUE, ACTIVITY_TYPE)
# So many requests are remembered of one gate.
REQUESTS_KEPT = 16


class Gate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of one queue or activity type: paused or not, since when, and why in the operator's words."""

    kind: str
    name: str
    paused: bool
    since_ms: int
    reason: str
    requests: tuple[tuple[str, bool], ...] = ()  # (request id, paused), the newest last.


class Gates:
    """Those that were ever set. Whoever follows the log keeps its own."""

    __slots__ = ("_all", "_paused")

    def __init__(self, known: Iterable[Gate] = ()) -> None:
        self._all: dict[tuple[str, str], Gate] = {}
        self._paused: dict[tuple[str, str], Gate] = {}
        self.load(known)

    def load(self, known: Iterable[Gate]) -> None:
        """Take over what a store has."""
        for gate in known:
            self._put(gate)

    def __bool__(self) -> bool:
        """True while anything is paused."""
        return bool(self._paused)

    def get(self, kind: str, name: str) -> Gate | None:
        """What is known of it, paused or not."""
        return self._all.get((kind, name))

    def of_queue(self, queue: str) -> Gate | None:
        """What holds the workflow tasks of a queue back."""
        return self._paused.get((QUEUE, queue))

    def of_activity(self, queue: str, activity_type: str) -> Gate | None:
        """What holds an activity back: its queue's gate, or its type's."""
        paused = self._paused
        return paused.get((QUEUE, queue)) or paused.get((ACTIVITY_TYPE, activity_type))

    def hold(self, execution: Execution) -> bool:
        """Whether the tasks of this workflow are held back: it is paused, or its queue is."""
        return execution.is_paused or (QUEUE, execution.task_queue) in self._paused

    def hold_activity(self, queue: str, activity_type: str) -> bool:
        """Whether activities of this kind are held back."""
        return bool(self._paused) and self.of_activity(queue, activity_type) is not None

    def paused(self) -> list[Gate]:
        """Every paused one, by kind and name."""
        return [self._paused[key] for key in sorted(self._paused)]

    def apply(self, record: GateSet) -> Gate:
        """Take in what a commit states; the gate as it is then."""
        known = self._all.get((record.kind, record.name))
        requests = () if known is None else known.requests
        if record.request_id is not None:
            requests = (*requests[1 - REQUESTS_KEPT :], (record.request_id, record.paused))
        gate = Gate(record.kind, record.name, record.paused, record.at_ms, record.reason, requests)
        self._put(gate)
        return gate

    def judge(
        self,
        command: SetGate,
        now_ms: int,
        groups: dict[str, list[Record]],
        changed: dict[tuple[str, str], Gate],
    ) -> AnyAnswer:
        """History's answer. What follows is taken in, and noted for its commit in `groups`, under
        the empty id, and in `changed`.
        """
        decision = set_gate(self, command, now_ms)
        for record in decision.records:
            assert isinstance(record, GateSet)
            changed[record.kind, record.name] = self.apply(record)
            groups.setdefault("", []).append(record)
        return decision.answer

    def _put(self, gate: Gate) -> None:
        key = (gate.kind, gate.name)
        self._all[key] = gate
        if gate.paused:
            self._paused[key] = gate
        else:
            self._paused.pop(key, None)


def set_gate(gates: Gates, command: SetGate, now_ms: int) -> Decision:
    """What an operator's wish leads to. The same again is done already, and says nothing new."""
    if command.kind not in KINDS:
        return refuse("INVALID_ARGUMENT", f"kind must be one of {', '.join(KINDS)}")
    known = gates.get(command.kind, command.name)
    for request_id, paused in () if known is None else known.requests:
        if request_id == command.request_id:
            if paused == command.paused:
                return Decision((), Done())
            text = f"request_id {request_id!r} was used to {'pause' if paused else 'resume'} it"
            return refuse("FAILED_PRECONDITION", text)
    was = (False, "") if known is None or not known.paused else (True, known.reason)
    reason = command.reason if command.paused else ""
    if was == (command.paused, reason) or (was[0] and command.paused and not reason):
        return Decision((), Done())  # Without a reason of its own the first one stays.
    record = GateSet(now_ms, command.kind, command.name, command.paused, reason, command.request_id)
    return Decision((record,), Done())
