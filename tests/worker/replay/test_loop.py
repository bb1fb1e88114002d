"""asyncio on the deterministic loop: what works, what it costs in commands, and in which order."""

from __future__ import annotations

import asyncio
import gc
import logging
import math

import pytest

from perdure import workflow
from perdure.core import commands
from perdure.failures import Failure
from perdure.worker import guard


def kinds(steps):
    return [type(step).__name__ for step in steps]


async def act(activity_id, **options):
    return await workflow.execute_activity("work", activity_id=activity_id, **options)


def test_ten_gathered_activities_are_scheduled_at_once_and_come_back_in_order(history):
    async def flow():
        return await asyncio.gather(*(act(f"a{i}") for i in range(10)))

    # The last answers first.
    run = history(flow, answers=lambda s: (100 - int(s.activity_id[1:]), s.activity_id)).run()

    assert run.result == [f"a{i}" for i in range(10)]
    assert [s.activity_id for s in run.steps[:10]] == [f"a{i}" for i in range(10)]


def test_a_failure_in_a_task_group_cancels_the_others_in_the_same_order_every_time(history):
    async def flow():
        async with asyncio.TaskGroup() as group:
            for name in ("slow1", "bad", "slow2", "slow3"):
                group.create_task(workflow.execute_activity("work", activity_id=name))

    def answers(step):
        return (5, Failure("Boom", "no")) if step.activity_id == "bad" else None

    run = history(flow, answers=answers).run()

    cancelled = [s.activity_id for s in run.steps if isinstance(s, commands.CancelActivity)]
    assert sorted(cancelled) == ["slow1", "slow2", "slow3"]
    assert history(flow, answers=answers).run().steps == run.steps
    assert run.failure.type == "ExceptionGroup"
    assert run.failure.cause.type == "ActivityFailed"
    assert run.failure.cause.cause == Failure("Boom", "no")


def test_a_timeout_around_an_activity_cancels_it_and_raises(history):
    async def flow():
        try:
            async with asyncio.timeout(0.05):
                await act("slow")
        except TimeoutError:
            return workflow.now_ms()

    run = history(flow, answers=lambda s: None).run()

    assert run.result == 1_050
    assert kinds(run.steps) == [
        "StartTimer",
        "ScheduleActivity",
        "CancelActivity",
        "CompleteWorkflow",
    ]


def test_a_timeout_that_is_not_needed_cancels_its_timer(history):
    async def flow():
        async with asyncio.timeout(5):
            return await act("quick")

    run = history(flow).run()

    assert run.result == "quick"
    assert run.steps[0] == commands.StartTimer(1, 5_000)
    assert run.steps[2] == commands.CancelTimer(1)


def test_wait_for_cancels_what_took_too_long(history):
    async def flow():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(act("slow"), 0.2)
        return await asyncio.wait_for(act("quick"), 0.2)

    run = history(flow, answers=lambda s: None if s.activity_id == "slow" else (1, "ok")).run()

    assert run.result == "ok"
    assert commands.CancelActivity("slow") in run.steps


def test_wait_gives_what_was_completed_in_the_order_of_completion(history):
    durations = {"c": 1, "a": 2, "d": 3, "b": 4}

    async def flow():
        handles = [workflow.start_activity("work", activity_id=name) for name in "abcd"]
        done, pending = await asyncio.wait(handles, return_when=asyncio.FIRST_COMPLETED)
        first = [handle.activity_id for handle in done]
        left = [handle.activity_id for handle in pending]
        await asyncio.sleep(1)
        done, _ = await asyncio.wait(handles)
        return [first, left, [handle.activity_id for handle in done]]

    run = history(flow, answers=lambda s: (durations[s.activity_id], None)).run()

    assert run.result == [["c"], ["a", "b", "d"], ["c", "a", "d", "b"]]


def test_as_completed_starts_coroutines_as_given_and_gives_them_as_they_complete(history):
    names = [f"a{i}" for i in range(30)]

    async def flow():
        return [await next_one for next_one in asyncio.as_completed([act(n) for n in names])]

    run = history(flow, answers=lambda s: (100 - int(s.activity_id[1:]), s.activity_id)).run()

    assert [s.activity_id for s in run.steps[:30]] == names
    assert run.result == names[::-1]


def test_sets_of_tasks_have_the_order_of_their_creation(history):
    async def flow():
        tasks = {asyncio.create_task(act(f"a{i}")) for i in range(8)}
        tasks |= {workflow.start_activity("work", activity_id=f"b{i}") for i in range(8)}
        order = [getattr(t, "activity_id", None) or t.get_name() for t in tasks]
        await asyncio.gather(*tasks)
        return order

    run = history(flow).run()

    expected = [f"Task-{n}" for n in range(2, 10)] + [f"b{i}" for i in range(8)]
    assert sorted(run.result) == sorted(expected)
    assert run.result == history(flow).run().result


def test_nested_sleeps_are_timers_and_time_is_that_of_the_event(history):
    async def inner():
        await asyncio.sleep(0.0301)
        return workflow.now_ms()

    async def flow():
        task = asyncio.create_task(inner())
        await workflow.sleep_ms(100)
        return [await task, workflow.now_ms()]

    run = history(flow).run()

    assert run.result == [1_031, 1_100]
    assert run.steps[:2] == [commands.StartTimer(1, 100), commands.StartTimer(2, 31)]


def test_a_sleep_of_nothing_is_no_timer(history):
    async def flow():
        await asyncio.sleep(0)
        await workflow.sleep_ms(0)
        await asyncio.wait_for(asyncio.sleep(-1), None)

    assert kinds(history(flow).run().steps) == ["CompleteWorkflow"]


@pytest.mark.parametrize("delay", [float("inf"), float("nan"), 1e300])
def test_a_sleep_without_end_is_refused_with_what_is_allowed(history, delay):
    async def flow():
        await asyncio.sleep(delay)

    failure = history(flow).run().failure
    assert failure.type in ("InvalidArgument", "ValueError")  # Of NaN asyncio itself complains.
    said = "" if math.isnan(delay) else "is no time to wait: 0 to 9007199254740 s"
    assert failure.message.endswith(said)


def test_cancelling_a_sleeping_task_cancels_its_timer(history):
    async def flow():
        task = asyncio.create_task(asyncio.sleep(9))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(workflow.Cancelled):
            await task

    assert kinds(history(flow).run().steps) == ["StartTimer", "CancelTimer", "CompleteWorkflow"]


def test_cancelling_a_handle_raises_at_once_where_it_is_awaited(history):
    async def flow():
        handle = workflow.start_activity("work", activity_id="a")
        assert handle.cancel() is True
        assert handle.cancel() is False
        with pytest.raises(workflow.Cancelled):
            await handle
        return "gone"

    run = history(flow, answers=lambda s: None).run()

    assert run.result == "gone"
    assert kinds(run.steps) == ["ScheduleActivity", "CancelActivity", "CompleteWorkflow"]


def test_queues_locks_events_and_shields_work(history):
    async def flow():
        queue, lock, event = asyncio.Queue(maxsize=1), asyncio.Lock(), asyncio.Event()
        out = []

        async def producer():
            for i in range(3):
                await asyncio.sleep(0.01)
                async with lock:
                    await queue.put(i)
            event.set()

        task = asyncio.create_task(producer())
        out = [await queue.get() for _ in range(3)]
        await event.wait()
        await asyncio.shield(task)
        return out

    assert history(flow).run().result == [0, 1, 2]


def test_an_async_generator_that_is_left_early_ends_in_the_workflow(history):
    async def flow():
        seen = []

        async def numbers():
            try:
                for i in range(5):
                    await asyncio.sleep(0.01)
                    yield i
            finally:
                await asyncio.sleep(0.01)
                seen.append("closed")

        async for number in numbers():
            seen.append(number)
            break
        await asyncio.sleep(1)
        return seen

    assert history(flow).run().result == [0, "closed"]


@pytest.mark.parametrize(
    "use",
    [
        lambda: asyncio.to_thread(print),
        lambda: asyncio.open_connection("localhost", 1),
        lambda: asyncio.create_subprocess_exec("true"),
        lambda: asyncio.get_running_loop().getaddrinfo("localhost", 1),
    ],
)
def test_what_needs_the_world_says_what_to_do_instead_and_fails_the_task(history, use):
    async def flow():
        await use()

    with pytest.raises(workflow.NonDeterminism, match="activity"):
        history(flow).run()


def test_an_exception_that_nobody_waits_for_is_logged(history, caplog):
    async def bad():
        raise ValueError("lost")

    async def flow():
        task = asyncio.create_task(bad())
        await asyncio.sleep(0.01)
        del task
        await asyncio.sleep(0.01)

    with caplog.at_level(logging.ERROR, "perdure.workflow"):
        history(flow).run()
        gc.collect()

    assert "never retrieved" in caplog.text


def test_a_replay_inside_a_running_loop_leaves_that_loop_as_it_was(history):
    async def flow():
        return await act("a")

    async def outer():
        before = asyncio.get_running_loop(), asyncio.current_task()
        result = history(flow).run().result
        assert (asyncio.get_running_loop(), asyncio.current_task()) == before
        done, _ = await asyncio.wait({asyncio.ensure_future(asyncio.sleep(0))})
        assert type(done) is set
        return result

    assert asyncio.run(outer()) == "a"
    assert guard.current() is None
