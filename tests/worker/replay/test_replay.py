"""Replay: the same commands however events are chunked, and nothing left behind."""

from __future__ import annotations

import asyncio
import sys
import uuid

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import activity, errors, values, workflow
from perdure.core import commands, records
from perdure.failures import Failure
from perdure.policy import RetryPolicy


@activity.define(retry=RetryPolicy(max_attempts=7), heartbeat_ms=50, priority=3)
def charge(order: str, cents: int = 1) -> uuid.UUID:
    return uuid.UUID(int=cents)


async def busy():
    """Something of everything: its commands depend on results, times, order and chance."""
    log = []

    async def branch(n):
        for step in range(n % 3 + 1):
            try:
                async with asyncio.timeout(0.012):
                    log.append(await workflow.execute_activity("work", n, step))
            except TimeoutError:
                log.append(f"timeout {workflow.now_ms()}")
            except workflow.ActivityFailed as problem:
                log.append(problem.failure.type)
            await asyncio.sleep(workflow.random().random() / 50)

    tasks = {asyncio.create_task(branch(n)) for n in range(5)}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in list(pending)[:2]:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return [*log, str(workflow.uuid4()), workflow.now_ms(), len(done)]


def busy_answers(step):
    n, part = values.decode(step.input)
    if (n + part) % 4 == 3:
        return (6, Failure("Odd", "no"))
    return (1 + 5 * n % 17, f"{n}.{part}")


@pytest.mark.parametrize("late", [False, True])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_chunking_of_any_prefix_gives_the_commands_of_the_first_run(history, late, data):
    first = history(busy, answers=busy_answers, late=late).run()
    assert first.ended
    assert len(first.steps) > 20
    length = data.draw(st.integers(1, len(first.events)), "events")
    cuts = sorted(data.draw(st.sets(st.integers(1, length)), "cuts") | {length})
    takes = data.draw(st.sets(st.sampled_from(cuts)), "takes")
    replayer = first.new_replayer()
    taken = []
    begin = 0
    for cut in cuts:
        replayer.feed(first.events[begin:cut])
        begin = cut
        if cut in takes or cut == length:
            # What was taken before it was fed is not given again.
            known = max(replayer.matched, len(taken))
            steps = replayer.take_steps()
            assert list(steps) == first.steps[known : replayer.commands]
            taken = first.steps[: replayer.commands]
    assert replayer.consumed == first.events[length - 1].event_id
    assert replayer.take_steps() == ()
    replayer.close()


def test_a_whole_history_replays_to_its_end_with_no_command_left(history):
    run = history(busy, answers=busy_answers).run()
    replayer = run.new_replayer()

    replayer.feed(run.events)

    assert replayer.is_finished
    assert replayer.take_steps() == ()
    assert replayer.commands == replayer.matched == len(run.steps)
    assert replayer.consumed == run.last_event_id


def test_events_that_were_fed_before_are_skipped_and_a_missing_one_is_an_error(history):
    run = history(busy, answers=busy_answers).run()
    replayer = run.new_replayer()
    replayer.feed(run.events[:5])
    replayer.feed(run.events[:9])
    assert replayer.consumed == run.events[8].event_id

    with pytest.raises(errors.Internal, match="missing"):
        replayer.feed(run.events[10:])
    with pytest.raises(errors.Internal, match="can't go on"):
        replayer.feed(run.events[9:])
    replayer.close()


# --- mismatches ----------------------------------------------------------------


async def charges():
    await workflow.execute_activity(charge, "o-1", activity_id="charge")
    await asyncio.sleep(1)


async def renamed():
    await workflow.execute_activity(charge, "o-1", activity_id="bill")


async def sleeps_first():
    await asyncio.sleep(1)


async def does_nothing():
    pass


def recorded(history, function=charges):
    return history(function, answers=lambda s: (1, str(uuid.UUID(int=1)))).run().events


@pytest.mark.parametrize(
    ("changed", "got"),
    [
        (renamed, "ScheduleActivity of 'bill', type charge"),
        (sleeps_first, "StartTimer of timer 1, 1000 ms"),
        (does_nothing, "CompleteWorkflow"),
    ],
)
def test_a_mismatch_names_event_command_file_and_line(history, changed, got):
    replayer = history(changed).replayer
    with pytest.raises(workflow.NonDeterminism) as raised:
        replayer.feed(recorded(history))
    replayer.close()

    problem = raised.value
    assert problem.expected == "ActivityTaskScheduled of 'charge', type charge (event 2)"
    assert problem.got == got
    assert problem.expected in str(problem)
    assert problem.got in str(problem)
    if changed is not does_nothing:
        line = changed.__code__.co_firstlineno + 1
        assert problem.where == f"{__file__}:{line}"
        assert problem.where in str(problem)


def test_code_that_issues_too_little_is_a_mismatch(history):
    async def waits():
        await asyncio.get_running_loop().create_future()

    replayer = history(waits).replayer
    with pytest.raises(workflow.NonDeterminism, match="got no command"):
        replayer.feed(recorded(history))
    replayer.close()


def test_what_the_end_of_a_workflow_cancels_is_no_mismatch(history):
    async def flow():
        workflow.start_activity("work", activity_id="left")

    run = history(flow, answers=lambda s: None).run()
    last = run.last_event_id
    run.events.append(records.ActivityTaskCancelled(last + 1, 2_000, "left", False))

    replayer = run.new_replayer()
    replayer.feed(run.events)
    assert replayer.consumed == last + 1


def test_a_late_completion_of_a_cancelled_activity_is_ignored(history):
    async def flow():
        handle = workflow.start_activity("work", activity_id="a")
        await asyncio.sleep(0.01)
        handle.cancel()
        await asyncio.sleep(0.01)
        return "end"

    run = history(flow, answers=lambda s: (11, "too late"), late=True).run()

    assert [type(e).__name__ for e in run.events].count("ActivityTaskCompleted") == 1
    assert run.result == "end"


# --- activities ------------------------------------------------------------------


def test_a_result_is_converted_by_the_annotation_of_the_function_and_plain_by_name(history):
    async def flow():
        typed = await workflow.execute_activity(charge, "o", activity_id="typed")
        plain = await workflow.execute_activity("charge", "o", activity_id="plain")
        return [type(typed).__name__, type(plain).__name__]

    run = history(flow, answers=lambda s: (1, uuid.UUID(int=7))).run()

    assert run.result == ["UUID", "str"]


def test_a_result_that_does_not_fit_the_annotation_fails_as_bad_result(history):
    async def flow():
        with pytest.raises(workflow.ActivityFailed) as raised:
            await workflow.execute_activity(charge, "o")
        return [raised.value.failure.type, raised.value.failure.non_retryable]

    assert history(flow, answers=lambda s: (1, 5)).run().result == ["BadResult", True]


def test_activity_failed_carries_the_failure_into_the_workflows_own(history):
    failure = Failure("CardDeclined", "no funds", details={"code": 7})

    async def flow():
        with pytest.raises(workflow.ActivityFailed) as raised:
            await workflow.execute_activity(charge, "o", activity_id="charge")
        assert raised.value.failure == failure
        assert (raised.value.activity_id, raised.value.activity_type) == ("charge", "charge")
        raise RuntimeError("order failed") from raised.value

    got = history(flow, answers=lambda s: (1, failure)).run().failure

    assert (got.type, got.message) == ("RuntimeError", "order failed")
    assert got.cause.type == "ActivityFailed"
    assert got.cause.cause == failure


def test_default_ids_count_in_the_order_of_scheduling(history):
    async def flow():
        await asyncio.gather(
            workflow.execute_activity("work"),
            workflow.execute_activity("work", activity_id="mine"),
            workflow.execute_activity("work"),
        )

    run = history(flow).run()

    assert [s.activity_id for s in run.steps[:3]] == ["@1", "mine", "@2"]


def test_a_second_use_of_an_id_is_refused_at_the_call(history):
    async def flow():
        await workflow.execute_activity("work", activity_id="a")
        with pytest.raises(errors.InvalidArgument, match="twice"):
            workflow.execute_activity("work", activity_id="a")

    run = history(flow).run()

    assert [type(s).__name__ for s in run.steps] == ["ScheduleActivity", "CompleteWorkflow"]


@pytest.mark.parametrize("bad", ["@1", "", "a\n", "x" * 201, 7, "ü" * 101, "\ud800"])
def test_an_id_that_can_not_be_one_is_refused_at_the_call(history, bad):
    async def flow():
        with pytest.raises(errors.InvalidArgument, match="activity_id"):
            workflow.execute_activity("work", activity_id=bad)

    assert len(history(flow).run().steps) == 1


def test_options_of_the_call_win_field_by_field_and_what_is_unset_stays_unset(history):
    async def flow():
        workflow.start_activity(charge, "o")
        workflow.start_activity(
            charge, "o", heartbeat_ms=99, task_queue="gpu", retry=RetryPolicy(initial_ms=5)
        )
        workflow.start_activity("work")

    steps = history(flow, answers=lambda s: None).run().steps

    own, over, bare = (step.options for step in steps[:3])
    assert own == records.ActivityOptions(
        retry=RetryPolicy(max_attempts=7), start_to_close_ms=0, heartbeat_ms=50, priority=3
    )
    assert over == msgspec.structs.replace(
        own, heartbeat_ms=99, task_queue="gpu", retry=RetryPolicy(initial_ms=5)
    )
    assert bare == records.ActivityOptions(retry=RetryPolicy(), start_to_close_ms=0)


def test_an_activity_goes_to_the_queue_of_its_workflow_unless_told_otherwise(history):
    async def flow():
        workflow.start_activity("work")

    run = history(flow)
    run.events[0] = msgspec.structs.replace(run.events[0], task_queue="gpu")
    run.replayer.feed(run.events)

    assert run.replayer.take_steps()[0].options.task_queue == "gpu"


def test_arguments_of_both_kinds_are_sent_as_one_object(history):
    async def flow():
        workflow.start_activity(charge, "o-1", cents=5)
        workflow.start_activity(charge, "o-1", 5)

    steps = history(flow, answers=lambda s: None).run().steps

    assert values.decode(steps[0].input) == {"order": "o-1", "cents": 5}
    assert values.decode(steps[1].input) == ["o-1", 5]


# --- endings ----------------------------------------------------------------------


def test_input_that_does_not_fit_fails_the_workflow_naming_the_argument(history):
    async def flow(count: int):
        return count

    failure = history(flow, "many").run().failure

    assert failure.type == "BadInput"
    assert failure.non_retryable
    assert "count" in failure.message


@pytest.mark.parametrize(
    ("result", "kind"), [(object(), "BadResult"), ("x" * (2 * 1024 * 1024 + 1), "PayloadTooLarge")]
)
def test_a_result_that_can_not_be_kept_fails_the_workflow(history, result, kind):
    async def flow():
        return result

    assert history(flow).run().failure.type == kind


def test_an_exit_in_workflow_code_fails_the_workflow_and_not_the_worker(history):
    async def child():
        sys.exit(3)

    async def flow(nested: bool):
        if nested:
            await asyncio.create_task(child())
        sys.exit(3)

    assert history(flow, True).run().failure.type == "SystemExit"
    assert history(flow, False).run().failure.type == "SystemExit"


def test_nothing_is_issued_after_the_workflow_has_ended(history):
    ran = []

    async def background():
        try:
            await asyncio.sleep(10)
        finally:
            ran.append("finally")
            workflow.start_activity("work", activity_id="never")

    async def flow():
        asyncio.create_task(background())  # noqa: RUF006 - the workflow ends before it does
        await asyncio.sleep(0.001)
        asyncio.create_task(asyncio.sleep(5))  # noqa: RUF006
        return "end"

    run = history(flow).run()

    assert run.steps[-1] == commands.CompleteWorkflow(values.encode("end"))
    assert run.replayer.take_steps() == ()
    assert ran == ["finally"]
