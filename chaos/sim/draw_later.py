"""What a plan has besides, again from a stream of its own: attempts left open by workers that die,
limits of every kind, workflows that speak to each other, resets and runs that are made up for.

It changes what the other streams drew, and draws nothing from them.
"""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace

from chaos.sim.chance import fresh
from chaos.sim.plan import Child, Fault, Flow, Knobs, Step, Talk

# With 0 every task that asks for something stops at the next event, and leaves the rest.
ENOUGH = "perdure.worker.stage:ENOUGH_BYTES"


def drawn(seed: int, knobs: Knobs, flows: tuple[Flow, ...]) -> tuple[Knobs, tuple[Flow, ...]]:
    """The plan's knobs and flows with what this seed has besides."""
    draw = fresh(seed, "later")
    if draw.random() < 0.5:
        flows = tuple(_orphaned(draw, flow) for flow in flows)
    if draw.random() < 0.25:
        knobs = replace(knobs, rules=_rules(draw))
    if draw.random() < 0.2:
        knobs = replace(knobs, resets=draw.choice((1, 2, 5)))
    if knobs.schedules and draw.random() < 0.5:
        knobs = replace(knobs, backfills=draw.choice((1, 3)))
    if draw.random() < 0.2:
        flows += _family(draw, knobs)
    if draw.random() < 0.2:
        knobs = replace(knobs, limits={**knobs.limits, ENOUGH: 0})
    return knobs, flows


def faults(seed: int, flows: tuple[Flow, ...]) -> tuple[Fault, ...]:
    """Deaths of history while updates are under way."""
    draw = fresh(seed, "later/faults")
    busy = [flow for flow in flows if flow.talk is not None and flow.talk.updates]
    if not busy or draw.random() < 0.6:
        return ()
    found = []
    for flow in busy:
        talk = flow.talk
        assert talk is not None
        first_ms = flow.start_ms + 1
        for _ in range(draw.choice((1, 2, 3))):
            at_ms = first_ms + draw.randrange(1 + talk.gap_ms * (talk.updates + 1))
            found.append(Fault("history", "ms", at_ms, "kill"))
    return tuple(found)


# --- workflows that speak to each other -----------------------------------------
def _family(draw: random.Random, knobs: Knobs) -> tuple[Flow, ...]:
    """A parent whose children hear of it and report to it; and one that ends another."""
    children = tuple(
        Child(
            close=draw.choice(("terminate", "cancel", "abandon")),
            awaits=draw.random() < 0.8,
            cancels=draw.random() < 0.2,
            steps=(Step(id="a1", ms=draw.choice((1, 30))),) if draw.random() < 0.5 else (),
            signals=draw.choice((0, 1, 4)),
            reports=draw.choice((0, 1, 5)),
        )
        for _ in range(draw.choice((1, 1, 3)))
    )
    at_ms = int(draw.random() ** 2 * knobs.fault_ms)
    stops = "e0" if draw.random() < 0.5 else ""
    parent = Flow(
        id="p0",
        start_ms=at_ms,
        client=draw.randrange(knobs.clients),
        talk=Talk(children=children, stops=stops, signals=draw.choice((0, 2))),
    )
    if not stops:
        return (parent,)
    other = Flow(
        id=stops,
        start_ms=int(draw.random() ** 2 * knobs.fault_ms),
        client=draw.randrange(knobs.clients),
        talk=Talk(
            is_stopped=True,
            endless=True,
            stubborn=draw.random() < 0.3,
            runs=draw.choice((1, 1, 3)),
            signals=draw.choice((0, 3)),
        ),
    )
    return parent, other


def _orphaned(draw: random.Random, flow: Flow) -> Flow:
    """The flow with attempts that are left open by a worker that dies soon afterwards."""
    steps = tuple(replace(step, how=_left(draw, step)) for step in flow.steps)
    return replace(flow, steps=steps)


def _left(draw: random.Random, step: Step) -> str:
    return "leave_kill" if step.how == "leave" and draw.random() < 0.6 else step.how


def _rules(draw: random.Random) -> dict[str, Any]:
    """Limits that slow work down, and stop none of it for good."""
    queues = {name: _starts(draw) for name in ("default", "other") if draw.random() < 0.4}
    kinds = {name: _starts(draw) for name in ("sync", "async") if draw.random() < 0.6}
    for rule in kinds.values():
        if draw.random() < 0.5:
            rule["breaker"] = {
                "failures": draw.choice((1, 2, 4)),
                "window_ms": draw.choice((200, 2_000, 10_000)),
                "open_ms": draw.choice((50, 900, 3_000)),
                "probes": draw.choice((1, 1, 2)),
            }
        if draw.random() < 0.5:
            rule["retry_budget"] = {
                "ratio": draw.choice((0.0, 0.2, 1.0)),
                "minimum": draw.choice((1, 3)),
                "window_ms": draw.choice((100, 1_000, 4_000)),
            }
    return {"queues": queues, "activities": kinds}


def _starts(draw: random.Random) -> dict[str, Any]:
    rule: dict[str, Any] = {}
    if draw.random() < 0.5:
        rule["rate"] = draw.choice((5.0, 20.0, 50.0))
    if draw.random() < 0.5:
        rule["concurrency"] = draw.choice((1, 2, 3, 8))
    return rule
