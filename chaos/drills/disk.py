"""The drill `disk`: the disk of history fails, is full, is slow, while workflows run.

One failed sync, write or read: history ends, answers nobody, and begins again from what the disk
has. No room: nothing is decided, everything that is there can be read, and the node goes on by
itself when there is room. Slow: everything takes longer. A disk that goes on failing stops the
node, with the reason; once it is repaired, the node goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from chaos.drill_kit import Arena, Drill, Load, Options
from chaos.drill_kit.kills import bring_up
from chaos.drill_kit.load import flaky
from chaos.faults.disk_vfs import ALWAYS, HOOK, DiskFaults
from chaos.harness import NodeProcess, flat
from perdure.clock import boottime_ms
from perdure.errors import PerdureError, ResourceExhausted, Unavailable
from perdure.store.vfs_hook import VARIABLE

DISK = "disk"
EIO, ENOSPC, SLOW = "EIO", "ENOSPC", "slow sync"
TICK_S = 0.02
BACK_S = 15.0
IMPATIENT_MS = 500
STEPS = 6


class Trouble(msgspec.Struct, frozen=True):
    """A planned fault: its kind, the order that it is given as, and how long after the one before.

    `value`: the which call fails; how many bytes are left; how slow, in milliseconds. `length_s`:
    for how long, where it lasts.
    """

    kind: str
    order: str
    value: int
    length_s: float
    after_s: float


def plan(seed: int) -> list[Trouble]:
    """Failed calls of each kind there is, two disks that are full, two that are slow."""
    dice = Arena.dice_of(seed, "disk")
    found = [
        (EIO, order, dice.randint(1, 12), 0.0)
        for order in ("fail_sync", "fail_sync", "fail_write", "fail_write")
    ]
    # Most of what history reads it has in memory: the next read there is.
    found.append((EIO, "fail_read", 1, 0.0))
    found += [
        (ENOSPC, "no_room", 1, dice.uniform(2.0, 4.0)),
        (ENOSPC, "grow_bytes", dice.randint(0, 200_000), dice.uniform(1.0, 3.0)),
        (SLOW, "slow_sync_ms", dice.randint(20, 80), dice.uniform(2.0, 3.0)),
        (SLOW, "slow_sync_ms", dice.randint(400, 900), dice.uniform(2.0, 3.0)),
    ]
    dice.shuffle(found)
    return [Trouble(*one, dice.uniform(1.5, 2.5)) for one in found]


def run(arena: Arena) -> bool:
    """Whether calls failed, the disk was full, and syncs were slow."""
    node = arena.node(only_ours=True, environment={VARIABLE: HOOK})
    node.data.mkdir(mode=0o700)
    faults = DiskFaults(node.data)
    bring_up(arena, node)
    load = arena.load(node, flaky(activities=STEPS, seed=arena.options.seed))
    load.submit()
    troubles = plan(arena.options.seed)
    for number, trouble in enumerate(troubles):
        _work(load, trouble.after_s)
        _make(arena, node, load, faults, trouble)
        arena.progress.bar("faults", number + 1, len(troubles), colour="red")
        if arena.over():
            break
    _fail_for_good(arena, node, load, faults)
    load.await_end()
    counts = faults.counts()
    for name, count in counts.items():
        arena.figures[f"disk: {name}"] = count
    faults.close()
    return all(counts[name] for name in ("failed", "full", "slowed"))


def _work(load: Load, length_s: float, *, top_up: bool = True) -> None:
    until = time.monotonic() + length_s
    while time.monotonic() < until:
        load.look()
        if top_up:
            load.top_up()
        time.sleep(TICK_S)


def _make(
    arena: Arena, node: NodeProcess, load: Load, faults: DiskFaults, trouble: Trouble
) -> None:
    # Before the order is given: it may be carried out at once.
    before, failed = _restarts(node), faults["failed"]
    with _fault(arena, faults, trouble):
        if trouble.kind == EIO:
            _fail_once(arena, load, faults, failed, lambda: _restarts(node) > before)
        elif trouble.order == "no_room":
            _fill_up(arena, load, trouble)
        else:
            _work(load, trouble.length_s, top_up=False)
    _await(arena, load, lambda: _serves(load), "answered again")


@contextmanager
def _fault(arena: Arena, faults: DiskFaults, trouble: Trouble) -> Iterator[None]:
    fault = arena.fault(trouble.kind, DISK, note=f"{trouble.order} {trouble.value}")
    arena.say(f"{trouble.kind}: {trouble.order} {trouble.value}")
    faults[trouble.order] = trouble.value
    try:
        yield
    finally:
        faults.heal()
        fault.until_ms = boottime_ms()


def _fail_once(
    arena: Arena, load: Load, faults: DiskFaults, failed: int, has_restarted: Callable[[], bool]
) -> None:
    """Waits until more calls than `failed` have failed and history has ended for it."""
    at_ms = boottime_ms()
    until = time.monotonic() + BACK_S
    while faults["failed"] == failed and time.monotonic() < until:
        _work(load, TICK_S)  # With ever new work, so that the disk is asked for something.
    if faults["failed"] > failed:
        _await(arena, load, has_restarted, "started again after EIO")
        arena.recoveries_ms.append(boottime_ms() - at_ms)
    else:
        arena.say("no such call came")


def _fill_up(arena: Arena, load: Load, trouble: Trouble) -> None:
    """While there is no room, new work is refused, and what there is can be read."""
    until = time.monotonic() + trouble.length_s
    impatient = arena.client(load.node, timeout_ms=IMPATIENT_MS)
    refused = read = False
    while time.monotonic() < until or not (refused and read):
        load.look()
        try:
            impatient.start_workflow("FlakyDemo", workflow_id=f"never-{arena.options.seed}")
            arena.violate("new work was taken on without room for it")
            break
        except ResourceExhausted:
            refused = True
        except Unavailable:
            pass  # History is starting again.
        try:
            impatient.describe_workflow(load.ids[0])
            read = True
        except Unavailable:
            pass
        if time.monotonic() > until + BACK_S:
            arena.violate(f"without room: new work refused {refused}, old work read {read}")
            break
        time.sleep(TICK_S)


def _fail_for_good(arena: Arena, node: NodeProcess, load: Load, faults: DiskFaults) -> None:
    """A disk that goes on failing: the node must end by itself, and go on after the repair."""
    load.top_up()  # So that there is something to be synced.
    fault = arena.fault(EIO, DISK, note="every sync")
    arena.say("EIO at every sync: the node must stop")
    faults["fail_sync"] = ALWAYS
    ended = _await(arena, load, lambda: not node.is_running, "ended")
    said = node.log_path.read_text(errors="replace")
    if ended and "the disk failed a second time" not in said:
        arena.violate("the node ended without the reason")
    faults.heal()
    node.stop()
    bring_up(arena, node)
    fault.until_ms = boottime_ms()


def _await(arena: Arena, load: Load, probe: Callable[[], bool], what: str) -> bool:
    until = time.monotonic() + BACK_S
    while not probe():
        if time.monotonic() > until:
            arena.violate(f"history was not {what} within {BACK_S:.0f} s")
            return False
        load.look()
        time.sleep(TICK_S)
    return True


def _serves(load: Load) -> bool:
    try:
        load.client.ping()
    except PerdureError:
        return False
    return True


def _restarts(node: NodeProcess) -> int:
    return sum(each["restarts"] for each in flat(node.tree()) if each["name"] == "history")


DRILL = Drill(
    name="disk",
    does="the disk fails at a call, is full, is slow, and fails for good",
    recovery="from a failed call until history has begun again",
    inconclusive="no call failed, or the disk was never full, or never slow",
    run=run,
    defaults=Options(workflows=12),
    takes=("workflows",),
)
