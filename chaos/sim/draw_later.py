"""What a plan has besides, again from a stream of its own: attempts left open by workers that die,
and limits of every kind.

It changes what the other streams drew, and draws nothing from them.
"""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace

from chaos.sim.chance import fresh
from chaos.sim.plan import Flow, Knobs, Step


def drawn(seed: int, knobs: Knobs, flows: tuple[Flow, ...]) -> tuple[Knobs, tuple[Flow, ...]]:
    """The plan's knobs and flows with what this seed has besides."""
    draw = fresh(seed, "later")
    if draw.random() < 0.5:
        flows = tuple(_orphaned(draw, flow) for flow in flows)
    if draw.random() < 0.25:
        knobs = replace(knobs, rules=_rules(draw))
    return knobs, flows


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
