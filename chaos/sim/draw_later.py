"""What a plan has besides, again from a stream of its own: attempts left open by workers that die.

It changes what the other streams drew, and draws nothing from them.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from chaos.sim.chance import fresh
from chaos.sim.plan import Flow, Knobs, Step


def drawn(seed: int, knobs: Knobs, flows: tuple[Flow, ...]) -> tuple[Knobs, tuple[Flow, ...]]:
    """The plan's knobs and flows with what this seed has besides."""
    draw = fresh(seed, "later")
    if draw.random() < 0.5:
        flows = tuple(_orphaned(draw, flow) for flow in flows)
    return knobs, flows


def _orphaned(draw: random.Random, flow: Flow) -> Flow:
    """The flow with attempts that are left open by a worker that dies soon afterwards."""
    steps = tuple(replace(step, how=_left(draw, step)) for step in flow.steps)
    return replace(flow, steps=steps)


def _left(draw: random.Random, step: Step) -> str:
    return "leave_kill" if step.how == "leave" and draw.random() < 0.6 else step.how
