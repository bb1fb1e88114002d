"""Children, runs, and activities that are given up, end to end: with the code of workflows, in an
engine in memory, and the same with a restart of the node at every turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from perdure import activity, workflow
from perdure.errors import AlreadyExists, FailedPrecondition, NotFound, WorkflowFailed
from perdure.failures import Failure
from perdure.testing import LocalEngine, ManualClock


@activity.define
def note(text: str) -> str:
    return f"noted {text}"


@activity.define(name="slow", cancellation="wait")
def slow() -> str:
    raise AssertionError("polled by hand")


@activity.define(name="far", cancellation="abandon")
def far() -> str:
    raise AssertionError("polled by hand")


@workflow.define
async def echo(text: str, pause_ms: int = 0) -> str:
    await asyncio.sleep(pause_ms / 1_000)
    if text == "bad":
        raise ValueError("no good")
    return text + "!"


@workflow.define
async def family(close: str, pause_ms: int) -> list[Any]:
    await workflow.start_child(
        echo, "left", 10_000_000, workflow_id="left-behind", parent_close=close
    )
    good = await workflow.execute_child(echo, "good", pause_ms)
    try:
        await workflow.execute_child(echo, "bad")
    except workflow.ChildFailed as error:
        return [good, error.failure.type]
    return []


@workflow.define
async def counting(total: int = 0) -> int:
    """Adds up what it is signalled, and continues as new after each."""
    box = workflow.receive("add")
    amount = await box.get()
    if amount == 0:
        return total
    workflow.continue_as_new(total + amount)


@workflow.define
async def gives_up(which: str) -> list[str]:
    handle = workflow.start_activity(slow if which == "wait" else far, activity_id="a")
    try:
        async with asyncio.timeout(5):
            await handle
    except TimeoutError:
        return ["gave up"]
    return ["done"]


@workflow.define
async def tidies() -> str:
    try:
        await asyncio.sleep(3_600)
    except workflow.Cancelled:
        await workflow.execute_activity(note, "the end", activity_id="tidy")
        raise
    return "slept"


@workflow.define
async def speaks(to: list[str]) -> list[str | None]:
    """Signals each, and asks it to end: what became of either."""
    told: list[str | None] = []
    for workflow_id in to:
        other = workflow.external(workflow_id)
        for sent in (other.signal("add", 0), other.cancel("enough")):
            try:
                told.append(await sent)
            except workflow.ExternalFailed as error:
                told.append(f"{error.failure.type}: {error.failure.message}")
    return told


@workflow.define
async def ends(workflow_id: str) -> str:
    other = workflow.external(workflow_id)
    for sent in (other.cancel("enough"), other.cancel("again")):
        await sent
    await asyncio.sleep(1)
    return "asked"


@workflow.define
async def dynasty(close: str, runs: int, mine: str = "") -> list[str]:
    """Its child is started in the first of `runs`; the last one, after an hour, is told of it."""
    run = workflow.info().run
    if run == 1:
        await workflow.start_child(echo, "kept", 5_000_000, workflow_id="kid", parent_close=close)
    if run < runs:
        workflow.continue_as_new(close, runs, mine)
    if mine == "waits":
        return [f"{it}: {await kid}" for it, kid in workflow.earlier_children().items()]
    await asyncio.sleep(3_600)
    return list(workflow.earlier_children())


@workflow.define
async def hurries() -> str:
    """Continues as new at the very instant at which its child ends."""
    if workflow.info().run == 1:
        await workflow.start_child(echo, "kept", 1_000, workflow_id="kid")
        await asyncio.sleep(1)
        workflow.continue_as_new()
    found = workflow.earlier_children()
    return await found["kid"] if found else "heard before"


WORKFLOWS = (echo, family, counting, gives_up, tidies, speaks, ends, dynasty, hurries)


class Scene:
    """An engine; where `restarts`, it forgets everything but its store before each turn."""

    def __init__(self, restarts: bool) -> None:
        self.restarts = restarts
        self.clock = ManualClock(1_000)
        self.engine = LocalEngine(WORKFLOWS, [note], self.clock)
        self.client = self.engine.client

    def turn(self) -> None:
        if self.restarts:
            self.engine.restart()

    def run(self) -> None:
        """All that can run, one thing after the other."""
        for _ in range(200):
            self.turn()
            if not (self.engine.run_workflow_tasks() or self.engine.run_activities()):
                return
        raise AssertionError("it never rests")

    def pass_ms(self, length_ms: int) -> None:
        self.clock.advance_ms(length_ms)
        self.run()

    def status(self, workflow_id: str) -> str:
        return str(self.client.describe_workflow(workflow_id).status)

    def kinds(self, workflow_id: str, **options: Any) -> list[str]:
        return [event.kind for event in self.client.history(workflow_id, **options)]


@pytest.fixture(params=[False, True], ids=["", "restarts"])
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param)


# --- children -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("close", "status"),
    [("terminate", "Terminated"), ("cancel", "Cancelled"), ("abandon", "Running")],
)
def test_children_answer_fail_and_share_the_end_of_their_parent(scene, close, status) -> None:
    scene.client.start_workflow(family, close, 5_000, workflow_id="f")
    scene.run()
    assert (scene.status("f"), scene.status("left-behind")) == ("Running", "Running")
    scene.pass_ms(5_000)
    assert scene.client.result("f") == ["good!", "ValueError"]
    assert scene.client.result("f/@1") == "good!"
    scene.run()
    assert scene.status("left-behind") == status


def test_terminating_a_parent_ends_its_children_and_nothing_stays(scene) -> None:
    scene.client.start_workflow(family, "terminate", 5_000, workflow_id="f")
    scene.run()
    scene.client.terminate_workflow("f", "enough")
    assert {scene.status(one) for one in ("f", "f/@1", "left-behind")} == {"Terminated"}
    scene.pass_ms(10_000_000)
    with pytest.raises(WorkflowFailed) as caught:
        scene.client.result("f")
    assert (caught.value.status, caught.value.failure.message) == ("Terminated", "enough")


def test_a_child_whose_id_is_taken_is_a_failure_that_the_parent_can_catch(scene) -> None:
    scene.client.start_workflow(echo, "first", 10_000_000, workflow_id="left-behind")
    scene.client.start_workflow(family, "terminate", 0, workflow_id="f")
    scene.run()
    scene.pass_ms(1)
    assert scene.status("left-behind") == "Running"
    assert scene.client.result("f") == ["good!", "ValueError"]


# --- runs ---------------------------------------------------------------------
def test_what_continues_as_new_keeps_its_sum_and_loses_no_signal(scene) -> None:
    scene.client.start_workflow(counting, workflow_id="sum")
    for amount in range(1, 31):  # Some at once, before any is read.
        scene.client.signal_workflow("sum", "add", amount)
        if amount % 3 == 0:
            scene.run()
    scene.client.signal_workflow("sum", "add", 0)
    scene.run()
    assert scene.client.result("sum") == sum(range(31))
    described = scene.client.describe_workflow("sum")
    assert (described.run, described.status) == (31, "Completed")
    assert scene.kinds("sum", run=1)[-1] == "WorkflowContinuedAsNew"
    with pytest.raises(AlreadyExists):
        scene.client.start_workflow(counting, workflow_id="sum")


def test_a_cancellation_that_comes_with_the_signal_that_ends_a_run_is_not_lost(scene) -> None:
    scene.client.start_workflow(counting, workflow_id="sum")
    scene.run()
    scene.client.signal_workflow("sum", "add", 1)
    scene.client.cancel_workflow("sum", "enough")
    scene.run()
    described = scene.client.describe_workflow("sum")
    assert (described.run, described.status) == (2, "Cancelled")


# --- activities that are given up ---------------------------------------------
@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda engine, token: engine.complete_activity_task(token, "late"), ["done"]),
        (lambda engine, token: engine.fail_activity_task(token, Failure("Cancelled")), None),
    ],
    ids=["a result wins", "its end is what it waits for"],
)
def test_wait_means_that_the_attempt_that_runs_decides(scene, end: Callable, expected) -> None:
    scene.client.start_workflow(gives_up, "wait", workflow_id="g")
    scene.run()
    token = scene.engine.poll_activity_task().token
    scene.pass_ms(5_000)
    (pending,) = scene.client.describe_workflow("g").pending_activities
    assert (pending.state, pending.cancel_requested) == ("Leased", True)
    assert scene.status("g") == "Running"
    end(scene.engine, token)
    scene.run()
    assert scene.client.result("g") == (expected or ["gave up"])


def test_wait_ends_at_once_what_nobody_runs(scene) -> None:
    scene.client.start_workflow(gives_up, "wait", workflow_id="g")
    scene.run()
    scene.pass_ms(5_000)
    assert scene.client.result("g") == ["gave up"]
    assert scene.engine.poll_activity_task() is None


def test_abandon_goes_on_without_anybody_waiting(scene) -> None:
    scene.client.start_workflow(gives_up, "abandon", workflow_id="g")
    scene.run()
    token = scene.engine.poll_activity_task().token
    scene.pass_ms(5_000)
    assert scene.client.result("g") == ["gave up"]
    with pytest.raises(FailedPrecondition):  # Its workflow has ended, and it with that.
        scene.engine.complete_activity_task(token, "late")


# --- cancelled, terminated ----------------------------------------------------
def test_a_cancelled_workflow_can_still_run_activities_that_tidy_up(scene) -> None:
    scene.client.start_workflow(tidies, workflow_id="t")
    scene.run()
    scene.client.cancel_workflow("t", "enough")
    scene.client.cancel_workflow("t", "more than enough")
    scene.run()
    assert scene.status("t") == "Cancelled"
    kinds = scene.kinds("t")
    assert kinds.count("WorkflowCancelRequested") == 1
    assert kinds[-2:] == ["ActivityTaskCompleted", "WorkflowCancelled"]


def test_a_workflow_that_waits_for_its_start_can_be_cancelled_before(scene) -> None:
    scene.client.start_workflow(tidies, workflow_id="t", start_delay_ms=3_600_000)
    scene.run()
    scene.client.cancel_workflow("t", "enough")
    scene.run()
    assert scene.status("t") == "Cancelled"


def test_what_is_not_there_can_not_be_ended(scene) -> None:
    for ask in (scene.client.cancel_workflow, scene.client.terminate_workflow):
        with pytest.raises(NotFound):
            ask("nobody")


# --- children over the runs of their parent -----------------------------------------
@pytest.mark.parametrize("runs", [1, 2, 4])
@pytest.mark.parametrize(
    ("close", "end"), [("terminate", "Terminated"), ("cancel", "Cancelled"), ("abandon", "Running")]
)
def test_parent_close_applies_when_the_last_run_has_ended(scene: Scene, close, end, runs) -> None:
    scene.client.start_workflow("dynasty", close, runs, workflow_id="d")
    scene.run()
    assert scene.client.describe_workflow("d").run == runs
    assert scene.status("kid") == "Running"
    assert scene.client.describe_workflow("d").children[0].workflow_id == "kid"
    scene.pass_ms(3_600_000)
    assert scene.client.result("d") == ([] if runs == 1 else ["kid"])
    assert scene.status("kid") == end


@pytest.mark.parametrize("runs", [2, 4])
def test_a_later_run_waits_for_a_child_of_the_first(scene: Scene, runs) -> None:
    scene.client.start_workflow("dynasty", "terminate", runs, "waits", workflow_id="d")
    scene.run()
    scene.pass_ms(5_000_000)
    assert scene.client.result("d") == ["kid: kept!"]
    assert "ChildWorkflowCompleted" in scene.kinds("d")


def test_no_end_of_a_child_is_lost_between_two_runs(scene: Scene) -> None:
    scene.client.start_workflow("hurries", workflow_id="h")
    scene.run()
    scene.pass_ms(1_000)
    assert scene.client.result("h") == "kept!"


# --- words to other workflows -----------------------------------------------------
def test_a_workflow_is_told_which_others_could_not_be_spoken_to(scene: Scene) -> None:
    scene.client.start_workflow("counting", workflow_id="there")
    ended = scene.client.start_workflow("echo", "hi", workflow_id="ended")
    scene.run()
    assert ended.result() == "hi!"
    scene.client.start_workflow("speaks", ["there", "ended", "never"], workflow_id="speaker")
    scene.run()
    never = "NotFound: there is no workflow 'never'"
    closed = "FailedPrecondition: the workflow is Completed"
    told = scene.client.result("speaker")
    # The request to end came to the first together with the signal, or after that had ended it.
    assert told[0] is None
    assert told[2:] == [closed, closed, never, never]
    events = scene.client.history("speaker")
    refused = [one.refused for one in events if one.kind == "SignalSent"]
    assert refused == ["", "the workflow is Completed", "there is no workflow 'never'"]


def test_a_workflow_ends_another_that_it_did_not_start(scene: Scene) -> None:
    scene.client.start_workflow("tidies", workflow_id="tidy")
    scene.run()
    scene.client.start_workflow("ends", "tidy", workflow_id="ender")
    scene.run()
    scene.pass_ms(1_000)
    assert scene.client.result("ender") == "asked"
    assert scene.status("tidy") == "Cancelled"
    assert scene.kinds("tidy").count("WorkflowCancelRequested") == 1
    assert scene.kinds("ender").count("ExternalCancelRequested") == 2
