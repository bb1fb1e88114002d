"""A worker's workflow tasks against a node that is only sockets."""

from __future__ import annotations

import asyncio
import re
import threading

import msgspec
import pytest

from perdure import activity, values, workflow
from perdure.core import limits, links
from perdure.core.commands import (
    REPEATED,
    CompleteActivity,
    CompleteWorkflow,
    CompleteWorkflowTask,
    Done,
    FailWorkflowTask,
    Refusal,
    ScheduleActivity,
)
from perdure.core.records import (
    ActivityOptions,
    ActivityTaskCompleted,
    ActivityTaskScheduled,
    MarkerRecorded,
    WorkflowStarted,
)
from perdure.policy import RetryPolicy
from perdure.worker import replays, stage

PATIENCE_S = 30
release = threading.Event()
runs: list[int] = []


@activity.define
def double(x: int) -> int:
    return 2 * x


@workflow.define
async def twice(x: int) -> int:
    runs.append(x)
    x = await workflow.execute_activity(double, x, activity_id="first")
    return await workflow.execute_activity(double, x, activity_id="second")


@workflow.define
async def spins() -> None:
    while not release.is_set():
        pass


@workflow.define
async def spins_and_catches() -> None:
    while not release.is_set():
        try:
            while not release.is_set():
                pass
        except BaseException:  # noqa: BLE001, S110
            pass


@workflow.define
async def much() -> None:
    for _ in range(20):
        workflow.start_activity(double, "x" * 2_000_000)
    await workflow.sleep_ms(1_000)


@workflow.define
async def pairs(n: int) -> int:
    async def pair(i: int) -> int:
        x = await workflow.execute_activity(double, i, activity_id=f"{i}-first")
        return await workflow.execute_activity(double, x, activity_id=f"{i}-second")

    return sum(await asyncio.gather(*map(pair, range(n))))


@workflow.define
async def patched_pairs(n: int) -> int:
    workflow.patched("faster")
    return await pairs(n)


class Unheard(BaseException):
    pass


@workflow.define
async def raises(kind: str) -> None:
    raise {"Unheard": Unheard, "GeneratorExit": GeneratorExit}[kind]("no Exception")


ALL = (twice, spins, spins_and_catches, much, pairs, patched_pairs, raises)


def started(x: int | str | None = 1) -> WorkflowStarted:
    payload = None if x is None else values.encode([x])
    return WorkflowStarted(1, 1_000, "twice", "default", payload, None, b"")


def scheduled(event_id: int, activity_id: str) -> ActivityTaskScheduled:
    options = ActivityOptions(RetryPolicy())
    return ActivityTaskScheduled(event_id, 1_000, activity_id, "double", None, options)


def completed(event_id: int, activity_id: str, result: int) -> ActivityTaskCompleted:
    payload = values.encode(result)
    return ActivityTaskCompleted(event_id, 1_000, activity_id, 1, 1, 1, payload, 1_000, "w1")


FIRST = (scheduled(2, "first"), completed(4, "first", 2))
SECOND = (scheduled(5, "second"), completed(7, "second", 4))


def activity_ids(command: CompleteWorkflowTask) -> list[str]:
    return [step.activity_id for step in command.steps if isinstance(step, ScheduleActivity)]


def test_a_workflow_is_run_on_from_task_to_task_and_its_results_name_their_cursors(
    node, workflow_task
):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "twice", started()))
    one = node.command(CompleteWorkflowTask, Done())
    node.say(workflow_task("w", "twice", *FIRST, consumed=1, commands=1))
    two = node.command(CompleteWorkflowTask, Done())
    node.say(workflow_task("w", "twice", *SECOND, consumed=4, commands=2))
    three = node.command(CompleteWorkflowTask, Done())
    cursors = [(c.consumed_from, c.commands_from, c.consumed) for c in (one, two, three)]
    assert cursors == [(0, 0, 1), (1, 1, 4), (4, 2, 7)]
    assert (activity_ids(one), activity_ids(two)) == (["first"], ["second"])
    assert three.steps == (CompleteWorkflow(values.encode(4)),)
    assert not any(isinstance(m, links.Fetch) for m in node.all)


def test_a_workflow_that_is_not_in_memory_is_fetched_from_its_first_event_in_pages(
    node, workflow_task, page
):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "twice", *SECOND, consumed=4, commands=2))
    fetch = node.next(links.Fetch)
    assert (fetch.workflow_id, fetch.after) == ("w", 0)
    node.say(page(fetch.n, started(), FIRST[0], complete=False))
    fetch = node.next(links.Fetch)
    assert fetch.after == 2
    node.say(page(fetch.n, FIRST[1], *SECOND, complete=False))
    command = node.command(CompleteWorkflowTask, Done())
    assert (command.consumed, command.steps) == (7, (CompleteWorkflow(values.encode(4)),))


def test_events_that_were_too_large_to_be_sent_are_fetched_behind_the_cursor(
    node, workflow_task, page
):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "twice", started()))
    node.command(CompleteWorkflowTask, Done())
    node.say(workflow_task("w", "twice", consumed=1, commands=1, last_event_id=4, fetch=True))
    fetch = node.next(links.Fetch)
    assert fetch.after == 1
    node.say(page(fetch.n, *FIRST, complete=True))
    assert activity_ids(node.command(CompleteWorkflowTask, Done())) == ["second"]


def test_a_page_that_does_not_come_is_asked_for_again(node, workflow_task, page):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "twice", *FIRST, consumed=1, commands=1))
    fetch = node.next(links.Fetch)
    assert node.next(links.Fetch) == fetch
    assert node.sync().workflows == (("w", 1, 1),)
    node.say(page(fetch.n, started(), *FIRST, complete=True))
    assert activity_ids(node.command(CompleteWorkflowTask, Done())) == ["second"]


def test_several_workflows_are_fetched_at_once_and_do_not_wait_for_each_other(
    node, workflow_task, page
):
    node.worker(workflows=ALL)
    node.say(*(workflow_task(w, "twice", *FIRST, consumed=1, commands=1) for w in "ab"))
    first, second = node.next(links.Fetch), node.next(links.Fetch)
    node.say(workflow_task("c", "twice", started()))
    assert node.command(CompleteWorkflowTask, Done()).workflow_id == "c"
    node.say(page(second.n, started(), *FIRST, complete=True))
    assert node.command(CompleteWorkflowTask, Done()).workflow_id == "b"
    node.say(page(first.n, started(), *FIRST, complete=True))
    assert node.command(CompleteWorkflowTask, Done()).workflow_id == "a"


def test_a_refused_result_evicts_the_workflow(node, workflow_task, page):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "twice", started()))
    node.command(CompleteWorkflowTask, Refusal("FAILED_PRECONDITION", "not the cursor"))
    node.say(workflow_task("w", "twice", *FIRST, consumed=1, commands=1))
    assert node.next(links.Fetch).after == 0


def test_a_result_that_history_had_before_evicts_the_workflow(node, workflow_task, page):
    """Another worker may have said it, with another value of a side effect."""
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "twice", started()))
    node.command(CompleteWorkflowTask, Done(REPEATED))
    node.say(workflow_task("w", "twice", *FIRST, consumed=1, commands=1))
    assert node.next(links.Fetch).after == 0


def test_a_task_that_comes_before_the_answer_to_the_last_one_is_run_from_the_first_event(
    node, workflow_task, page
):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "twice", started()))
    node.next(links.Ask)
    node.say(workflow_task("w", "twice", *FIRST, consumed=1, commands=1))
    assert node.next(links.Fetch).after == 0


def test_a_result_is_sent_again_until_it_is_answered(node, workflow_task):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "twice", started()))
    ask = node.next(links.Ask)
    node.say(links.Answer(ask.n, 0, Refusal("UNAVAILABLE", "history is away")))
    assert node.next(links.Ask) == ask
    node.say(links.Answer(ask.n, 3, Done()))
    node.sync(lambda sync: sync.workflows == ())


def test_a_task_that_is_known_done_or_old_is_not_run_again(node, workflow_task):
    node.worker(workflows=ALL)
    runs.clear()
    task = workflow_task("w", "twice", started())
    node.say(task, task)
    node.command(CompleteWorkflowTask, Done())
    node.say(task, workflow_task("v", "twice", started()))
    assert node.command(CompleteWorkflowTask, Done()).workflow_id == "v"
    assert len(node.commands(CompleteWorkflowTask)) == len(runs) == 2


def test_a_dropped_workflow_is_forgotten(node, workflow_task):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "twice", started()))
    node.next(links.Ask)
    node.sync(lambda sync: sync.workflows == (("w", 0, 0),))
    node.say(links.DropWorkflow("w"))
    node.sync(lambda sync: sync.workflows == ())


# --- what does not work out ---------------------------------------------------------
def test_an_unknown_type_is_reported(node, workflow_task):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "unheard", started()))
    assert node.command(FailWorkflowTask, Done()).reason == "unknown_type"


def test_a_replay_that_does_not_agree_with_history_is_reported_with_both_sides(node, workflow_task):
    node.worker(workflows=ALL)
    events = (started(), scheduled(2, "other"), completed(4, "other", 2))
    node.say(workflow_task("w", "twice", *events))
    command = node.command(FailWorkflowTask, Done())
    assert (command.reason, command.consumed_from, command.commands_from) == ("mismatch", 0, 0)
    assert "'other'" in command.failure.message
    assert "'first'" in command.failure.message
    assert "test_workflows.py:" in command.failure.message


def test_code_that_issues_fewer_commands_than_history_has_does_not_agree_with_it(
    node, workflow_task, page
):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "twice", *FIRST, consumed=1, commands=2))
    fetch = node.next(links.Fetch)
    node.say(page(fetch.n, started(), *FIRST, complete=True))
    assert node.command(FailWorkflowTask, Done()).reason == "mismatch"


def test_events_with_a_gap_are_an_error(node, workflow_task):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "twice", started(), completed(9, "first", 2)))
    assert node.command(FailWorkflowTask, Done()).reason == "error"


def test_a_result_over_the_limit_is_refused_in_the_worker(node, workflow_task):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "much", started(None)))
    command = node.command(FailWorkflowTask, Done())
    assert (command.reason, command.failure.type) == ("error", "PayloadTooLarge")
    assert str(limits.WORKFLOW_RESULT_BYTES_MAX) in command.failure.message


# Three came in together; history has them before what the first of them made the code ask for.
THREE = [completed(6 + 2 * i, f"{i}-first", 2 * i) for i in range(3)]
BEGUN = [started(3), *(scheduled(2 + i, f"{i}-first") for i in range(3))]


def test_what_comes_together_is_not_too_much_for_one_task_but_left_for_the_next(
    node, workflow_task, monkeypatch
):
    monkeypatch.setattr(stage, "ENOUGH_BYTES", 0)
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "pairs", started(3)))
    node.command(CompleteWorkflowTask, Done())
    node.say(workflow_task("w", "pairs", *BEGUN[1:], *THREE, consumed=1, commands=3))
    one = node.command(CompleteWorkflowTask, Done())
    assert (one.consumed, activity_ids(one)) == (6, ["0-second"])
    node.say(
        workflow_task("w", "pairs", *THREE[1:], scheduled(11, "0-second"), consumed=6, commands=4)
    )
    two = node.command(CompleteWorkflowTask, Done())
    assert (two.consumed, activity_ids(two)) == (8, ["1-second"])
    assert not any(isinstance(m, links.Fetch) for m in node.all)


def test_what_was_left_is_not_asked_for_again_by_a_worker_that_begins_anew(
    node, workflow_task, page, monkeypatch
):
    monkeypatch.setattr(stage, "ENOUGH_BYTES", 0)
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "pairs", consumed=6, commands=4, last_event_id=11, fetch=True))
    fetch = node.next(links.Fetch)
    node.say(page(fetch.n, *BEGUN, *THREE, scheduled(11, "0-second"), complete=True))
    command = node.command(CompleteWorkflowTask, Done())
    assert (command.consumed_from, command.commands_from, command.consumed) == (6, 4, 8)
    assert activity_ids(command) == ["1-second"]


def test_a_history_with_patches_is_replayed_whole_whatever_was_left(
    node, workflow_task, page, monkeypatch
):
    """The code may be without the patch by now, so that its commands alone can't be counted."""
    monkeypatch.setattr(stage, "ENOUGH_BYTES", 0)
    node.worker(workflows=ALL)
    node.say(
        workflow_task("w", "patched_pairs", consumed=7, commands=5, last_event_id=12, fetch=True)
    )
    fetch = node.next(links.Fetch)
    later = [msgspec.structs.replace(it, event_id=it.event_id + 1) for it in (*BEGUN[1:], *THREE)]
    patch = MarkerRecorded(2, 1_000, "patch", "faster", None)
    node.say(page(fetch.n, BEGUN[0], patch, *later, scheduled(12, "0-second"), complete=True))
    command = node.command(CompleteWorkflowTask, Done())
    assert (command.consumed, activity_ids(command)) == (12, ["1-second", "2-second"])


@pytest.mark.parametrize("kind", ["Unheard", "GeneratorExit"])
def test_what_is_no_exception_fails_the_workflow_task_and_not_the_worker(node, workflow_task, kind):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "raises", started(kind)), workflow_task("v", "twice", started()))
    command = node.command(FailWorkflowTask, Done())
    assert (command.workflow_id, command.reason) == ("w", "error")
    assert "no Exception" in command.failure.message
    assert node.command(CompleteWorkflowTask, Done()).workflow_id == "v"


@pytest.fixture
def short_patience(node, monkeypatch: pytest.MonkeyPatch):  # Behind what `node` sets.
    release.clear()
    monkeypatch.setattr(replays, "LOOK_MS", 20)
    monkeypatch.setattr(replays, "BLOCKED_MS", 300)
    monkeypatch.setattr(replays, "AGAIN_MS", 100)
    monkeypatch.setattr(replays, "GIVEN_UP_MS", 1_000)
    yield
    release.set()


@pytest.mark.parametrize("kind", ["spins", "spins_and_catches"])
@pytest.mark.usefixtures("short_patience")
def test_a_workflow_that_blocks_its_loop_is_ended_while_all_else_goes_on(
    node, task, workflow_task, kind, monkeypatch
):
    monkeypatch.setattr(replays, "BLOCKED_MS", 60_000)
    monkeypatch.setattr(replays, "GIVEN_UP_MS", 60_000)
    worker = node.worker(workflows=ALL, activities=[double])
    node.say(workflow_task("w", kind, started(None)), workflow_task("v", "twice", started()))
    node.sync(lambda sync: len(sync.workflows) == 2)
    node.say(task("t1", "double", 1))
    assert node.command(CompleteActivity, Done()).token == "t1"
    assert node.commands(FailWorkflowTask) == [], "it still blocks"
    worker.workflows.replays._interrupt_at_ms = 0  # From now on it has no time left.
    monkeypatch.setattr(replays, "GIVEN_UP_MS", 1_000)
    command = node.command(FailWorkflowTask, Done())
    assert (command.workflow_id, command.reason) == ("w", "blocked")
    assert kind in command.failure.stack
    assert re.search(r"for \d+ ms, at .*test_workflows\.py:\d+$", command.failure.message)
    assert node.command(CompleteWorkflowTask, Done()).workflow_id == "v"


# --- the end --------------------------------------------------------------------------
def test_at_an_orderly_end_what_did_not_run_is_handed_back(node, workflow_task):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "twice", *FIRST, consumed=1, commands=1))
    node.next(links.Fetch)
    thread = node.stop(5_000)
    command = node.command(FailWorkflowTask, Done())
    assert command == FailWorkflowTask("w", 1, 1, "handed_back")
    node.next(links.WorkerBye)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


@pytest.mark.usefixtures("short_patience")
def test_at_an_orderly_end_what_waits_for_its_turn_is_handed_back(node, workflow_task):
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "spins", started(None)), workflow_task("v", "twice", started()))
    node.sync(lambda sync: len(sync.workflows) == 2)
    thread = node.stop(10_000)
    assert node.command(FailWorkflowTask, Done()).reason == "blocked"
    command = node.command(FailWorkflowTask, Done())
    assert (command.workflow_id, command.reason) == ("v", "handed_back")
    node.next(links.WorkerBye)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


@pytest.mark.usefixtures("short_patience")
def test_at_the_end_of_the_grace_a_workflow_that_runs_is_handed_back(
    node, workflow_task, monkeypatch
):
    monkeypatch.setattr(replays, "BLOCKED_MS", 60_000)
    monkeypatch.setattr(replays, "GIVEN_UP_MS", 60_000)
    node.worker(workflows=ALL)
    node.say(workflow_task("w", "spins_and_catches", started(None)))
    node.sync(lambda sync: sync.workflows != ())
    thread = node.stop(50)
    assert node.command(FailWorkflowTask, Done()).reason == "handed_back"
    node.next(links.WorkerBye)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
