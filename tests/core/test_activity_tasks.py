"""Who gets which activity, and when its task is sent again."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core.ids import Session

ONE, TWO = Session("node.1", 1), Session("node.1", 2)


def test_a_ready_activity_goes_to_a_session_when_its_grant_is_in_the_feed(history, scheduler):
    scheduler.hello()
    history.schedule(heartbeat_ms=5_000, start_to_close_ms=60_000)
    scheduler.mind.step(history.n, history.now_ms)
    assert scheduler.tasks() == []
    scheduler.step()
    [task] = scheduler.tasks(session=ONE)
    assert (task.attempt, task.lease_ms, task.attempt_ms) == (1, 5_000, 60_000)
    assert task.n == history.n
    done = history.ask(c.CompleteActivity(task.token, None))
    assert done == c.Done()


def test_a_session_never_gets_more_than_its_slots(history, scheduler):
    scheduler.hello(activity_slots=2)
    for name in "abcd":
        history.schedule(name)
    scheduler.mind.step(history.n, history.now_ms)
    assert len(scheduler.proposed) == 2, "proposals in flight take slots"
    scheduler.step()
    first, _ = scheduler.tasks()
    history.ask(c.CompleteActivity(first.token, None))
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks()] == ["c"]


def test_work_is_spread_over_sessions_with_free_slots(history, scheduler):
    scheduler.hello(ONE)
    scheduler.hello(TWO)
    for name in "abcd":
        history.schedule(name)
    scheduler.step()
    assert len(scheduler.tasks(session=ONE)) == 2
    assert len(scheduler.tasks(session=TWO)) == 2


@pytest.mark.parametrize(
    "unfit",
    [{"activity_types": ("u",)}, {"queues": ("other",)}, {"draining": True}],
    ids=lambda fields: next(iter(fields)),
)
def test_an_activity_waits_for_a_session_that_takes_its_kind(history, scheduler, unfit):
    scheduler.hello(ONE, **unfit)
    history.schedule()
    scheduler.step()
    assert scheduler.asked == []
    scheduler.hello(TWO)
    assert len(scheduler.tasks(session=TWO)) == 1


def test_a_kind_that_nobody_takes_does_not_hold_up_the_others(history, scheduler):
    scheduler.hello()
    history.schedule("a", type="unknown", priority=9)
    history.schedule("b")
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks()] == ["b"]


def test_a_session_that_is_late_gets_a_task_only_where_no_other_has_room(history, scheduler):
    scheduler.hello(ONE, activity_slots=9)
    began_ms = history.now_ms
    history.now_ms += 1_251
    scheduler.hello(TWO, activity_slots=1)
    history.schedule("a")
    scheduler.step()
    assert len(scheduler.tasks(session=TWO)) == 1
    history.schedule("b")
    scheduler.step()
    assert len(scheduler.tasks(session=ONE)) == 1
    scheduler.at(began_ms + 2_001)
    history.schedule("c")
    scheduler.step()
    assert scheduler.tasks(session=ONE) == []


def test_a_silent_session_gets_nothing_until_it_is_heard_again(history, scheduler):
    scheduler.hello()
    scheduler.at(history.now_ms + 2_001)
    history.schedule()
    scheduler.step()
    assert scheduler.asked == []
    scheduler.sync()
    assert len(scheduler.tasks()) == 1


def test_a_refused_grant_frees_its_slot_and_the_activity_is_looked_at_again(history, scheduler):
    scheduler.hello(activity_slots=1)
    history.schedule("a")
    history.schedule("b")
    scheduler.mind.step(history.n, history.now_ms)
    [command] = scheduler.proposed
    scheduler.proposed.clear()
    scheduler.mind.answered(command, c.Refusal("FAILED_PRECONDITION", "no"), history.now_ms)
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks()] == ["b"]
    scheduler.sync(activity_slots=2)
    scheduler.at(1_250)
    assert [task.workflow_id for task in scheduler.tasks()] == ["a"]


def test_a_grant_refused_for_a_closed_activity_frees_its_slot(history, scheduler):
    scheduler.hello(activity_slots=1)
    history.schedule("a")
    scheduler.mind.step(history.n, history.now_ms)
    history.step("a", c.CompleteWorkflow(None))
    history.schedule("b")
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks()] == ["b"]


def test_a_type_handed_back_as_unknown_is_offered_elsewhere_only(history, scheduler):
    scheduler.hello(ONE)
    history.schedule()
    scheduler.step()
    [task] = scheduler.tasks(session=ONE)
    history.ask(c.ReleaseActivity(task.token, "unknown_type"))
    scheduler.step()
    scheduler.sync(ONE)
    assert scheduler.tasks() == []
    scheduler.sync(ONE, activity_types=("t", "u"))
    assert len(scheduler.tasks(session=ONE)) == 1


def test_a_task_that_a_sync_lacks_is_sent_again(history, scheduler):
    scheduler.hello()
    history.schedule()
    scheduler.step()
    [task] = scheduler.tasks()
    history.now_ms += 50
    scheduler.sync(n=history.n)
    assert scheduler.tasks() == [], "it may still be on its way"
    history.now_ms += 60
    scheduler.sync(n=history.n)
    [again] = scheduler.tasks()
    assert (again.token, again.deadline_ms) == (task.token, task.deadline_ms)
    assert again.lease_ms == task.lease_ms - 110
    history.now_ms += 1_000
    scheduler.sync(tokens=(task.token,), n=history.n)
    assert scheduler.tasks() == []


def test_a_task_is_sent_again_after_a_second_whatever_the_worker_has_seen(history, scheduler):
    scheduler.hello()
    history.schedule()
    scheduler.step()
    scheduler.tasks()
    history.now_ms += 1_000
    scheduler.sync(n=0)
    assert scheduler.tasks() == []
    history.now_ms += 1
    scheduler.sync(n=0)
    assert len(scheduler.tasks()) == 1


def test_a_sync_from_ahead_is_judged_only_when_we_are_there(history, scheduler):
    scheduler.hello()
    history.schedule()
    scheduler.step()
    scheduler.tasks()
    history.now_ms += 2_000
    scheduler.sync(n=history.n + 1)
    assert scheduler.tasks() == []
    history.start("other")
    scheduler.step()
    assert len(scheduler.tasks()) == 1


def test_leases_held_over_from_an_earlier_session_take_slots(history, scheduler):
    scheduler.hello(ONE)
    history.schedule("a")
    scheduler.step()
    [task] = scheduler.tasks()
    scheduler.hello(TWO, activity_slots=1, tokens=(task.token,), n=history.n)
    scheduler.sets(2)
    history.schedule("b")
    scheduler.step()
    assert scheduler.tasks() == []
    history.ask(c.CompleteActivity(task.token, None))
    scheduler.sync(TWO, activity_slots=1, n=history.n)
    assert [task.workflow_id for task in scheduler.tasks(session=TWO)] == ["b"]


def test_after_a_restart_a_grant_that_was_never_sent_is_found_by_the_sync(history, make_scheduler):
    history.schedule()
    history.grant(session=ONE)
    scheduler = make_scheduler(history)
    history.now_ms += 200
    scheduler.hello(ONE, n=history.n)
    assert len(scheduler.tasks(session=ONE)) == 1
