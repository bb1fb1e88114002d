"""Patches, side effects and attributes: found out once, told to every replay."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import errors, workflow
from perdure.core import commands, records
from perdure.worker import guard
from perdure.worker.notes import Known, notes_in

# --- patches -----------------------------------------------------------------------------


async def before():
    done = []
    for n in range(3):
        done.append(await workflow.execute_activity("work", activity_id=f"old{n}"))
    return done


async def patched():
    done = []
    for n in range(3):
        if workflow.patched("better"):
            done.append(await workflow.execute_activity("work", activity_id=f"new{n}"))
        else:
            done.append(await workflow.execute_activity("work", activity_id=f"old{n}"))
    return done


async def after():
    return [await workflow.execute_activity("work", activity_id=f"new{n}") for n in range(3)]


def test_a_workflow_that_starts_with_the_patch_takes_the_new_way_in_every_replay(history):
    run = history(patched).run()
    assert run.result == ["new0", "new1", "new2"]
    markers = [step for step in run.steps if isinstance(step, commands.RecordMarker)]
    assert markers == [commands.RecordMarker("patch", "better", None)]
    for point in run.points:
        replayer = run.replay(point=point)
        assert replayer.take_steps() == ()
        assert list(run.steps[: replayer.commands][:1]) == markers
        replayer.close()


def test_one_that_had_gone_past_before_keeps_to_the_old_way_for_good(history):
    run = history(before)
    run.replayer.feed(run.events)
    for step in run.replayer.take_steps():
        run.record(step)
    run.consumed = 1
    run.replayer.close()
    # The worker has new code from here on, and knows nothing but the history.
    run.replayer = run.replay(patched)
    assert run.run().result == ["old0", "old1", "old2"]
    assert not any(isinstance(event, records.MarkerRecorded) for event in run.events)
    run.replay(patched).close()
    run.replay(before).close()


def test_a_patch_that_is_reached_after_the_deploy_is_taken(history):
    async def slow_start():
        await asyncio.sleep(1)
        return await patched()

    async def old_slow_start():
        await asyncio.sleep(1)
        return await before()

    run = history(old_slow_start)
    run.replayer.feed(run.events)
    for step in run.replayer.take_steps():
        run.record(step)
    run.consumed = 1
    run.replayer.close()
    run.replayer = run.replay(slow_start)
    assert run.run().result == ["new0", "new1", "new2"]
    run.replay(slow_start).close()


def test_once_no_old_run_is_left_the_call_can_be_taken_out_or_moved(history):
    run = history(patched).run()

    async def moved():
        workflow.patched("better")
        await asyncio.sleep(0)
        return await after()

    async def later():
        first = await workflow.execute_activity("work", activity_id="new0")
        workflow.patched("better")
        return [first] + [
            await workflow.execute_activity("work", activity_id=f"new{n}") for n in (1, 2)
        ]

    for function in (after, moved, later):
        replayer = run.replay(function)
        assert replayer.is_finished
        assert replayer.matched == replayer.commands == len(run.steps)
        assert replayer.take_steps() == ()
        replayer.close()


def test_taking_it_out_while_an_old_run_is_open_is_one_clear_error(history):
    run = history(before).run()
    with pytest.raises(workflow.NonDeterminism) as raised:
        run.replay(after)
    text = str(raised.value)
    assert "expected ActivityTaskScheduled of 'old0'" in text
    assert "got ScheduleActivity of 'new0'" in text
    assert "test_notes.py:" in text


def test_a_patch_has_a_name(history):
    async def flow():
        with pytest.raises(errors.InvalidArgument, match="patch_id"):
            workflow.patched("")
        return True

    assert history(flow).run().result is True


# --- side effects --------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])
def test_a_side_effect_is_called_once_and_told_to_every_replay(history, late):
    guard.install()
    calls = []

    def ticket() -> tuple[int, str]:
        calls.append(1)
        return len(calls), f"{time.time() > 0}"

    async def flow():
        seen = [workflow.side_effect(ticket)]
        seen.append(await workflow.execute_activity("work", activity_id="a"))
        seen.append(workflow.side_effect(lambda: {"n": (1, 2)}))
        await asyncio.sleep(1)
        return [repr(each) for each in seen]

    run = history(flow, late=late).run()
    assert run.result == ["(1, 'True')", "'a'", "{'n': [1, 2]}"]
    for point in run.points:
        run.replay(point=point).close()
    assert len(calls) == 1
    guard.uninstall()


def test_in_a_side_effect_nothing_of_the_workflow_can_be_called(history):
    async def flow():
        with pytest.raises(errors.FailedPrecondition):
            workflow.side_effect(_calls_back)

    async def swallows():
        workflow.side_effect(lambda: asyncio.run(asyncio.sleep(0)))
        return True

    with pytest.raises(workflow.NonDeterminism, match="inside a running workflow"):
        history(flow).run()
    assert history(swallows).run().result is True


def _calls_back():
    return workflow.now_ms()


def test_a_side_effect_that_raises_fails_the_task_and_not_the_workflow(history):
    async def flow():
        try:
            workflow.side_effect(lambda: 1 // 0)
        except Exception:  # noqa: BLE001
            return "swallowed"

    with pytest.raises(workflow.NonDeterminism, match="ZeroDivisionError"):
        history(flow).run()


def test_one_that_is_new_in_what_was_done_already_is_a_mismatch_and_is_not_called(history):
    calls = []

    async def changed():
        workflow.side_effect(lambda: calls.append(1))
        return await before()

    run = history(before).run()
    with pytest.raises(workflow.NonDeterminism, match="side_effect number 1"):
        run.replay(changed)
    assert calls == []


# --- attributes ----------------------------------------------------------------------------


def test_attributes_are_set_in_the_order_of_their_names(history):
    async def flow():
        workflow.set_search_attributes({"b": 1.5, "a": "x", "c": None})
        workflow.set_search_attributes({})

    run = history(flow).run()
    assert run.steps[0] == commands.SetSearchAttributes((("a", "x"), ("b", 1.5), ("c", None)))
    assert len(run.steps) == 2
    run.replay().close()


@pytest.mark.parametrize("wrong", [{"a": [1]}, {"a b": 1}, {"a": float("nan")}, {"a": "x" * 9_000}])
def test_attributes_that_can_not_be_are_refused_at_the_call(history, wrong):
    async def flow():
        with pytest.raises(errors.InvalidArgument) as raised:
            workflow.set_search_attributes(wrong)
        return raised.value.field

    assert history(flow).run().result == "search_attributes"


# --- length --------------------------------------------------------------------------------


def test_a_workflow_knows_how_long_its_history_is_the_same_in_every_replay(history):
    async def flow():
        seen = []
        while not workflow.info().continue_as_new_suggested:
            await workflow.execute_activity("work", "x" * 1_000)
            info = workflow.info()
            seen.append([info.history_length, info.history_bytes])
        return seen[-1]

    run = history(flow).run()
    length, size = run.result
    assert length >= 4_096 > length - 4
    assert length / 3 * 1_000 < size < length / 3 * 1_400
    replayer = run.replay()
    assert replayer.take_steps() == ()
    replayer.close()
    assert run.replayer.info.history_length == length


def test_notes_are_found_among_encoded_events(history):
    events = [*history(patched).run().events, records.WorkflowReset(99, 1, 2, 1, "", None, b"")]
    raws = [msgspec.Raw(records.encode_event(event)) for event in events]
    kinds = [type(event).__name__ for event in notes_in(raws)]
    assert kinds == ["MarkerRecorded", "WorkflowReset"]


# --- resets ----------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(to_event=st.integers(1, 11))
def test_after_a_reset_the_events_that_it_took_back_do_not_count(history, to_event):
    run = history(patched).run()
    kept = [event for event in run.events if event.event_id <= to_event]
    last = run.last_event_id + 1
    commands_kept = sum(
        isinstance(e, records.ActivityTaskScheduled | records.MarkerRecorded) for e in kept
    )
    to_event = kept[-1].event_id
    reset = records.WorkflowReset(last, 9_999, to_event, commands_kept, "again", None, b"")

    replayer = run.new_replayer()
    events = [*run.events, reset]
    replayer.learn(events, to_event)
    replayer.feed(events)

    assert replayer.consumed == last
    assert replayer.matched == commands_kept
    # What it goes on with is what it went on with then.
    steps = replayer.take_steps()
    assert list(steps) == run.steps[commands_kept:][: len(steps)]
    replayer.close()


# --- signals to others -----------------------------------------------------------------------
class Counting(Known):
    """How many events are looked at."""

    looks = 0

    def is_dropped(self, event_id: int) -> bool:
        self.looks += 1
        return super().is_dropped(event_id)


def test_signals_of_before_answers_are_found_without_a_look_at_all_others_for_each():
    known, count = Counting(), 500
    sent = [
        records.SignalSent(at, 0, "other", "go", None, answered=at % 3 > 0) for at in range(count)
    ]
    reset = records.WorkflowReset(count, 0, count // 2, 1, "", None, b"")
    known.learn([*sent, reset], 0)
    told = [known.is_answered(number) for number in range(1, count)]
    live = [at % 3 > 0 for at in range(count // 2 + 1)]
    assert told == live + [True] * (count - 1 - len(live))
    assert known.looks == count
