"""Signals and updates: kept in order, read before the end, answered once."""

from __future__ import annotations

import msgspec
import pytest

from perdure.core import commands as c
from perdure.core import records as r
from perdure.core.bounds import Bounds
from perdure.core.ids import execution_id
from perdure.core.limits import SIGNAL_NAMES_NOTED
from perdure.core.records import decode_event
from perdure.core.state import Status
from tests.core.ledger_rig import BOOM, Rig


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.ask(rig.start())
    return rig


def signal(name: str = "s", payload: bytes | None = None, request_id: str | None = None):
    return c.SignalWorkflow("w", name, payload, request_id)


def update(update_id: str = "u1", payload: bytes | None = b"m\x01"):
    return c.UpdateWorkflow("w", "raise", payload, update_id)


# --- signals ------------------------------------------------------------------
def test_signals_are_events_in_the_order_in_which_they_came_and_wake_the_workflow(rig) -> None:
    rig.ask(rig.step(c.StartTimer(1, 1_000)))
    assert not rig.execution().task_ready
    rig.ask(signal("one"), signal("two", b"m\x02"))
    assert [(one.name, one.input) for one in rig.records()] == [("one", None), ("two", b"m\x02")]
    assert [one.event_id for one in rig.records()] == [3, 4]
    assert rig.execution().task_ready


@pytest.mark.parametrize("reopened", [False, True])
def test_a_signal_sent_again_is_one_signal(rig: Rig, reopened: bool) -> None:
    rig.ask(signal("s", b"m\x01", "r1"))
    if reopened:
        rig.open()
    assert rig.ask(signal("s", b"m\x01", "r1")) == c.Done()
    assert rig.execution().more.signals == 1
    answer = rig.ask(signal("s", b"m\x02", "r1"))
    assert answer == c.Refusal("FAILED_PRECONDITION", "request_id 'r1' was used with another input")


def test_a_signal_sent_twice_in_one_batch_is_one_signal(rig: Rig) -> None:
    assert rig.ask(signal("s", None, "r1"), signal("s", None, "r1")) == [c.Done(), c.Done()]
    assert rig.execution().more.signals == 1


def test_a_closed_workflow_takes_no_signal(rig: Rig) -> None:
    rig.ask(signal("s", None, "r1"))
    rig.ask(rig.step(c.CompleteWorkflow(None)))
    assert rig.ask(signal()).code == "FAILED_PRECONDITION"
    # Sent again, what was accepted before is still accepted.
    assert rig.ask(signal("s", None, "r1")) == c.Done()


def test_one_workflow_signals_another_in_the_commit_of_its_step(rig: Rig) -> None:
    rig.ask(rig.start("other"))
    rig.ask(rig.step(c.SendSignal("other", "hello", b"m\x07")))
    kinds = [type(one) for one in rig.records()]
    assert kinds == [r.WorkflowTaskCompleted, r.SignalSent, r.SignalReceived]
    assert rig.execution("other").more.signals == 1


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_signal_to_nobody_is_sent_and_its_event_says_why_it_was_not_taken(rig, is_answered):
    step = c.SendSignal("nobody", "hello", None, is_answered)
    assert rig.ask(rig.step(step, c.SendSignal("w", "me", None))) == c.Done()
    _, sent, other, received = rig.records()
    assert (sent.refused, sent.code) == ("there is no workflow 'nobody'", "NOT_FOUND")
    assert (other.refused, other.code, type(received)) == ("", "", r.SignalReceived)
    assert [one.event_id for one in (sent, other, received)] == [2, 3, 4]
    stored = rig.store.reader().events("w", 1, 10, 10_000)
    assert [decode_event(one) for one in stored] == [sent, other, received]


def test_a_sender_that_is_told_is_woken_by_what_it_sent(rig: Rig) -> None:
    rig.ask(rig.step(c.SendSignal("nobody", "hello", None)))
    assert not rig.execution().task_ready  # The code of an earlier version.
    rig.ask(rig.step(c.SendSignal("nobody", "hello", None, True)))
    assert rig.execution().task_ready


def test_a_sender_that_ends_with_its_word_leaves_in_its_history_what_became_of_it(rig) -> None:
    rig.ask(rig.step(c.SendSignal("w", "me", None, True), c.CompleteWorkflow(None)))
    _, sent, ended = rig.records()
    assert (sent.refused, type(ended)) == ("the workflow is Completed", r.WorkflowCompleted)


def test_a_workflow_asks_another_to_end_in_the_commit_of_its_step(rig: Rig) -> None:
    rig.ask(rig.start("other"))
    rig.ask(rig.step(c.CancelExternal("other", "enough"), c.CancelExternal("none", "")))
    _, told, refused, asked = rig.records()
    assert (type(asked), asked.reason, told.code) == (r.WorkflowCancelRequested, "enough", "")
    assert refused.code == "NOT_FOUND"
    assert rig.execution().task_ready
    # Asked before, it is not asked again.
    rig.ask(rig.step(c.CancelExternal("other", "again")))
    assert [type(one) for one in rig.records()][1:] == [r.ExternalCancelRequested]
    assert rig.records()[1].code == ""


# --- with a start -----------------------------------------------------------------
def with_start(workflow_id: str = "new", request_id: str | None = "r1", kind: str = "T"):
    start = c.StartWorkflow(workflow_id, kind, "default", b"m\x07", request_id, b"d")
    return c.SignalWorkflow(workflow_id, "s", None, request_id, start)


@pytest.mark.parametrize("reopened", [False, True])
def test_a_message_starts_the_workflow_that_is_not_there_once_and_in_its_commit(rig, reopened):
    assert rig.ask(with_start()) == c.Done(c.STARTED)
    assert [type(one) for one in rig.records()] == [r.WorkflowStarted, r.SignalReceived]
    if reopened:
        rig.open()
    assert rig.ask(with_start()) == c.Done(c.STARTED)  # As the first time.
    assert rig.ask(with_start(request_id="r2")) == c.Done()
    execution = rig.execution("new")
    assert (execution.last_event_id, execution.more.signals) == (3, 2)


def test_without_a_request_id_only_the_message_that_did_it_has_started_the_workflow(rig) -> None:
    assert rig.ask(with_start(request_id=None)) == c.Done(c.STARTED)
    assert rig.ask(with_start(request_id=None)) == c.Done()


def test_an_update_starts_the_workflow_that_is_not_there(rig: Rig) -> None:
    start = c.StartWorkflow("new", "T", "default", None, "u1", b"d")
    ask = c.UpdateWorkflow("new", "raise", None, "u1", start=start)
    assert rig.ask(ask, ask) == [c.Done(c.STARTED)] * 2
    assert list(rig.execution("new").more.updates) == ["u1"]


def test_what_could_not_be_started_is_not_signalled(rig: Rig) -> None:
    rig.ledger.full = "the disk is nearly full"
    assert rig.ask(with_start()).code == "RESOURCE_EXHAUSTED"
    assert rig.ledger.execution("new") is None
    # The workflow that is there takes it.
    assert rig.ask(with_start("w")) == c.Done()


def test_what_has_only_begun_takes_its_first_message_whatever_the_limits() -> None:
    rig = Rig(bounds=Bounds(pending_signals=0))
    assert rig.ask(with_start()) == c.Done(c.STARTED)
    assert rig.ask(with_start(request_id="r2")).code == "RESOURCE_EXHAUSTED"


def test_a_workflow_of_another_type_or_that_has_ended_takes_no_message_of_a_start(rig) -> None:
    answer = rig.ask(with_start("w", kind="Other"))
    assert answer == c.Refusal("ALREADY_EXISTS", "workflow_id 'w' is taken, by a T")
    rig.ask(rig.step(c.CompleteWorkflow(None)))
    assert rig.ask(with_start("w")).code == "FAILED_PRECONDITION"


def test_a_message_with_a_start_reaches_the_newest_run(rig: Rig) -> None:
    rig.ask(with_start())
    rig.ask(rig.step(c.ContinueAsNew("T", "default", None), workflow_id="new"))
    assert rig.ask(with_start(request_id="r2")) == c.Done()
    assert rig.execution(execution_id("new", 2)).more.signals == 1


# --- what the code makes of signals ----------------------------------------------
NOTES = r.SignalNotes(("go",), (("og", 2),), ((5, "go", "no number"),))


def noting(rig: Rig, notes: r.SignalNotes | None) -> c.CompleteWorkflowTask:
    return msgspec.structs.replace(rig.step(), signals=notes)


def test_what_the_code_makes_of_signals_is_recorded_when_it_changes(rig: Rig) -> None:
    rig.ask(noting(rig, NOTES))
    assert [type(one) for one in rig.records()] == [r.WorkflowTaskCompleted, r.SignalsNoted]
    more = rig.execution().more
    assert (more.takes, more.untaken, more.dropped) == (NOTES.takes, NOTES.untaken, NOTES.dropped)
    rig.ask(signal("og"))
    rig.ask(noting(rig, msgspec.structs.replace(NOTES, dropped=())))
    assert [type(one) for one in rig.records()] == [r.WorkflowTaskCompleted]
    rig.ask(signal("og"))
    rig.ask(noting(rig, None))
    assert (rig.execution().more.untaken, rig.execution().more.dropped) == ((), NOTES.dropped)


def test_only_a_signal_that_the_known_code_does_not_take_is_answered_so(rig: Rig) -> None:
    assert rig.ask(signal("og")) == c.Done()
    rig.ask(noting(rig, NOTES))
    assert rig.ask(signal("go")) == c.Done()
    assert rig.ask(signal("og")) == c.Done(c.NOT_TAKEN)


def test_of_code_that_may_take_more_than_was_noted_nothing_is_said(rig: Rig) -> None:
    rig.ask(signal())
    names = tuple(f"n{at:02}" for at in range(SIGNAL_NAMES_NOTED))
    rig.ask(noting(rig, r.SignalNotes(names)))
    assert rig.ask(signal("z")) == c.Done()


def test_of_dropped_signals_the_newest_are_kept(rig: Rig) -> None:
    for n in range(30):
        rig.ask(signal())
        rig.ask(noting(rig, r.SignalNotes((), (), ((n, "s", "why"),))))
    assert [at_ms for at_ms, _, _ in rig.execution().more.dropped] == list(range(10, 30))


# --- read before the end ------------------------------------------------------
@pytest.mark.parametrize(
    "message",
    [signal(), update(), c.CancelWorkflow("w", "enough")],
    ids=["signal", "update", "cancellation"],
)
def test_a_run_does_not_go_on_before_it_has_read_what_was_acknowledged(rig, message) -> None:
    ending = c.ContinueAsNew("T", "default", None)
    too_soon = rig.step(ending)
    assert rig.ask(message) == c.Done()
    answer = rig.ask(too_soon)
    assert answer.code == "FAILED_PRECONDITION"
    execution = rig.execution()
    assert (execution.is_open, execution.task_failures, execution.task_due_ms) == (True, 0, 0)
    assert rig.ask(rig.step(ending)) == c.Done()
    assert not rig.execution().is_open


@pytest.mark.parametrize(
    "ending",
    [c.CompleteWorkflow(None), c.FailWorkflow(BOOM), c.CancelWorkflowStep("")],
    ids=lambda one: type(one).__name__,
)
def test_a_last_run_ends_where_its_code_ended_whatever_came_since(rig, ending) -> None:
    end = rig.step(ending)
    rig.ask(signal())
    assert rig.ask(end) == c.Done()
    assert not rig.execution().is_open


def test_a_cancellation_that_the_code_could_not_hear_is_the_next_runs(rig) -> None:
    rig.ask(rig.step(c.ContinueAsNew("T", "default", None, (), "enough")))
    kinds = [type(one) for one in rig.records()]
    assert kinds[-2:] == [r.WorkflowStarted, r.WorkflowCancelRequested]


def test_other_steps_are_taken_though_a_signal_was_not_read(rig: Rig) -> None:
    behind = rig.step(c.StartTimer(1, 1_000))
    rig.ask(signal())
    assert rig.ask(behind) == c.Done()
    assert rig.execution().task_ready


def test_too_many_unread_signals_are_refused_by_the_name_of_the_bound() -> None:
    rig = Rig(bounds=Bounds(pending_signals=2))
    rig.ask(rig.start())
    assert rig.ask(signal(), signal()) == [c.Done(), c.Done()]
    answer = rig.ask(signal())
    assert answer.code == "RESOURCE_EXHAUSTED"
    assert "limits.pending_signals" in answer.message
    rig.ask(rig.step())
    assert rig.ask(signal()) == c.Done()


# --- updates ------------------------------------------------------------------
def test_an_update_is_answered_by_a_step_and_its_answer_found_by_its_id(rig: Rig) -> None:
    rig.ask(update())
    rig.ask(rig.step(c.EndUpdate("u1", b"m\x05", None)))
    found = rig.writer.requested_event("w", "UpdateEnded/u1")
    assert isinstance(found, r.UpdateEnded)
    assert found.result == b"m\x05"
    assert rig.execution().more.updates == {}


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("answered", [False, True])
def test_an_update_sent_again_is_one_update(rig: Rig, reopened, answered) -> None:
    rig.ask(update())
    if answered:
        rig.ask(rig.step(c.EndUpdate("u1", None, BOOM, True)))
    if reopened:
        rig.open()
    before = rig.execution().last_event_id
    assert rig.ask(update()) == c.Done()
    assert rig.ask(update("u1", b"m\x02")).code == "FAILED_PRECONDITION"
    assert rig.execution().last_event_id == before


def test_an_update_is_answered_once(rig: Rig) -> None:
    rig.ask(update())
    twice = (c.EndUpdate("u1", None, None), c.EndUpdate("u1", None, None))
    assert rig.ask(rig.step(*twice)).code == "INVALID_ARGUMENT"
    assert rig.ask(rig.step(c.EndUpdate("u2", None, None))).code == "INVALID_ARGUMENT"
    assert rig.execution().more.updates == {"u1": 2}


def test_too_many_open_updates_are_refused() -> None:
    rig = Rig(bounds=Bounds(open_updates=1))
    rig.ask(rig.start(), update())
    answer = rig.ask(update("u2"))
    assert answer.code == "RESOURCE_EXHAUSTED"
    assert "limits.open_updates" in answer.message


def test_the_end_of_a_workflow_leaves_no_update_open(rig: Rig) -> None:
    rig.ask(update())
    rig.ask(rig.step(c.StartTimer(1, 5)))
    rig.ask(c.TerminateWorkflow("w", "over"))
    rig.open()
    assert rig.execution().status is Status.TERMINATED
    assert rig.execution().more.updates == {}


# --- notes --------------------------------------------------------------------
def test_markers_are_events_and_change_nothing_else(rig: Rig) -> None:
    rig.ask(rig.step(c.RecordMarker("patch", "p1", None)))
    assert isinstance(rig.records()[1], r.MarkerRecorded)
    assert rig.execution().more is None
    assert rig.ask(c.SignalWorkflow("w", "s", None)) == c.Done()
    assert rig.ask(rig.step(c.RecordMarker("rumour", "p1", None))).code == "INVALID_ARGUMENT"


def test_search_attributes_add_up_and_can_be_taken_away(rig: Rig) -> None:
    first = c.SetSearchAttributes((("city", "Ulm"), ("cents", 5), ("vip", True)))
    second = c.SetSearchAttributes((("cents", 7), ("vip", None)))
    rig.ask(rig.step(first, second))
    rig.open()
    assert rig.execution().more.attributes == {"city": "Ulm", "cents": 7}


def test_too_many_search_attributes_are_refused() -> None:
    rig = Rig(bounds=Bounds(search_attributes=2))
    rig.ask(rig.start())
    three = c.SetSearchAttributes((("a", 1), ("b", 2), ("c", 3)))
    answer = rig.ask(rig.step(three))
    assert answer.code == "INVALID_ARGUMENT"
    assert "limits.search_attributes" in answer.message
