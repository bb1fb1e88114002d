"""Activities that the workflow gives up, in its three ways, and attempts left to others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.core import commands as c
from perdure.core import records as r
from perdure.core.ids import Session
from perdure.core.lease_keeping import LeaseKeeping
from perdure.core.links import CancelTask, Sync
from perdure.core.records import decode_body
from perdure.core.state import ActivityState
from perdure.policy import RetryPolicy
from tests.core.ledger_rig import BOOM, LOCAL, Rig


class Keeper:
    """A lease keeper that follows a rig."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.told: list[tuple[Session, object]] = []
        self.proposed: list[c.AnyCommand] = []
        self.mind = LeaseKeeping(
            rig.key,
            "node.1",
            lambda command, _: self.proposed.append(command),
            lambda session, message: self.told.append((session, message)),
            lambda *_: None,
        )
        self.mind.load(rig.store.reader().open_state()[1], rig.now_ms)
        self.n = rig.store.reader().newest()

    def follow(self) -> list[tuple[Session, object]]:
        """What it has told workers since."""
        for row in self.rig.store.reader().commits(self.n, 1_000):
            for group in decode_body(row.body).groups:
                self.mind.apply(row.at_ms, group.workflow_id, group.records)
            self.n = row.n
        told, self.told = self.told, []
        return told


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.schedule("a", retry=RetryPolicy(max_attempts=2))
    return rig


def give_up(rig: Rig, mode: str, activity_id: str = "a") -> object:
    """By a step, whatever else is to be read."""
    return rig.ask(c.SignalWorkflow("w", "s", None)) and rig.ask(
        rig.step(c.CancelActivity(activity_id, mode))
    )


def kinds(rig: Rig) -> list[str]:
    return [type(one).__name__ for one in rig.records()]


# --- wait ---------------------------------------------------------------------
def test_an_attempt_that_runs_goes_on_with_a_live_token_and_its_worker_is_told(rig: Rig) -> None:
    keeper = Keeper(rig)
    token = rig.token(rig.grant("a"))
    keeper.follow()
    give_up(rig, "wait")
    assert kinds(rig) == ["WorkflowTaskCompleted", "ActivityCancelRequested"]
    assert keeper.follow() == [(LOCAL, CancelTask(token, "wait"))]
    answer = rig.ask(c.RecordHeartbeat(token, 0, None, False))
    assert isinstance(answer, c.Deadline)
    assert answer.cancel_requested


def test_who_may_not_have_heard_of_it_is_told_again_at_its_sync(rig: Rig) -> None:
    token = rig.token(rig.grant("a"))
    give_up(rig, "wait")
    keeper = Keeper(rig)  # A new one: all it knows is what is stored.
    sync = Sync("w1", ("default",), ("t",), ("T",), 1, 1, (token,), (), rig.ledger.n)
    keeper.mind.sync(LOCAL, sync, 0)
    keeper.mind.step(rig.ledger.n, 0)
    assert (LOCAL, CancelTask(token, "wait")) in keeper.told


def test_a_result_wins_over_being_given_up(rig: Rig) -> None:
    token = rig.token(rig.grant("a"))
    give_up(rig, "wait")
    assert rig.ask(c.CompleteActivity(token, b"m\x01")) == c.Done()
    assert kinds(rig) == ["ActivityTaskCompleted"]


@pytest.mark.parametrize(
    ("end", "failure"),
    [
        (lambda rig: rig.ask(c.FailActivity(rig.token(), BOOM)), "Boom"),
        (lambda rig: rig.end("worker_died"), "WorkerDied"),
        (lambda rig: rig.end("node_restart"), "Cancelled"),
        (lambda rig: rig.ask(c.ReleaseActivity(rig.token(), "shutdown")), "Cancelled"),
    ],
    ids=["failed", "died", "restarted", "handed back"],
)
def test_the_attempt_that_runs_is_the_last_however_it_ends(rig: Rig, end, failure) -> None:
    rig.grant("a")
    give_up(rig, "wait")
    end(rig)
    (closed,) = rig.records()
    assert isinstance(closed, r.ActivityTaskFailed)
    assert closed.failure.type == failure
    assert rig.execution().activities == {}
    assert rig.execution().task_ready


@pytest.mark.parametrize("state", ["Scheduled", "Retrying", "DeadLettered"])
def test_what_no_worker_runs_ends_at_once_as_cancelled(rig: Rig, state: str) -> None:
    for _ in range(["Scheduled", "Retrying", "DeadLettered"].index(state)):
        rig.now_ms += 60_000
        rig.grant("a")
        rig.ask(c.FailActivity(rig.token(), BOOM))
    assert rig.activity("a").state == state
    give_up(rig, "wait")
    expected = ["WorkflowTaskCompleted", "ActivityCancelRequested", "ActivityTaskFailed"]
    assert kinds(rig) == expected
    assert rig.records()[-1].failure.type == "Cancelled"
    assert rig.execution().activities == {}
    assert rig.execution().task_ready


def test_the_event_that_ends_it_follows_all_steps_of_the_task(rig: Rig) -> None:
    rig.ask(c.SignalWorkflow("w", "s", None))
    rig.ask(rig.step(c.CancelActivity("a", "wait"), c.StartTimer(1, 5)))
    assert kinds(rig)[1:] == ["ActivityCancelRequested", "TimerStarted", "ActivityTaskFailed"]
    ids = [one.event_id for one in rig.records()[1:]]
    assert ids == [ids[0], ids[0] + 1, ids[0] + 2]


def test_a_workflow_that_ends_in_the_same_task_needs_no_such_event(rig: Rig) -> None:
    rig.ask(c.SignalWorkflow("w", "s", None))
    rig.ask(rig.step(c.CancelActivity("a", "wait"), c.CompleteWorkflow(None)))
    assert kinds(rig)[1:] == ["ActivityCancelRequested", "WorkflowCompleted"]


# --- abandon ------------------------------------------------------------------
def test_what_is_abandoned_goes_on_with_its_retries_and_is_recorded(rig: Rig) -> None:
    keeper = Keeper(rig)
    rig.grant("a")
    keeper.follow()
    give_up(rig, "abandon")
    assert keeper.follow() == []
    rig.ask(c.FailActivity(rig.token(), BOOM))
    assert rig.activity("a").state is ActivityState.RETRYING
    rig.now_ms += 60_000
    rig.grant("a")
    answer = rig.ask(c.RecordHeartbeat(rig.token(), 0, None, False))
    assert not answer.cancel_requested
    rig.ask(c.CompleteActivity(rig.token(), None))
    assert kinds(rig) == ["ActivityTaskCompleted"]


@pytest.mark.parametrize("mode", ["wait", "abandon"])
def test_what_was_closed_already_is_given_up_in_vain(rig: Rig, mode: str) -> None:
    rig.grant("a")
    rig.ask(c.CompleteActivity(rig.token(), None))
    rig.ask(rig.step(c.CancelActivity("a", mode)))
    assert rig.records()[-1].noop is True


def test_a_way_that_nobody_knows_is_no_step(rig: Rig) -> None:
    assert give_up(rig, "perhaps").code == "INVALID_ARGUMENT"


# --- left to others -----------------------------------------------------------
def test_an_attempt_left_to_others_belongs_to_no_session_and_outlives_it(rig: Rig) -> None:
    keeper = Keeper(rig)
    token = rig.token(rig.grant("a"))
    keeper.follow()
    assert rig.ask(c.DetachLease(token, b"m\x03", 3)) == c.Done()
    assert kinds(rig) == ["HeartbeatRecorded", "LeaseDetached"]
    assert keeper.follow() == []
    lease = rig.activity("a").lease
    assert lease is not None
    assert lease.session is None
    assert rig.end("worker_died").code == "FAILED_PRECONDITION"
    rig.open()
    assert rig.activity("a").details == b"m\x03"
    assert rig.ask(c.CompleteActivity(token, b"m\x01")) == c.Done()


def test_leaving_it_twice_is_leaving_it_once(rig: Rig) -> None:
    token = rig.token(rig.grant("a"))
    rig.ask(c.DetachLease(token))
    assert rig.ask(c.DetachLease(token)) == c.Done()
    assert kinds(rig) == []


def test_a_stale_token_leaves_nothing(rig: Rig) -> None:
    token = rig.token(rig.grant("a"))
    rig.ask(c.FailActivity(token, BOOM))
    assert rig.ask(c.DetachLease(token)).code == "FAILED_PRECONDITION"


def test_the_end_of_its_session_is_no_end_even_if_it_was_proposed_before(rig: Rig) -> None:
    keeper = Keeper(rig)
    address = rig.grant("a", Session("node.0", 1))  # Of an earlier start of the node.
    keeper.follow()
    (proposal,) = keeper.proposed
    rig.ask(c.DetachLease(rig.token(address)))
    answer = rig.ask(proposal)
    assert answer.code == "FAILED_PRECONDITION"
    keeper.follow()
    keeper.mind.answered(proposal, None, answer, rig.ledger.n, rig.now_ms)
    keeper.proposed.clear()
    for later_ms in (1_000, 2_000, 30_000):
        keeper.mind.step(rig.ledger.n, later_ms)
    assert keeper.proposed == []


def test_what_was_taken_for_undelivered_and_is_left_open_stays_open(rig: Rig) -> None:
    address = rig.grant("a")
    rig.ask(c.DetachLease(rig.token(address)))
    late = rig.ask(c.EndLease(address, "undelivered"))  # Proposed before it was left open.
    assert (late.code, late.message) == ("FAILED_PRECONDITION", "the lease belongs to no session")
    assert rig.activity("a").lease is not None


def test_only_what_a_client_polled_for_ends_because_that_client_went_away(rig: Rig) -> None:
    address = rig.grant("a")
    refused = rig.end("undelivered", is_polled=True)
    assert (refused.code, refused.message) == (
        "FAILED_PRECONDITION",
        "the lease belongs to a session",
    )
    rig.ask(c.ReleaseActivity(rig.token(address), "shutdown"))
    rig.grant("a", None)
    assert rig.end("undelivered", is_polled=True) == c.Done()


def test_it_ends_by_its_deadline_as_any_other(rig: Rig) -> None:
    keeper = Keeper(rig)
    address = rig.grant("a")
    rig.ask(c.DetachLease(rig.token(address)))
    keeper.follow()
    rig.now_ms = rig.activity("a").lease.deadline_ms
    for later_ms in (0, 10_000, 10_100):
        keeper.mind.step(rig.ledger.n, rig.now_ms + later_ms)
    assert [type(one) for one in keeper.proposed] == [c.ExpireLease]
