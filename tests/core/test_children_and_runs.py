"""Children and their parents, and workflows that continue as new: in the commit of the cause."""

from __future__ import annotations

import msgspec
import pytest

from perdure.core import commands as c
from perdure.core import records as r
from perdure.core.bounds import Bounds
from perdure.core.ids import execution_id, idempotency_key
from perdure.core.records import decode_body
from perdure.core.start import Parent, StartTerms
from perdure.core.state import Status
from tests.core.ledger_rig import BOOM, Rig

SECOND = execution_id("w", 2)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.ask(rig.start())
    return rig


def child(child_id: str = "w/@1", close: str = "terminate", terms=None) -> c.StartChild:
    return c.StartChild(child_id, "C", "q", b"m\x01", close, terms)


def with_child(rig: Rig, close: str = "terminate") -> None:
    assert rig.ask(rig.step(child(close=close))) == c.Done()


def told(rig: Rig) -> dict[str, list[str]]:
    """Of the newest commit: what it states of whom."""
    change = rig.batches[-1].change
    groups = () if change is None else decode_body(change.body).groups
    return {one.workflow_id: [type(each).__name__ for each in one.records] for one in groups}


# --- children -----------------------------------------------------------------
def test_a_child_begins_in_the_commit_of_the_step_that_starts_it(rig: Rig) -> None:
    terms = StartTerms(delay_ms=500, timeout_ms=5_000, attributes=(("city", "Ulm"),))
    rig.ask(rig.step(child(terms=terms)))
    assert told(rig) == {
        "w": ["WorkflowTaskCompleted", "ChildWorkflowStarted"],
        "w/@1": ["WorkflowStarted"],
    }
    started = rig.execution("w/@1")
    assert (started.workflow_type, started.task_queue) == ("C", "q")
    assert started.task_due_ms == 500
    more = started.more
    assert more.parent == Parent("w", "w/@1", "terminate")
    assert (more.timeout_at_ms, more.attributes) == (5_500, {"city": "Ulm"})


@pytest.mark.parametrize(
    ("ending", "kind", "status"),
    [
        (c.CompleteWorkflow(b"m\x05"), r.ChildWorkflowCompleted, ""),
        (c.FailWorkflow(BOOM), r.ChildWorkflowFailed, "Failed"),
        (c.CancelWorkflowStep("so"), r.ChildWorkflowFailed, "Cancelled"),
    ],
)
@pytest.mark.parametrize("reopened", [False, True])
def test_the_end_of_a_child_is_told_to_its_parent_and_wakes_it(
    rig, ending, kind, status, reopened
) -> None:
    with_child(rig)
    if reopened:
        rig.open()
    rig.ask(rig.step(ending, workflow_id="w/@1"))
    (event,) = [one for one in rig.records() if type(one) is kind]
    assert getattr(event, "status", "") == status
    parent = rig.execution()
    assert parent.task_ready
    assert parent.more.children == {}


def test_a_child_that_is_terminated_is_told_too(rig: Rig) -> None:
    with_child(rig)
    rig.ask(c.TerminateWorkflow("w/@1", "over"))
    (event,) = [one for one in rig.records() if type(one) is r.ChildWorkflowFailed]
    assert (event.status, event.failure.type, event.failure.message) == (
        "Terminated",
        "Terminated",
        "over",
    )


def test_a_child_whose_id_is_taken_fails_and_the_other_is_left_alone(rig: Rig) -> None:
    rig.ask(rig.start("taken"))
    rig.ask(rig.step(child("taken")))
    assert told(rig) == {
        "w": ["WorkflowTaskCompleted", "ChildWorkflowStarted", "ChildWorkflowFailed"]
    }
    failure = rig.records()[-1].failure
    assert failure.type == "ChildIdTaken"
    assert "'taken' is taken" in failure.message
    assert rig.execution().more.children == {}
    rig.ask(c.TerminateWorkflow("w", "over"))
    assert rig.execution("taken").is_open


@pytest.mark.parametrize("close", ["terminate", "cancel"])
def test_who_ends_in_the_step_that_starts_a_child_ends_nobody_elses_workflow(rig, close) -> None:
    rig.ask(rig.start("taken"))
    rig.ask(rig.step(child("taken", close), c.CompleteWorkflow(None)))
    assert list(told(rig)) == ["w"]


def test_who_cancels_a_child_in_the_step_that_starts_it_cancels_nobody_elses(rig: Rig) -> None:
    rig.ask(rig.start("taken"))
    rig.ask(rig.step(child("taken"), c.CancelChild("taken")))
    assert list(told(rig)) == ["w"]


@pytest.mark.parametrize(
    ("close", "expected"),
    [
        ("terminate", ["WorkflowTerminated"]),
        ("cancel", ["WorkflowCancelRequested"]),
        ("abandon", None),
    ],
)
@pytest.mark.parametrize("how", ["terminated", "completed", "out of time"])
def test_what_the_end_of_a_parent_means_to_its_child(close, expected, how) -> None:
    rig = Rig()
    terms = StartTerms(timeout_ms=100)
    rig.ask(c.StartWorkflow("w", "T", "default", None, None, b"", terms))
    with_child(rig, close)
    rig.now_ms = 100
    rig.ask(
        {
            "terminated": c.TerminateWorkflow("w", "over"),
            "completed": rig.step(c.CompleteWorkflow(None)),
            "out of time": c.TimeOutWorkflow("w"),
        }[how]
    )
    assert told(rig).get("w/@1") == expected
    assert not rig.execution().is_open


def test_a_child_that_is_started_and_left_in_one_step_ends_in_the_same_commit(rig: Rig) -> None:
    rig.ask(rig.step(child(), c.CompleteWorkflow(None)))
    assert told(rig)["w/@1"] == ["WorkflowStarted", "WorkflowTerminated"]
    rig.open()
    assert rig.execution("w/@1").status is Status.TERMINATED


def test_the_end_of_a_tree_ends_all_of_it_in_one_commit(rig: Rig) -> None:
    name = "w"
    for _ in range(50):  # Deeper than a parent would go, not deeper than the stack.
        rig.ask(rig.step(child(f"{name[:1]}{len(rig.batches)}"), workflow_id=name))
        name = f"{name[:1]}{len(rig.batches) - 1}"
    assert len(rig.store.executions) == 51
    rig.ask(c.TerminateWorkflow("w", "over"))
    assert rig.store.reader().open_state()[1] == []


def test_a_parent_that_has_ended_is_not_told(rig: Rig) -> None:
    with_child(rig, "abandon")
    rig.ask(rig.step(c.CompleteWorkflow(None)))
    rig.ask(rig.step(c.CompleteWorkflow(None), workflow_id="w/@1"))
    assert told(rig) == {"w/@1": ["WorkflowTaskCompleted", "WorkflowCompleted"]}


def test_a_parent_asks_its_child_to_end(rig: Rig) -> None:
    with_child(rig)
    rig.ask(rig.step(c.CancelChild("w/@1")))
    assert told(rig)["w/@1"] == ["WorkflowCancelRequested"]
    rig.ask(rig.step(c.CancelWorkflowStep(""), workflow_id="w/@1"))
    rig.ask(rig.step(c.CancelChild("w/@1")))
    assert rig.records()[-1].noop is True


def test_a_child_that_can_not_be_is_no_step(rig: Rig) -> None:
    with_child(rig)
    for wrong in (child(), child("x", "forget"), child(""), child("x" * 201)):
        assert rig.ask(rig.step(wrong)).code == "INVALID_ARGUMENT"


def test_too_many_children_park_the_workflow_by_the_name_of_the_bound() -> None:
    rig = Rig(bounds=Bounds(pending_children=1))
    rig.ask(rig.start())
    answer = rig.ask(rig.step(child("a"), child("b")))
    assert answer.code == "INVALID_ARGUMENT"
    assert "limits.pending_children" in answer.message
    assert rig.execution().is_open
    assert rig.execution().task_failures == 1
    assert rig.ledger.execution("a") is None


def test_a_full_node_starts_the_children_of_what_it_has_taken_on() -> None:
    rig = Rig(ready_max=0)
    rig.ask(rig.start())
    step = rig.step(child())
    rig.ask(c.SignalWorkflow("w", "s", None))  # So that it stays ready.
    rig.ask(rig.start("refused"))
    rig.ask(step)
    assert rig.ledger.execution("refused") is None
    assert rig.execution("w/@1").is_open


# --- runs ---------------------------------------------------------------------
def again(signals=()) -> c.ContinueAsNew:
    return c.ContinueAsNew("T2", "q2", b"m\x02", tuple(signals))


def test_the_next_run_begins_in_the_commit_that_ends_this_one(rig: Rig) -> None:
    rig.ask(rig.step(again([("s", b"m\x09")])))
    assert told(rig) == {
        "w": ["WorkflowTaskCompleted", "WorkflowContinuedAsNew"],
        SECOND: ["WorkflowStarted"],
    }
    assert rig.execution().status is Status.CONTINUED_AS_NEW
    second = rig.execution(SECOND)
    assert (second.workflow_type, second.task_queue) == ("T2", "q2")
    started = rig.records()[-1]
    assert (started.input, started.terms.signals) == (b"m\x02", (("s", b"m\x09"),))


def test_parent_time_and_attributes_move_along() -> None:
    rig = Rig()
    rig.now_ms = 10
    terms = StartTerms(timeout_ms=1_000, parent=Parent("p", "w"), attributes=(("a", 1),))
    rig.ask(c.StartWorkflow("w", "T", "default", None, None, b"", terms))
    rig.now_ms = 500
    rig.ask(rig.step(c.SetSearchAttributes((("b", 2), ("a", None))), again()))
    rig.now_ms = 600
    rig.ask(rig.step(again(), workflow_id=SECOND))
    more = rig.execution(execution_id("w", 3)).more
    assert (more.parent, more.timeout_at_ms) == (Parent("p", "w"), 1_010)
    assert (more.attributes, more.first_started_ms) == ({"b": 2}, 10)


@pytest.mark.parametrize("reopened", [False, True])
def test_who_knows_the_id_means_the_newest_run(rig: Rig, reopened: bool) -> None:
    for run in range(1, 12):
        rig.ask(rig.step(again(), workflow_id=execution_id("w", run)))
    if reopened:
        rig.open()
    newest = execution_id("w", 12)
    assert rig.writer.newest_run("w") == rig.store.reader().newest_run("w") == 12
    assert rig.ask(c.SignalWorkflow("w", "s", None)) == c.Done()
    assert told(rig) == {newest: ["SignalReceived"]}
    assert rig.ask(c.TerminateWorkflow("w", "over")) == c.Done()
    assert rig.execution(newest).status is Status.TERMINATED


def test_in_one_batch_a_signal_reaches_the_run_that_has_just_begun(rig: Rig) -> None:
    rig.ask(rig.step(again()), c.SignalWorkflow("w", "s", None))
    assert told(rig)[SECOND] == ["WorkflowStarted", "SignalReceived"]


def test_a_request_that_is_repeated_to_a_later_run_is_the_same_request(rig: Rig) -> None:
    request = c.SignalWorkflow("w", "s", None, "r1")
    rig.ask(request)
    rig.ask(rig.step(again()))
    assert rig.ask(request) == c.Done()
    assert rig.execution(SECOND).last_event_id == 1


def test_a_run_that_is_continued_tells_its_parent_nothing_until_the_last_ends(rig: Rig) -> None:
    with_child(rig)
    rig.ask(rig.step(again(), workflow_id="w/@1"))
    assert rig.execution().more.children == {"w/@1": "terminate"}
    last = execution_id("w/@1", 2)
    rig.ask(rig.step(c.CompleteWorkflow(b"m\x05"), workflow_id=last))
    assert told(rig)["w"] == ["ChildWorkflowCompleted"]


def test_the_end_of_a_parent_reaches_the_newest_run_of_its_child(rig: Rig) -> None:
    with_child(rig)
    rig.ask(rig.step(again(), workflow_id="w/@1"))
    rig.ask(c.TerminateWorkflow("w", "over"))
    assert rig.execution(execution_id("w/@1", 2)).status is Status.TERMINATED


@pytest.mark.parametrize("reopened", [False, True])
def test_open_children_of_a_run_that_is_continued_are_the_next_runs(rig: Rig, reopened) -> None:
    with_child(rig)
    rig.ask(rig.step(child("w/@2", "abandon"), again()))
    assert rig.execution(SECOND).more.children == {"w/@1": "terminate", "w/@2": "abandon"}
    if reopened:
        rig.open()
    rig.ask(rig.step(c.CompleteWorkflow(b"m\x05"), workflow_id="w/@1"))
    assert told(rig)[SECOND] == ["ChildWorkflowCompleted"]
    assert rig.execution(SECOND).more.children == {"w/@2": "abandon"}


@pytest.mark.parametrize(
    ("close", "expected"),
    [("terminate", "Terminated"), ("cancel", "Running"), ("abandon", "Running")],
)
def test_the_end_of_the_last_run_means_to_a_child_what_that_of_its_own_would(close, expected):
    rig = Rig()
    rig.ask(rig.start())
    with_child(rig, close)
    rig.ask(rig.step(again()))
    rig.ask(rig.step(again(), workflow_id=SECOND))
    kid = rig.execution("w/@1")
    assert kid.is_open
    assert not (kid.more.cancel_requested)
    rig.ask(rig.step(c.CompleteWorkflow(None), workflow_id=execution_id("w", 3)))
    kid = rig.execution("w/@1")
    assert (kid.status.value, kid.more.cancel_requested) == (expected, close == "cancel")


def test_a_later_run_asks_a_child_of_the_first_to_end(rig: Rig) -> None:
    with_child(rig)
    rig.ask(rig.step(again()))
    rig.ask(rig.step(c.CancelChild("w/@1"), workflow_id=SECOND))
    assert rig.execution("w/@1").more.cancel_requested


@pytest.mark.parametrize("how", ["not read", "read behind the end"])
def test_the_end_of_a_child_that_the_code_has_not_heard_of_is_told_to_the_next_run(
    rig: Rig, how
) -> None:
    with_child(rig, "abandon")
    ending = again() if how == "not read" else msgspec.structs.replace(again(), unheard=("w/@1",))
    too_soon = rig.step(ending)
    rig.ask(rig.step(c.FailWorkflow(BOOM), workflow_id="w/@1"))
    rig.ask(too_soon if how == "not read" else rig.step(ending))
    assert told(rig)[SECOND] == ["WorkflowStarted", "ChildWorkflowFailed"]
    assert rig.execution(SECOND).more.children == {}
    assert rig.execution(SECOND).task_ready


def test_the_keys_of_a_later_run_are_its_own(rig: Rig) -> None:
    assert idempotency_key("w", "a") == "w/a"
    assert idempotency_key(SECOND, "a") == "w#2/a"


def test_the_id_stays_taken_while_its_runs_go_on(rig: Rig) -> None:
    rig.ask(rig.step(again()))
    assert rig.ask(rig.start()).code == "ALREADY_EXISTS"
