"""The drill `features`: users and operators do all that there is to do to workflows, while the
actors, the workers, the outbox and the whole node are SIGKILLed.

They signal, update, cancel, terminate, pause, take back, keep schedules, deploy, finish activities
by hand and start workflows from their own transactions (see features_users, features_operators);
activities run programs and processes of their own, each of which leaves another one behind. At the
end each of them says what it was told, and it must be so, once; and nothing that an activity has
started may be there any more.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import psutil

from chaos.apps.fair import ASKED, ERRAND_EFFECTS, GATED, LINGERERS, VISITS
from chaos.drill_kit import Arena, Drill, Load, Options, Start
from chaos.drill_kit.kills import BACK_S, SIGKILL, TICK_S, bring_up, kill_role
from chaos.drill_kit.lanes import CORE
from chaos.drill_kit.timeline import NODE
from chaos.drills import features_notes as notes
from chaos.drills.features_fair import OUTBOX, Fair, Person
from chaos.drills.features_operators import (
    EVERY_MS,
    PAUSED,
    WHOLE,
    Deployer,
    Doorkeeper,
    Historian,
    Ringer,
)
from chaos.drills.features_users import Customer, Hands, Shop, Visitor
from chaos.harness import NodeProcess
from chaos.history_audit import key_of
from perdure.clock import boottime_ms

WORKER = "worker"
ROOT = "root"
ROLES = (*CORE, WORKER, "outbox")
PAUSE_S = (0.3, 2.2)
FINISH_S = 45.0
GONE_S = 10.0
OWN_PROCESSES = "own processes"
CONFIGURATION = f"""
[outbox]
sqlite = ["{OUTBOX}"]
"""
# Less of one of these, and the run says nothing about it.
ENOUGH = {
    "updates answered": 20,
    "updates rejected": 4,
    "signals acknowledged": 20,
    "runs that went on as new ones": 2,
    "runs of schedules": 20,
    "pauses of a schedule": 3,
    "pauses of an activity type": 5,
    "pauses of a workflow": 2,
    "orders through the outbox": 10,
    "workflows taken back": 4,
    "reloads": 2,
    "activities finished by hand": 4,
    "asked again": 1,
    **{f"{kind}: Cancelled": 2 for kind in VISITS},
}


class Blow(msgspec.Struct, frozen=True):
    """A planned kill of a role, or of the root, so long after the one before."""

    target: str
    after_s: float


def plan(options: Options) -> list[Blow]:
    """Every role in turn, and the root, in an order of the seed."""
    dice = Arena.dice_of(options.seed, "features")
    targets = [ROLES[number % len(ROLES)] for number in range(options.kills)]
    # All at once would hit guardians, too: what they guard outlives them (decision 0017).
    targets += [ROOT] * options.server_restarts
    dice.shuffle(targets)
    return [Blow(target, dice.uniform(*PAUSE_S)) for target in targets]


def run(arena: Arena) -> bool:
    """Whether each role was hit, something was delivered again, and enough of everything done."""
    options = arena.options
    node = arena.node(apps=("chaos.apps.fair",), slots=32)
    (node.directory / "perdure.toml").write_text(CONFIGURATION)
    bring_up(arena, node)
    start = Start(type="FairErrand", arguments={}, effects=ERRAND_EFFECTS, returns_receipts=False)
    load = arena.load(node, start)
    fair = Fair(arena, node, load)
    _submit(load, options.workflows)
    crowd = people(fair)
    for person in crowd:
        person.start()
    try:
        hit, watched = _hurt(arena, node, load)
    finally:
        fair.is_over.set()
        _finish(fair, crowd)
    load.await_end()
    _gone(arena, node)
    if not arena.violations:  # Else what they noted is not whole.
        _prove(arena, fair)
    _figures(arena, fair, watched)
    return (
        load.redelivered > 0
        and hit >= {blow.target for blow in plan(options)}
        and bool(watched)
        and all(fair.did[what] >= least for what, least in ENOUGH.items())
    )


def people(fair: Fair) -> list[Person]:
    """Everybody, and how often they act at least."""
    return [
        Customer(fair, "stall-a", 30),
        Customer(fair, "stall-b", 30),
        Visitor(fair, "visit-a", 8),
        Visitor(fair, "visit-b", 8),
        Hands(fair, "hands", 1),
        Doorkeeper(fair, "doorkeeper", 12),
        Ringer(fair, "ringer", 4),
        Shop(fair, "shop", 16),
        Historian(fair, "historian", 4),
        Deployer(fair, "deployer", 4),
    ]


def _submit(load: Load, count: int) -> None:
    load.submit(count)
    load.by_hand |= {key_of(workflow_id, ASKED) for workflow_id in load.ids}


def _look(load: Load) -> None:
    load.look()
    wanted = load.completed + load.arena.options.workflows - len(load.ids)
    if wanted > 0:
        _submit(load, wanted)


# --- the kills ------------------------------------------------------------------------
def _hurt(arena: Arena, node: NodeProcess, load: Load) -> tuple[set[str], list[psutil.Process]]:
    """Who was hit, and what activities had started under the workers that were."""
    hit: set[str] = set()
    watched: list[psutil.Process] = []
    blows = plan(arena.options)
    dice = arena.dice("victims")
    for number, blow in enumerate(blows):
        until = time.monotonic() + blow.after_s
        while time.monotonic() < until:
            _look(load)
            time.sleep(TICK_S * 5)
        if arena.over():
            break
        if blow.target == ROOT:
            watched += _lingerers(node)
            was_hit = _kill_root(arena, node)
        elif blow.target == WORKER:
            lost = _kill_worker(arena, node, load, dice.randrange(100))
            was_hit = lost is not None
            watched += lost or []
        else:
            was_hit = _kill_role(arena, node, blow.target)
        if was_hit:
            hit.add(blow.target)
        arena.progress.bar("kills", number + 1, len(blows), colour="red")
    return hit, watched


def _kill_role(arena: Arena, node: NodeProcess, role: str) -> bool:
    """Kills the role; while it is just being started again, as soon as it is there."""
    until = time.monotonic() + BACK_S
    while time.monotonic() < until:
        if kill_role(arena, node, role):
            return True
        time.sleep(TICK_S * 5)
    arena.violate(f"{role} was not started again within {BACK_S:.0f} s")
    return False


def _kill_worker(
    arena: Arena, node: NodeProcess, load: Load, luck: int
) -> list[psutil.Process] | None:
    """Kills a worker, and with it the processes in which its activities run. What these had left
    behind; None where no worker was there.
    """
    until = time.monotonic() + BACK_S
    while time.monotonic() < until:
        arena.learn_roles(node)
        workers = sorted(node.worker_pids())
        if workers:
            pid = workers[luck % len(workers)]
            role = arena.roles.get(pid, WORKER)
            below = _below(pid)
            lost = [each for each in below if _lingers(each)]
            at_ms = boottime_ms()
            if node.kill_worker(pid):
                pids = (pid, *(each.pid for each in below))
                fault = arena.fault(SIGKILL, role, pids=pids, at_ms=at_ms)
                held = len(load.cut_off(fault))
                arena.say(f"SIGKILL {role}; it held {held}, {len(below)} processes below")
                return lost
        time.sleep(TICK_S * 5)
    arena.violate(f"no worker was started again within {BACK_S:.0f} s")
    return None


def _kill_root(arena: Arena, node: NodeProcess) -> bool:
    """Kills the root alone: all others follow, and what activities have started, too."""
    pids = tuple(process.pid for process in node.processes())
    at_ms = boottime_ms()
    left = node.kill_root()
    fault = arena.fault(SIGKILL, NODE, pids=pids, at_ms=at_ms, note="the root alone")
    arena.say(f"SIGKILL the root alone, of {len(pids)} processes")
    if left:
        arena.violate(f"{len(left)} processes outlived the root")
        node.end(left)
    bring_up(arena, node)
    fault.until_ms = boottime_ms()
    return True


def _lingerers(node: NodeProcess) -> list[psutil.Process]:
    return [each for each in node.processes() if _lingers(each)]


def _below(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _lingers(process: psutil.Process) -> bool:
    """Whether it is one of those that activities leave behind."""
    try:
        words = process.cmdline()
        return len(words) == 2 and words[0] == "sleep" and words[1] in LINGERERS
    except psutil.Error:
        return False


# --- the end --------------------------------------------------------------------------
def _finish(fair: Fair, crowd: list[Person]) -> None:
    """Waits for everybody."""
    arena, load = fair.arena, fair.load
    until = time.monotonic() + max(FINISH_S, arena.left_s())
    while any(person.is_alive() for person in crowd) and time.monotonic() < until:
        load.look()
        time.sleep(TICK_S * 5)
    busy = [person.name for person in crowd if person.is_alive()]
    if busy:
        arena.violate(f"not at their end: {', '.join(busy)}")
    for trouble in fair.troubles:
        arena.violate(trouble)


def _gone(arena: Arena, node: NodeProcess) -> None:
    """All workflows are at their end: nothing is left of what activities have started."""
    until = time.monotonic() + GONE_S
    while left := _left_behind(node):
        if time.monotonic() > until:
            arena.violate(f"{len(left)} processes that activities have started are still there")
            node.end(left)
            return
        time.sleep(TICK_S * 5)


def _left_behind(node: NodeProcess) -> list[psutil.Process]:
    """Whoever they are below now: by the directory in which the node has begun them."""
    return [it for it in psutil.process_iter() if _lingers(it) and _begun_in(it, node.directory)]


def _begun_in(process: psutil.Process, directory: Path) -> bool:
    try:
        return Path(process.cwd()) == directory
    except psutil.Error:
        return False


def _prove(arena: Arena, fair: Fair) -> None:
    """What everybody noted, against what the node says now."""
    load, client = fair.load, fair.load.client
    found: list[str] = []
    for stall in fair.stalls:
        found += notes.check_stall(stall)
    found += notes.check_bells(EVERY_MS, fair.bells[WHOLE], whole=fair.rung)
    found += notes.check_bells(EVERY_MS, fair.bells[PAUSED], pauses=fair.hushes)
    started = {
        it.workflow_id: it.status
        for it in client.list_workflows(type="FairParcel", limit=1_000).workflows
    }
    found += notes.check_rows(fair.rows, started)
    results, gated_ms = {}, {}
    for workflow_id in load.ids:
        events = client.history(workflow_id)
        results[key_of(workflow_id, ASKED)] = [
            it.result
            for it in events
            if it.kind == "ActivityTaskCompleted" and it.activity_id == ASKED
        ]
        gated_ms[workflow_id] = [
            it.at_ms
            for it in events
            if it.kind == "ActivityTaskStarted" and it.activity_id == GATED
        ]
    found += notes.check_hands(results, fair.offered)
    found += notes.check_gates(fair.gates, gated_ms)
    for text in found:
        arena.violate(text)


def _figures(arena: Arena, fair: Fair, watched: list[psutil.Process]) -> None:
    """What was done, for the report, and where the attempts ran, for its picture."""
    for what, count in sorted(fair.did.items()):
        arena.figures[what] = count
    arena.figures["processes that lost their worker, and ended"] = len(watched)
    short = [what for what, least in ENOUGH.items() if fair.did[what] < least]
    if short:
        arena.figures["too few"] = ", ".join(short)
    for run in fair.load.runs.values():
        arena.roles.setdefault(run.pid, OWN_PROCESSES)


DRILL = Drill(
    name="features",
    does="users and operators do all there is to do to workflows, while everything is SIGKILLed",
    recovery="from a worker's kill to the next attempt",
    inconclusive="somebody was not hit, nothing was delivered again for a kill, or too little of "
    "one thing was done",
    run=run,
    defaults=Options(workflows=6, kills=21, server_restarts=2),
    takes=("workflows", "kills", "server_restarts"),
)
