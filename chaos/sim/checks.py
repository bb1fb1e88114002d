"""What a world can see beyond the log: projections against the store, and the final audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors.dlq import Dlq
from actors.lease_keeper import LeaseKeeper
from actors.scheduler import Scheduler
from chaos.auditor import Auditor, History, ReaderTables
from chaos.sim.host import ActorProcess
from perdure.core import links
from perdure.core.dead_letters import DeadLetterFilter, DeadLetters
from perdure.core.state import Execution
from perdure.core.task_queues import TaskQueues

if TYPE_CHECKING:
    from chaos.sim.world import World

ALL = 1_000_000


def projections(world: World, *, is_final: bool = False) -> None:
    """Hold each projection that has reached the end of the log against one made from the store."""
    newest = world.disk.newest
    executions: list[Execution] | None = None
    for process in world.processes:
        if not isinstance(process, ActorProcess):
            continue
        actor: Any = process.actor
        reached = getattr(actor, "reached", None)
        if reached is None or not actor._loaded:
            continue
        if reached > newest:
            world.violated(12, f"{process.role} has reached commit {reached} of {newest}")
        if reached != newest:
            continue
        if executions is None:
            executions = world.disk.reader().open_state()[1]
        world.goal("a projection was rebuilt and compared")
        if isinstance(actor, Scheduler):
            _scheduler(world, actor)
        elif isinstance(actor, LeaseKeeper):
            _lease_keeper(world, actor, executions)
        elif isinstance(actor, Dlq):
            _dlq(world, actor)
    if is_final:
        roles = {process.role for process in world.processes}
        missing = [role for role in links.CORE_ROLES if role not in roles]
        if missing:
            world.violated(45, f"not there after the last restart: {missing}")


def _scheduler(world: World, actor: Scheduler) -> None:
    fresh = TaskQueues()
    fresh.load(world.disk.reader().open_state()[1], actor.now_ms())
    mine, theirs = _queues(actor._mind.queues), _queues(fresh)
    if mine != theirs:
        world.violated(36, f"the scheduler at {actor.reached}: {_difference(mine, theirs)}")


def _queues(queues: TaskQueues) -> dict[Any, Any]:
    """What is open, in which state, and who holds it; not what time alone has moved."""
    held: dict[Any, Any] = {}
    for workflow_id, work in queues.works.items():
        execution = work.execution
        held[workflow_id] = (
            execution.consumed,
            execution.commands,
            execution.last_wake_id,
            execution.task_due_ms,
            tuple(sorted(work.timers)),
        )
        for activity_id, entry in work.entries.items():
            activity = entry.activity
            held[workflow_id, activity_id] = (
                activity.state,
                activity.generation,
                activity.attempt,
                activity.grant,
                activity.due_ms,
                entry.is_leased,
                entry.held_by,
            )
    for session, entries in queues.leases.items():
        held[session.source, session.ordinal] = len(entries)
    return held


def _lease_keeper(world: World, actor: LeaseKeeper, executions: list[Execution]) -> None:
    expected = {
        (execution.workflow_id, activity.activity_id): (activity.generation, activity.grant)
        for execution in executions
        for activity in execution.activities.values()
        if activity.lease is not None
    }
    live = {
        name: (lease.address.generation, lease.address.grant)
        for name, lease in actor._mind.table._live.items()
    }
    if live != expected:
        world.violated(36, f"the lease keeper at {actor.reached}: {_difference(live, expected)}")


def _dlq(world: World, actor: Dlq) -> None:
    fresh = DeadLetters()
    fresh.load(world.disk.reader().open_state()[1])
    everything = DeadLetterFilter(None, None, None, None, None)
    now_ms = actor.now_ms()
    mine, _ = actor._letters.list(everything, now_ms, ALL, None)
    theirs, _ = fresh.list(everything, now_ms, ALL, None)
    names = [[(it.workflow_id, it.activity.activity_id) for it in side] for side in (mine, theirs)]
    if names[0] != names[1]:
        world.violated(31, f"the index of dead letters at {actor.reached}: {names[0]} {names[1]}")


def _difference(mine: dict[Any, Any], theirs: dict[Any, Any]) -> str:
    keys = sorted({*mine, *theirs}, key=str)
    found = [
        f"{key}: has {mine.get(key)}, the store says {theirs.get(key)}"
        for key in keys
        if mine.get(key) != theirs.get(key)
    ]
    return "; ".join(found[:3])


def audit(world: World, auditor: Auditor) -> None:
    """The independent auditor over everything."""
    histories = [
        History(name=person.role, operations=person.history, all_clients=True)
        for person in world.people
    ]
    report = auditor.finish(
        ReaderTables(world.disk.reader()),
        [world.sink.ledger()],
        histories,
        key=world.disk.key,
        settled=True,
    )
    world.violations += [one for one in report.violations if one not in world.violations]
