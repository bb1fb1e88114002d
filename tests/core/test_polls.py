"""Polls by hand: one lease for each, in turn with worker sessions."""

from __future__ import annotations

from perdure.core import commands as c
from perdure.core.links import (
    Polled,
)
from perdure.policy import RetryPolicy

GATEWAY = "gateway.1"


def test_a_poll_without_waiting_is_answered_at_once(history, scheduler):
    scheduler.poll(1)
    assert scheduler.polled == [Polled(1, None)]
    history.schedule()
    scheduler.poll(2)
    task = scheduler.polled[1].task
    assert task is not None
    assert history.executions["w"].activities["a"].lease.session is None


def test_waiting_polls_are_served_in_the_order_they_came_and_time_out(history, scheduler):
    scheduler.poll(1, wait_ms=500, types=("other",))
    scheduler.poll(2, wait_ms=5_000)
    scheduler.poll(3, wait_ms=5_000)
    history.schedule()
    scheduler.step()
    assert [answer.n for answer in scheduler.polled] == [2]
    assert scheduler.mind.next_ms() == 1_500
    scheduler.at(1_500)
    assert scheduler.polled[1:] == [Polled(1, None)]
    scheduler.mind.unpoll((GATEWAY, 3))
    scheduler.at(6_000)
    assert len(scheduler.polled) == 2


def test_the_same_poll_id_gets_the_same_task_while_its_lease_lives(history, scheduler):
    history.schedule("a", retry=RetryPolicy(initial_ms=1))
    history.schedule("b")
    scheduler.poll(1, poll_id="p")
    scheduler.poll(2, poll_id="p")
    first, again = (answer.task for answer in scheduler.polled)
    assert first.token == again.token
    history.ask(c.CompleteActivity(first.token, None))
    scheduler.poll(3, poll_id="p")
    assert scheduler.polled[2].task.workflow_id == "b"


def test_two_who_wait_with_one_poll_id_get_one_task(history, scheduler):
    scheduler.poll(1, wait_ms=5_000, poll_id="p")
    scheduler.poll(2, wait_ms=5_000, poll_id="p")
    history.schedule("a")
    history.schedule("b")
    scheduler.step()
    assert len({answer.task.token for answer in scheduler.polled}) == 1
    assert [answer.n for answer in scheduler.polled] == [1, 2]


def test_a_poll_id_of_another_worker_is_another_poll(history, scheduler):
    history.schedule("a")
    history.schedule("b")
    scheduler.poll(1, poll_id="p", worker_id="one")
    scheduler.poll(2, poll_id="p", worker_id="two")
    assert scheduler.polled[0].task.token != scheduler.polled[1].task.token


def test_polls_and_sessions_take_turns(history, scheduler):
    scheduler.hello()
    for n in range(4):
        scheduler.poll(n, wait_ms=5_000)
    for name in "abcd":
        history.schedule(name)
    scheduler.step()
    assert len(scheduler.polled) == 2
    assert len(scheduler.tasks()) == 2


def test_a_lease_for_a_client_that_went_away_is_given_back(history, scheduler):
    scheduler.poll(1, wait_ms=5_000)
    history.schedule()
    scheduler.step(answers=False)
    scheduler.mind.unpoll((GATEWAY, 1))
    scheduler.step()
    held = history.executions["w"].activities["a"]
    assert (held.lease, held.attempt, held.handed_back) == (None, 1, "undelivered")


def test_a_client_that_went_away_takes_nothing_though_its_lease_was_refused(history, scheduler):
    scheduler.poll(1, wait_ms=5_000)
    history.schedule()
    scheduler.step(answers=False)
    [command] = scheduler.proposed
    scheduler.proposed.clear()
    scheduler.mind.unpoll((GATEWAY, 1))
    scheduler.mind.answered(command, c.Refusal("FAILED_PRECONDITION", ""), 1_000)
    scheduler.at(2_000)
    assert scheduler.asked == []


def test_a_second_wait_with_the_same_poll_id_makes_it_longer(history, scheduler):
    scheduler.poll(1, wait_ms=500, poll_id="p")
    scheduler.poll(2, wait_ms=900, poll_id="p")
    scheduler.at(1_899)
    assert scheduler.polled == []
    scheduler.at(1_900)
    assert scheduler.polled == [Polled(1, None), Polled(2, None)]


def test_a_grant_that_an_earlier_scheduler_proposed_reaches_its_own_poll_only(history, scheduler):
    scheduler.poll(1, wait_ms=5_000, worker_id="one", poll_id="p", types=("none",))
    scheduler.poll(2, wait_ms=5_000, worker_id="two", poll_id="q")
    history.schedule()
    scheduler.step(answers=False)
    assert [command.worker_id for command in scheduler.proposed] == ["two"]
    history.grant(worker_id="one", poll_id="p")
    scheduler.step()
    assert [(answer.n, answer.task.workflow_id) for answer in scheduler.polled] == [(1, "w")]
    history.schedule("v")
    scheduler.step()
    assert [answer.n for answer in scheduler.polled] == [1, 2]


def test_polls_through_an_earlier_gateway_take_no_tasks(history, scheduler):
    scheduler.poll(1, wait_ms=5_000)
    scheduler.mind.gateway("gateway.2")
    history.schedule()
    scheduler.step()
    assert scheduler.asked == []
    assert scheduler.mind.next_ms() is None
