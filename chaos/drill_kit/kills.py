"""Kills by SIGKILL: of a worker where it hurts most, of an actor, of the whole node."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from chaos.drill_kit.arena import Arena
from chaos.drill_kit.load import Load
from chaos.drill_kit.timeline import NODE
from chaos.harness import NodeProcess
from perdure.clock import boottime_ms

SIGKILL = "SIGKILL"
TICK_S = 0.004
BACK_S = 20.0


def kill_worker(
    arena: Arena,
    node: NodeProcess,
    load: Load,
    dice: random.Random,
    *,
    gap: bool,
    until: Callable[[], bool],
) -> bool:
    """SIGKILLs a worker that is at work; with `gap` one whose effect is applied and not yet
    reported. False where `until` came true first.
    """
    while not arena.over() and not until():
        load.look()
        workers = {pid: role for role, pid in arena.learn_roles(node).items() if is_worker(role)}
        busy = [run for run in load.ledger.open_runs() if run.pid in workers]
        if gap:
            busy = [run for run in busy if run.in_the_gap]
        if not busy:
            time.sleep(TICK_S)
            continue
        pid = dice.choice(busy).pid
        at_ms = boottime_ms()
        if not node.kill_worker(pid):
            continue
        where = "between effect and report" if gap else "at random"
        fault = arena.fault(SIGKILL, workers[pid], pids=(pid,), at_ms=at_ms, note=where)
        arena.say(f"SIGKILL {workers[pid]} {where}; it held {len(load.cut_off(fault))}")
        return True
    return False


def kill_node(arena: Arena, node: NodeProcess) -> None:
    """SIGKILLs the root and all of its descendants, and starts the node again."""
    arena.learn_roles(node)
    pids = tuple(process.pid for process in node.processes())
    at_ms = boottime_ms()
    node.kill_all()
    fault = arena.fault(SIGKILL, NODE, pids=pids, at_ms=at_ms)
    arena.say(f"SIGKILL the node, {len(pids)} processes")
    bring_up(arena, node)
    fault.until_ms = boottime_ms()


def bring_up(arena: Arena, node: NodeProcess) -> None:
    """Starts the node, and says how long it took."""
    node.start()
    arena.learn_roles(node)
    arena.say(f"node ready after {node.ready_ms[-1]} ms")


def kill_role(arena: Arena, node: NodeProcess, role: str) -> bool:
    """SIGKILLs one process of the node; False where it does not run just now."""
    pid = arena.learn_roles(node).get(role)
    at_ms = boottime_ms()
    if pid is None or not node.kill_worker(pid):
        return False
    arena.fault(SIGKILL, role, pids=(pid,), at_ms=at_ms)
    arena.say(f"SIGKILL {role}")
    return True


def is_worker(role: str) -> bool:
    """Whether a role runs the user's code."""
    return role.startswith(("worker", "quarantine"))
