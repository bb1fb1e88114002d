"""The drill `clock`: wall clocks jump by an hour, by ten years, and to 1970.

First while everything runs: in all processes at once, or in one, with processes killed so that
their successors read the new clock. Timers and leases must last exactly as long as they should, by
a clock that nobody sets; and the death of a worker that another gateway has met must still be
noticed. Then between restarts of the node in which the machine seems to have been booted: there
the wall clock says how much time has passed, and history's clock must not go back whatever it says.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import psutil

from chaos.apps import hours
from chaos.drill_kit import Arena, Drill, Load, Options, Start
from chaos.drill_kit.kills import bring_up, kill_role
from chaos.faults.clock import HOUR_MS, YEAR_MS, Clocks
from chaos.harness import NodeProcess
from chaos.history_audit import key_of
from chaos.ledger_audit import Run
from perdure.client import Client
from perdure.clock import boottime_ms
from perdure.errors import PerdureError

ROLES = ("history", "scheduler", "lease_keeper", "gateway", "worker-1")
PAUSE_MS = 700
TICKS = 20
VIGIL_MS = 12_000
LATE_MS = 4_000
JUMP_EVERY_S = 1.2
FAR_WORK_MS = 3_000
FAR_LEASE_NOTICED_MS = 10_000
LONG_MS = 2 * HOUR_MS
ASK_MS = 20_000
_FAR = (
    "from perdure.worker.main import run_external as run; import sys; "
    f"run(['chaos.apps.hours'], '.', sys.argv[1], queues=['{hours.FAR_QUEUE}'])"
)


class Jump(msgspec.Struct, frozen=True):
    """From here on the wall clock is off by `by_ms`, for all processes or that of one role."""

    name: str
    by_ms: int
    role: str | None = None


def shifts() -> dict[str, int]:
    """The jumps by name: how far off the clock is then, in ms."""
    to_1970_ms = -int(datetime.now(UTC).timestamp() * 1_000) + 1_000
    return {"+1 h": HOUR_MS, "-1 h": -HOUR_MS, "+10 y": 10 * YEAR_MS, "1970": to_1970_ms}


def plan(dice: random.Random) -> list[Jump]:
    """Each jump once for everybody, and once for one process, in an order of the seed."""
    jumps = [Jump(name, by_ms) for name, by_ms in shifts().items()]
    jumps += [Jump(name, by_ms, dice.choice(ROLES)) for name, by_ms in shifts().items()]
    dice.shuffle(jumps)
    return jumps


def run(arena: Arena) -> bool:
    """Whether timers and leases lived through every jump, and every restart."""
    clocks = Clocks(arena.directory / "clock")
    node = arena.node(
        apps=("chaos.apps.hours",),
        slots=arena.options.workflows + 4,
        environment=clocks.environment,
    )
    # What is closed is removed by history's clock: ten years are more than it is kept.
    (node.directory / "perdure.toml").write_text(f"[durable]\nretention_ms = {100 * YEAR_MS}\n")
    bring_up(arena, node)
    spanned = _while_running(arena, node, clocks)
    _far_worker(arena, node, clocks)
    restarts = _between_starts(arena, node, clocks)
    arena.figures["attempts that a jump fell into"] = spanned
    arena.figures["restarts of the machine, by their looks"] = restarts
    return spanned > 0 and restarts > 0


# --- while everything runs --------------------------------------------------------
def _while_running(arena: Arena, node: NodeProcess, clocks: Clocks) -> int:
    arguments = {"ticks": TICKS, "pause_ms": PAUSE_MS, "vigil_ms": VIGIL_MS}
    load = arena.load(node, Start(type="Hours", arguments=arguments, effects=TICKS + 1))
    load.submit()
    at_ms = []
    for jump in plan(arena.dice("jumps")):
        _work(load, JUMP_EVERY_S)
        at_ms.append(boottime_ms())
        _jump(arena, node, clocks, jump)
    load.await_end()
    clocks.shift(0)
    _judge_lengths(arena, load)
    runs = load.ledger.runs()
    return sum(any(it.began_ms < at < (it.ended_ms or 0) for at in at_ms) for it in runs)


def _jump(arena: Arena, node: NodeProcess, clocks: Clocks, jump: Jump) -> None:
    if jump.role is not None:
        pid = arena.learn_roles(node).get(jump.role)
        if pid is not None:
            clocks.shift(jump.by_ms, pid)
            arena.fault(f"clock {jump.name}", jump.role)
            arena.say(f"the clock of {jump.role}: {jump.name}")
        return
    clocks.shift(jump.by_ms)
    arena.fault(f"clock {jump.name}", "node")
    arena.say(f"all clocks: {jump.name}")
    # The next one begins with this clock.
    kill_role(arena, node, arena.dice(jump.name).choice(("history", "history", "gateway")))


def _judge_lengths(arena: Arena, load: Load) -> None:
    """No timer early, by boot time, and none much later."""
    by_key: dict[str, list[Run]] = {}
    for run in load.ledger.runs():  # Those that the load keeps are as they were when it saw them.
        by_key.setdefault(run.key, []).append(run)
    early = late = longest = 0
    for workflow_id in load.ids:
        keys = [key_of(workflow_id, f"tick-{number}") for number in range(1, TICKS + 1)]
        ticks = [by_key[key][0] for key in keys if key in by_key]
        for before, after in itertools.pairwise(ticks):
            over_ms = after.began_ms - (before.ended_ms or after.began_ms) - PAUSE_MS
            early += over_ms < 0
            late += over_ms > LATE_MS
            longest = max(longest, over_ms)
    if early:
        arena.violate(f"{early} timers fired before their time, by a clock that was not set")
    if late:
        arena.violate(f"{late} timers fired more than {LATE_MS} ms late")
    twice = [key for key, runs in by_key.items() if len(runs) > 1]
    # Not by a jump, but while no gateway was there to bring their heartbeats.
    arena.figures["attempts that lost their lease"] = len(twice)
    arena.figures["timers measured"] = len(load.ids) * (TICKS - 1)
    arena.figures["the latest timer, in ms after its time"] = longest


# --- a worker elsewhere -----------------------------------------------------------
def _far_worker(arena: Arena, node: NodeProcess, clocks: Clocks) -> None:
    """The clock jumps, the gateway is another one, and a worker that both knew dies."""
    arguments = {"work_ms": FAR_WORK_MS}
    load = arena.load(node, Start(type="FarHours", arguments=arguments, effects=1), workflows=2)
    workers = [_start_far(node, clocks) for _ in range(2)]
    arena.roles |= {worker.pid: f"far-worker-{n}" for n, worker in enumerate(workers, 1)}
    try:
        load.submit()
        first = _await_run(load)
        clocks.shift(arena.dice("far").choice(list(shifts().values())))
        arena.fault("clock", "node", note="while workers elsewhere hold activities")
        kill_role(arena, node, "gateway")
        load.client.list_workflows(limit=1)
        _work(load, JUMP_EVERY_S)
        if not any(run.ended_ms is None for run in load.ledger.runs()):
            load.submit(2)
            first = _await_run(load)
        psutil.Process(first).kill()
        arena.fault("SIGKILL", arena.roles[first], pids=(first,))
        killed_ms = boottime_ms()
        load.await_end()
        took_ms = boottime_ms() - killed_ms
        if took_ms > FAR_WORK_MS + FAR_LEASE_NOTICED_MS:
            arena.violate(
                f"the death of a worker elsewhere was noticed by its lease only, after {took_ms} ms"
            )
    finally:
        clocks.shift(0)
        for worker in workers:
            worker.kill()
            worker.wait()


def _start_far(node: NodeProcess, clocks: Clocks) -> subprocess.Popen[bytes]:
    endpoint = f"ipc://{node.data}/run/node/public"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _FAR, endpoint],
        cwd=node.directory,
        env={**os.environ, **clocks.environment, "PYTHONHASHSEED": "0"},
        stderr=subprocess.DEVNULL,
    )


def _await_run(load: Load) -> int:
    """The process that runs an activity now; 0 where none does in the drill's time."""
    while not load.arena.over():
        load.look()
        for run in load.ledger.open_runs():
            return run.pid
        time.sleep(0.02)
    return 0


# --- between starts ---------------------------------------------------------------
def _between_starts(arena: Arena, node: NodeProcess, clocks: Clocks) -> int:
    """How many times the node started on a machine that seemed freshly booted."""
    arguments = {"ticks": 4, "pause_ms": PAUSE_MS, "vigil_ms": PAUSE_MS}
    load = arena.load(node, Start(type="Hours", arguments=arguments, effects=5))
    long = Start(
        type="Hours", arguments={"ticks": 1, "pause_ms": LONG_MS, "vigil_ms": 0}, effects=2
    )
    sleepers = arena.load(node, long, workflows=2)
    sleepers.submit()
    newest_ms = 0
    restarts = 0
    for name, by_ms in _starts(arena):
        load.submit(max(1, arena.options.workflows // 4))
        _work(load, PAUSE_MS / 1_000)
        newest_ms = max(newest_ms, _clock_of(load.client))
        arena.learn_roles(node)
        pids, at_ms = tuple(process.pid for process in node.processes()), boottime_ms()
        node.kill_all()
        arena.fault(
            "SIGKILL", "node", pids=pids, at_ms=at_ms, note=f"booted with the clock at {name}"
        )
        clocks.boot(f"boot {name} {restarts}")
        clocks.shift(by_ms)
        bring_up(arena, node)
        restarts += 1
        now_ms = _clock_of(load.client)
        arena.say(f"booted with the clock at {name}; history's moved by {now_ms - newest_ms} ms")
        if now_ms < newest_ms:
            arena.violate(f"after a boot with the clock at {name}, history's went back")
    load.await_end()
    sleepers.await_end()
    return restarts


def _starts(arena: Arena) -> Iterator[tuple[str, int]]:
    """Backwards first, then forwards past the long timers, then anything."""
    far = shifts()
    first = [("-1 h", far["-1 h"]), ("1970", far["1970"])]
    arena.dice("first").shuffle(first)
    rest = [("+10 y", far["+10 y"]), ("1970", far["1970"]), ("right", 0)]
    arena.dice("rest").shuffle(rest)
    yield from first
    yield ("+3 h", 3 * HOUR_MS)
    yield from rest


def _clock_of(client: Client) -> int:
    """History's clock, as the gateway says it."""
    until = time.monotonic() + ASK_MS / 1_000
    while True:
        try:
            return int(client.ping().now_ms)
        except PerdureError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _work(load: Load, length_s: float) -> None:
    until = time.monotonic() + length_s
    while time.monotonic() < until:
        load.look()
        time.sleep(0.02)


DRILL = Drill(
    name="clock",
    does="wall clocks jump by an hour, by ten years, to 1970, while all runs and between starts",
    inconclusive="no jump fell into an attempt, or no restart happened",
    run=run,
    defaults=Options(workflows=8),
    takes=("workflows",),
)
