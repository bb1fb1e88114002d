"""What the auditor says where history decides wrongly about runs, children, what is given up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from chaos.auditor import Auditor, History, Operation, Violation
from chaos.auditor.memory import ReaderTables
from perdure.core import commands as c
from perdure.core import decide_interactions, decide_steps
from perdure.core.facts import Decision
from perdure.core.records import (
    ActivityCancelRequested,
    ChildWorkflowCompleted,
    LeaseDetached,
    SignalReceived,
    UpdateEnded,
    WorkflowContinuedAsNew,
    WorkflowFailed,
)
from perdure.core.schedule_state import schedule_group
from perdure.core.start import Parent, StartTerms
from perdure.failures import Failure
from tests.core.ledger_rig import Rig

AGAIN = c.ContinueAsNew("T", "default", None)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.ask(rig.start())
    return rig


def violations(rig: Rig) -> list[tuple[int, str]]:
    reader = rig.store.reader()
    auditor = Auditor()
    for row in reader.commits(0, 1_000):
        auditor.feed(row)
    found: tuple[Violation, ...] = auditor.finish(ReaderTables(reader)).violations
    return [(one.invariant, one.what) for one in found]


def state(rig: Rig, monkeypatch: pytest.MonkeyPatch, *records: Any) -> None:
    """Have the ledger commit these, whatever the rules say."""
    decision = Decision(records, c.Done())
    monkeypatch.setattr("perdure.core.ledger.decide", lambda *_: decision)
    rig.ask(c.SignalWorkflow("w", "s", None))
    monkeypatch.undo()


def test_a_child_that_outlives_the_end_that_should_take_it_along(rig, monkeypatch) -> None:
    rig.ask(rig.step(c.StartChild("child", "C", "q", None, "terminate")))
    monkeypatch.setattr(decide_interactions, "ended", lambda *_: ())
    rig.ask(c.TerminateWorkflow("w", "over"))
    assert violations(rig) == [(34, "it is open, and its parent w has ended")]


def test_a_run_that_was_continued_and_has_no_next(rig, monkeypatch) -> None:
    lost = (c.TimeOutWorkflow("w"), 2)
    monkeypatch.setattr(decide_steps, "next_run", lambda *_: lost)
    rig.ask(rig.step(AGAIN))
    assert violations(rig) == [(34, "run 2 is missing")]


def test_a_run_that_nothing_was_continued_as(rig) -> None:
    rig.ask(rig.start("w\x1f2"))
    assert violations(rig) == [(34, "run 1 has not continued")]


@pytest.mark.parametrize(
    ("record", "invariant", "text"),
    [
        (WorkflowContinuedAsNew(2, 0, 5, "T", "q", None), 34, "goes on as run 5, 2 is next"),
        (UpdateEnded(2, 0, "u1", None, None, False), 32, "update u1 is answered, and is not open"),
        (ChildWorkflowCompleted(2, 0, "x", None), 29, "child x ends, and is not open"),
        (LeaseDetached(0, "a", 1, 1), 36, "LeaseDetached of an activity that was never scheduled"),
        (ActivityCancelRequested(2, 0, "a", "wait", False), 33, "given up though it is not open"),
        (
            WorkflowFailed(2, 0, Failure("WorkflowTimeout")),
            27,
            "its time is said to be over, and is not",
        ),
    ],
    ids=lambda one: type(one).__name__ if hasattr(one, "at_ms") else "",
)
def test_what_the_contract_does_not_allow(rig, monkeypatch, record, invariant, text) -> None:
    state(rig, monkeypatch, record)
    assert (invariant, text) in violations(rig)


def test_one_request_that_made_two_signals(rig, monkeypatch) -> None:
    twice = [SignalReceived(event_id, 0, "s", None, "r1") for event_id in (2, 3)]
    state(rig, monkeypatch, *twice)
    assert violations(rig)[0] == (32, "request r1 made a second record")


# --- attempts that are left open ----------------------------------------------
LEFT = "belongs to whoever has its token"


@pytest.fixture
def left(rig) -> Rig:
    """An attempt that was left open. History ends it where it is told that it was polled for."""
    rig.schedule("a")
    rig.ask(c.DetachLease(rig.token(rig.grant("a"))))
    return rig


@pytest.mark.parametrize("reason", ["worker_died", "node_restart", "undelivered"])
def test_an_attempt_that_is_left_open_and_ends_with_its_workers_session(left, reason) -> None:
    assert isinstance(left.end(reason, is_polled=True), c.Done)
    word = "WorkerDied" if reason == "worker_died" else reason
    assert violations(left) == [(21, f"it ended with a worker's session ({word}), and {LEFT}")]


def test_an_attempt_that_was_polled_for_and_ends_as_if_a_worker_had_died(rig) -> None:
    rig.schedule("a")
    rig.grant("a", None)
    assert isinstance(rig.end("worker_died", is_polled=True), c.Done)
    assert violations(rig) == [
        (21, "it ended with a worker's session (WorkerDied), and belongs to a client")
    ]


def test_ends_that_the_contract_allows_what_is_left_open_or_was_polled_for(left) -> None:
    left.ask(c.FailActivity(left.token(), Failure("WorkerDied", "said by its code")))
    left.now_ms = left.activity("a").due_ms
    left.grant("a", None)
    left.end("undelivered", is_polled=True)
    left.grant("a")
    left.end("worker_died")
    assert violations(left) == []


# --- who is behind it ---------------------------------------------------------
def test_a_child_that_its_parent_knows_nothing_of(rig) -> None:
    terms = StartTerms(parent=Parent("w", "child", "abandon"))
    rig.ask(c.StartWorkflow("child", "C", "q", None, None, b"", terms))
    assert violations(rig) == [(47, "it says that w started it, which does not say so")]


def test_a_run_that_its_schedule_knows_nothing_of(rig) -> None:
    terms = StartTerms(parent=Parent(schedule_group("daily"), "daily-1", "abandon"))
    rig.ask(c.StartWorkflow("daily-1", "C", "q", None, None, b"", terms))
    assert violations(rig) == [
        (47, "it says that schedule daily started it, which does not say so")
    ]


# --- what clients were told ---------------------------------------------------
def told(rig: Rig, *operations: Operation) -> set[int]:
    auditor = Auditor()
    for row in rig.store.reader().commits(0, 1_000):
        auditor.feed(row)
    history = History(name="h", operations=operations, all_clients=True)
    return auditor.finish(ReaderTables(rig.store.reader()), histories=[history]).invariants


def heard(op: str, **fields: Any) -> Operation:
    times = {"t0_ms": 0, "t1_ms": 0}
    return Operation(client="c", op=op, outcome="ok", workflow_id="w", **times, **fields)


def test_children_and_later_runs_are_no_phantoms_and_a_result_is_of_the_newest(rig) -> None:
    rig.ask(rig.step(c.StartChild("child", "C", "q", None, "abandon"), AGAIN))
    rig.ask(rig.step(c.CompleteWorkflow(None), workflow_id="w\x1f2"))
    assert told(rig, heard("StartWorkflow"), heard("GetResult")) == set()
    failed = heard("GetResult", code="WORKFLOW_FAILED")
    assert told(rig, heard("StartWorkflow"), failed) == {9}


def test_a_workflow_that_was_terminated_is_told_as_one_that_failed(rig) -> None:
    rig.ask(c.TerminateWorkflow("w", "over"))
    failed = heard("GetResult", code="WORKFLOW_FAILED")
    assert told(rig, heard("StartWorkflow"), failed) == set()
    assert told(rig, heard("StartWorkflow"), heard("GetResult")) == {9}


# --- the store's own copy -----------------------------------------------------
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("children", {}),
        ("updates", {"u2": 3}),
        ("attributes", {"a": 2}),
        ("signals", 0),
        ("unread", 7),
        ("last_message_id", 1),
        ("timeout_at_ms", 5),
        ("first_started_ms", 5),
        ("cancel_requested", True),
        ("paused", True),
    ],
)
def test_what_the_store_keeps_besides_is_what_the_log_gives(rig, field, value) -> None:
    rig.ask(c.SignalWorkflow("w", "s", None), c.UpdateWorkflow("w", "u", None, "u1"))
    child = c.StartChild("child", "C", "q", None, "terminate")
    rig.ask(rig.step(child, c.SetSearchAttributes((("a", 1),))))
    assert violations(rig) == []
    damaged = rig.writer.load("w")
    setattr(damaged.more, field, value)
    rig.store.executions["w"].put(damaged, msgspec.msgpack.encode(damaged))
    assert violations(rig) == [(11, f"{field} is not what the log gives")]
