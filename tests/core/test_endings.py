"""How a workflow ends that did not end by itself: cancelled, terminated, out of time; and how one
begins later.
"""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core import records as r
from perdure.core.lease_table import LeaseTable
from perdure.core.records import ActivityOptions, decode_body
from perdure.core.start import StartTerms
from perdure.core.state import Status
from perdure.core.task_queues import TaskQueues
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from tests.core.ledger_rig import BOOM, LOCAL, Rig

CLOSED = {
    Status.COMPLETED: c.CompleteWorkflow(None),
    Status.FAILED: c.FailWorkflow(BOOM),
    Status.CANCELLED: c.CancelWorkflowStep("enough"),
}


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.ask(rig.start())
    return rig


def cancel(reason: str = "enough", request_id: str | None = None) -> c.CancelWorkflow:
    return c.CancelWorkflow("w", reason, request_id)


def terminate(reason: str = "enough", request_id: str | None = None) -> c.TerminateWorkflow:
    return c.TerminateWorkflow("w", reason, request_id)


def start_with(rig: Rig, **terms: int) -> None:
    command = rig.start("late")
    named = (command.workflow_id, command.workflow_type, command.task_queue)
    rig.ask(c.StartWorkflow(*named, None, None, b"", StartTerms(**terms)))


# --- cancel -------------------------------------------------------------------
def test_a_cancelled_workflow_is_woken_and_goes_on_until_its_code_ends(rig: Rig) -> None:
    rig.ask(rig.step(c.StartTimer(1, 1_000)))
    assert not rig.execution().task_ready
    assert rig.ask(cancel()) == c.Done()
    assert rig.execution().is_open
    assert rig.execution().task_ready
    rig.ask(rig.step(c.CancelTimer(1), c.CancelWorkflowStep("enough")))
    assert rig.execution().status is Status.CANCELLED


def test_a_second_cancellation_is_answered_alike_and_changes_nothing(rig: Rig) -> None:
    rig.ask(cancel())
    events = rig.execution().last_event_id
    assert rig.ask(cancel("more than enough")) == c.Done()
    assert rig.execution().last_event_id == events


def test_a_workflow_that_swallows_its_cancellation_ends_as_it_ends(rig: Rig) -> None:
    rig.ask(cancel())
    rig.ask(rig.step(c.CompleteWorkflow(b"m\x01")))
    assert rig.execution().status is Status.COMPLETED


@pytest.mark.parametrize("ask", [cancel, terminate])
@pytest.mark.parametrize("status", CLOSED)
def test_what_has_ended_can_not_be_ended_again(rig: Rig, ask, status: Status) -> None:
    rig.ask(rig.step(CLOSED[status]))
    answer = rig.ask(ask())
    assert (answer.code, answer.message) == ("FAILED_PRECONDITION", f"the workflow is {status}")


@pytest.mark.parametrize("ask", [cancel, terminate])
def test_what_was_never_started_is_not_found(ask) -> None:
    assert Rig().ask(ask()).code == "NOT_FOUND"


@pytest.mark.parametrize("ask", [cancel, terminate])
@pytest.mark.parametrize("reopened", [False, True])
def test_the_same_request_again_is_answered_as_the_first_time(rig: Rig, ask, reopened) -> None:
    assert rig.ask(ask("enough", "r1")) == c.Done()
    rig.ask(rig.step(c.CancelWorkflowStep("enough"))) if ask is cancel else None
    if reopened:
        rig.open()
    assert rig.ask(ask("enough", "r1")) == c.Done()
    assert rig.ask(ask("other", "r1")).code == "FAILED_PRECONDITION"


def test_cancelling_reaches_a_workflow_that_waits_for_its_start_or_a_backoff() -> None:
    rig, queues = Rig(), TaskQueues()
    start_with(rig, delay_ms=5_000)
    follow(rig, queues)
    assert not queues.ready_workflows(rig.now_ms)
    rig.ask(c.CancelWorkflow("late", "enough"))
    follow(rig, queues)
    assert [work.workflow_id for work in queues.ready_workflows(rig.now_ms)] == ["late"]
    assert list(queues.deadlines()) == []


# --- terminate ----------------------------------------------------------------
def test_terminating_closes_at_once_whatever_is_open(rig: Rig) -> None:
    rig.schedule("a")
    rig.ask(rig.step(c.StartTimer(1, 1_000)))
    token = rig.token(rig.grant("a"))
    assert rig.ask(terminate()) == c.Done()
    execution = rig.execution()
    assert (execution.status, execution.activities, execution.timers) == (Status.TERMINATED, {}, {})
    assert rig.ask(c.CompleteActivity(token, None)).code == "FAILED_PRECONDITION"
    assert rig.ledger.ready == rig.writer.ready_count() == 0


def test_of_a_thousand_terminated_in_mixed_states_nothing_is_left() -> None:
    """Leases, timers, retries, dead letters and tasks: none in the store, none in memory."""
    rig, queues = Rig(), TaskQueues()
    leases = LeaseTable(rig.key, lambda *_: None, lambda *_: None)
    prepare = (_fresh, _waiting, _leased, _retrying, _dead, _sleeping, _signalled, _parked)
    for at in range(1_000):
        prepare[at % len(prepare)](rig, f"w{at}")
    follow(rig, queues, leases)
    assert len(queues.works) == 1_000
    assert len(leases) == 125
    rig.ask(*(c.TerminateWorkflow(f"w{at}", "over") for at in range(1_000)))
    follow(rig, queues, leases)
    assert (queues.works, queues.ready_count, len(leases)) == ({}, 0, 0)
    assert list(queues.deadlines()) == []
    assert leases.next_due_ms() is None
    reader = rig.store.reader()
    assert reader.open_state()[1] == []
    assert rig.writer.ready_count() == rig.ledger.ready == 0
    for stored in rig.store.executions.values():
        assert stored.activities == {}
        assert stored.timers == {}


def _fresh(rig: Rig, name: str) -> None:
    rig.ask(rig.start(name))


def _waiting(rig: Rig, name: str) -> None:
    _fresh(rig, name)
    options = ActivityOptions(RetryPolicy(max_attempts=2, initial_ms=60_000))
    rig.ask(rig.step(c.ScheduleActivity("a", "t", None, options), workflow_id=name))


def _leased(rig: Rig, name: str) -> str:
    _waiting(rig, name)
    held = rig.execution(name).activities["a"]
    place = (name, "a", 1, held.grant + 1, held.attempt)
    assert rig.ask(c.GrantLease(*place, "w1", LOCAL)) == c.Done()
    return rig.token(r_address(rig, name))


def r_address(rig: Rig, name: str):
    held = rig.execution(name).activities["a"]
    return c.Address(name, "a", held.generation, held.grant)


def _retrying(rig: Rig, name: str) -> None:
    rig.ask(c.FailActivity(_leased(rig, name), BOOM))


def _dead(rig: Rig, name: str) -> None:
    _fresh(rig, name)
    options = ActivityOptions(RetryPolicy(max_attempts=1))
    rig.ask(rig.step(c.ScheduleActivity("a", "t", None, options), workflow_id=name))
    rig.ask(c.GrantLease(name, "a", 1, 1, 1, "w1", LOCAL))
    rig.ask(c.FailActivity(rig.token(r_address(rig, name)), BOOM))


def _sleeping(rig: Rig, name: str) -> None:
    _fresh(rig, name)
    rig.ask(rig.step(c.StartTimer(1, 60_000), workflow_id=name))


def _signalled(rig: Rig, name: str) -> None:
    _sleeping(rig, name)
    rig.ask(c.SignalWorkflow(name, "s", None))


def _parked(rig: Rig, name: str) -> None:
    _fresh(rig, name)
    for _ in range(4):
        rig.ask(c.FailWorkflowTask(name, 0, 0, "mismatch", Failure("NonDeterminism")))


def follow(rig: Rig, queues: TaskQueues, leases: LeaseTable | None = None) -> None:
    """Tell the projections of all that they have not heard of."""
    heard = getattr(queues, "heard", 1)
    for row in rig.store.reader().commits(heard, 100_000):
        for group in decode_body(row.body).groups:
            queues.apply(group.workflow_id, row.at_ms, group.records, row.n)
            for record in group.records if leases is not None else ():
                leases.apply(group.workflow_id, row.at_ms, record)
        queues.heard = row.n  # type: ignore[attr-defined]


# --- time ---------------------------------------------------------------------
def test_a_start_with_a_delay_makes_no_task_before_it_is_over() -> None:
    rig, queues = Rig(), TaskQueues()
    start_with(rig, delay_ms=5_000)
    follow(rig, queues)
    assert queues.ready_workflows(4_999) == []
    assert [work.workflow_id for work in queues.ready_workflows(5_000)] == ["late"]


def test_what_starts_later_does_not_count_as_work_that_waits_for_a_worker() -> None:
    rig = Rig(ready_max=0)
    start_with(rig, delay_ms=5_000)
    assert rig.ledger.ready == rig.writer.ready_count() == 0
    assert rig.ask(rig.start()) == c.Started()
    assert rig.ask(rig.start("other")).code == "RESOURCE_EXHAUSTED"


def test_a_delay_survives_a_restart() -> None:
    rig, queues = Rig(), TaskQueues()
    start_with(rig, delay_ms=5_000)
    queues.load(rig.store.reader().open_state()[1], 0)
    assert queues.ready_workflows(4_999) == []
    assert len(queues.ready_workflows(5_000)) == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_a_workflow_whose_time_is_over_fails_with_workflow_timeout(restarted: bool) -> None:
    rig, queues = Rig(), TaskQueues()
    start_with(rig, timeout_ms=9_000, delay_ms=1_000)
    if restarted:
        queues.load(rig.store.reader().open_state()[1], 0)
    else:
        follow(rig, queues)
    assert [type(one) for one in queues.due(9_999)] == []
    rig.now_ms = 10_000
    (proposal,) = queues.due(10_000)
    assert rig.ask(proposal) == c.Done()
    (failed,) = rig.records()
    assert isinstance(failed, r.WorkflowFailed)
    assert failed.failure.type == "WorkflowTimeout"


def test_a_timeout_that_is_proposed_too_early_is_refused_with_its_time() -> None:
    rig = Rig()
    start_with(rig, timeout_ms=9_000)
    rig.now_ms = 8_999
    answer = rig.ask(c.TimeOutWorkflow("late"))
    assert (answer.code, answer.at_ms) == ("FAILED_PRECONDITION", 9_000)


def test_a_plain_workflow_has_no_timeout_and_nothing_more(rig: Rig) -> None:
    assert rig.ask(c.TimeOutWorkflow("w")).code == "FAILED_PRECONDITION"
    assert rig.execution().more is None
