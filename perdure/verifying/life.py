"""One run of the workflow, in a process that begins from a world and ends with an outcome.

The engine is that of LocalEngine. What lives in its memory begins anew from the store, as it does
after any crash; the leases of the process that died end as that death has them end.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from perdure import activity, values, workflow
from perdure.core.commands import AnyAnswer, AnyCommand, EndLease, StartWorkflow
from perdure.core.ids import Address, Session
from perdure.core.open_work import Entry
from perdure.core.records import Payload
from perdure.failures import BAD_INPUT
from perdure.local import Core
from perdure.local_client import LocalClient
from perdure.registry import Registry
from perdure.testing import ManualClock
from perdure.verifying import later
from perdure.verifying.kept import KeptStore, Picture
from perdure.verifying.naming import described
from perdure.verifying.recorder import POINTS_MAX, Recorder
from perdure.verifying.world import RUNNING, Killed, Outcome, StepKind, Who, World, shown_activity

WORKFLOW_ID = "verify"
# In one run. What fails again after a redrive would after any.
REDRIVES_MAX = 1
WARM_RUNS = 5
# Rounds without an end: a workflow that sleeps in a loop, for instance.
ROUNDS_MAX = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What is verified: a workflow of an application, with an input (a payload) or without."""

    registry: Registry
    workflow: str
    payload: Payload | None
    modules: Sequence[ModuleType] = ()
    redrive: bool = True


class _Watched(Core):
    """An engine that says what it does."""

    session = Session("gateway.verify", 1)

    def __init__(self, recorder: Recorder, registry: Registry, store: KeptStore) -> None:
        self.clock = ManualClock()
        self._recorder = recorder
        self._kept = store
        super().__init__(
            [one.function for one in registry.workflows.values()],
            [one.function for one in registry.activities.values()],
            now_ms=lambda: self.clock.now_ms,
            jitter=None,
            draw=random.Random(0).random,
            dlq_after_attempts=5,
            store=store,
        )

    def _commit(self, command: AnyCommand, now_ms: int) -> AnyAnswer:
        recorder = self._recorder
        with recorder.lock:
            what, kind, who = described(command, recorder.running)
            before = len(self.store.log)
            recorder.point(f"before {what} is committed", who)
            answer = super()._commit(command, now_ms)
            if len(self.store.log) == before:
                recorder.forget_point()
            else:
                recorder.step(kind, who, f"{what} is committed")
                recorder.point(f"after {what} is committed", who)
        return answer

    def _run_activity(self, entry: Entry) -> bool:
        held = entry.activity
        recorder = self._recorder
        recorder.running = who = Who(held.activity_id, held.activity_type, held.attempt)
        recorder.step(StepKind.BEGINS, who, f"{who}, begins")
        try:
            return super()._run_activity(entry)
        finally:
            recorder.running = Who()

    def durable(self) -> tuple[Picture, int, bool]:
        """What the store has, what time it is, and whether an attempt is out."""
        return self._kept.picture(), self.clock.now_ms, any(self._leased())

    def end_leases(self, killed: Killed) -> None:
        """The process that held them is dead."""
        for address in list(self._leased()):
            self.ask(EndLease(address, killed.reason))

    def _leased(self) -> Iterator[Address]:
        for execution in self.reader.open_state()[1]:
            for held in execution.activities.values():
                if held.lease is not None and held.lease.session is not None:
                    yield Address(
                        execution.workflow_id, held.activity_id, held.generation, held.grant
                    )

    def run_until_idle(self) -> bool:
        """Run all that can run, jumping over timers and backoffs. False: it is given up."""
        for _ in range(ROUNDS_MAX):
            if self._recorder.is_too_long:
                return False
            if self.run_workflow_tasks() or self.run_activities():
                continue
            due_ms = self.next_skip_ms()
            if due_ms is None:
                return True
            self.clock.advance_ms(max(0, due_ms - self.clock.now_ms))
        return False


def run(
    plan: Plan, world: World, killed: Killed | None, seed: str, *, keep_points: bool
) -> Outcome:
    """Go on from `world`, after the death of `killed` (None: from the beginning), to the end.

    Changes this process for good: clocks, chance and whatever the user's code does. `seed` is of
    the chance.
    """
    later.begin(world.crashes, seed, plan.modules)
    recorder = Recorder(world, keep_points=keep_points)
    store = KeptStore(world.store)
    with recorder.watching():
        core = _Watched(recorder, plan.registry, store)
        core.clock.advance_ms(world.now_ms)
        recorder.durable = core.durable
        if core.reader.execution(WORKFLOW_ID) is None:
            _start(core, plan)
        if killed is not None:
            core.end_leases(killed)
        is_idle = core.run_until_idle()
        dead: dict[tuple[str, str], None] = {}
        while is_idle and _redriven(core, recorder, plan, dead):
            is_idle = core.run_until_idle()
        outcome = _outcome(core, recorder, tuple(dead), is_idle=is_idle)
        is_parked = outcome.is_open and bool(dead) and not plan.redrive
        return dataclasses.replace(outcome, is_parked=is_parked)


def warm_up() -> None:
    """Run a small workflow here, so that processes forked from this one need not begin cold."""
    registry = Registry([_nothing], [_plain, _async])
    for _ in range(WARM_RUNS):
        recorder = Recorder(World(), keep_points=True)
        core = _Watched(recorder, registry, KeptStore())
        recorder.durable = core.durable
        _start(core, Plan(registry, "_nothing", None))
        core.run_until_idle()
        LocalClient(core).list_dead_letters()
        _outcome(core, recorder, (), is_idle=True)


@activity.define
def _plain() -> None:
    pass


@activity.define
async def _async() -> None:
    pass


@workflow.define
async def _nothing() -> None:
    await workflow.execute_activity(_plain)
    await workflow.execute_activity(_async)


def _start(core: Core, plan: Plan) -> None:
    digest = values.digest(plan.payload, plan.workflow, "default")
    core.ask(StartWorkflow(WORKFLOW_ID, plan.workflow, "default", plan.payload, "verify", digest))


def _redriven(
    core: Core, recorder: Recorder, plan: Plan, dead: dict[tuple[str, str], None]
) -> bool:
    """Note the dead letters in `dead`; redrive them, as an operator would, if that is planned.

    Without a crash there is nothing to redrive: then they are how the run ends.
    """
    client = LocalClient(core)
    letters = client.list_dead_letters()
    dead.update(dict.fromkeys((one.activity_type, one.activity_id) for one in letters))
    if not letters or not plan.redrive or recorder.crashes == 0:
        return False
    if recorder.redrives >= REDRIVES_MAX:
        return False
    recorder.redrives += 1
    for one in letters:
        who = Who(one.activity_id, one.activity_type, 0)
        shown = shown_activity(one.activity_type, one.activity_id)
        recorder.step(StepKind.OPERATOR, who, f"{shown} is a dead letter; an operator redrives it")
        client.redrive_dead_letter(WORKFLOW_ID, one.activity_id)
    return True


def _outcome(
    core: Core, recorder: Recorder, dead: tuple[tuple[str, str], ...], *, is_idle: bool
) -> Outcome:
    described = LocalClient(core).describe_workflow(WORKFLOW_ID)
    failure = described.failure
    if described.status != RUNNING:
        why = "" if failure is None else f"{failure.type}: {failure.message}"
    elif is_idle:
        why = _waits(described)
    else:
        limit = f"{POINTS_MAX} crash points" if recorder.is_too_long else f"{ROUNDS_MAX} rounds"
        why = f"it has not ended after {limit}: does it loop for ever?"
    return Outcome(
        status=described.status,
        why=why,
        applied=recorder.applied,
        steps=recorder.steps,
        points=recorder.points,
        dead=dead,
        bad_input=failure is not None and failure.type == BAD_INPUT,
    )


def _waits(described: Any) -> str:
    """What an open workflow waits for, in one sentence."""
    failure = described.workflow_task.failure
    if failure is not None:
        return f"the workflow's code can't go on: {failure.type}: {failure.message}"
    for one in described.pending_activities:
        shown = shown_activity(one.type, one.activity_id)
        last = one.last_failure
        said = "" if last is None else f" ({last.type}: {last.message})"
        if one.state == "DeadLettered":
            return f"{shown} is a dead letter after attempt {one.attempt}{said}"
        if one.state == "Leased":
            return f"{shown} was left open, to be completed by somebody else"
        return f"the application has no activity {one.type!r}"
    return "it waits for something that does not come"
