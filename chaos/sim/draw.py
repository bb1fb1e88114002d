"""From a seed to a plan: which faults are on, how often, and every tunable.

Each seed switches each kind of fault on or off and draws its rate from a wide range, small values
preferred: what is always a little on hides what only a lot of it, or none, would show.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from chaos.sim import draw_later as later
from chaos.sim import draw_more as more
from chaos.sim.chance import fresh
from chaos.sim.plan import BY_HAND, Fault, Flow, Knobs, Plan, Step
from perdure.core import links
from perdure.crash_points import CrashPoint

LONG_MS = 28_000  # So long that others fall due meanwhile.
WORLDS = ("engine", "fast", "small")
FLOWS, SMALL_FLOWS = 12, 3
SMALL_FAULT_MS = 400
SMALL_LATE_MS = 200
SMALL_DELAY_MS = 10
ROLES = links.CORE_ROLES
SHAPES = ("chain", "chain", "fan", "race", "nap")
HOWS = ("error", "error", "error", "nonretryable", "hang", "kill", "late", "raise_after")
# Tunables: what a run may change, and from which values. Production's own stand among them.
LIMITS: dict[str, tuple[int, ...]] = {
    "HOLD_MS": (1_000, 1_000, 100),
    "FEED_BEAT_MS": (100, 1_000, 30),
    "RESEND_FIRST_MS": (1_000, 1_000, 200, 50),
    "RESEND_MAX_MS": (30_000, 5_000, 1_000),
    "UNDELIVERED_MAX": (3, 3, 1),
    "INLINE_BYTES": (1_024, 1_024, 16),
    "DEATH_ECHO_MS": (50, 50, 5, 500),
    "FRAME_BYTES": (1_048_576, 1_048_576, 600),
    "READY_MAX": (100_000, 100_000, 100_000, 12),
    "DRAIN_MAX": (2_000, 2_000, 5),
    "perdure.core.ledger:EXECUTIONS_KEPT": (20_000, 20_000, 2),
    "perdure.core.open_work:EVENTS_KEPT_MAX": (200, 200, 2),
    "perdure.worker.stage:CACHED_MAX": (10_000, 10_000, 1),
    "perdure.worker.stage:CHUNK": (500, 500, 1),
    "perdure.worker.activities:ENDED_KEPT": (10_000, 10_000, 2),
    "perdure.worker.workflows:DONE_KEPT": (10_000, 10_000, 1),
    "perdure.worker.session:WORKFLOW_SLOTS": (500, 500, 2),
    "actors.follower:COMMITS_A_READ": (1_000, 1_000, 1),
    "perdure.core.lease_keeping:LINGER_MS": (20, 20, 200),
}


def plan_of(seed: int, *, world: str = "engine", bug: str = "") -> Plan:
    """The plan of this seed; `bug` is planted in it. `world` "small" is the fast one with little to
    do: what goes wrong between two or three workflows, at many more seeds a second.
    """
    draw = fresh(seed, "plan")
    is_small = world == "small"
    knobs = _knobs(draw, "fast" if is_small else world)
    if is_small:
        knobs = replace(knobs, fault_ms=SMALL_FAULT_MS, late_ms=min(knobs.late_ms, SMALL_LATE_MS))
    flows = _flows(fresh(seed, "workload"), knobs, SMALL_FLOWS if is_small else FLOWS)
    if is_small:
        flows = tuple(map(_short, flows))
    elif world == "engine":
        knobs, flows = later.drawn(seed, *more.drawn(seed, knobs, flows))
    faults = _faults(fresh(seed, "faults"), knobs)
    if world == "engine":
        known = {(fault.place, fault.role, fault.nth) for fault in faults}
        faults += tuple(
            fault
            for fault in later.faults(seed, flows)
            if (fault.place, fault.role, fault.nth) not in known
        )
    return Plan(seed=seed, knobs=knobs, flows=flows, faults=faults, bug=bug)


def _short(flow: Flow) -> Flow:
    """The flow without what only makes a run wait for long."""
    steps = tuple(
        replace(
            step,
            ms=min(step.ms, SMALL_LATE_MS),
            initial_ms=min(step.initial_ms, SMALL_DELAY_MS),
            queue="other" if step.queue == "nobody" else step.queue,
        )
        for step in flow.steps
    )
    return replace(flow, nap_ms=min(flow.nap_ms, SMALL_LATE_MS), steps=steps)


def _some(draw: random.Random, share: float, low: float, high: float) -> float:
    """0 in most seeds; else between `low` and `high`, small values preferred."""
    if draw.random() >= share:
        return 0.0
    return float(low * (high / low) ** (draw.random() ** 1.5))


def _knobs(draw: random.Random, world: str) -> Knobs:
    is_engine = world == "engine"
    is_lossy = draw.random() < 0.5
    share = 0.5 if is_lossy else 0.0
    limits = {
        name: value
        for name, values in LIMITS.items()
        if (value := draw.choice(values)) != values[0] and draw.random() < 0.7
    }
    if limits.get("RESEND_FIRST_MS", 1_000) > limits.get("RESEND_MAX_MS", 30_000):
        del limits["RESEND_MAX_MS"]
    return Knobs(
        world=world,
        workers=draw.choice((1, 1, 2, 2, 3)),
        external_workers=draw.choice((0, 0, 0, 1, 2)) * is_engine,
        slots=draw.choice((1, 2, 4, 20)),
        clients=draw.choice((1, 2, 3)),
        pollers=draw.choice((0, 0, 1, 2)) * is_engine,
        fault_ms=draw.choice((1_500, 4_000, 8_000) if is_engine else (400, 1_500, 4_000)),
        latency_us=int(50 * (400 ** (draw.random() ** 2))),
        turn_cost_us=draw.choice((20, 50, 500)),
        sync_us=draw.choice((100, 150, 1_000, 10_000)),
        drop=_some(draw, share, 0.0005, 0.1),
        twice=_some(draw, share, 0.0005, 0.2),
        late=_some(draw, share, 0.0005, 0.2),
        swap=_some(draw, share, 0.0005, 0.2),
        late_ms=draw.choice((5, 50, 500, 5_000)),
        drain_max=draw.choice((2_000, 2_000, 1, 3)),
        queue_max=draw.choice((100_000, 100_000, 200)),
        strategy=draw.choice(("random", "random", "pct")),
        store="sqlite" if is_engine and draw.random() < 0.01 else "memory",
        limits=limits,
        client_timeout_ms=draw.choice((5_000, 5_000, 300)),
        strangers=draw.choice((0, 1)),
    )


# --- the workload ----------------------------------------------------------------------
def _flows(draw: random.Random, knobs: Knobs, most: int) -> tuple[Flow, ...]:
    count = 1 + int(most * draw.random() ** 2)
    return tuple(_flow(draw, knobs, number) for number in range(count))


def _flow(draw: random.Random, knobs: Knobs, number: int) -> Flow:
    steps = tuple(_step(draw, knobs, n + 1) for n in range(draw.choice((1, 1, 2, 3, 5))))
    return Flow(
        id=draw.choice((f"w{number}", f"w/{number}", f"w%2F#{number}")),
        shape=draw.choice(SHAPES),
        start_ms=int(draw.random() ** 2 * knobs.fault_ms),
        client=draw.randrange(knobs.clients),
        nap_ms=draw.choice((0, 5, 100, 3_000)),
        twice=draw.random() < 0.3,
        steps=steps,
    )


def _step(draw: random.Random, knobs: Knobs, number: int) -> Step:
    is_bad = draw.random() < 0.5
    ms = draw.choice((1, 5, 20, 200, 2_000)) if draw.random() > 0.03 else LONG_MS
    start_to_close_ms = draw.choice((60_000, 60_000, 600, 50))
    heartbeat_ms = draw.choice((0, 0, 0, 100, 1_000))
    how = draw.choice(HOWS) if is_bad else "error"
    if how in ("hang", "late"):
        start_to_close_ms = min(start_to_close_ms, draw.choice((100, 1_000)))
    # What always takes too long would never succeed, however often it is redriven.
    ms = min(ms, start_to_close_ms // 2, heartbeat_ms // 2 or ms)
    queues = ("default", "default", "other", BY_HAND) if knobs.pollers else ("default", "other")
    queue = draw.choice(queues)
    if queue == BY_HAND and how not in ("error", "nonretryable"):
        how = "error"
    to_close_ms = draw.choice((0, 0, 0, 0, 500, 20_000))
    if draw.random() < 0.015:
        # What no worker takes stands in the way of the others for as long.
        queue, to_close_ms = "nobody", 45_000
    return Step(
        id=f"a{number}",
        kind=draw.choice(("sync", "sync", "async")),
        ms=ms,
        beats=draw.choice((0, 0, 1, 3)) if not heartbeat_ms else 3,
        fails=draw.choice((1, 1, 2, 5)) if is_bad else 0,
        how=how,
        size=draw.choice((0, 0, 0, 2_000)),
        attempts=draw.choice((1, 2, 3, 6)),
        initial_ms=draw.choice((1, 10, 200)),
        start_to_close_ms=start_to_close_ms,
        heartbeat_ms=heartbeat_ms,
        schedule_to_close_ms=to_close_ms,
        schedule_to_start_ms=draw.choice((0, 0, 0, 0, 0, 300)),
        queue=queue,
        priority=draw.choice((0, 0, 0, 5)),
    )


# --- faults ----------------------------------------------------------------------------
def _faults(draw: random.Random, knobs: Knobs) -> tuple[Fault, ...]:
    roles = [*ROLES, *(f"worker-{n + 1}" for n in range(knobs.workers))]
    found: list[Fault] = []
    for kind in (_kills, _points, _commits, _pauses, _cuts, _nodes, _clocks, _deaf):
        if draw.random() < 0.45:
            found += kind(draw, knobs, roles)
    # Two at one place would hide one another.
    unique = {(fault.place, fault.role, fault.nth): fault for fault in found}
    return tuple(unique.values())


def _few(draw: random.Random, most: int) -> int:
    return 1 + int(most * draw.random() ** 2)


def _kills(draw: random.Random, knobs: Knobs, roles: list[str]) -> list[Fault]:
    found = []
    for _ in range(_few(draw, 6)):
        role = draw.choice(roles)
        place = draw.choice(("turn", "send", "ms", "start"))
        nth = draw.randrange(1, knobs.fault_ms) if place == "ms" else _nth(draw, place)
        found.append(Fault(role, place, nth, "kill"))
    return found


def _nth(draw: random.Random, place: str) -> int:
    most = {"start": 4, "commit": 150, "epoch": 4}.get(place, 600)
    return 1 + int(most * draw.random() ** 2)


_POINTS = [
    (point.name, role)
    for point in CrashPoint
    if not point.name.startswith(("STORE_", "SUPERVISOR_", "CHILD_", "CLIENT_"))
    for role in point.roles
]


def _points(draw: random.Random, knobs: Knobs, roles: list[str]) -> list[Fault]:
    found = []
    for _ in range(_few(draw, 5)):
        name, role = draw.choice(_POINTS)
        if role == "worker":
            role = f"worker-{1 + draw.randrange(knobs.workers)}"
        found.append(Fault(role, name, 1 + int(40 * draw.random() ** 2), "kill"))
    return found


def _commits(draw: random.Random, knobs: Knobs, roles: list[str]) -> list[Fault]:
    actions = ("eio_kept", "eio_lost", "full", "slow", "unsynced_kept", "unsynced_lost")
    found = []
    for _ in range(_few(draw, 4)):
        place = draw.choice(("commit", "commit", "commit", "epoch"))
        action = draw.choice(actions)
        length_ms = draw.choice((5, 300, 3_000, 20_000)) if action == "slow" else 0
        found.append(Fault("history", place, _nth(draw, place), action, length_ms))
    if knobs.world == "engine" and draw.random() < 0.3:
        at_ms, length_ms = draw.randrange(1, knobs.fault_ms), draw.choice((20, 500, 5_000))
        found.append(Fault("history", "ms", at_ms, "room", length_ms))
    return found


def _pauses(draw: random.Random, knobs: Knobs, roles: list[str]) -> list[Fault]:
    found = []
    for _ in range(_few(draw, 4)):
        length_ms = draw.choice((20, 300, 3_000, 8_000, 15_000))
        at_ms = draw.randrange(1, knobs.fault_ms)
        role = draw.choice(roles)
        found.append(Fault(role, "ms", at_ms, "pause", length_ms))
        if draw.random() < 0.3:
            killed = draw.choice((role, role, "root"))
            at_ms = min(at_ms + draw.randrange(1, length_ms), knobs.fault_ms - 1)
            found.append(Fault(killed, "ms", at_ms, "kill"))
    return found


def _cuts(draw: random.Random, knobs: Knobs, roles: list[str]) -> list[Fault]:
    found = []
    ends = [*roles, "root", "client-0"]
    for _ in range(_few(draw, 5)):
        source, target = draw.choice(ends), draw.choice(ends)
        length_ms = draw.choice((10, 200, 2_000, 12_000))
        at_ms = draw.randrange(1, knobs.fault_ms)
        action = draw.choice(("cut", "clog"))
        found.append(Fault(source, "ms", at_ms, action, length_ms, target))
    return found


def _nodes(draw: random.Random, knobs: Knobs, roles: list[str]) -> list[Fault]:
    found = []
    for _ in range(_few(draw, 3)):
        action = draw.choice(("node", "node", "power", "stop"))
        at_ms = draw.randrange(1, knobs.fault_ms)
        found.append(Fault("root", "ms", at_ms, action, draw.choice((50, 500, 6_000))))
    return found


def _clocks(draw: random.Random, knobs: Knobs, roles: list[str]) -> list[Fault]:
    found = []
    for _ in range(_few(draw, 3)):
        by_ms = draw.choice((-3_600_000, 3_600_000, -50, 2 * 86_400_000, -1_799_000_000_000))
        found.append(Fault("clock", "ms", draw.randrange(1, knobs.fault_ms), "wall", by_ms))
    return found


def _deaf(draw: random.Random, knobs: Knobs, roles: list[str]) -> list[Fault]:
    """Somebody does not hear the root while it tells that another has begun anew."""
    found = []
    for _ in range(_few(draw, 2)):
        at_ms = draw.randrange(1, knobs.fault_ms)
        length_ms = draw.choice((50, 200, 2_000))
        found.append(Fault("root", "ms", at_ms, "cut", length_ms, draw.choice(roles)))
        found.append(Fault(draw.choice(roles), "ms", at_ms + 1, "kill"))
    return found
