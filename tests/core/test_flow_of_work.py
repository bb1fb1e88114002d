"""Limits and pauses where work is given out: by the scheduler, and by history for the asking."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import explaining
from perdure.core import commands as c
from perdure.core import records as r
from perdure.core.admission import Admission
from perdure.core.breakers import Breaker, BreakerState
from perdure.core.ids import Session
from perdure.core.links import Backlog, WorkflowTask
from perdure.core.rates import RetryShare, TokenBucket
from perdure.core.records import ActivityOptions, GateSet
from perdure.core.rules import ActivityRule, BreakerRule, QueueRule, RetryBudget, Rules
from perdure.core.task_queues import TaskQueues
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from tests.core.ledger_rig import LOCAL, Rig

LIMITED = {
    "a rate": {"rate": 5.0},
    "a concurrency": {"concurrency": 9},
    "a breaker": {"breaker": BreakerRule(failures=3)},
}
GATES = {"queue": "default", "activity_type": "t"}


# --- history: for the asking --------------------------------------------------------
def asked_for(rig: Rig, workflow_id: str = "w") -> list[type]:
    """What follows where a worker asks for the lease of what it schedules."""
    rig.ask(rig.start(workflow_id))
    step = c.ScheduleActivity("a", "t", None, ActivityOptions(RetryPolicy()))
    hire = c.Hire("w1", LOCAL, ("a",))
    assert rig.ask(c.CompleteWorkflowTask(workflow_id, 0, 0, 1, (step,), hire)) == c.Done()
    return [type(record) for record in rig.records()]


@pytest.mark.parametrize("rule", LIMITED.values(), ids=LIMITED)
def test_nobody_gets_a_lease_for_the_asking_where_the_scheduler_has_to_count_it(rule):
    assert r.LeaseGranted in asked_for(Rig(rules=Rules(activities={"u": ActivityRule(**rule)})))
    assert r.LeaseGranted not in asked_for(Rig(rules=Rules(activities={"t": ActivityRule(**rule)})))


def test_a_limited_queue_gives_no_lease_for_the_asking_and_one_with_a_priority_does():
    def rules(**fields: Any) -> Rules:
        return Rules(queues={"default": QueueRule(**fields)})

    assert r.LeaseGranted not in asked_for(Rig(rules=rules(concurrency=1)))
    assert r.LeaseGranted in asked_for(Rig(rules=rules(priority=1)))


@pytest.mark.parametrize("kind", GATES)
def test_what_is_paused_is_leased_neither_for_the_asking_nor_by_a_proposal_under_way(kind):
    rig = Rig()
    rig.ask(c.SetGate("", kind, GATES[kind], True, "", None))
    assert r.LeaseGranted not in asked_for(rig)
    assert isinstance(rig.ask(rig.grant_of()), c.Refusal)
    rig.ask(c.SetGate("", kind, GATES[kind], False, "", None))
    assert rig.ask(rig.grant_of()) == c.Done()


def test_a_workflow_task_that_was_out_when_the_pause_came_counts_and_leases_nothing():
    rig = Rig()
    rig.ask(rig.start())
    rig.ask(c.PauseWorkflow("w", True, ""))
    assert asked_for(rig) == [r.WorkflowTaskCompleted, r.ActivityTaskScheduled]


@pytest.mark.parametrize("gate", [("queue", "default"), None], ids=["queue", "workflow"])
def test_a_result_counts_while_its_workflow_is_held_back_and_the_step_behind_it_waits(gate):
    rig = Rig()
    rig.schedule()
    rig.grant()
    pause = c.PauseWorkflow("w", True, "") if gate is None else c.SetGate("", *gate, True, "", None)
    rig.ask(pause)
    following = c.CompleteWorkflowTask("w", 1, 1, 4, (c.CompleteWorkflow(None),))
    report = c.CompleteActivity(rig.token(), b"mr", rig.now_ms, following)
    for _ in range(2):
        assert rig.ask(report) == c.Done(c.STEP_DROPPED)
    assert rig.execution().is_open
    assert rig.execution().task_ready


def test_a_ledger_whose_write_failed_knows_the_gates_that_are_stored():
    rig = Rig()
    rig.judge(c.SetGate("", "queue", "default", True, "", None))
    rig.ledger.forget(0)
    assert r.LeaseGranted in asked_for(rig)


# --- the scheduler ----------------------------------------------------------------------
def around(make_scheduler, history, **rules: Any) -> Any:
    scheduler = make_scheduler(history, rules=Rules(**rules))
    scheduler.hello()
    return scheduler


def test_proposals_under_way_count_and_a_refused_one_gives_its_place_back(history, make_scheduler):
    scheduler = around(make_scheduler, history, activities={"t": ActivityRule(concurrency=2)})
    for name in "abc":
        history.schedule(name)
    scheduler.mind.step(history.n, history.now_ms)
    assert [command.workflow_id for command in scheduler.proposed] == ["a", "b"]
    refused = scheduler.proposed.pop()
    scheduler.mind.answered(refused, c.Refusal("FAILED_PRECONDITION", "no"), history.now_ms)
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks()] == ["a", "c"]


def test_a_rate_wakes_the_scheduler_when_the_next_may_begin(history, make_scheduler):
    scheduler = around(make_scheduler, history, queues={"default": QueueRule(rate=4)})
    history.schedule("a")
    history.schedule("b")
    scheduler.step()
    assert scheduler.tasks() == []
    assert scheduler.mind.next_ms() == 1_250
    scheduler.sync()
    scheduler.at(1_250)
    assert len(scheduler.tasks()) == 1
    assert scheduler.mind.next_ms() == 1_500


def test_what_is_held_back_is_no_backlog_and_keeps_no_other_kind_waiting(history, make_scheduler):
    rules = {"t": ActivityRule(concurrency=1)}
    scheduler = around(make_scheduler, history, activities=rules)
    scheduler.sync(activity_types=("t", "u"))
    for name in "ab":
        history.schedule(name)
    history.schedule("c", type="u")
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks()] == ["a", "c"]
    assert scheduler.tasks(Backlog) == []


def test_the_scheduler_gives_out_nothing_that_is_paused_workflow_tasks_included(history, scheduler):
    scheduler.hello()
    pause = GateSet(history.now_ms, "queue", "default", True, "", None)
    scheduler.mind.apply(1, history.now_ms, "", (pause,), history.now_ms)
    history.start("a")
    history.schedule("b")
    scheduler.step()
    assert scheduler.asked == []
    assert scheduler.tasks(WorkflowTask) == []
    go_on = GateSet(history.now_ms, "queue", "default", False, "", None)
    scheduler.mind.apply(2, history.now_ms, "", (go_on,), history.now_ms)
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks(WorkflowTask)] == ["a"]
    assert [task.workflow_id for task in scheduler.tasks()] == ["b"]


def test_a_probe_that_is_handed_back_or_whose_workflow_ends_makes_room_for_another(
    history, make_scheduler
):
    rule = ActivityRule(breaker=BreakerRule(failures=1, open_ms=100))
    scheduler = around(make_scheduler, history, activities={"t": rule})
    history.schedule("a", retry=RetryPolicy(1_000_000, max_attempts=9))
    scheduler.step()
    history.ask(c.FailActivity(scheduler.tasks()[0].token, Failure("Down", "no")))
    for name in "bcd":
        history.schedule(name)
    scheduler.at(1_100)
    [probe] = scheduler.tasks()
    history.ask(c.ReleaseActivity(probe.token, "shutdown"))
    scheduler.step()
    [probe] = scheduler.tasks()
    history.step(probe.workflow_id, c.CompleteWorkflow(None))
    scheduler.step()
    assert len(scheduler.tasks()) == 1


def test_a_probe_that_begins_and_ends_in_one_commit_makes_room_for_another():
    rig = Rig()
    rule = ActivityRule(breaker=BreakerRule(failures=1))
    rig.schedule("a")
    rig.schedule("b")
    reader = rig.store.reader()
    queues = TaskQueues()
    admission = Admission(queues, Rules(activities={"t": rule}))
    queues.load(reader.open_state()[1], 0)
    admission.breakers["t"].begin_half_open()
    entries = {name: queues.entry("w", name) for name in "ab"}
    admission.take(entries["a"], 0)
    assert admission.hold(entries["b"].key, 0).why == "breaker"
    rig.ask(rig.grant_of("a"), rig.step(c.CancelActivity("a")))
    admission.follow("w", rig.records(), 0)
    assert admission.hold(entries["b"].key, 0) is None


def test_priorities_first_then_workflows_in_turn_whatever_waits_behind(history, scheduler):
    options = ActivityOptions(RetryPolicy())
    history.start("huge")
    steps = [c.ScheduleActivity(f"a{at}", "t", None, options) for at in range(50)]
    history.step("huge", *steps)
    history.schedule("small")
    history.schedule("first", priority=1)
    scheduler.hello(activity_slots=4)
    assert [task.workflow_id for task in scheduler.tasks()] == ["first", "huge", "small", "huge"]
    history.schedule("late")
    scheduler.sync(activity_slots=6)
    assert {task.workflow_id for task in scheduler.tasks()} == {"late", "huge"}


def test_a_workflow_whose_activities_were_leased_for_the_asking_has_lost_no_turn(
    history, scheduler
):
    hire = c.Hire("worker-1", Session("node.1", 1), ("a0", "a1", "a2"))
    scheduler.hello()
    history.start("w")
    for at in range(3):
        execution = history.executions["w"]
        step = c.ScheduleActivity(f"a{at}", "t", None, ActivityOptions(RetryPolicy()))
        cursor = (execution.consumed, execution.commands, execution.last_event_id)
        history.ask(c.CompleteWorkflowTask("w", *cursor, (step,), hire))
    scheduler.sync(activity_slots=3)
    history.schedule("w", "mine")
    history.schedule("other")
    scheduler.sync(activity_slots=4)
    assert [task.workflow_id for task in scheduler.tasks()] == ["w"]


# --- explain ----------------------------------------------------------------------------
def gate(scheduler, history, *of: str) -> dict[str, Any]:
    look = explaining.of_matching(scheduler.mind, history.now_ms)
    view = explaining.explain(look, *of)
    assert view is not None
    return view


def test_explain_says_whether_slots_or_a_worker_are_missing(history, scheduler):
    scheduler.hello(activity_slots=1)
    history.schedule("a")
    history.schedule("b")
    history.schedule("c", type="tt")
    scheduler.step()
    assert gate(scheduler, history, "a", "a")["details"]["gate"] == "running"
    busy = gate(scheduler, history, "b", "a")
    assert (busy["details"]["gate"], busy["details"]["waiting"]) == ("slots", 1)
    missing = gate(scheduler, history, "c", "a")
    assert missing["details"]["gate"] == "no_worker"
    assert "t (nearest)" in missing["reason"]


def test_explain_of_a_workflow_task_that_is_out_and_of_one_that_is_not_open(history, scheduler):
    scheduler.hello()
    history.start("a")
    scheduler.step()
    view = gate(scheduler, history, "a")
    assert view["details"]["gate"] == "running"
    assert "worker-1" in view["reason"]
    look = explaining.of_matching(scheduler.mind, history.now_ms)
    assert explaining.explain(look, "nobody") is None


# --- the counters -------------------------------------------------------------------------
def test_a_bucket_lets_no_more_begin_than_its_rate_and_its_burst_however_often_it_is_asked():
    for rate in (0.3, 7.0, 250.0):
        bucket, begun, now_ms = TokenBucket(rate, 0), 0, 0
        while now_ms < 20_000:
            if bucket.ready_ms(now_ms) <= now_ms:
                bucket.take(now_ms)
                begun += 1
            else:
                now_ms += 1 if rate > 100 else 7
        assert rate * 20 * 0.9 - 1 <= begun <= rate * 20 + max(1, rate / 10)


def test_a_bucket_is_ready_exactly_when_it_says():
    bucket = TokenBucket(3, 0)
    assert bucket.ready_ms(0) == 334
    assert bucket.ready_ms(333) > 333
    assert bucket.ready_ms(334) == 334


@pytest.mark.parametrize(("firsts", "allowed"), [(25, 5), (2, 3), (0, 3)])
def test_a_budget_of_a_fifth_and_at_least_three(firsts, allowed):
    """cases.md R105."""
    share = RetryShare(RetryBudget(ratio=0.2, minimum=3, window_ms=10_000))
    for _ in range(firsts):
        share.first(1_000)
    begun = 0
    while share.ready_ms(1_000) <= 1_000:
        share.retry(1_000)
        begun += 1
    assert begun == allowed
    assert share.ready_ms(1_000) == 11_000
    assert share.ready_ms(11_000) == 11_000


def test_a_retry_that_did_not_begin_leaves_no_more_room_than_there_was():
    share = RetryShare(RetryBudget(ratio=0, minimum=2, window_ms=1_000))
    share.retry(0)
    share.give_back(0, 950)  # Its refusal came late: nearly all of a window later.
    for allowed in (2, 1):
        assert (share.retries, share.allowed) == (2 - allowed, 2)
        share.retry(1_000)
    assert share.ready_ms(1_000) > 1_000
    share.give_back(0, 1_900)  # What did not begin counts no more by now, and the others do.
    assert share.retries == 2


def test_under_a_budget_of_a_tenth_steady_failure_makes_a_tenth_more_load():
    share = RetryShare(RetryBudget(ratio=0.1, minimum=1, window_ms=10_000))
    retries = 0
    for now_ms in range(0, 100_000, 10):
        share.first(now_ms)
        while share.ready_ms(now_ms) <= now_ms:
            share.retry(now_ms)
            retries += 1
    assert retries <= 0.1 * 10_000 * 1.01 + 1


def test_a_breaker_forgets_failures_that_are_older_than_its_window():
    breaker = Breaker(BreakerRule(failures=2, window_ms=1_000, open_ms=500, probes=2))
    breaker.ended(("w", "a"), 0, failed=True)
    breaker.ended(("w", "b"), 1_000, failed=True)
    assert breaker.state(1_000) is BreakerState.CLOSED
    breaker.ended(("w", "c"), 1_999, failed=True)
    assert breaker.state(1_999) is BreakerState.OPEN
    for at_ms in (2_498, 2_499):
        breaker.began(("w", "p"), at_ms)
        breaker.ended(("w", "p"), at_ms, failed=False)
    assert breaker.state(2_500) is BreakerState.HALF_OPEN, "two probes are wanted"
    breaker.began(("w", "q"), 2_501)
    breaker.ended(("w", "q"), 2_501, failed=False)
    assert breaker.state(2_501) is BreakerState.CLOSED
