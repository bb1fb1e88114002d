"""What stands still because no worker serves it, in one plain sentence. Pure.

Judged anew at each look, from what is open and who is there now: nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from perdure.config import listed
from perdure.core.gates import QUEUE, Gate, Gates
from perdure.core.state import ActivityState, Execution

Kind = Literal["activity", "workflow"]


class Offer(NamedTuple):
    """What one worker serves: each of its types on each of its queues (None: on any)."""

    queues: tuple[str, ...] | None
    activity_types: tuple[str, ...]
    workflow_types: tuple[str, ...]

    def types(self, kind: Kind) -> tuple[str, ...]:
        """Its types of this kind."""
        return self.activity_types if kind == "activity" else self.workflow_types

    def serves(self, queue: str) -> bool:
        """Whether it takes tasks of this queue."""
        return self.queues is None or queue in self.queues


class Waits(NamedTuple):
    """What an execution waits for: its workflow task (None: for nobody), activities by their id."""

    task: str | None
    activities: Mapping[str, str]


def of_execution(
    execution: Execution, offers: Sequence[Offer], now_ms: int, *, in_engine: bool = False
) -> Waits:
    """Everything in `execution` that is due at `now_ms` and that nobody who offers serves.

    `in_engine`: the offer is that of an engine in memory, whose other activities may be polled.
    """
    said: dict[tuple[str, str], str | None] = {}
    waits: dict[str, str] = {}
    for activity in execution.activities.values():
        is_open = activity.state in (ActivityState.SCHEDULED, ActivityState.RETRYING)
        if not is_open or activity.due_ms > now_ms:
            continue
        wanted = (activity.activity_type, activity.options.task_queue)
        if wanted not in said:
            said[wanted] = sentence("activity", *wanted, offers, in_engine=in_engine)
        text = said[wanted]
        if text is not None:
            waits[activity.activity_id] = text
    task = None
    if execution.task_ready and execution.task_due_ms <= now_ms:
        task = sentence(
            "workflow", execution.workflow_type, execution.task_queue, offers, in_engine=in_engine
        )
    return Waits(task, waits)


def behind_gates(execution: Execution, gates: Gates) -> Waits:
    """What of `execution` waits for an operator to let its queue or its type go on."""
    if not gates:
        return Waits(None, {})
    held = {
        activity.activity_id: _resumed(gate)
        for activity in execution.activities.values()
        if activity.state in (ActivityState.SCHEDULED, ActivityState.RETRYING)
        and (gate := gates.of_activity(activity.options.task_queue, activity.activity_type))
    }
    gate = gates.of_queue(execution.task_queue) if execution.task_ready else None
    return Waits(None if gate is None else _resumed(gate), held)


def _resumed(gate: Gate) -> str:
    what, verb = ("queue", "queue") if gate.kind == QUEUE else ("activity type", "activity")
    why = f" ({gate.reason})" if gate.reason else ""
    return f"`perdure {verb} resume {gate.name}`: the {what} is paused{why}"


def sentence(
    kind: Kind, type_: str, queue: str, offers: Sequence[Offer], *, in_engine: bool = False
) -> str | None:
    """Whom a task of this type on this queue waits for, and who is there instead; None: it is
    served.
    """
    there = [offer for offer in offers if offer.serves(queue)]
    if any(type_ in offer.types(kind) for offer in there):
        return None
    wanted = f"a worker that has {kind} {type_!r} on queue {queue!r}"
    # A queue that no worker serves may be one that is only polled by hand.
    if kind == "activity" and (in_engine or (offers and not there)):
        wanted += ", or a poll by hand"
    return f"{wanted}; {_instead(kind, type_, offers, there, in_engine)}"


def _instead(
    kind: Kind, type_: str, offers: Sequence[Offer], there: Sequence[Offer], in_engine: bool
) -> str:
    if not offers:
        return "no worker is connected"
    elsewhere = {q for o in offers if type_ in o.types(kind) for q in o.queues or ()}
    if elsewhere:
        return f"workers have it on other queues: {listed(map(repr, sorted(elsewhere)))}"
    if not there:
        queues = sorted({q for o in offers for q in o.queues or ()})
        return f"no worker serves that queue; workers serve: {listed(map(repr, queues))}"
    who = "the engine has" if in_engine else "workers have"
    types = sorted({name for offer in there for name in offer.types(kind)})
    if not types:
        return f"{who} no {kind}"
    return f"{who}: {listed(types, type_)}"
