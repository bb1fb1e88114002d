"""The tree of a node, as data. Started left to right, stopped right to left."""

from __future__ import annotations

from dataclasses import replace

from perdure.core import links
from supervisors.child_spec import HISTORY_SILENCE_MS, ChildSpec, Kind, SupervisorSpec

NODE = "node"
CORE = "core"
WORKERS = "workers"
INTAKE = "intake"

STOP_MAX_MS = 10_000
# A worker that was told to stop gets its grace, and this much more to say goodbye.
WORKER_MARGIN_MS = 500

ACTORS = (
    ChildSpec(
        id=links.HISTORY,
        start="actors.history:main",
        shutdown_ms=4_000,
        silence_ms=HISTORY_SILENCE_MS,
    ),
    ChildSpec(id=links.LEASE_KEEPER, start="actors.lease_keeper:main"),
    ChildSpec(id=links.SCHEDULER, start="actors.scheduler:main"),
    ChildSpec(id=links.DLQ, start="actors.dlq:main"),
    ChildSpec(id=links.GATEWAY, start="actors.gateway:main", shutdown_ms=2_000),
)

# Whatever it is doing may be done again: it is not waited for.
DRAINER = ChildSpec(id=links.OUTBOX, start="actors.outbox:main", shutdown_ms=400)

# An orderly stop takes at most 10 s and the workers' grace.
assert sum(actor.shutdown_ms for actor in (*ACTORS, DRAINER)) + WORKER_MARGIN_MS < STOP_MAX_MS


def worker_spec(number: int, *, grace_ms: int) -> ChildSpec:
    """Worker `number`, from 1.

    It runs a user's code, which may keep it from answering: silence does not kill it.
    """
    return ChildSpec(
        id=f"worker-{number}",
        start="perdure.worker.main:main",
        kind=Kind.WORKER,
        shutdown_ms=grace_ms + WORKER_MARGIN_MS,
        silence_ms=None,
    )


def quarantine_spec(number: int, *, grace_ms: int) -> ChildSpec:
    """A worker for what must run alone: there only while the scheduler has such work."""
    name = f"quarantine-{number}"
    return replace(worker_spec(number, grace_ms=grace_ms), id=name, on_demand=True)


def node_tree(*, workers: int, grace_ms: int, drains: bool = False) -> SupervisorSpec:
    """The tree that `perdure up` runs; with `drains` it has outboxes to drain.

    The node gives up as soon as its core does. The workers' supervisor never gives up: a user's
    code that kills its process must not take the node along. Nor may a user's database.
    """
    intake = (SupervisorSpec(id=INTAKE, children=(DRAINER,), escalates=False),)
    return SupervisorSpec(
        id=NODE,
        children=(
            SupervisorSpec(id=CORE, children=ACTORS),
            SupervisorSpec(
                id=WORKERS,
                children=tuple(
                    make(i + 1, grace_ms=grace_ms)
                    for make in (worker_spec, quarantine_spec)
                    for i in range(workers)
                ),
                escalates=False,
                stops_together=True,
            ),
            *(intake if drains else ()),
        ),
    )
