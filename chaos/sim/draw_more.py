"""The part of a plan that is about workflows that are talked to, operators and schedules.

It is drawn from a stream of its own: what a seed drew before this was there, it still draws.
"""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace

from chaos.sim.chance import fresh
from chaos.sim.plan import BY_HAND, Child, Flow, Knobs, Step, Talk

TALKS = 4
GIVEN_UP = ("try", "wait", "wait", "abandon")


def drawn(seed: int, knobs: Knobs, flows: tuple[Flow, ...]) -> tuple[Knobs, tuple[Flow, ...]]:
    """The plan's knobs and flows with what this seed has besides."""
    draw = fresh(seed, "talk")
    if draw.random() < 0.4:
        return knobs, flows
    if draw.random() < 0.5:
        flows = tuple(_given_up(draw, flow) for flow in flows)
    count = int((TALKS + 1) * draw.random())
    known = [flow.id for flow in flows]
    flows += tuple(_talk(draw, knobs, number, known) for number in range(count))
    knobs = replace(
        knobs,
        rules=_rules(draw) if draw.random() < 0.2 else {},
        pauses=draw.choice((0, 0, 1, 4)),
        schedules=draw.choice((0, 0, 1, 2)),
    )
    return knobs, flows


def _given_up(draw: random.Random, flow: Flow) -> Flow:
    """The flow with activities that are given up in other ways, or left to others."""
    is_race = flow.shape == "race"
    steps = tuple(
        replace(
            step,
            cancellation=draw.choice(GIVEN_UP) if is_race else "try",
            **_left(draw, step),
        )
        for step in flow.steps
    )
    return replace(
        flow, shape=draw.choice(("race", "part")) if is_race else flow.shape, steps=steps
    )


def _left(draw: random.Random, step: Step) -> dict[str, Any]:
    if step.queue == BY_HAND or step.fails or draw.random() < 0.7:
        return {}
    return {"how": "leave", "fails": 1}


def _talk(draw: random.Random, knobs: Knobs, number: int, known: list[str]) -> Flow:
    ends = draw.choice(("", "", "", "cancel", "terminate", "timeout"))
    soon_ms = draw.choice((1, 60, 700, 4_000))
    talk = Talk(
        signals=draw.choice((0, 1, 3, 8)),
        updates=draw.choice((0, 0, 1, 6)),
        queries=draw.choice((0, 0, 3)),
        gap_ms=draw.choice((1, 20, 300)),
        boxed=draw.random() < 0.4,
        runs=draw.choice((1, 1, 2, 4)),
        endless=ends != "" and draw.random() < 0.8,
        stubborn=draw.random() < 0.3,
        cancel_ms=soon_ms if ends == "cancel" else 0,
        terminate_ms=soon_ms if ends == "terminate" else 0,
        timeout_ms=soon_ms if ends == "timeout" else 0,
        delay_ms=draw.choice((0, 0, 0, 30, 900)),
        greets=draw.choice(["", *known, "nobody-there"]) if draw.random() < 0.3 else "",
        children=tuple(_child(draw, n) for n in range(draw.choice((0, 0, 1, 3)))),
    )
    count = draw.choice((0, 1, 2))
    return Flow(
        id=draw.choice((f"t{number}", f"t/{number}#2")),
        start_ms=int(draw.random() ** 2 * knobs.fault_ms),
        client=draw.randrange(knobs.clients),
        nap_ms=draw.choice((0, 0, 40)),
        twice=draw.random() < 0.3,
        steps=tuple(_step(draw, n + 1) for n in range(count)),
        talk=talk,
    )


def _child(draw: random.Random, number: int) -> Child:
    return Child(
        close=draw.choice(("terminate", "cancel", "abandon")),
        awaits=draw.random() < 0.6,
        cancels=draw.random() < 0.2,
        id=draw.choice(("", "", "", f"taken-{number}")),  # By another's child, maybe.
        steps=(_step(draw, 1),),
    )


def _step(draw: random.Random, number: int) -> Step:
    return Step(
        id=f"a{number}",
        kind=draw.choice(("sync", "async")),
        ms=draw.choice((1, 20, 400)),
        fails=draw.choice((0, 0, 0, 1)),
        size=draw.choice((0, 0, 2_000)),
        cancellation=draw.choice(GIVEN_UP),
    )


def _rules(draw: random.Random) -> dict[str, Any]:
    """Limits that slow work down, and stop none of it for good."""
    rules: dict[str, Any] = {"queues": {}, "activities": {}}
    if draw.random() < 0.5:
        rules["queues"]["default"] = {"rate": 20.0, "concurrency": draw.choice((1, 2, 8))}
    if draw.random() < 0.5:
        rules["activities"]["sync"] = {"concurrency": draw.choice((1, 3))}
    if draw.random() < 0.6:
        breaker = {"failures": 2, "window_ms": 2_000, "open_ms": draw.choice((50, 900))}
        rules["activities"]["async"] = {"breaker": breaker}
    return rules
