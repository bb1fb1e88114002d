"""What people and programs do to a workflow that runs, through a client of an engine in memory."""

from __future__ import annotations

import asyncio

import pytest

from perdure import activity, errors, workflow
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from perdure.testing import LocalEngine, ManualClock


@activity.define
def charge(cents: int) -> str:
    return f"receipt-{cents}"


@activity.define(retry=RetryPolicy(max_attempts=1))
def strict(word: str) -> str:
    if word != "right":
        raise ValueError(f"no {word}")
    return word


@workflow.define
async def order(start: int = 0):
    state = {"count": start, "notes": []}

    @workflow.signal
    def add(n: int = 1) -> None:
        state["count"] += n

    @workflow.query
    def count(factor: int = 1) -> int:
        return state["count"] * factor

    @workflow.query
    def breaks() -> None:
        raise ValueError("no answer")

    @workflow.query
    def schedules() -> None:
        workflow.start_activity(charge, 1)

    @workflow.update
    async def pay(cents: int) -> str:
        receipt = await workflow.execute_activity(charge, cents)
        state["notes"].append(receipt)
        return receipt

    @pay.validator
    def check(cents: int) -> None:
        if cents < 0:
            raise ValueError("cents must not be negative")

    @workflow.update
    def set_to(n: int) -> int:
        before, state["count"] = state["count"], n
        return before

    await workflow.wait_condition(lambda: state["count"] >= 10)
    return state["count"]


@workflow.define
async def counter(n: int, until: int):
    @workflow.query
    def at() -> int:
        return n

    if n < until:
        workflow.continue_as_new(n + 1, until)
    return n


@workflow.define
async def forever():
    await asyncio.sleep(10**6)


@workflow.define
async def picky():
    return await workflow.execute_activity(strict, "wrong", activity_id="a")


@pytest.fixture
def engine():
    return LocalEngine([order, counter, forever, picky], [charge, strict], clock=ManualClock(0))


@pytest.fixture
def client(engine):
    return engine.client


# --- signals and queries -------------------------------------------------------
def test_a_signal_reaches_the_code_and_a_query_sees_what_it_did(engine, client):
    handle = client.start_workflow(order, workflow_id="o")
    engine.run_workflow_tasks()
    handle.signal("add", 3)
    handle.signal("add", n=4)
    assert handle.query("count") == 7
    assert client.query_workflow("o", "count", 10) == 70
    engine.run_workflow_tasks()
    assert handle.query("count", factor=2) == 14
    handle.signal("add", 5)
    engine.run_workflow_tasks()
    assert handle.result() == 12
    assert handle.query("count") == 12


def test_a_signal_sent_twice_with_one_request_id_counts_once(engine, client):
    client.start_workflow(order, workflow_id="o")
    for _ in range(3):
        client.signal_workflow("o", "add", 2, request_id="r")
    assert client.query_workflow("o", "count") == 2
    with pytest.raises(errors.FailedPrecondition, match="r"):
        client.signal_workflow("o", "add", 3, request_id="r")


def test_a_closed_workflow_takes_no_signal_and_one_that_is_not_there_is_not_found(engine, client):
    client.start_workflow(order, 10, workflow_id="o")
    engine.run_until_idle()
    with pytest.raises(errors.FailedPrecondition):
        client.signal_workflow("o", "add")
    with pytest.raises(errors.NotFound, match="nobody"):
        client.signal_workflow("nobody", "add")


def test_signals_that_the_code_has_not_seen_are_shown(engine, client):
    client.start_workflow(order, workflow_id="o")
    engine.run_workflow_tasks()
    client.signal_workflow("o", "add", 1)
    client.signal_workflow("o", "other", {"x": 1})
    found = client.describe_workflow("o")
    assert [(it.name, it.input) for it in found.signals] == [("add", [1]), ("other", [{"x": 1}])]
    engine.run_workflow_tasks()
    assert client.describe_workflow("o").signals == []


def test_signals_that_nothing_takes_and_that_do_not_fit_are_named(engine, client):
    client.start_workflow("order", workflow_id="w")
    engine.run_workflow_tasks()
    assert client.describe_workflow("w").takes_signals == ["add"]
    client.signal_workflow("w", "ad", 1)
    client.signal_workflow("w", "add", "one")
    engine.run_workflow_tasks()
    for count in (1, 2):
        found = client.describe_workflow("w").to_dict()
        assert found["untaken_signals"] == [{"name": "ad", "count": count}]
        (dropped,) = found["dropped_signals"]
        assert (dropped["name"], dropped["at_ms"]) == ("add", engine.clock.now_ms)
        assert "int" in dropped["reason"]
        assert engine.explain("w").details["untaken_signals"] == ["ad"]
        # What is known of it survives the node, and a replay drops nothing twice.
        engine.restart()
        client.signal_workflow("w", "ad", 2)
        engine.run_workflow_tasks()


def test_a_signal_that_came_too_late_for_the_code_is_shown_after_the_end(engine, client):
    client.start_workflow("forever", workflow_id="w")
    engine.run_workflow_tasks()
    client.signal_workflow("w", "late", 7)
    client.terminate_workflow("w", "enough")
    (late,) = client.describe_workflow("w").signals
    assert (late.name, late.input) == ("late", [7])


def test_queries_change_nothing_and_say_why_they_fail(engine, client):
    handle = client.start_workflow(order, workflow_id="o")
    engine.run_workflow_tasks()
    before = len(handle.history())
    with pytest.raises(errors.NotFound, match="count"):
        handle.query("nothing")
    with pytest.raises(errors.FailedPrecondition, match="no answer"):
        handle.query("breaks")
    with pytest.raises(errors.FailedPrecondition, match="schedule"):
        handle.query("schedules")
    with pytest.raises(errors.InvalidArgument, match="factor"):
        handle.query("count", "many")
    assert len(handle.history()) == before
    assert handle.query("count") == 0


def test_a_query_of_a_workflow_that_nobody_has_says_whom_it_waits_for(client):
    client.start_workflow("Absent", workflow_id="a")
    with pytest.raises(errors.FailedPrecondition, match="Absent"):
        client.query_workflow("a", "count")


# --- updates --------------------------------------------------------------------
def test_an_update_answers_what_its_handler_returns(engine, client):
    handle = client.start_workflow(order, workflow_id="o")
    assert handle.update("set_to", 5) == 0
    assert handle.update("set_to", n=6) == 5
    assert handle.query("count") == 6


def test_an_update_whose_validator_says_no_changes_nothing(engine, client):
    handle = client.start_workflow(order, workflow_id="o")
    with pytest.raises(errors.UpdateRejected, match="negative") as caught:
        handle.update("pay", -1)
    assert caught.value.failure.type == "ValueError"
    with pytest.raises(errors.UpdateRejected, match="nothing"):
        handle.update("nothing")


def test_an_update_that_needs_an_activity_has_its_answer_when_it_is_asked_for_once(client):
    client.start_workflow(order, workflow_id="o")
    assert client.update_workflow("o", "pay", 7, request_id="u1") == "receipt-7"
    assert client.update_workflow("o", "pay", 7, request_id="u1") == "receipt-7"
    assert client.describe_workflow("o").updates == []
    kinds = [event.kind for event in client.history("o")]
    assert kinds.count("UpdateReceived") == kinds.count("UpdateEnded") == 1


@pytest.fixture
def by_hand() -> LocalEngine:
    """No activity is registered: whoever tests polls."""
    return LocalEngine([order, forever], clock=ManualClock(1_000))


def test_an_update_that_takes_time_is_asked_for_again_by_its_request_id(by_hand):
    client = by_hand.client
    client.start_workflow(order, workflow_id="o")
    with pytest.raises(errors.DeadlineExceeded, match="request_id 'u1'"):
        client.update_workflow("o", "pay", 7, request_id="u1")
    assert [it.update_id for it in client.describe_workflow("o").updates] == ["u1"]
    by_hand.complete_activity_task(by_hand.poll_activity_task().token, "by hand")
    assert client.update_workflow("o", "pay", 7, request_id="u1") == "by hand"
    assert client.describe_workflow("o").updates == []


def test_an_update_that_the_workflows_end_overtakes_fails(by_hand):
    client = by_hand.client
    client.start_workflow(order, workflow_id="o")
    with pytest.raises(errors.DeadlineExceeded):
        client.update_workflow("o", "pay", 7, request_id="u1")
    client.terminate_workflow("o", "enough")
    with pytest.raises(errors.UpdateFailed, match="ended before") as caught:
        client.update_workflow("o", "pay", 7, request_id="u1")
    assert not isinstance(caught.value, errors.UpdateRejected)


# --- ends ------------------------------------------------------------------------
def test_a_cancelled_workflow_says_so_with_its_reason(engine, client):
    handle = client.start_workflow(forever, workflow_id="f")
    engine.run_workflow_tasks()
    handle.cancel("out of stock")
    assert handle.describe().cancel_requested is True
    assert handle.describe().cancel_reason == "out of stock"
    engine.run_workflow_tasks()
    with pytest.raises(errors.WorkflowFailed, match="out of stock") as caught:
        handle.result()
    assert (caught.value.status, caught.value.failure.type) == ("Cancelled", "Cancelled")
    assert handle.describe().failure.message == "out of stock"
    with pytest.raises(errors.FailedPrecondition):
        handle.cancel()


def test_a_terminated_workflow_ends_at_once(engine, client):
    handle = client.start_workflow(forever, workflow_id="f")
    handle.terminate("enough")
    assert handle.describe().status == "Terminated"
    with pytest.raises(errors.WorkflowFailed, match="enough") as caught:
        handle.result()
    assert (caught.value.status, caught.value.failure.type) == ("Terminated", "Terminated")


# --- runs -------------------------------------------------------------------------
def test_an_id_speaks_of_its_newest_run_and_a_run_can_be_named(engine, client):
    client.start_workflow(counter, 1, 3, workflow_id="c")
    engine.run_until_idle()
    assert client.result("c") == 3
    assert client.describe_workflow("c").run == 3
    first = client.describe_workflow("c", run=1)
    assert (first.workflow_id, first.run, first.status) == ("c", 1, "ContinuedAsNew")
    assert first.input == [1, 3]
    assert client.history("c", run=1)[-1].kind == "WorkflowContinuedAsNew"
    assert client.history("c")[-1].kind == "WorkflowCompleted"
    assert [client.query_workflow("c", "at", run=run) for run in (1, 2, 3)] == [1, 2, 3]
    with pytest.raises(errors.WorkflowFailed, match="ContinuedAsNew"):
        client.result("c", run=2)
    with pytest.raises(errors.NotFound, match="no run 9"):
        client.describe_workflow("c", run=9)
    assert sorted(it.run for it in client.list_workflows(type="counter")) == [1, 2, 3]
    assert {it.workflow_id for it in client.list_workflows(type="counter")} == {"c"}


# --- starts ------------------------------------------------------------------------
def test_a_start_may_wait_time_out_and_be_found_by_what_it_says(engine, client):
    client.start_workflow(
        forever,
        workflow_id="f",
        start_delay_ms=1_000,
        timeout_ms=5_000,
        search_attributes={"customer": "c-7", "vip": True},
    )
    found = client.describe_workflow("f")
    assert dict(found.search_attributes) == {"customer": "c-7", "vip": True}
    assert found.timeout_at_ms == 6_000
    assert [it.workflow_id for it in client.list_workflows(attributes={"customer": "c-7"})] == ["f"]
    assert client.list_workflows(attributes={"customer": "c-8"}) == []
    engine.run_workflow_tasks()
    assert len(client.history("f")) == 1
    engine.clock.advance_ms(6_000)
    with pytest.raises(errors.WorkflowFailed) as caught:
        client.result("f")
    assert caught.value.failure.type == "WorkflowTimeout"


def test_the_same_start_with_other_options_is_another_request(client):
    client.start_workflow(forever, workflow_id="f", request_id="r", start_delay_ms=5)
    client.start_workflow(forever, workflow_id="f", request_id="r", start_delay_ms=5)
    with pytest.raises(errors.FailedPrecondition, match="other arguments"):
        client.start_workflow(forever, workflow_id="f", request_id="r", start_delay_ms=6)


@pytest.mark.parametrize("options", [{"start_delay_ms": -1}, {"timeout_ms": True}])
def test_options_that_are_no_lengths_are_refused_by_name(client, options):
    with pytest.raises(errors.InvalidArgument) as caught:
        client.start_workflow(forever, workflow_id="f", **options)
    assert caught.value.field in options


# --- lists ---------------------------------------------------------------------------
def test_workflows_are_found_by_age_and_attempts(by_hand):
    engine, client = by_hand, by_hand.client
    client.start_workflow(forever, workflow_id="old")
    engine.clock.advance_ms(1_000)
    client.start_workflow(forever, workflow_id="new")
    assert [it.workflow_id for it in client.list_workflows(younger_than_ms=500)] == ["new"]
    assert [it.workflow_id for it in client.list_workflows(older_than_ms=500)] == ["old"]
    client.start_workflow(order, workflow_id="o")
    with pytest.raises(errors.DeadlineExceeded):
        client.update_workflow("o", "pay", 7, request_id="u")
    assert client.list_workflows(attempts=2) == []
    engine.fail_activity_task(engine.poll_activity_task().token, Failure("Boom"))
    assert [it.workflow_id for it in client.list_workflows(attempts=2)] == ["o"]


# --- a redrive with a new input ---------------------------------------------------------
@pytest.mark.parametrize("word", ["right", "right" * 1_000])
def test_a_dead_letter_can_be_redriven_with_another_input(engine, client, word):
    client.start_workflow(picky, workflow_id="p")
    engine.run_until_idle()
    assert client.list_dead_letters(workflow_id="p", activity_id="a")[0].input == ["wrong"]
    client.redrive_dead_letter("p", "a", input=[word], by="ann")
    [event] = [it for it in client.history("p") if it.kind == "ActivityRedriven"]
    assert (event.input, event.has_input, event.by) == ([word], True, "ann")
    engine.restart()
    assert engine.poll_activity_task().input == [word]


def test_the_new_input_is_what_the_activity_runs_with_and_stays(engine, client):
    client.start_workflow(picky, workflow_id="p")
    engine.run_until_idle()
    client.redrive_dead_letter("p", "a", input=["still wrong"], request_id="r")
    engine.run_until_idle()
    client.redrive_dead_letter("p", "a")
    assert engine.poll_activity_task().input == ["still wrong"]
    with pytest.raises(errors.FailedPrecondition, match="other arguments"):
        client.redrive_dead_letter("p", "a", input=["right"], request_id="r")


def test_a_redrive_without_an_input_keeps_the_one_it_has(engine, client):
    client.start_workflow(picky, workflow_id="p")
    engine.run_until_idle()
    client.redrive_dead_letter("p", "a")
    assert engine.poll_activity_task().input == ["wrong"]


# --- everything can be shown --------------------------------------------------------------
@workflow.define
async def everything() -> None:
    workflow.set_search_attributes({"a": 1, "b": None})
    workflow.patched("p")
    workflow.side_effect(lambda: 7)
    child = await workflow.start_child(forever, workflow_id="kid", parent_close="cancel")
    await child.signal("hello", 1)
    handle = workflow.start_activity(charge, 1, activity_id="gone")
    handle.cancel()
    await workflow.sleep_ms(1)
    await child


def test_every_kind_of_event_and_what_is_open_can_be_written_as_json(engine):
    import msgspec

    engine = LocalEngine([everything, forever], [charge], clock=ManualClock(0))
    engine.client.start_workflow(everything, workflow_id="e", search_attributes={"x": True})
    engine.run_until_idle(skip_time=False)
    engine.clock.advance_ms(1)
    engine.run_workflow_tasks()
    found = engine.client.describe_workflow("e")
    assert [(it.workflow_id, it.parent_close) for it in found.children] == [("kid", "cancel")]
    assert engine.client.describe_workflow("kid").parent.workflow_id == "e"
    assert [it.workflow_id for it in engine.client.list_workflows(parent="e")] == ["kid"]
    engine.client.terminate_workflow("kid")
    engine.run_workflow_tasks()
    history = [event.to_dict() for event in engine.client.history("e")]
    kinds = {event["kind"] for event in history}
    assert kinds >= {
        "ChildWorkflowStarted",
        "ChildWorkflowFailed",
        "MarkerRecorded",
        "SearchAttributesSet",
        "SignalSent",
        "WorkflowFailed",
    }
    events = [event.to_dict() for event in engine.client.events()]
    for shown in (found.to_dict(), history, events):
        assert msgspec.json.decode(msgspec.json.encode(shown)) == shown
