"""Run plans, one at a time in this process: garbage is collected between them, not within."""

from __future__ import annotations

import gc

from chaos.sim import bugs, draw, machine
from chaos.sim.fast.world import FastWorld
from chaos.sim.plan import Plan
from chaos.sim.result import Result
from chaos.sim.world import World


def run_plan(plan: Plan) -> Result:
    """What comes of this plan; the same at every call, in every process."""
    result, world = run_world(plan)
    if isinstance(world, FastWorld):
        world.dismantle()
    return result


def run_world(plan: Plan) -> tuple[Result, World | FastWorld]:
    """Likewise, and the world as it was at its end, for diagrams."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        with machine.quiet():
            world = FastWorld(plan) if plan.knobs.world == "fast" else World(plan)
            with (
                bugs.planted(plan.bug),
                machine.simulated(plan.knobs.limits, world.places.hears_points()),
            ):
                result = world.run()
                world.close()
    finally:
        if was_on:
            gc.enable()
    return result, world


def run_seed(seed: int, *, world: str = "engine", bug: str = "") -> Result:
    """Draw the plan of a seed, and run it."""
    return run_plan(draw.plan_of(seed, world=world, bug=bug))
