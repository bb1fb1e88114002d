"""Who gets which workflow task, and when it is given again."""

from __future__ import annotations

from perdure.core import commands as c
from perdure.core.ids import Session
from perdure.core.links import (
    Sessions,
    WorkflowTask,
)

NODE = "node.1"
ONE, TWO = Session(NODE, 1), Session(NODE, 2)
GATEWAY = "gateway.1"


def test_a_new_workflow_comes_with_its_events_and_once(history, scheduler):
    scheduler.hello()
    history.start()
    scheduler.step()
    [task] = scheduler.tasks(WorkflowTask)
    assert (task.consumed, task.commands, len(task.events)) == (0, 0, 1)
    scheduler.step()
    assert scheduler.tasks(WorkflowTask) == []


def test_the_worker_whose_result_was_accepted_is_preferred_and_gets_new_events(history, scheduler):
    scheduler.hello(TWO)
    history.start()
    scheduler.step()
    assert len(scheduler.tasks(WorkflowTask, TWO)) == 1
    scheduler.hello(ONE, workflow_slots=99)
    history.schedule()
    scheduler.step()
    [activity] = scheduler.tasks()
    history.ask(c.CompleteActivity(activity.token, None))
    scheduler.step()
    [task] = scheduler.tasks(WorkflowTask, TWO)
    assert task.consumed == 1
    assert len(task.events) == 2


def test_another_worker_fetches_the_events_itself(history, scheduler):
    scheduler.hello(TWO)
    history.start()
    scheduler.step()
    history.schedule()
    scheduler.step()
    [activity] = scheduler.tasks()
    scheduler.hello(ONE)
    scheduler.sets(1)
    scheduler.tasks(WorkflowTask)
    history.ask(c.CompleteActivity(activity.token, None))
    scheduler.step()
    [task] = scheduler.tasks(WorkflowTask, ONE)
    assert task.events is None
    assert task.last_event_id == 4


def test_workflow_tasks_do_not_take_the_slots_of_activities(history, scheduler):
    scheduler.hello(activity_slots=1, workflow_slots=1)
    for name in "ab":
        history.start(name)
    history.schedule("c")
    scheduler.step()
    assert len(scheduler.tasks()) == 1
    assert [task.workflow_id for task in scheduler.tasks(WorkflowTask)] == ["a"]
    history.step("a", c.CompleteWorkflow(None))
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks(WorkflowTask)] == ["b"]


def test_events_that_came_while_the_task_was_out_make_another(history, scheduler):
    scheduler.hello()
    history.start()
    history.step("w", c.StartTimer(1, 10), c.StartTimer(2, 20))
    scheduler.at(1_010)
    [first] = scheduler.tasks(WorkflowTask)
    scheduler.at(1_020)
    assert scheduler.tasks(WorkflowTask) == []
    history.ask(c.CompleteWorkflowTask("w", first.consumed, 2, first.last_event_id, ()))
    scheduler.step()
    [second] = scheduler.tasks(WorkflowTask)
    assert second.consumed == first.last_event_id
    assert len(second.events) == 1


def test_the_death_of_its_worker_gives_the_task_out_again_and_counts(history, scheduler):
    scheduler.hello(ONE)
    history.start()
    scheduler.step()
    scheduler.tasks(WorkflowTask)
    scheduler.hello(TWO)
    scheduler.sets(2)
    assert history.executions["w"].task_failures == 1
    assert len(scheduler.tasks(WorkflowTask, TWO)) == 1


def test_a_task_that_a_sync_lacks_is_sent_again_uncounted(history, scheduler):
    scheduler.hello()
    history.start()
    scheduler.step()
    [task] = scheduler.tasks(WorkflowTask)
    history.now_ms += 100
    scheduler.sync(n=history.n, workflows=(("w", 0, 0),))
    assert scheduler.tasks(WorkflowTask) == []
    scheduler.sync(n=history.n)
    assert scheduler.tasks(WorkflowTask) == [task]
    assert history.executions["w"].task_failures == 0


def test_a_task_that_takes_too_long_at_a_living_worker_times_out(history, scheduler):
    scheduler.hello()
    history.start()
    scheduler.step()
    for now_ms in range(1_900, 11_000, 1_000):
        history.now_ms = now_ms
        scheduler.sync(workflows=(("w", 0, 0),))
    assert history.executions["w"].task_failures == 0
    scheduler.at(11_000)
    assert history.executions["w"].task_reason == "timeout"


def test_a_task_at_a_worker_that_fell_silent_moves_uncounted(history, scheduler):
    scheduler.hello(ONE)
    history.start()
    scheduler.step()
    scheduler.tasks(WorkflowTask)
    given_ms = history.now_ms
    history.now_ms = given_ms + 3_999
    scheduler.hello(TWO)
    assert scheduler.tasks(WorkflowTask, TWO) == []
    scheduler.at(given_ms + 4_000)
    assert len(scheduler.tasks(WorkflowTask, TWO)) == 1
    assert history.executions["w"].task_failures == 0


def test_a_worker_that_does_not_know_the_type_is_not_asked_again(history, scheduler):
    scheduler.hello(ONE)
    history.start()
    scheduler.step()
    scheduler.tasks(WorkflowTask)
    history.ask(c.FailWorkflowTask("w", 0, 0, "unknown_type"))
    scheduler.at(2_500)
    scheduler.sync(ONE)
    assert scheduler.tasks(WorkflowTask) == []
    scheduler.hello(TWO)
    assert len(scheduler.tasks(WorkflowTask, TWO)) == 1


def test_a_worker_whose_task_failed_is_not_taken_to_have_anything_cached(history, scheduler):
    scheduler.hello()
    history.start()
    scheduler.step()
    history.step("w", c.StartTimer(1, 10))
    scheduler.at(1_010)
    [_, task] = scheduler.tasks(WorkflowTask)
    assert task.events is not None
    history.ask(c.FailWorkflowTask("w", 1, 1, "mismatch"))
    scheduler.step()
    [again] = scheduler.tasks(WorkflowTask)
    assert (again.consumed, again.events) == (1, None)


def test_a_death_that_history_could_not_count_is_proposed_again(history, scheduler):
    scheduler.hello(ONE)
    history.start()
    scheduler.step()
    scheduler.hello(TWO)
    scheduler.mind.sessions(Sessions(NODE, 9, (2,)))
    [command] = scheduler.proposed
    scheduler.proposed.clear()
    scheduler.mind.answered(command, c.Refusal("UNAVAILABLE", ""), 1_000)
    scheduler.at(1_999)
    assert scheduler.asked == []
    scheduler.at(2_000)
    assert scheduler.asked == [c.TimeOutWorkflowTask("w", 0, 0, "worker_died")]


def test_after_a_restart_tasks_wait_for_the_syncs_that_may_list_them(history, make_scheduler):
    history.start("held")
    history.start("free")
    scheduler = make_scheduler(history)
    scheduler.sets(1, 2)
    scheduler.sync(ONE)
    assert scheduler.tasks(WorkflowTask) == []
    scheduler.sync(TWO, workflows=(("held", 0, 0),))
    assert [task.workflow_id for task in scheduler.tasks(WorkflowTask)] == ["free"]


def test_after_a_restart_tasks_do_not_wait_long(history, make_scheduler):
    history.start()
    scheduler = make_scheduler(history)
    scheduler.sets(1, 2)
    scheduler.sync(ONE)
    assert scheduler.mind.next_ms() == 1_300
    scheduler.at(1_300)
    assert len(scheduler.tasks(WorkflowTask)) == 1


def test_a_worker_that_comes_back_as_another_session_keeps_its_task(history, make_scheduler):
    scheduler = make_scheduler(history)
    old, new = Session(GATEWAY, 1), Session("gateway.2", 1)
    scheduler.sync(old)
    scheduler.at(1_300)
    history.start()
    scheduler.step()
    assert len(scheduler.tasks(WorkflowTask, old)) == 1
    scheduler.mind.gateway("gateway.2")
    scheduler.sync(new, workflows=(("w", 0, 0),), n=history.n)
    assert scheduler.tasks(WorkflowTask) == []
    history.step("w", c.StartTimer(1, 10))
    scheduler.at(1_400)
    [task] = scheduler.tasks(WorkflowTask, new)
    assert task.events is not None
