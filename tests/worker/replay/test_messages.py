"""Signals, queries, updates and conditions, in the first run and in every replay."""

from __future__ import annotations

import asyncio
import logging

import pytest

from perdure import errors, values, workflow
from perdure.core import commands, records
from perdure.core.start import StartTerms


def same_again(run):
    """The history replays to its end with nothing left over."""
    replayer = run.replay()
    assert replayer.take_steps() == ()
    assert replayer.matched == replayer.commands == len(run.steps)
    replayer.close()
    return run


def ended_updates(run):
    return {
        event.request_id: event for event in run.events if isinstance(event, records.UpdateEnded)
    }


# --- signals ---------------------------------------------------------------------------


async def approvals(count):
    taken = []

    @workflow.signal
    def approve(who: str, *, how: str = "plainly"):
        taken.append([who, how])

    @workflow.signal(name="ask")
    async def asked(what):
        taken.append(await workflow.execute_activity("ask", what, activity_id=f"ask-{what}"))

    await workflow.wait_condition(lambda: len(taken) >= count)
    return taken


@pytest.mark.parametrize("late", [False, True])
def test_signals_go_to_their_handlers_in_their_order(history, late):
    outside = [(5, "signal", "approve", "ann"), (5, "signal", "ask", "bob")]
    outside += [(6, "signal", "approve", "cy"), (7, "signal", "unknown", 1)]
    run = same_again(history(approvals, 3, outside=outside, late=late).run())
    assert run.result == [["ann", "plainly"], ["cy", "plainly"], "ask-bob"]


def test_signals_that_came_before_their_handler_go_to_it_first_and_in_order(history):
    async def flow():
        taken = []
        await asyncio.sleep(1)

        @workflow.signal
        def note(n):
            taken.append(n)

        await workflow.wait_condition(lambda: len(taken) == 4)
        return taken

    outside = [(n, "signal", "note", n) for n in (1, 2, 3)] + [(2_000, "signal", "note", 4)]
    assert same_again(history(flow, outside=outside).run()).result == [1, 2, 3, 4]


def test_a_signal_that_does_not_fit_is_dropped_and_said(history, caplog):
    outside = [(1, "signal", "approve"), (2, "signal", "approve", "ann")]
    with caplog.at_level(logging.ERROR, "perdure.workflow"):
        run = history(approvals, 1, outside=outside).run()
    assert run.result == [["ann", "plainly"]]
    assert "argument 'who': missing" in caplog.text


@pytest.mark.parametrize("is_async", [False, True])
def test_an_exception_that_leaves_a_signal_handler_ends_the_workflow(history, is_async):
    async def flow():
        if is_async:

            @workflow.signal(name="bad")
            async def one():
                await asyncio.sleep(0)
                raise ValueError("no")
        else:

            @workflow.signal(name="bad")
            def other():
                raise ValueError("no")

        await asyncio.sleep(60)

    run = same_again(history(flow, outside=[(1, "signal", "bad")]).run())
    assert (run.failure.type, run.failure.message) == ("ValueError", "no")


async def boxes():
    box, rest = workflow.receive("box"), workflow.receive("rest")
    first = await box.get()
    waited = len(box)
    with pytest.raises(TimeoutError):
        await rest.get(timeout_ms=50)
    taken = []
    async for each in box:
        taken.append(each)
        if each == "end":
            return [first, waited, taken, await rest.get(timeout_ms=20)]


def test_a_box_gives_signals_one_by_one_with_a_timeout_where_one_is_given(history):
    outside = [(1, "signal", "box", {"a": 1}), (2, "signal", "box", 1, 2), (2, "signal", "box")]
    outside += [(3, "signal", "box", "end"), (60, "signal", "rest", [7])]
    run = same_again(history(boxes, outside=[*outside, (99, "signal", "box", "end")]).run())
    assert run.result == [{"a": 1}, 0, [[1, 2], None, "end"], [7]]


def test_a_name_has_a_box_or_a_handler(history):
    async def flow():
        workflow.receive("one")
        with pytest.raises(errors.InvalidArgument, match="receive"):
            workflow.signal(name="one")(print)
        workflow.signal(name="two")(print)
        with pytest.raises(errors.InvalidArgument, match="handler"):
            workflow.receive("two")
        return True

    assert history(flow).run().result is True


def test_outside_a_workflow_nothing_of_it_can_be_called():
    for call in (
        lambda: workflow.signal(print),
        lambda: workflow.query(print),
        lambda: workflow.update(print),
        lambda: workflow.receive("x"),
        lambda: workflow.patched("x"),
        lambda: workflow.side_effect(print),
        lambda: workflow.continue_as_new(),
        lambda: workflow.execute_child("x"),
    ):
        with pytest.raises(errors.FailedPrecondition, match="inside a running workflow"):
            call()


# --- conditions ------------------------------------------------------------------------


def test_a_condition_is_looked_at_after_every_event_and_times_out_durably(history):
    async def flow():
        state = {"n": 0}

        async def count():
            for _ in range(3):
                await asyncio.sleep(0.01)
                state["n"] += 1

        task = asyncio.create_task(count())
        await workflow.wait_condition(lambda: state["n"] == 2)
        at = workflow.now_ms()
        with pytest.raises(TimeoutError):
            await workflow.wait_condition(lambda: state["n"] == 9, timeout_ms=500)
        await workflow.wait_condition(lambda: True)
        await task
        return [at - 1_000, workflow.now_ms() - 1_000]

    assert same_again(history(flow).run()).result == [20, 520]


def test_a_condition_that_raises_raises_where_it_is_awaited(history):
    async def flow():
        seen = []

        @workflow.signal
        def go():
            seen.append(1)

        try:
            await workflow.wait_condition(lambda: seen and 1 // 0)
        except ZeroDivisionError:
            return "raised"

    assert history(flow, outside=[(1, "signal", "go")]).run().result == "raised"


def test_a_condition_may_schedule_nothing(history):
    async def flow():
        await workflow.wait_condition(lambda: workflow.execute_activity("work"))

    with pytest.raises(workflow.NonDeterminism, match="wait_condition may schedule nothing"):
        history(flow).run()


# --- queries ---------------------------------------------------------------------------


async def asked():
    seen = []

    @workflow.query
    def seen_so_far(first: int = 0):
        return [*seen[first:], workflow.info().workflow_id]

    @workflow.query
    def wrong():
        raise ValueError("no")

    workflow.query(lambda: object(), name="unfit")

    @workflow.query
    def busy():
        return workflow.execute_activity("work")

    @workflow.query
    def lazy():
        asyncio.get_running_loop().create_task(asyncio.sleep(1))

    for n in range(2):
        seen.append(await workflow.execute_activity("work", activity_id=f"a{n}"))
    return "done"


def ask(replayer, name, *args):
    return values.to_builtins(replayer.query(name, values.encode_input(None, args, {})))


def test_a_query_sees_what_was_fed_before_and_after_the_end_and_changes_nothing(history):
    run = history(asked).run()
    replayer = run.new_replayer()
    seen = []
    for event in run.events:
        replayer.feed([event])
        before = replayer.commands
        seen.append(ask(replayer, "seen_so_far"))
        assert replayer.commands == before
    assert seen[0] == ["w"]
    assert seen[-1] == ["a0", "a1", "w"]
    assert replayer.is_finished
    assert ask(replayer, "seen_so_far", 1) == ["a1", "w"]
    replayer.close()


def test_a_query_that_is_not_there_or_does_not_fit_or_fails_says_so(history):
    replayer = history(asked).run().replay()
    with pytest.raises(errors.NotFound, match="it has: busy, lazy, seen_so_far, unfit, wrong"):
        ask(replayer, "other")
    with pytest.raises(errors.InvalidArgument, match="first"):
        ask(replayer, "seen_so_far", "x")
    with pytest.raises(errors.FailedPrecondition, match="ValueError: no"):
        ask(replayer, "wrong")
    with pytest.raises(errors.FailedPrecondition, match=r"'unfit' failed: BadResult: .* object is"):
        ask(replayer, "unfit")
    assert ask(replayer, "seen_so_far", 2) == ["w"]
    replayer.close()


@pytest.mark.parametrize("name", ["busy", "lazy"])
def test_a_query_that_would_schedule_something_is_refused_and_spoils_its_replay(history, name):
    run = history(asked)
    run.replayer.feed(run.events)
    with pytest.raises(errors.FailedPrecondition, match="schedule"):
        ask(run.replayer, name)
    assert run.replayer.is_broken
    with pytest.raises(errors.Internal):
        ask(run.replayer, "seen_so_far")
    run.replayer.close()


def test_a_query_is_no_coroutine(history):
    async def flow():
        async def late():
            return 1

        workflow.query(late)

    assert history(flow).run().failure.type == "InvalidArgument"


# --- updates ---------------------------------------------------------------------------


async def account():
    balance = {"now": 10}

    @workflow.update
    async def add(amount: int) -> int:
        fee = await workflow.execute_activity("fee", amount, activity_id=f"fee-{amount}")
        balance["now"] += amount - fee
        return balance["now"]

    @add.validator
    def check(amount):
        if amount < 0:
            raise ValueError("not below nothing")

    @workflow.update(name="reset")
    def to_nothing():
        if not balance["now"]:
            raise workflow.ActivityFailed("it is empty")
        balance["now"] = 0

    await workflow.wait_condition(lambda: balance["now"] == 0)
    await asyncio.sleep(1)
    return balance["now"]


@pytest.mark.parametrize("late", [False, True])
def test_an_update_is_answered_rejected_or_failed_each_by_its_id(history, late):
    outside = [
        (1, "update", "add", "u1", 5),
        (2, "update", "add", "u2", -5),
        (3, "update", "nothing", "u3"),
        (4, "update", "add", "u4", "many"),
        (40, "update", "reset", "u5"),
        (50, "update", "reset", "u6"),
    ]
    answers = lambda step: (10, 1)  # noqa: E731
    run = same_again(history(account, outside=outside, answers=answers, late=late).run())
    ended = ended_updates(run)
    assert values.to_builtins(ended["u1"].result) == 14
    assert {key for key, event in ended.items() if event.rejected} == {"u2", "u3", "u4"}
    assert ended["u2"].failure.message == "not below nothing"
    assert (ended["u3"].failure.type, "add, reset" in ended["u3"].failure.message) == (
        "UnknownUpdate",
        True,
    )
    assert ended["u4"].failure.type == "BadInput"
    assert (ended["u5"].failure, ended["u5"].rejected) == (None, False)
    assert ended["u6"].failure.message == "it is empty"
    scheduled = [s.activity_id for s in run.steps if isinstance(s, commands.ScheduleActivity)]
    assert scheduled == ["fee-5"]


def test_a_validator_may_schedule_nothing(history):
    async def flow():
        @workflow.update
        def change():
            return 1

        @change.validator
        def check():
            workflow.execute_activity("work")

        await asyncio.sleep(60)

    with pytest.raises(workflow.NonDeterminism, match="validator may schedule nothing"):
        history(flow, outside=[(1, "update", "change", "u1")]).run()


# --- on to the next run ------------------------------------------------------------------


async def rounds(n):
    info = workflow.info()
    box = workflow.receive("box")
    got = await box.get()

    @workflow.signal(name="other")
    def other(_):
        pass

    await asyncio.sleep(0.1)
    if n < 3:
        workflow.continue_as_new(n + 1)
    return [n, got, info.run]


def test_continuing_as_new_hands_on_the_input_and_the_signals_that_nobody_took(history):
    outside = [(1, "signal", "box", "a"), (2, "signal", "later", 1), (3, "signal", "box", "b")]
    outside += [(4, "signal", "other", 0), (5, "signal", "later", 2)]
    run = same_again(history(rounds, 1, outside=outside).run())
    step = run.steps[-1]
    assert isinstance(step, commands.ContinueAsNew)
    assert (step.workflow_type, step.task_queue) == ("flow", "default")
    assert values.to_builtins(step.input) == [2]
    names = [(name, values.to_builtins(payload)) for name, payload in step.signals]
    assert names == [("later", [1]), ("box", ["b"]), ("later", [2])]

    terms = StartTerms(signals=step.signals)
    after = same_again(history(rounds, 3, workflow_id="w\x1f2", terms=terms).run())
    assert after.result == [3, "b", 2]


def test_a_signal_that_comes_right_behind_the_end_of_a_run_is_the_next_ones(history):
    async def flow():
        @workflow.signal
        def other(_):
            pass

        await asyncio.sleep(0.01)
        workflow.continue_as_new()

    outside = [(5, "signal", "box", 1), (11, "signal", "other", 2), (12, "signal", "box", 3)]
    run = history(flow, outside=outside)
    run.replayer.feed(run.events)
    for step in run.replayer.take_steps():
        run.record(step)
    while run._wakes:
        run.wake()
    run.replayer.feed(run.events)
    (step,) = run.replayer.take_steps()
    assert [name for name, _ in step.signals] == ["box", "other", "box"]
    run.replayer.close()


def test_signals_given_to_a_handler_that_had_no_turn_are_the_next_runs(history):
    async def flow():
        await asyncio.sleep(0.01)

        @workflow.signal
        def note(n):
            raise AssertionError(n)

        workflow.continue_as_new()

    run = history(flow, outside=[(1, "signal", "note", 1), (2, "signal", "note", 2)]).run()
    signals = [(name, values.to_builtins(payload)) for name, payload in run.steps[-1].signals]
    assert signals == [("note", [1]), ("note", [2])]


def test_no_except_exception_stops_a_workflow_from_continuing_as_new(history):
    async def flow():
        try:
            try:
                workflow.continue_as_new()
            except Exception:  # noqa: BLE001
                return "stopped"
        finally:
            await workflow.execute_activity("work", activity_id="cleanup")

    run = same_again(history(flow).run())
    assert [type(step).__name__ for step in run.steps] == ["ScheduleActivity", "ContinueAsNew"]


def test_only_the_workflow_function_itself_continues_as_new(history):
    async def flow():
        async def other():
            workflow.continue_as_new()

        await asyncio.gather(other())

    failure = history(flow).run().failure
    assert (failure.type, "by the workflow function itself" in failure.message) == (
        "FailedPrecondition",
        True,
    )
