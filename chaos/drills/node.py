"""The drill `node`: the whole node dies at once, again and again, also while it is starting.

A third of the blows SIGKILL every process at once; a third the root alone, and the others must
follow it by themselves; a third hit while the node starts again, at a random moment.
"""

from __future__ import annotations

import time

import msgspec

from chaos.drill_kit import Arena, Drill, Load, Options, mixed
from chaos.drill_kit.kills import SIGKILL, TICK_S, bring_up
from chaos.drill_kit.timeline import NODE
from chaos.harness import NodeProcess
from perdure.clock import boottime_ms

KINDS = ("all", "root", "starting")
WORDS = {
    "all": "every process at once",
    "root": "the root alone",
    "starting": "every process, and again while it starts",
}


class Blow(msgspec.Struct, frozen=True):
    """A planned death: how, after how much time with work, and how far into the next start."""

    kind: str
    after_s: float
    into_start_s: float


def plan(options: Options) -> list[Blow]:
    """As many blows as node kills are wanted, each kind in turn, in an order of the seed."""
    dice = Arena.dice_of(options.seed, "node")
    kinds = [KINDS[number % len(KINDS)] for number in range(options.server_restarts)]
    dice.shuffle(kinds)
    pause_s = 60 * options.minutes / max(1, len(kinds)) if options.minutes else 1.2
    return [Blow(kind, dice.uniform(0.3, 1.0) * pause_s, dice.uniform(0, 1.1)) for kind in kinds]


def run(arena: Arena) -> bool:
    """Whether a death cut off work that was run again."""
    node = arena.node(
        only_ours=True, apps=("chaos.workload",), slots=max(24, arena.options.workflows + 4)
    )
    bring_up(arena, node)
    load = arena.load(node, mixed(seed=arena.options.seed))
    load.submit()
    blows = plan(arena.options)
    for number, blow in enumerate(blows):
        until = time.monotonic() + blow.after_s
        while time.monotonic() < until:
            load.look()
            load.top_up()
            time.sleep(TICK_S * 5)
        _strike(arena, node, load, blow)
        arena.progress.bar("node kills", number + 1, len(blows), colour="red")
    load.await_end()
    arena.figures["dead letters redriven"] = load.redriven
    return load.redelivered > 0


def _strike(arena: Arena, node: NodeProcess, load: Load, blow: Blow) -> None:
    load.look()
    _die(arena, node, blow.kind)
    if blow.kind == "starting":
        node.launch()
        time.sleep(blow.into_start_s)
        _die(arena, node, "starting again")
    bring_up(arena, node)
    arena.faults[-1].until_ms = boottime_ms()


def _die(arena: Arena, node: NodeProcess, kind: str) -> None:
    """SIGKILLs the node one way or the other; nothing of it may be left."""
    pids = tuple(process.pid for process in node.processes())
    at_ms = boottime_ms()
    note = WORDS.get(kind, kind)
    if kind == "root":
        left = node.kill_root()
        followed_ms = boottime_ms() - at_ms
        longest = arena.figures.get("longest time to follow a dead root, ms", 0)
        arena.figures["longest time to follow a dead root, ms"] = max(longest, followed_ms)
        if left:
            arena.violate(f"{len(left)} processes outlived their root by {followed_ms} ms")
            node.end(left)
    else:
        node.kill_all()
    arena.fault(SIGKILL, NODE, pids=pids, at_ms=at_ms, note=note)
    arena.say(f"SIGKILL the node: {note}")


DRILL = Drill(
    name="node",
    does="the whole node is SIGKILLed again and again: at once, by its root, while it starts",
    inconclusive="no death cut off work that was run again",
    run=run,
    defaults=Options(workflows=16, server_restarts=9),
    takes=("workflows", "server_restarts", "minutes"),
)
