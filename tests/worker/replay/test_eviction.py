"""Replay: what eviction leaves behind, what is raised from outside, and time and chance."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import uuid

import pytest

from perdure import activity, errors, values, workflow
from perdure.core import commands, records
from perdure.policy import RetryPolicy
from perdure.worker.replay import Replayer


@activity.define(retry=RetryPolicy(max_attempts=7), heartbeat_ms=50, priority=3)
def charge(order: str, cents: int = 1) -> uuid.UUID:
    return uuid.UUID(int=cents)


# --- eviction ---------------------------------------------------------------------


class Canary:
    pass


def test_an_evicted_workflow_leaves_no_command_no_warning_and_no_object(history, caplog):
    gc.collect()  # What other tests left behind complains now, and not below.
    caplog.clear()
    canaries = []

    async def stubborn(canary):
        while True:
            try:
                await asyncio.sleep(1)
            except BaseException:
                with pytest.raises(BaseException):  # noqa: B017, PT011
                    await workflow.execute_activity("cleanup")
                if len(canaries) > 5:
                    raise
                canaries.append(None)

    async def step():
        await asyncio.sleep(3)

    async def flow():
        import weakref

        canary = Canary()
        canaries.append(weakref.ref(canary))
        tasks = [asyncio.create_task(stubborn(canary)) for _ in range(3)]
        await asyncio.sleep(0.5)
        never_awaited = step()
        unstarted = asyncio.create_task(step())
        try:
            await workflow.execute_activity("work", activity_id="slow")
        finally:
            await workflow.execute_activity("cleanup", activity_id="cleanup")
        await never_awaited
        await asyncio.gather(unstarted, *tasks)

    run = history(flow, answers=lambda s: None)
    run.replayer.feed(run.events)
    steps = run.replayer.take_steps()
    for step_ in steps:
        run.record(step_)
    run.wake()
    run.replayer.feed(run.events)
    before = run.replayer.commands

    run.replayer.close()
    run.replayer.close()

    assert run.replayer.commands == before
    run.replayer = None
    gc.collect()
    assert canaries[0]() is None
    assert caplog.text == ""


def test_a_workflow_that_is_dropped_without_a_word_says_none_either(history, caplog):
    async def flow():
        task = asyncio.create_task(asyncio.sleep(5))
        await workflow.execute_activity("work")
        await task

    run = history(flow, answers=lambda s: None)
    run.replayer.feed(run.events)
    run.replayer = None
    gc.collect()
    assert "pending" not in caplog.text


def test_a_closed_replay_takes_no_more_events(history):
    async def two():
        return [await workflow.execute_activity("work", n) for n in range(2)]

    run = history(two)
    run.replayer.feed(run.events)
    run.replayer.close()

    with pytest.raises(errors.Internal):
        run.replayer.feed(run.events)


class Blocked(BaseException):
    pass


@pytest.mark.parametrize("nested", [False, True])
def test_what_is_raised_into_a_workflow_from_outside_comes_out_of_feed(history, nested):
    async def spin():
        raise Blocked

    async def flow():
        if nested:
            task = asyncio.create_task(spin())
            await asyncio.sleep(1)
            await task
        raise Blocked

    run = history(flow)
    with pytest.raises(Blocked):
        run.replayer.feed(run.events)
    assert run.replayer.is_finished is False
    run.replayer.close()


# --- time and chance -----------------------------------------------------------------


def test_chance_is_the_workflows_own_and_the_same_in_every_replay(history):
    async def flow():
        before = workflow.random().random()
        await asyncio.sleep(0.01)
        return [before, workflow.random().random(), str(workflow.uuid4())]

    one, again = history(flow).run().result, history(flow).run().result
    other = history(flow, workflow_id="other").run().result

    assert one == again
    assert len({*one, *other}) == 6
    assert uuid.UUID(one[2]).version == 4


def test_info_says_who_the_workflow_is(history):
    async def flow():
        info = workflow.info()
        return [info.workflow_id, info.workflow_type, info.task_queue, info.started_ms]

    assert history(flow).run().result == ["w", "flow", "default", 1_000]


def test_drawing_from_the_modules_generator_outside_changes_nothing(history):
    async def flow():
        return workflow.random().random()

    random.seed(1)
    one = history(flow).run().result
    random.seed(2)
    assert history(flow).run().result == one


def test_replays_in_several_threads_do_not_meet(history):
    async def flow(n):
        return await workflow.execute_activity("work", n, activity_id=f"a{n}")

    results = {}

    def run(n):
        results[n] = history(flow, n, workflow_id=f"w{n}").run().result

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == {n: f"a{n}" for n in range(4)}


def test_a_replayer_is_made_from_a_defined_function():
    @workflow.define(name="Named")
    async def flow():
        return 1

    replayer = Replayer(workflow.definition_of(flow), "w")
    replayer.feed([records.WorkflowStarted(1, 5, "Named", "default", None, None, b"")])
    assert replayer.take_steps() == (commands.CompleteWorkflow(values.encode(1)),)
