"""Slots promised to what a workflow task will schedule, and who gets what was scheduled."""

from __future__ import annotations

from perdure.core import commands as c
from perdure.core.ids import Address, Session, seal
from perdure.core.links import Backlog, WorkflowTask
from perdure.core.records import ActivityOptions
from perdure.policy import RetryPolicy

ONE, TWO = Session("node.1", 1), Session("node.1", 2)
PLAIN = ActivityOptions(RetryPolicy())


def schedules(activity_id: str = "a", kind: str = "t") -> c.ScheduleActivity:
    return c.ScheduleActivity(activity_id, kind, None, PLAIN)


def given(scheduler) -> dict[str, int]:
    return {task.workflow_id: task.permits for task in scheduler.tasks(WorkflowTask)}


def report(history, workflow_id: str, *steps: c.Step, hire: bool = True, session=ONE) -> None:
    ids = tuple(step.activity_id for step in steps if isinstance(step, c.ScheduleActivity))
    wish = c.Hire(f"worker-{session.ordinal}", session, ids) if hire and ids else None
    done = history.ask(c.CompleteWorkflowTask(workflow_id, 0, 0, 1, steps, wish))
    assert done == c.Done()


def complete(history, workflow_id: str, activity_id: str = "a", grant: int = 1) -> None:
    token = seal(Address(workflow_id, activity_id, 1, grant), history.key)
    assert history.ask(c.CompleteActivity(token, None)) == c.Done()


def test_a_task_comes_with_a_permit_while_a_slot_is_free(history, scheduler):
    scheduler.hello(activity_slots=2)
    for name in "abc":
        history.start(name)
    scheduler.step()
    assert given(scheduler) == {"a": 1, "b": 1}  # The third waits for a slot.


def test_a_promised_slot_is_given_to_nobody_else(history, scheduler):
    scheduler.hello(activity_slots=1)
    history.start("a")
    scheduler.step()
    history.schedule("c")
    scheduler.step()
    assert scheduler.tasks() == []
    report(history, "a", c.StartTimer(1, 10))
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks()] == ["c"]


def test_what_was_hired_is_not_sent_by_the_scheduler_and_takes_a_slot(history, scheduler):
    scheduler.hello(activity_slots=1)
    history.start("a")
    scheduler.step()
    report(history, "a", schedules())
    scheduler.step()
    assert scheduler.tasks() == []
    history.schedule("c")
    scheduler.step()
    assert scheduler.tasks() == []
    complete(history, "a")
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks()] == ["c"]


def test_what_was_hired_and_got_lost_is_sent_again(history, scheduler):
    scheduler.hello()
    history.start("a")
    scheduler.step()
    report(history, "a", schedules())
    scheduler.step()
    history.now_ms += 200
    scheduler.sync(n=history.n)
    assert [task.activity_id for task in scheduler.tasks()] == ["a"]


def test_a_first_task_waits_while_slots_come_free_and_goes_without_when_none_does(
    history, scheduler
):
    scheduler.hello(activity_slots=1)
    history.start("a")
    scheduler.step()
    given(scheduler)
    report(history, "a", schedules())
    history.start("b")
    scheduler.step()
    assert given(scheduler) == {}
    assert scheduler.mind.next_ms() == history.now_ms + 300
    scheduler.at(history.now_ms + 299)
    assert given(scheduler) == {}
    scheduler.at(history.now_ms + 1)
    assert given(scheduler) == {"b": 0}


def test_the_wait_ends_with_the_first_slot_that_comes_free(history, scheduler):
    scheduler.hello(activity_slots=1)
    history.start("a")
    scheduler.step()
    report(history, "a", schedules())
    history.start("b")
    scheduler.step()
    given(scheduler)
    complete(history, "a")
    scheduler.step()
    assert given(scheduler) == {"a": 0, "b": 1}


def test_a_kind_that_hires_nobody_does_not_wait_for_slots(history, scheduler):
    scheduler.hello(activity_slots=1, workflow_types=("T", "U"))
    history.start("u", type="U")
    scheduler.step()
    report(history, "u", c.StartTimer(1, 10))
    history.start("a")
    scheduler.step()
    given(scheduler)
    history.start("v", type="U")
    history.start("b")
    scheduler.step()
    assert given(scheduler) == {"v": 0}


def test_a_worker_is_told_when_activities_wait_for_its_slots_and_when_none_does(history, scheduler):
    scheduler.hello(activity_slots=1)
    history.schedule("c")
    scheduler.step()
    assert scheduler.tasks(Backlog) == []
    history.schedule("d")
    scheduler.step()
    assert scheduler.tasks(Backlog) == [Backlog(True)]
    history.start("a")
    scheduler.step()
    assert given(scheduler)["a"] == 0
    complete(history, "c")
    scheduler.step()
    assert scheduler.tasks(Backlog) == [Backlog(False)]


def test_what_waits_for_others_is_no_backlog_of_this_worker(history, scheduler):
    scheduler.hello(activity_slots=1)
    history.schedule("c", type="unknown")
    scheduler.step()
    assert scheduler.tasks(Backlog) == []


def test_a_worker_that_did_not_hear_is_told_again(history, scheduler):
    scheduler.hello(activity_slots=1)
    history.schedule("c")
    history.schedule("d")
    scheduler.step()
    scheduler.tasks(Backlog)
    scheduler.sync(activity_slots=1, backlog=False)
    assert scheduler.tasks(Backlog) == [Backlog(True)]
    scheduler.sync(activity_slots=1, backlog=True)
    assert scheduler.tasks(Backlog) == []


def test_what_a_workflow_waits_for_alone_goes_to_the_worker_that_has_it_cached(history, scheduler):
    scheduler.hello(ONE, activity_slots=3, workflow_slots=0)
    scheduler.hello(TWO, activity_slots=2)
    history.start("a")
    scheduler.step()
    scheduler.tasks(WorkflowTask, session=TWO)
    report(history, "a", schedules(), hire=False)
    scheduler.step()
    assert len(scheduler.tasks(session=TWO)) == 1


def test_of_many_activities_each_goes_where_there_is_most_room(history, scheduler):
    scheduler.hello(ONE, activity_slots=9, workflow_slots=0)
    scheduler.hello(TWO, activity_slots=3)
    history.start("a")
    scheduler.step()
    report(history, "a", schedules("x"), schedules("y"), hire=False)
    scheduler.step()
    assert len(scheduler.tasks(session=ONE)) == 2


def test_the_promise_of_a_worker_that_went_away_is_made_by_another(history, scheduler):
    scheduler.hello(ONE, activity_slots=1)
    history.start("a")
    scheduler.step()
    given(scheduler)
    scheduler.live.clear()
    scheduler.hello(TWO, activity_slots=1)
    assert given(scheduler) == {"a": 1}
