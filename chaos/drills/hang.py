"""The drill `hang`: processes stand still under SIGSTOP, and go on again later.

A worker stands still past the leases of what it holds: another worker finishes it. Then the first
goes on, a zombie: what it still does must change nothing. An actor stands still for 1 to 6 seconds:
either it is ended for its silence and started again, or it catches up. The whole node stands still,
as a suspended machine does: nobody may be charged for it.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter

import msgspec

from chaos.drill_kit import Arena, Drill, Load, Options, Start
from chaos.drill_kit.kills import TICK_S, bring_up
from chaos.drill_kit.lanes import CORE
from chaos.drill_kit.timeline import NODE
from chaos.harness import NodeProcess
from chaos.ledger_audit import Run
from chaos.workload import LEASE_MS
from perdure.clock import boottime_ms

SIGSTOP = "SIGSTOP"
WORKER = "worker"
WORKER_STOPS = 3
STEPS = 6
WORK_MS = 700


class Stop(msgspec.Struct, frozen=True):
    """A planned standstill: of which role, for how long, and how long after the one before."""

    role: str
    length_s: float
    after_s: float


def plan(seed: int) -> list[Stop]:
    """Three standstills of a worker and one of the node, longer than any lease, and one or two of
    each actor.
    """
    dice = Arena.dice_of(seed, "hang")
    again = dice.choice(("history", "scheduler", "gateway"))
    roles = [WORKER] * WORKER_STOPS + [NODE, *CORE, again]
    dice.shuffle(roles)
    longer_s = LEASE_MS / 1_000 + 0.5
    return [
        Stop(
            role,
            dice.uniform(1.0, 6.0) if role in CORE else dice.uniform(longer_s, longer_s + 1.5),
            dice.uniform(0.5, 1.5),
        )
        for role in roles
    ]


def run(arena: Arena) -> bool:
    """Whether a worker woke up with work that another had finished meanwhile."""
    node = arena.node(only_ours=True, apps=("chaos.workload",), slots=24)
    bring_up(arena, node)
    start = Start(type="Steady", arguments={"steps": STEPS, "work_ms": WORK_MS}, effects=STEPS)
    load = arena.load(node, start)
    load.submit()
    zombies: list[Run] = []
    suspended: list[Run] = []
    stops, ends = plan(arena.options.seed), Counter[str]()
    for number, stop in enumerate(stops):
        _work(load, stop.after_s)
        if stop.role == WORKER:
            zombies += _stop_worker(arena, node, load, stop.length_s)
        elif stop.role == NODE:
            suspended += _stop_node(arena, node, load, stop.length_s)
        else:
            ends[_stop_actor(arena, node, load, stop)] += 1
        arena.progress.bar("standstills", number + 1, len(stops), colour="red")
        if arena.over():
            break
    load.await_end()
    arena.figures["attempts of a worker that stood still, finished by another meanwhile"] = len(
        zombies
    )
    _judge(arena, load, zombies)
    _judge_suspended(arena, load, suspended)
    for what, count in sorted(ends.items()):
        arena.figures[f"actors that {what}"] = count
    return bool(zombies)


def _work(load: Load, length_s: float) -> None:
    until = time.monotonic() + length_s
    while time.monotonic() < until:
        load.look()
        load.top_up()
        time.sleep(TICK_S * 5)


def _stop_worker(arena: Arena, node: NodeProcess, load: Load, length_s: float) -> list[Run]:
    """Stops the worker that holds most, and lets it go on; its attempts that others finished."""
    while not arena.over():
        _work(load, 0.02)
        workers = {pid: role for role, pid in arena.learn_roles(node).items() if WORKER in role}
        held = Counter(run.pid for run in load.ledger.open_runs() if run.pid in workers)
        if held and max(held.values()) >= 2:
            break
    else:
        return []
    [(pid, _)] = held.most_common(1)
    os.kill(pid, signal.SIGSTOP)
    fault = arena.fault(SIGSTOP, workers[pid])
    try:
        asleep = [run for run in load.ledger.open_runs() if run.pid == pid]
        arena.say(f"SIGSTOP {workers[pid]} for {length_s:.1f} s; it holds {len(asleep)}")
        _work(load, length_s)
        zombies = [run for run in asleep if _finished_by_another(load, run)]
    finally:
        os.kill(pid, signal.SIGCONT)
        fault.until_ms = boottime_ms()
    arena.say(f"SIGCONT {workers[pid]}: {len(zombies)} of these another worker has finished")
    return zombies


def _finished_by_another(load: Load, asleep: Run) -> bool:
    later = load.ledger.runs(asleep.number)
    return any(
        run.key == asleep.key and run.pid != asleep.pid and run.ending == "returned"
        for run in later
    )


def _stop_actor(arena: Arena, node: NodeProcess, load: Load, stop: Stop) -> str:
    """Stops an actor; what came of it, in words."""
    pid = arena.learn_roles(node).get(stop.role)
    if pid is None:
        return "were not there to be stopped"
    os.kill(pid, signal.SIGSTOP)
    fault = arena.fault(SIGSTOP, stop.role)
    arena.say(f"SIGSTOP {stop.role} for {stop.length_s:.1f} s")
    until, replaced = time.monotonic() + stop.length_s, False
    try:
        while time.monotonic() < until and not replaced:
            # Our own requests would wait for the actor, so the ledger alone is looked at.
            arena.progress.bar("effects", load.ledger.effects_count(), load.effects_wanted)
            time.sleep(TICK_S * 10)
            replaced = arena.learn_roles(node).get(stop.role, pid) != pid
    finally:
        fault.until_ms = boottime_ms()
        if not replaced and any(process.pid == pid for process in node.processes()):
            os.kill(pid, signal.SIGCONT)
    if replaced:
        fault.note = "ended for its silence, and started again"
        arena.say(f"{stop.role} was ended for its silence")
        return "were ended for their silence and started again"
    arena.say(f"SIGCONT {stop.role}")
    return "went on and caught up"


def _stop_node(arena: Arena, node: NodeProcess, load: Load, length_s: float) -> list[Run]:
    """Stops every process of the node, and lets them go on; what was in progress."""
    arena.learn_roles(node)
    processes = node.processes()
    for process in processes:
        process.suspend()
    fault = arena.fault(SIGSTOP, NODE)
    try:
        asleep = load.ledger.open_runs()
        arena.say(f"SIGSTOP the node for {length_s:.1f} s; its workers hold {len(asleep)}")
        time.sleep(length_s)
    finally:
        for process in processes:
            process.resume()
        fault.until_ms = boottime_ms()
    arena.say("SIGCONT the node")
    return asleep


def _judge_suspended(arena: Arena, load: Load, suspended: list[Run]) -> None:
    """What was in progress when the whole node stood still must have gone on, not begun again.

    Unless something else befell it before its end.
    """
    runs = load.ledger.runs()
    ended_ms = {run.number: run.ended_ms for run in runs}
    others = [it.at_ms for it in arena.faults if it.target != NODE]
    again = []
    for run in suspended:
        end_ms = ended_ms[run.number] or 0
        disturbed = any(run.began_ms <= at_ms <= end_ms for at_ms in others)
        later = [it for it in runs if it.key == run.key and it.number > run.number]
        if later and not disturbed:
            again.append(run.key)
    arena.figures["attempts in progress when the whole node stood still"] = len(suspended)
    arena.figures["  of these begun again"] = len(again)
    if again:
        arena.violate(f"a standstill of the whole node was charged: {', '.join(again[:5])}")


def _judge(arena: Arena, load: Load, zombies: list[Run]) -> None:
    """No zombie's report may stand in the history."""
    done = {it.key: it for told in load.told() for it in told.done}
    runs = {run.number: run for run in load.ledger.runs()}
    for run in zombies:
        if run.key not in done or done[run.key].attempt != run.attempt:
            continue
        # An attempt that is not charged is repeated under its number.
        same = [it for it in runs.values() if (it.key, it.attempt) == (run.key, run.attempt)]
        if not any(it.grant > run.grant and it.ending == "returned" for it in same):
            arena.violate(f"the report of a zombie was taken: {run.key} #{run.attempt}")
    late = [run for run in zombies if runs[run.number].ended_ms is not None]
    arena.figures["  of these went on to their end"] = len(late)
    applied = [run for run in late if run.applied_ms is None and runs[run.number].applied_ms]
    arena.figures["  of these asked for their effect only when they went on, in vain"] = len(
        applied
    )


DRILL = Drill(
    name="hang",
    does="workers and the node stand still past all leases, and actors for seconds, under SIGSTOP",
    inconclusive="no worker woke up with work that another had finished",
    run=run,
    defaults=Options(workflows=12),
    takes=("workflows",),
)
