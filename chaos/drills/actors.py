"""The drill `actors`: each core actor is SIGKILLed again and again while work goes on.

Every role is hit equally often, a worker between effect and report as often as each of them, in an
order and at moments of the seed; some blows follow the one before so closely that the actor, or one
that it needs, is still coming back: so that a worker dies while nobody is there to see it. The root
is not hit: that is the drill `node`.
"""

from __future__ import annotations

import itertools
import time

import msgspec

from chaos.drill_kit import Arena, Drill, Fault, Load, Options, mixed, spread
from chaos.drill_kit.kills import TICK_S, bring_up, kill_role, kill_worker
from chaos.drill_kit.lanes import CORE
from chaos.harness import NodeProcess, flat
from perdure.clock import boottime_ms

WORKER = "worker"
ROLES = (*CORE, WORKER)
BACK_S = 20.0
PAUSE_S = 1.6
CLOSE_S = 0.15
CLOSE_SHARE = 0.3
CLOSE_MS = 500


class Blow(msgspec.Struct, frozen=True):
    """A planned kill: which role, and how long after the one before."""

    role: str
    after_s: float

    @property
    def is_close(self) -> bool:
        """Whether it is meant to fall while something may still be coming back from the last."""
        return self.after_s <= 2 * CLOSE_S


def plan(options: Options) -> list[Blow]:
    """As many blows as kills are wanted, every role in turn, in an order of the seed."""
    dice = Arena.dice_of(options.seed, "actors")
    roles = [ROLES[number % len(ROLES)] for number in range(options.kills)]
    dice.shuffle(roles)
    pause_s = PAUSE_S
    if options.minutes:
        close_s = CLOSE_SHARE * CLOSE_S
        pause_s = (60 * options.minutes / max(1, len(roles)) - close_s) / (1 - CLOSE_SHARE)
    return [
        Blow(
            role,
            dice.uniform(0, CLOSE_S * 2)
            if dice.random() < CLOSE_SHARE
            else dice.uniform(0.5, 1.5) * pause_s,
        )
        for role in roles
    ]


def run(arena: Arena) -> bool:
    """Whether each role was hit at work, and something was delivered again for it."""
    options = arena.options
    node = arena.node(
        only_ours=True, apps=("chaos.workload",), slots=max(24, options.workflows + 4)
    )
    bring_up(arena, node)
    load = arena.load(node, mixed(seed=options.seed))
    load.submit()
    back, hit = _Back(arena, node), set()
    blows = plan(options)
    dice = arena.dice("victims")
    for number, blow in enumerate(blows):
        if blow.is_close:
            time.sleep(blow.after_s)  # To look at the load takes longer than that.
        else:
            _work(load, back, blow.after_s)
        at_work = bool(load.ledger.open_runs())
        if blow.role == WORKER:
            was_hit = kill_worker(arena, node, load, dice, gap=True, until=arena.over)
        else:
            was_hit = _kill(arena, node, back, blow.role)
        if was_hit and at_work:
            hit.add(blow.role)
        arena.progress.bar("kills", number + 1, len(blows), colour="red")
        if arena.over():
            break
    while back.waiting and not arena.over():
        _work(load, back, 0.1)
    load.await_end()
    back.figures()
    arena.figures["dead letters redriven"] = load.redriven
    arena.figures["kills less than half a second after the one before"] = _close(arena)
    return load.redelivered > 0 and hit >= {blow.role for blow in blows}


def _work(load: Load, back: _Back, length_s: float) -> None:
    until = time.monotonic() + length_s
    while True:
        load.look()
        load.top_up()
        back.look()
        if time.monotonic() >= until:
            return
        time.sleep(TICK_S * 3)


def _close(arena: Arena) -> int:
    at_ms = sorted(fault.at_ms for fault in arena.faults)
    return sum(later - earlier < CLOSE_MS for earlier, later in itertools.pairwise(at_ms))


def _kill(arena: Arena, node: NodeProcess, back: _Back, role: str) -> bool:
    """Kills the role; while it is just being started again, as soon as it is there."""
    until = time.monotonic() + BACK_S
    while time.monotonic() < until:
        if kill_role(arena, node, role):
            back.wait(arena.faults[-1])
            return True
        time.sleep(TICK_S)
    arena.violate(f"{role} was not started again within {BACK_S:.0f} s")
    return False


class _Back:
    """Measures how long each killed actor takes until it is ready again."""

    def __init__(self, arena: Arena, node: NodeProcess) -> None:
        self.waiting: list[Fault] = []
        self._arena = arena
        self._node = node
        self._lengths_ms: dict[str, list[int]] = {role: [] for role in CORE}

    def wait(self, fault: Fault) -> None:
        """From now on `fault.target` is looked for; an earlier death of it is over with this."""
        for earlier in self.waiting:
            if earlier.target == fault.target:
                earlier.until_ms = fault.at_ms
        self.waiting = [it for it in self.waiting if it.target != fault.target] + [fault]

    def look(self) -> None:
        """Asks the tree, if anybody is waited for."""
        if not self.waiting:
            return
        running = {
            str(each["name"]): int(each["pid"])
            for each in flat(self._node.tree())
            if each.get("pid") and each.get("state") == "running"
        }
        for fault in list(self.waiting):
            if running.get(fault.target, fault.pids[0]) not in fault.pids:
                fault.until_ms = boottime_ms()
                length_ms = fault.until_ms - fault.at_ms
                self._lengths_ms[fault.target].append(length_ms)
                self.waiting.remove(fault)

    def figures(self) -> None:
        """Writes what was measured down."""
        for role, lengths_ms in self._lengths_ms.items():
            if lengths_ms:
                found = spread(lengths_ms)
                text = f"median {found.median} ms, longest {found.max} ms, {len(lengths_ms)} kills"
                self._arena.figures[f"from its kill until {role} is ready again"] = text


DRILL = Drill(
    name="actors",
    does="each core actor, and workers, are SIGKILLed again and again while all sorts of work runs",
    recovery="from a worker's kill to the next attempt",
    inconclusive="an actor was not hit at work, or nothing was delivered again for a kill",
    run=run,
    defaults=Options(workflows=20, kills=30),
    takes=("workflows", "kills", "minutes"),
)
