"""The drill `poison`: activities that kill the worker that runs them, among innocent ones.

Whoever shares a process with a poison dies with it. From its second death in a row an activity runs
alone, in quarantine: so a poison ends as a dead letter, and nobody near it is charged more than two
deaths in a row, however many poisons there are.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from chaos.drill_kit import Arena, Drill, Load, Options, Start
from chaos.drill_kit.kills import TICK_S, bring_up
from chaos.harness import NodeProcess
from chaos.history_audit import key_of
from chaos.ledger_audit import Run

POISONS = 4
ATTEMPTS = 5
BESIDE_OTHERS = 2  # The attempts of a poison that may share a process with others.
STEPS = 3
WORK_MS = 300
KIND = "poison"


def run(arena: Arena) -> bool:
    """Whether a poison took innocent work along, and every poison came to its end."""
    node = arena.node(apps=("chaos.workload",), slots=40, only_ours=True)
    bring_up(arena, node)
    start = Start(type="Innocent", arguments={"steps": STEPS, "work_ms": WORK_MS}, effects=STEPS)
    load = arena.load(node, start)
    load.submit()
    dice = arena.dice("poison")
    poisons = [f"poison-{number}" for number in range(1, POISONS + 1)]
    noted: set[int] = set()
    for workflow_id in poisons:
        _work(arena, node, load, noted, dice.uniform(0.1, 0.7))
        load.others.append(workflow_id)
        load.parks.add(key_of(workflow_id, "poison"))
        load.client.start_workflow(
            "Poisoned", ATTEMPTS, str(load.ledger_path), workflow_id=workflow_id
        )
        arena.say(f"{workflow_id} started")
    while len(letters := _letters(load)) < POISONS and not arena.over():
        _work(arena, node, load, noted, 0.2)
        arena.progress.bar("dead letters", len(letters), POISONS, colour="red")
    load.await_end()
    _note_deaths(arena, node, load, noted)
    _judge(arena, load, letters)
    return load.redelivered > 0 and len(letters) == POISONS


def _work(arena: Arena, node: NodeProcess, load: Load, noted: set[int], length_s: float) -> None:
    until = time.monotonic() + length_s
    while time.monotonic() < until:
        load.look()
        _note_deaths(arena, node, load, noted)
        time.sleep(TICK_S * 3)


def _note_deaths(arena: Arena, node: NodeProcess, load: Load, noted: set[int]) -> None:
    """A poison's run is the fault of this drill."""
    for run in _poisonous(load):
        if run.number not in noted:
            noted.add(run.number)
            role = arena.roles.get(run.pid) or f"pid {run.pid}"
            note = f"{run.key}, attempt {run.attempt}"
            fault = arena.fault(KIND, role, pids=(run.pid,), at_ms=run.began_ms, note=note)
            others = len(load.cut_off(fault)) - 1
            arena.say(f"attempt {run.attempt} of {run.key} killed {role}, and {others} others")
    arena.learn_roles(node)


def _poisonous(load: Load) -> list[Run]:
    return [run for run in load.runs.values() if run.key in load.parks]


def _letters(load: Load) -> list[Any]:
    return list(load.client.list_dead_letters(limit=100).dead_letters)


def _judge(arena: Arena, load: Load, letters: list[Any]) -> None:
    """Who is parked, what was charged to whom, and who shared a process with whom."""
    for letter in letters:
        where, kind = f"{letter.workflow_id}/{letter.activity_id}", letter.last_failure.type
        if f"{letter.workflow_id}/{letter.activity_id}" not in load.parks:
            arena.violate(f"an innocent activity was parked: {where}")
        elif (letter.attempts, kind) != (ATTEMPTS, "WorkerDied"):
            arena.violate(f"{where} was parked by {kind} after {letter.attempts} attempts")
    runs, poisonous = load.ledger.runs(), _poisonous(load)
    alone = {run.pid: run for run in poisonous if run.attempt > BESIDE_OTHERS}
    for run in runs:
        poison = alone.get(run.pid)
        # One after the other they may: a worker in quarantine takes one at a time.
        if poison is not None and run.key != poison.key and run.ending is None:
            arena.violate(f"{run.key} died of {poison.key} #{poison.attempt}, which runs alone")
    deaths = Counter(run.key for run in runs if run.ending is None and run.key not in load.parks)
    most = max(deaths.values(), default=0)
    if most > BESIDE_OTHERS:
        worst = [key for key, count in deaths.items() if count == most]
        arena.violate(f"{worst[0]} was cut off {most} times by the deaths of others")
    arena.figures["poisons parked after five deaths"] = len(letters)
    arena.figures["innocent attempts cut off by a poison"] = sum(deaths.values())
    arena.figures["most often for one activity"] = most


DRILL = Drill(
    name="poison",
    does="activities kill the worker that runs them, among innocent ones",
    inconclusive="no innocent attempt was cut off by a poison",
    run=run,
    defaults=Options(workflows=50),
    takes=("workflows",),
)
