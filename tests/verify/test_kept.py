"""A store can be made again as it was at any moment of its life."""

from __future__ import annotations

import random

from perdure import activity, workflow
from perdure.core.commands import StartWorkflow
from perdure.local import Core
from perdure.testing import ManualClock
from perdure.verifying.kept import KeptStore


def state_of(store):
    n, executions = store.reader().open_state()
    log = [(row.n, row.hash) for row in store.reader().commits(0, 1_000)]
    return n, executions, log, store.epoch, store.boot, store.key, store.newest()


def test_each_picture_makes_the_store_that_it_was_taken_of():
    @activity.define
    def act() -> str:
        return "x" * 2_000  # Kept by reference.

    @workflow.define
    async def flow() -> None:
        await workflow.sleep_ms(5)
        await workflow.execute_activity(act)

    clock, store = ManualClock(0), KeptStore()
    core = Core(
        [flow],
        [act],
        now_ms=lambda: clock.now_ms,
        jitter=None,
        draw=random.Random(0).random,
        dlq_after_attempts=5,
        store=store,
    )
    taken = [(store.picture(), state_of(store))]
    core.ask(StartWorkflow("w", "flow", "default", None, "r", b"d"))
    for move in (
        core.run_workflow_tasks,
        lambda: clock.advance_ms(5),
        core.settle,
        core.run_workflow_tasks,
        core.restart,
        core.run_activities,
        core.run_workflow_tasks,
    ):
        move()
        taken.append((store.picture(), state_of(store)))
    assert not store.reader().execution("w").is_open
    for picture, state in taken:
        assert state_of(KeptStore(picture)) == state
    assert len({picture.newest for picture, _ in taken}) == len(taken) - 1  # The clock alone.
