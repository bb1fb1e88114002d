"""A plan: all that is chosen about one run. It can be written to a file, changed, and run again.

Faults name logical places ("the third commit of history", "the 12th frame from scheduler to
history"), so that a plan means the same after parts of it are left out. A plan outlives the code
that drew it; a bare seed does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from perdure.errors import InvalidArgument

PLAN_VERSION = 1
BY_HAND = "hand"  # The queue whose activities clients poll for.


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """At the `nth` time that `place` is reached by `role`, do `action`.

    place: "turn", "send" (a frame leaves), "commit", "start", a name of CrashPoint, or "ms"
    (then `nth` is the instant in milliseconds). action: "kill", "pause" (`ms`), "eio_kept",
    "eio_lost", "full", "slow" (`ms`), "unsynced_kept", "unsynced_lost" (a kill in the commit),
    "node" (all is killed, and started again after `ms`), "power" (so, and the machine boots anew),
    "stop" (the node is stopped in order, and started again), "room" (the disk is full for `ms`),
    "wall" (the wall clock steps by `ms`), "cut", "clog" (links of `role` to `detail`, for `ms`).
    """

    role: str
    place: str
    nth: int
    action: str
    ms: int = 0
    detail: str = ""


class NetFault(msgspec.Struct, frozen=True, array_like=True):
    """What happens to the `nth` frame of a link: "drop", "twice", "late", "swap" (by `ms`)."""

    source: str
    target: str
    nth: int
    action: str
    ms: int = 0


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One activity of a workflow of the workload: how it runs, and how it is to be tried.

    `fails`: so many attempts of the first generation end badly, in the way of `how`: "error",
    "nonretryable", "hang" (never reports), "kill" (kills its worker), "late" (reports after its
    lease), "raise_after" (fails behind its effect), "leave" (is left to somebody with its token),
    "leave_kill" (so, and its worker is killed some time later).
    """

    id: str
    kind: str = "sync"  # sync, async: whether a cancellation is heard.
    ms: int = 10
    beats: int = 0
    fails: int = 0
    how: str = "error"
    size: int = 0
    attempts: int = 3
    initial_ms: int = 10
    start_to_close_ms: int = 60_000
    heartbeat_ms: int = 0
    schedule_to_close_ms: int = 0
    schedule_to_start_ms: int = 0
    on_exhausted: str = "park"
    queue: str = "default"
    priority: int = 0
    cancellation: str = "try"


class Child(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workflow that another starts. `awaits`: the parent waits for it; `cancels`: it asks it to
    end; `id`: under a given id, which may be taken (empty: the default). It is sent so many
    `signals`, waits for them, and sends so many `reports` to its parent.
    """

    close: str = "terminate"
    awaits: bool = True
    cancels: bool = False
    id: str = ""
    steps: tuple[Step, ...] = ()
    signals: int = 0
    reports: int = 0


class Talk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What people and one workflow do to each other, and what ends it.

    `signals`, numbered, each sent when the one before is acknowledged, and as many updates and
    queries; it continues as new until there were `runs`, and then, where it is `endless`, waits for
    what ends it: `cancel_ms` or `terminate_ms` after its start, or its `timeout_ms`. `stubborn`:
    it swallows its cancellation. `boxed`: it takes signals from a box, not by a handler. As a child
    it sends `reports` to its parent, `reports_to`, in the name of its number there, `reports_as`.
    """

    signals: int = 0
    updates: int = 0
    queries: int = 0
    gap_ms: int = 50
    boxed: bool = False
    runs: int = 1
    endless: bool = False
    stubborn: bool = False
    cancel_ms: int = 0
    terminate_ms: int = 0
    delay_ms: int = 0
    timeout_ms: int = 0
    greets: str = ""  # A workflow that it signals.
    stops: str = ""  # A workflow that it asks to end.
    is_stopped: bool = False  # One of the others does so to this one.
    children: tuple[Child, ...] = ()
    reports: int = 0
    reports_to: str = ""
    reports_as: int = 0


class Flow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One workflow of the workload. shape: "chain", "fan", "race", "nap".

    With `talk` it is of another type, which runs its steps in a chain and does the rest besides.
    """

    id: str
    shape: str = "chain"
    start_ms: int = 0
    client: int = 0
    nap_ms: int = 0
    request_id: str = ""
    twice: bool = False  # The client submits it again later, with the same request id.
    steps: tuple[Step, ...] = ()
    talk: Talk | None = None

    @property
    def work_ms(self) -> int:
        """How long all attempts that its steps need take, one after the other."""
        return sum(step.ms * (step.fails + 1) for step in self.steps)


class Knobs(msgspec.Struct, frozen=True, kw_only=True):
    """Every tunable of a run. The defaults are those of production, on a quiet network."""

    world: str = "engine"
    workers: int = 2
    external_workers: int = 0
    slots: int = 4
    clients: int = 2
    pollers: int = 0
    fault_ms: int = 10_000
    heal_ms: int = 300_000
    latency_us: int = 150
    turn_cost_us: int = 50
    sync_us: int = 150
    drop: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    swap: float = 0.0
    late_ms: int = 200
    drain_max: int = 2_000
    queue_max: int = 100_000
    strategy: str = "random"  # random, pct
    pct_depth: int = 3
    store: str = "memory"  # memory, sqlite
    limits: dict[str, int] = {}  # Names of perdure.core.limits, and their values in this run.
    client_timeout_ms: int = 5_000
    strangers: int = 0
    rules: dict[str, Any] = {}  # As `[queues]` and `[activities]` of the configuration have them.
    pauses: int = 0  # How often an operator holds something back, and lets it go again.
    schedules: int = 0
    backfills: int = 0  # How often runs of a schedule are made up for.
    resets: int = 0  # How often an operator takes a workflow back.


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `invariant`: the number that it is known to break (0: none)."""

    version: int = PLAN_VERSION
    seed: int = 0
    knobs: Knobs = Knobs()
    flows: tuple[Flow, ...] = ()
    faults: tuple[Fault, ...] = ()
    net: tuple[NetFault, ...] = ()
    invariant: int = 0
    bug: str = ""
    note: str = ""


def write(plan: Plan, path: Path) -> None:
    """Keep a plan as JSON that a person can read."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n")


def read(path: Path) -> Plan:
    """The plan in a file. Raises InvalidArgument, naming the file, where it is none."""
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    except (OSError, msgspec.MsgspecError) as problem:
        raise InvalidArgument(f"{path} is no plan: {problem}", field="plan") from problem
    if plan.version != PLAN_VERSION:
        raise InvalidArgument(
            f"{path} has plan version {plan.version}; this one reads {PLAN_VERSION}", field="plan"
        )
    return plan
