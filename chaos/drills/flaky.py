"""The drill `flaky`: FlakyDemo workflows run to their end while their workers and the whole node
are SIGKILLed.

Half of the worker kills fall where they hurt most: the ledger shows an effect that is applied and
not yet reported, and that worker dies at that moment. The others fall at random.
"""

from __future__ import annotations

import random
import time

from chaos.drill_kit import Arena, Drill, Load, Options, flaky
from chaos.drill_kit.kills import TICK_S, bring_up, kill_node, kill_worker
from chaos.drills.flaky_plan import ACTIVITIES, Blow, plan, soak_plan
from chaos.harness import NodeProcess

# More than there are workflows: what a killed worker held never waits for a slot.
SLOTS = 24


def run(arena: Arena) -> bool:
    """Whether a kill made the node deliver an activity again, or none was asked for."""
    options = arena.options
    node = arena.node(only_ours=True, slots=max(SLOTS, options.workflows + 4))
    bring_up(arena, node)
    load = arena.load(node, flaky(activities=ACTIVITIES, seed=options.seed))
    load.submit()
    dice = arena.dice("victims")
    if options.minutes:
        _soak(arena, node, load, dice)
    else:
        for blow in plan(options):
            if not _await(arena, load, blow) or not _strike(arena, node, load, blow, dice):
                break
    load.await_end()
    return load.redelivered > 0 or options.kills + options.server_restarts == 0


def _await(arena: Arena, load: Load, blow: Blow) -> bool:
    while load.effects < blow.at_effects:
        load.look()
        if arena.over():
            return False
        time.sleep(TICK_S)
    until = time.monotonic() + blow.delay_s
    while time.monotonic() < until:
        load.look()
        time.sleep(TICK_S)
    return True


def _soak(arena: Arena, node: NodeProcess, load: Load, dice: random.Random) -> None:
    """Keeps the load as it is, and strikes, for as long as the options say."""
    began = time.monotonic()
    for blow in soak_plan(arena.options):
        while time.monotonic() - began < blow.delay_s:
            load.look()
            load.top_up()
            time.sleep(TICK_S * 10)
        _strike(arena, node, load, blow, dice)


def _strike(arena: Arena, node: NodeProcess, load: Load, blow: Blow, dice: random.Random) -> bool:
    options = arena.options
    if blow.kind == "node":
        kill_node(arena, node)
        hit = True
    else:
        hit = kill_worker(arena, node, load, dice, gap=blow.kind == "gap", until=load.done)
    nodes = sum(1 for fault in arena.faults if fault.target == "node")
    arena.progress.bar("worker kills", len(arena.faults) - nodes, options.kills, colour="red")
    arena.progress.bar("node kills", nodes, options.server_restarts, colour="red")
    return hit


DRILL = Drill(
    name="flaky",
    does="flaky workflows run to their end while workers, and the whole node, are SIGKILLed",
    inconclusive="no kill made the node deliver an activity again",
    run=run,
    defaults=Options(workflows=20, kills=8, server_restarts=2),
    takes=("workflows", "kills", "server_restarts", "minutes"),
)
