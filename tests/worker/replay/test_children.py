"""Children and other workflows: started, signalled, cancelled, waited for."""

from __future__ import annotations

import asyncio

import pytest

from perdure import errors, values, workflow
from perdure.core import commands, records
from perdure.core.start import StartTerms
from perdure.failures import Failure


@workflow.define
async def kid(n: int, *, twice: bool = False) -> tuple[int, bool]:
    return n, twice


def same_again(run):
    replayer = run.replay()
    assert replayer.take_steps() == ()
    assert replayer.matched == len(run.steps)
    replayer.close()
    return run


def named(run):
    return [type(step).__name__ for step in run.steps]


def kid_answers(step):
    if isinstance(step, commands.StartChild):
        args, kwargs = values.bind_input(kid, step.input)
        return (5, [*args, *kwargs.values()])
    return (10, "done")


@pytest.mark.parametrize("late", [False, True])
def test_a_child_is_started_and_its_result_is_as_its_annotation_says(history, late):
    async def flow():
        one = workflow.execute_child(kid, 1, twice=True)
        two = await workflow.start_child("kid", {"n": 2}, workflow_id="own", task_queue="q")
        return [repr(await one), await two, one.id, two.id]

    answers = lambda step: (5, [1, True])  # noqa: E731
    run = same_again(history(flow, answers=answers, late=late).run())
    assert run.result == ["(1, True)", [1, True], "w/@1", "own"]
    first, second, _ = run.steps
    assert (first.workflow_type, first.task_queue, first.parent_close) == (
        "kid",
        "default",
        "terminate",
    )
    assert values.to_builtins(first.input) == {"n": 1, "twice": True}
    assert (first.terms, second.task_queue) == (None, "q")


def test_the_default_id_of_a_child_of_a_later_run_is_another(history):
    async def flow():
        return workflow.execute_child("kid").id

    assert history(flow, workflow_id="w\x1f3").run().result == "w#3/@1"


def test_what_is_said_of_a_childs_start_goes_along(history):
    async def flow():
        workflow.execute_child(
            "kid",
            start_delay_ms=5,
            timeout_ms=7,
            parent_close="abandon",
            search_attributes={"b": True, "a": "x"},
        )

    (step, _) = history(flow).run().steps
    assert (step.parent_close, step.terms.delay_ms, step.terms.timeout_ms) == ("abandon", 5, 7)
    assert step.terms.attributes == (("a", "x"), ("b", True))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"parent_close": "kill"}, "parent_close"),
        ({"workflow_id": ""}, "workflow_id"),
        ({"task_queue": "a b"}, "task_queue"),
        ({"timeout_ms": -1}, "timeout_ms"),
        ({"start_delay_ms": 1.5}, "start_delay_ms"),
        ({"search_attributes": {"a": [1]}}, "search_attributes"),
    ],
)
def test_what_can_not_be_is_refused_at_the_call(history, options, field):
    async def flow():
        with pytest.raises(errors.InvalidArgument) as raised:
            workflow.execute_child("kid", **options)
        return raised.value.field

    assert history(flow).run().result == field


def test_an_id_is_for_one_child(history):
    async def flow():
        workflow.execute_child("kid", workflow_id="one")
        with pytest.raises(errors.InvalidArgument, match="two children"):
            workflow.execute_child("kid", workflow_id="one")

    history(flow).run()


def test_a_child_that_fails_raises_with_its_failure_which_is_the_cause_of_the_parents(history):
    async def flow():
        try:
            await workflow.execute_child(kid, 1)
        except workflow.ChildFailed as problem:
            seen = [problem.failure.type, problem.status, problem.workflow_id]
            raise ValueError(str(seen)) from problem

    run = same_again(history(flow, answers=lambda step: (1, Failure("Broken", "it"))).run())
    assert run.failure.message == "['Broken', 'Failed', 'w/@1']"
    assert run.failure.cause.cause.type == "Broken"


def test_signals_are_sent_to_a_child_and_to_any_workflow(history):
    async def flow():
        child = await workflow.start_child(kid, 1)
        await child.signal("go", 1)
        child.signal("stop", why="enough")
        workflow.external("other").signal("hello")
        return await child

    run = same_again(history(flow, answers=kid_answers).run())
    sent = [(s.workflow_id, s.name, values.to_builtins(s.input)) for s in run.steps[1:4]]
    assert sent == [
        ("w/@1", "go", [1]),
        ("w/@1", "stop", {"why": "enough"}),
        ("other", "hello", None),
    ]


def cancelled_in_order(step):
    return (20, Failure("Cancelled", "")) if isinstance(step, commands.CancelChild) else None


@pytest.mark.parametrize("late", [False, True])
def test_a_cancelled_child_is_waited_for_until_it_has_ended(history, late):
    async def flow():
        child = await workflow.start_child(kid, 1)
        try:
            async with asyncio.timeout(0.05):
                await child
        except TimeoutError:
            return [workflow.now_ms() - 1_000, child.cancelled(), child.cancel()]

    run = same_again(history(flow, answers=cancelled_in_order, late=late).run())
    assert run.result[1:] == [True, False]
    assert run.result[0] >= 70
    assert named(run)[:3] == ["StartChild", "StartTimer", "CancelChild"]


def test_a_child_that_ends_well_though_it_was_cancelled_has_a_result(history):
    async def flow():
        child = await workflow.start_child(kid, 1)
        assert child.cancel()
        assert child.cancel()
        return await child

    answers = lambda step: (5, [1, True]) if isinstance(step, commands.CancelChild) else None  # noqa: E731
    run = same_again(history(flow, answers=answers).run())
    assert run.result == [1, True]
    assert named(run) == ["StartChild", "CancelChild", "CompleteWorkflow"]


def test_a_child_that_was_cancelled_by_others_has_failed(history):
    async def flow():
        try:
            await workflow.execute_child(kid, 1)
        except workflow.ChildFailed as problem:
            return problem.status

    assert history(flow, answers=lambda s: (1, Failure("Cancelled", ""))).run().result == (
        "Cancelled"
    )


def test_children_are_gathered_and_waited_for_in_the_order_of_their_ends(history):
    async def flow():
        kids = [workflow.execute_child(kid, n) for n in (3, 1, 2)]
        done, _ = await asyncio.wait(kids)
        first = [handle.id for handle in done]
        return [first, await asyncio.gather(*kids)]

    answers = lambda step: (values.to_builtins(step.input)[0], [1, False])  # noqa: E731
    run = same_again(history(flow, answers=answers).run())
    assert run.result[0] == ["w/@2", "w/@3", "w/@1"]


# --- what becomes of a word to another workflow ---------------------------------
GONE = {"gone": ("the workflow is Completed", "FAILED_PRECONDITION")}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("what", ["signal", "cancel"])
def test_code_is_told_what_another_workflow_could_not_take(history, what, late):
    async def flow():
        told = []
        for id_ in ("there", "gone"):
            other = workflow.external(id_)
            sent = other.signal("go", 1) if what == "signal" else other.cancel("enough")
            try:
                told.append(await sent)
            except workflow.ExternalFailed as problem:
                told.append([problem.workflow_id, problem.failure.type, problem.failure.message])
        await asyncio.sleep(1)
        return told

    run = same_again(history(flow, refused=GONE, late=late).run())
    assert run.result == [None, ["gone", "FailedPrecondition", "the workflow is Completed"]]


def test_a_word_that_nobody_waits_for_disturbs_nobody(history):
    async def flow():
        workflow.external("gone").signal("go")
        workflow.external("gone").cancel()
        await asyncio.sleep(1)
        return "done"

    assert same_again(history(flow, refused=GONE).run()).result == "done"


def test_a_history_of_before_answers_goes_on_as_it_went(history):
    """Its code went on at once, and what else ran came behind it: in that order it is replayed."""

    async def flow():
        async def speaks():
            await workflow.external("gone").signal("go")
            await asyncio.sleep(1)

        async def sleeps():
            await asyncio.sleep(2)

        await asyncio.gather(speaks(), sleeps())
        # Of today: the code is told.
        ranks.append(hash(asyncio.get_running_loop().create_future()))
        await workflow.external("gone").signal("again")

    async def silent():
        async def speaks():
            await asyncio.sleep(1)

        async def sleeps():
            await asyncio.sleep(2)

        await asyncio.gather(speaks(), sleeps())
        ranks.append(hash(asyncio.get_running_loop().create_future()))

    ranks = []
    history(silent).run()

    run = history(flow)
    payload = values.encode_input(None, (), {})
    run.events = [
        records.WorkflowStarted(1, 0, "flow", "default", payload, None, b""),
        records.SignalSent(2, 0, "gone", "go", None),
        records.TimerStarted(3, 0, 1, 1_000),
        records.TimerStarted(4, 0, 2, 2_000),
        records.TimerFired(5, 1_000, 1),
        records.TimerFired(6, 2_000, 2),
        records.SignalSent(7, 2_000, "gone", "again", None, *GONE["gone"], True),
    ]
    run.consumed = 6
    replayer = run.replay()
    (last,) = replayer.take_steps()
    assert isinstance(last, commands.FailWorkflow)
    assert last.failure.type == "ExternalFailed"
    # What stands behind has the places in sets that it had then.
    assert ranks == [ranks[0]] * 2
    replayer.close()


# --- over runs --------------------------------------------------------------------
def test_an_end_that_comes_behind_the_end_of_a_run_is_for_the_next(history):
    async def flow():
        await workflow.start_child(kid, 1)
        await asyncio.sleep(0.005)
        workflow.continue_as_new()

    run = history(flow, answers=lambda step: (5, [1, True]))
    run.replayer.feed(run.events)
    for step in run.replayer.take_steps():
        run.record(step)
    run._add(records.TimerFired, 1_005, 1)
    run._add(records.ChildWorkflowCompleted, 1_005, "w/@1", values.encode([1, True]))
    run.replayer.feed(run.events)
    (last,) = run.replayer.take_steps()
    assert last.unheard == ("w/@1",)
    run.replayer.close()


@pytest.mark.parametrize("fails", [False, True])
def test_children_of_earlier_runs_are_there_and_their_ids_are_taken(history, fails):
    async def flow():
        children = workflow.earlier_children()
        try:
            workflow.execute_child(kid, 1, workflow_id="old")
        except errors.InvalidArgument as problem:
            taken = problem.message
        assert not children["other"].done()
        try:
            return [await children["old"], "used for two" in taken]
        except workflow.ChildFailed as problem:
            return [problem.failure.type, problem.workflow_id]

    ended = (records.ChildWorkflowCompleted, "old", values.encode(7))
    if fails:
        ended = (records.ChildWorkflowFailed, "old", "Failed", Failure("Boom"))
    terms = StartTerms(children=(("old", "cancel"), ("other", "terminate")))
    run = history(flow, terms=terms)
    run.replayer.feed(run.events)
    run._add(ended[0], 1_005, *ended[1:])
    run.replayer.feed(run.events)
    (last,) = run.replayer.take_steps()
    assert values.to_builtins(last.result) == (["Boom", "old"] if fails else [7, True])
    run.replayer.close()
