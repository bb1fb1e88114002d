"""What killed its worker twice in a row runs alone."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core.ids import Address, Session, seal
from perdure.core.links import Quarantine, WorkflowTask
from perdure.core.quarantine import IDLE_MS, SAY_AGAIN_MS
from perdure.policy import RetryPolicy

ONE, ALONE, ALONE_TOO = (Session("node.1", number) for number in (1, 2, 3))
REMOTE = Session("gateway.1", 1)
AT_ONCE = RetryPolicy(initial_ms=1, max_attempts=20)


@pytest.fixture
def around(history, make_scheduler):
    return make_scheduler(history, quarantine_max=2)


def newest(history, activity_id="a"):
    held = history.executions["w"].activities[activity_id]
    return Address("w", activity_id, held.generation, held.grant)


def token(history):
    return seal(newest(history), history.key)


def die(history, address):
    assert isinstance(history.ask(c.EndLease(address, "worker_died")), c.Done)
    history.now_ms += 5


def twice_dead(history, *activity_ids):
    for activity_id in activity_ids:
        history.schedule(activity_id=activity_id, retry=AT_ONCE)
        for _ in range(2):
            die(history, history.grant(activity_id=activity_id, session=Session("node.0", 1)))


def alone(around, session=ALONE):
    around.hello(session, quarantine=True, activity_slots=1, workflow_slots=1)


def given(around, session):
    return [task.activity_id for task in around.tasks(session=session)]


def test_one_death_is_retried_beside_others_and_a_second_in_a_row_only_in_quarantine(
    history, around
):
    around.hello(ONE)
    alone(around)
    history.schedule(retry=AT_ONCE)
    around.step()
    assert given(around, ONE) == ["a"]
    die(history, newest(history))
    around.step()
    assert given(around, ONE) == ["a"]
    die(history, newest(history))
    around.step()
    assert (given(around, ONE), given(around, ALONE)) == ([], ["a"])


def test_a_failure_that_is_no_death_ends_the_row(history, around):
    around.hello(ONE)
    alone(around)
    twice_dead(history, "a")
    around.step()
    assert given(around, ALONE) == ["a"]
    history.fail(newest(history))
    history.now_ms += 5
    around.step()
    assert (given(around, ONE), given(around, ALONE)) == (["a"], [])


def test_in_quarantine_there_is_one_task_at_a_time_and_never_an_ordinary_one(history, around):
    around.hello(ONE)
    alone(around)
    twice_dead(history, "a", "b")
    history.schedule(activity_id="c")
    around.step()
    assert given(around, ONE) == ["c"]
    assert given(around, ALONE) == ["a"]
    die(history, newest(history, "a"))
    around.step()
    assert given(around, ALONE) == ["b"]


def test_as_many_are_asked_for_as_have_work_up_to_the_most_and_again_each_second(history, around):
    around.hello(ONE)
    assert around.wanted == [Quarantine(0)]
    twice_dead(history, "a")
    around.step()
    assert around.wanted[1:] == [Quarantine(1)]
    twice_dead(history, "b", "c")
    around.step()
    assert around.wanted[2:] == [Quarantine(2)]
    around.at(history.now_ms + SAY_AGAIN_MS - 1)
    assert len(around.wanted) == 3
    around.at(history.now_ms + 1)
    assert around.wanted[3:] == [Quarantine(2)]


def test_one_that_idles_for_long_gets_nothing_more_before_it_is_let_go(history, around):
    around.hello(ONE)
    twice_dead(history, "a")
    around.step()
    alone(around)
    around.tasks()
    assert history.ask(c.CompleteActivity(token(history), None)) == c.Done()
    began_ms = history.now_ms
    around.at(began_ms)
    around.at(began_ms + IDLE_MS - 1)
    assert around.wanted[-1] == Quarantine(1)
    around.at(began_ms + IDLE_MS)
    assert around.wanted[-1] == Quarantine(0, (ALONE.ordinal,))
    twice_dead(history, "b")
    around.sync(ALONE, quarantine=True)
    assert given(around, ALONE) == []
    assert around.wanted[-1] == Quarantine(1, (ALONE.ordinal,))


def test_one_that_has_just_become_idle_takes_the_next(history, around):
    around.hello(ONE)
    twice_dead(history, "a")
    alone(around)
    around.tasks()
    history.fail(newest(history))
    around.at(history.now_ms + IDLE_MS - 1)
    around.sync(ALONE, quarantine=True)
    twice_dead(history, "b")
    around.step()
    assert given(around, ALONE) == ["b"]
    assert around.wanted[-1].release == ()


def test_a_new_scheduler_says_what_it_wants_and_lets_go_of_none_that_it_has_not_seen_idle(
    history, make_scheduler
):
    twice_dead(history, "a")
    address = history.grant(session=ALONE)
    around = make_scheduler(history, quarantine_max=2)
    around.hello(ONE)
    alone(around)
    around.at(history.now_ms + IDLE_MS * 3)
    assert {message.release for message in around.wanted} == {()}
    die(history, address)
    around.sync(ALONE, quarantine=True)
    assert given(around, ALONE) == ["a"]


def test_where_no_worker_of_this_node_serves_a_type_those_elsewhere_take_it_as_before(
    history, around
):
    around.hello(ONE, activity_types=("other",))
    around.sync(REMOTE)
    twice_dead(history, "a")
    around.step()
    assert given(around, REMOTE) == ["a"]
    assert around.wanted == [Quarantine(0)]


def test_that_a_worker_of_this_node_is_down_just_now_opens_no_way_round(history, around):
    around.hello(ONE)
    around.sync(REMOTE)
    around.sets(highest=ONE.ordinal)
    twice_dead(history, "a")
    around.step()
    assert given(around, REMOTE) == []
    assert around.wanted[-1] == Quarantine(1)


def test_without_quarantine_everything_runs_anywhere(history, scheduler):
    scheduler.hello(ONE)
    twice_dead(history, "a")
    scheduler.step()
    assert given(scheduler, ONE) == ["a"]
    assert scheduler.wanted == []


@pytest.mark.parametrize("reason", ["worker_died", "timeout"])
def test_a_workflow_task_that_was_parked_after_deaths_or_silence_runs_in_quarantine(
    history, around, reason
):
    around.hello(ONE)
    alone(around)
    history.start()
    for _ in range(3):
        around.step()
        assert len(around.tasks(WorkflowTask, ONE)) == 1
        assert history.ask(c.TimeOutWorkflowTask("w", 0, 0, reason)) == c.Done()
    due_ms = history.executions["w"].task_due_ms
    assert due_ms > history.now_ms
    around.at(due_ms - 1)
    assert around.tasks(WorkflowTask) == []
    around.sync(ONE)
    around.sync(ALONE, quarantine=True)
    around.at(due_ms)
    assert len(around.tasks(WorkflowTask, ALONE)) == 1
    history.step("w", c.StartTimer(1, 10))
    around.sync(ONE)
    around.at(due_ms + 10)
    assert len(around.tasks(WorkflowTask, ONE)) == 1


def test_a_workflow_task_that_does_not_match_hurts_nobody_and_needs_no_quarantine(history, around):
    around.hello(ONE)
    history.start()
    for _ in range(3):
        around.step()
        around.tasks(WorkflowTask)
        assert history.ask(c.FailWorkflowTask("w", 0, 0, "mismatch")) == c.Done()
    history.now_ms = history.executions["w"].task_due_ms
    around.sync(ONE)
    assert len(around.tasks(WorkflowTask, ONE)) == 1
    assert around.wanted == [Quarantine(0)]
