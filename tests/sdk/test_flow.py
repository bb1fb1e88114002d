"""Pauses, tries at once, explain, limits: seen through LocalEngine."""

from __future__ import annotations

import pytest

from perdure import activity, workflow
from perdure.errors import FailedPrecondition, InvalidArgument, NotFound
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from perdure.testing import LocalEngine, ManualClock


@activity.define(retry=RetryPolicy(initial_ms=1_000, max_attempts=3))
def charge() -> str:
    return "paid"


@workflow.define
async def order() -> str:
    return await workflow.execute_activity(charge, activity_id="charge")


@workflow.define
async def batch(count: int) -> int:
    tasks = [workflow.start_activity(charge, activity_id=f"c{at}") for at in range(count)]
    for task in tasks:
        await task
    return count


def engine(config=None, **options) -> LocalEngine:
    return LocalEngine(
        [order, batch], [], clock=ManualClock(0), jitter=lambda d, u: d, config=config, **options
    )


def started(local: LocalEngine, *ids: str) -> None:
    for one in ids or ("o",):
        local.client.start_workflow(order, workflow_id=one)
    local.run_workflow_tasks()


def gate(local: LocalEngine, *of: str) -> str:
    return local.explain(*(of or ("o", "charge"))).details["gate"]


# --- pauses ---------------------------------------------------------------------
PAUSES = {
    "queue": ("queue", "default"),
    "activity type": ("activity_type", "charge"),
    "workflow": ("workflow", "o"),
}


@pytest.mark.parametrize("of", PAUSES.values(), ids=PAUSES)
def test_what_is_paused_begins_nothing_until_it_is_resumed_whatever_restarts(of):
    local = engine()
    started(local)
    kind, name = of
    getattr(local.client, f"pause_{kind}")(name, "the bank is down")
    assert local.poll_activity_task() is None
    local.restart()
    assert local.poll_activity_task() is None
    why = local.explain("o", "charge")
    assert why.details["gate"] == "paused"
    assert "the bank is down" in why.reason
    assert name in why.next
    getattr(local.client, f"resume_{kind}")(name)
    local.restart()
    task = local.poll_activity_task()
    assert task.attempt == 1
    local.complete_activity_task(task.token, "paid")
    local.run_workflow_tasks()
    assert local.client.result("o") == "paid"


@pytest.mark.parametrize("of", PAUSES.values(), ids=PAUSES)
def test_a_second_pause_without_a_reason_keeps_the_first_one_and_another_reason_replaces_it(of):
    local = engine()
    started(local)
    kind, name = of
    pause = getattr(local.client, f"pause_{kind}")
    for given, kept in (("the bank is down", "down"), (None, "down"), ("no money", "no money")):
        pause(name, given)
        assert kept in local.explain("o", "charge").reason
    getattr(local.client, f"resume_{kind}")(name)
    pause(name)
    assert local.explain("o", "charge").reason.endswith("paused by an operator")


@pytest.mark.parametrize("of", PAUSES.values(), ids=PAUSES)
def test_an_attempt_that_runs_when_the_pause_comes_may_report_and_is_retried_after_it(of):
    local = engine()
    started(local)
    task = local.poll_activity_task()
    kind, name = of
    getattr(local.client, f"pause_{kind}")(name)
    assert local.record_heartbeat(task.token, 1) > 0
    assert local.fail_activity_task(task.token, Failure("Boom", "no")) == "Retrying"
    local.clock.advance_ms(60_000)
    assert local.poll_activity_task() is None
    getattr(local.client, f"resume_{kind}")(name)
    assert local.poll_activity_task().attempt == 2


def test_a_paused_workflow_does_not_run_its_own_code_either():
    local = engine()
    local.client.start_workflow(order, workflow_id="o")
    local.client.pause_workflow("o")
    assert local.run_workflow_tasks() == 0
    assert local.explain("o").details["gate"] == "paused"
    local.client.resume_workflow("o")
    assert local.run_workflow_tasks() == 1


def test_a_paused_queue_gives_no_workflow_task_and_other_queues_go_on():
    local = engine()
    local.client.pause_queue("slow")
    local.client.start_workflow(order, workflow_id="a", task_queue="slow")
    local.client.start_workflow(order, workflow_id="b")
    local.run_workflow_tasks()
    assert local.explain("a").details["gate"] == "paused"
    assert gate(local, "b", "charge") == "ready"
    assert [(it.kind, it.name) for it in local.client.list_pauses()] == [("queue", "slow")]


def test_deadlines_of_callers_go_on_while_nothing_may_begin():
    @workflow.define
    async def hasty() -> str:
        try:
            return await workflow.execute_activity(
                charge, activity_id="charge", schedule_to_start_ms=5_000
            )
        except workflow.ActivityFailed as problem:
            return problem.failure.type

    local = LocalEngine([hasty], [charge], clock=ManualClock(0))
    local.client.pause_queue("default")
    local.client.resume_queue("default")
    local.client.pause_activity_type("charge")
    local.client.start_workflow(hasty, workflow_id="h")
    local.run_workflow_tasks()
    local.clock.advance_ms(5_000)
    local.run_until_idle()
    assert local.client.result("h") == "ScheduleToStartTimeout"


def test_the_same_request_a_second_time_changes_nothing():
    local = engine()
    local.client.pause_queue("default", request_id="r1")
    local.client.resume_queue("default")
    local.client.pause_queue("default", request_id="r1")
    assert local.client.list_pauses() == []
    with pytest.raises(FailedPrecondition, match="r1"):
        local.client.resume_queue("default", request_id="r1")


def test_a_workflow_that_has_ended_or_never_was_can_not_be_paused():
    local = engine()
    with pytest.raises(NotFound):
        local.client.pause_workflow("nobody")
    started(local)
    local.complete_activity_task(local.poll_activity_task().token, "x")
    local.run_workflow_tasks()
    with pytest.raises(FailedPrecondition, match="Completed"):
        local.client.pause_workflow("o")


# --- retry now --------------------------------------------------------------------
def failed_once() -> LocalEngine:
    local = engine()
    started(local)
    local.fail_activity_task(local.poll_activity_task().token, Failure("Boom", "no"))
    assert local.poll_activity_task() is None
    return local


@pytest.mark.parametrize("of", [("o",), ("o", "charge")], ids=["workflow", "activity"])
def test_retry_lets_what_is_in_its_backoff_begin_now(of):
    local = failed_once()
    assert gate(local) == "backoff"
    local.client.retry_workflow(*of)
    local.client.retry_workflow(*of)
    assert local.poll_activity_task().attempt == 2
    local.client.retry_workflow(*of)  # It is being tried: nothing more to do.


def test_retry_of_a_parked_workflow_task_and_of_what_waits_for_nothing():
    @workflow.define(name="order")
    async def other() -> str:
        return await workflow.execute_activity("another", activity_id="another")

    local = engine()
    started(local)
    local.complete_activity_task(local.poll_activity_task().token, "x")
    store = local._core.store
    changed = LocalEngine([other], [], clock=local.clock)
    changed._core.store = store
    changed.restart()
    changed.run_workflow_tasks()
    why = changed.explain("o")
    assert (why.details["gate"], why.details["task_reason"]) == ("parked", "mismatch")
    assert why.at_ms > 0
    failures = changed.describe_workflow("o").workflow_task.failures
    changed.client.retry_workflow("o")
    changed.run_workflow_tasks()
    assert changed.describe_workflow("o").workflow_task.failures == failures + 1


def test_retry_where_nothing_waits_for_its_time_is_refused():
    @workflow.define
    async def sleeper() -> None:
        await workflow.sleep_ms(60_000)

    local = LocalEngine([sleeper], clock=ManualClock(0))
    local.client.start_workflow(sleeper, workflow_id="s")
    local.run_workflow_tasks()
    with pytest.raises(FailedPrecondition, match="nothing of it waits"):
        local.client.retry_workflow("s")
    with pytest.raises(NotFound, match="nope"):
        local.client.retry_workflow("s", "nope")
    why = local.explain("s")
    assert (why.details["gate"], why.at_ms) == ("timer", 60_000)


# --- explain ------------------------------------------------------------------------
def test_explain_names_backoff_running_and_dead_letter_with_their_times():
    local = failed_once()
    why = local.explain("o", "charge")
    assert (why.state, why.at_ms) == ("Retrying", 1_000)
    assert "Boom: no" in why.reason
    local.clock.advance_ms(1_000)
    task = local.poll_activity_task(worker_id="w7")
    why = local.explain("o")
    assert (why.details["gate"], why.at_ms) == ("running", task.lease_deadline_ms)
    assert "w7" in why.reason
    assert "charge" in why.reason
    local.fail_activity_task(task.token, Failure("Boom", "no"))
    local.clock.advance_ms(2_000)
    local.fail_activity_task(local.poll_activity_task().token, Failure("Boom", "no"))
    why = local.explain("o", "charge")
    assert (why.state, why.details["gate"], why.at_ms) == ("DeadLettered", "dead_letter", None)
    assert "perdure wf dlq redrive o charge" in why.next
    with pytest.raises(FailedPrecondition, match="redrive"):
        local.client.retry_workflow("o", "charge")


def test_explain_of_what_is_over_or_unknown():
    local = engine()
    with pytest.raises(NotFound):
        local.explain("o")
    started(local)
    with pytest.raises(NotFound, match="nope"):
        local.explain("o", "nope")
    local.complete_activity_task(local.poll_activity_task().token, "x")
    local.run_workflow_tasks()
    why = local.explain("o")
    assert (why.state, why.details["gate"]) == ("Completed", "closed")


def test_explain_of_a_workflow_type_that_the_engine_has_not_names_the_nearest():
    local = engine()
    local.client.start_workflow("ordre", workflow_id="o")
    why = local.explain("o")
    assert why.details["gate"] == "no_worker"
    assert "order (nearest)" in why.reason


# --- limits ---------------------------------------------------------------------------
def polled(local: LocalEngine) -> list[str]:
    tokens = []
    while (task := local.poll_activity_task()) is not None:
        tokens.append(task.token)
    return tokens


@pytest.mark.parametrize(
    "config", [{"queues": {"default": {"rate": 2}}}, {"activities": {"charge": {"rate": 2}}}]
)
def test_a_rate_lets_so_many_begin_a_second_and_explain_says_when_the_next(config):
    local = engine(config)
    started(local, "a", "b", "c")
    assert polled(local) == [], "the bucket begins empty"
    assert [local.explain(one, "charge").at_ms for one in "abc"] == [500] * 3
    local.clock.advance_ms(499)
    assert polled(local) == []
    local.clock.advance_ms(1)
    assert len(polled(local)) == 1
    local.clock.advance_ms(60_000)
    assert len(polled(local)) == 1, "the bucket holds max(1, rate / 10)"
    why = local.explain("c", "charge")
    assert (why.details["gate"], why.at_ms) == ("rate", 61_000)
    assert "2 a second" in why.reason


@pytest.mark.parametrize(
    "config",
    [{"queues": {"default": {"concurrency": 2}}}, {"activities": {"charge": {"concurrency": 2}}}],
)
def test_a_concurrency_limit_counts_live_leases(config):
    local = engine(config)
    started(local, "a", "b", "c")
    first, _ = polled(local)
    why = local.explain("c", "charge")
    assert (why.details["gate"], why.at_ms) == ("concurrency", None)
    local.restart()
    assert polled(local) == [], "a new scheduler counts what is leased"
    local.complete_activity_task(first, "x")
    assert len(polled(local)) == 1


def test_an_open_breaker_lets_nothing_begin_then_one_probe_and_closes_when_it_succeeds():
    breaker = {"failures": 2, "window_ms": 10_000, "open_ms": 5_000}
    local = engine({"activities": {"charge": {"breaker": breaker}}})
    started(local, "a", "b", "c", "d")
    tokens = polled(local)
    for token in tokens[:2]:
        local.fail_activity_task(token, Failure("Down", "no"))
    for token in tokens[2:]:
        local.complete_activity_task(token, "x")  # Begun before: it says nothing.
    started(local, "e", "f")
    why = local.explain("e", "charge")
    assert (why.details["gate"], why.at_ms) == ("breaker", 5_000)
    local.clock.advance_ms(4_999)
    assert polled(local) == []
    local.clock.advance_ms(1)
    [probe] = polled(local)
    assert "half-open" in local.explain("f", "charge").reason
    local.fail_activity_task(probe, Failure("Down", "no"))
    assert polled(local) == []
    local.clock.advance_ms(5_000)
    [probe] = polled(local)
    local.complete_activity_task(probe, "x")
    assert len(polled(local)) == 3


def test_a_new_scheduler_begins_with_breakers_half_open_where_failures_are_recent():
    breaker = {"failures": 2, "window_ms": 10_000, "open_ms": 5_000}
    local = engine({"activities": {"charge": {"breaker": breaker}}})
    started(local, "a", "b", "c")
    for token in polled(local)[:2]:
        local.fail_activity_task(token, Failure("Down", "no"))
    local.clock.advance_ms(1_500)
    local.restart()
    assert len(polled(local)) == 1
    local.clock.advance_ms(60_000)
    local.restart()
    started(local, "d", "e")
    assert len(polled(local)) > 1


def test_a_retry_budget_holds_retries_back_uncharged_and_first_attempts_go_on():
    budget = {"ratio": 0.5, "minimum": 1, "window_ms": 10_000}
    rules = {"retry_budget": budget, "retry": {"initial_ms": 1, "max_attempts": 9}}
    local = engine({"activities": {"charge": rules}})
    started(local, *"abcd")
    for token in polled(local):
        local.fail_activity_task(token, Failure("Down", "no"))
    local.clock.advance_ms(1)
    retries = polled(local)
    assert len(retries) == 2, "half of the four first attempts"
    why = [local.explain(one, "charge") for one in "abcd"]
    held = [it for it in why if it.details["gate"] == "retry_budget"]
    assert [(it.state, it.details["attempt"]) for it in held] == [("Retrying", 2)] * 2
    started(local, "e", "f")
    assert len(polled(local)) == 3, "two first attempts, and the retry that they pay for"
    local.clock.advance_ms(10_000)
    assert len(polled(local)) == 1


def test_the_operators_options_win_over_the_codes_field_by_field():
    rules = {"retry": {"max_attempts": 7}, "start_to_close_ms": 1_234}
    local = engine({"activities": {"charge": rules}})
    started(local)
    [scheduled] = [e for e in local.history("o") if e.kind == "ActivityTaskScheduled"]
    retry = scheduled.options["retry"]
    assert (retry["max_attempts"], retry["initial_ms"]) == (7, 1_000)
    assert scheduled.options["start_to_close_ms"] == 1_234


def test_the_queue_with_the_higher_priority_goes_first_then_the_activity():
    @workflow.define
    async def two() -> None:
        low = workflow.start_activity(charge, activity_id="low", task_queue="q", priority=5)
        high = workflow.start_activity(charge, activity_id="high", task_queue="first")
        await low
        await high

    local = LocalEngine(
        [two], [charge], clock=ManualClock(0), config={"queues": {"first": {"priority": 1}}}
    )
    local.client.start_workflow(two, workflow_id="w")
    local.run_workflow_tasks()
    assert local.run_activities() == 2
    completed = [e.activity_id for e in local.history("w") if e.kind == "ActivityTaskCompleted"]
    assert completed == ["high", "low"]


def test_one_workflow_of_many_activities_does_not_starve_the_others():
    local = engine()
    local.client.start_workflow(batch, 1_000, workflow_id="huge")
    local.run_workflow_tasks()
    started(local, "a", "b")
    first = [local.poll_activity_task().workflow_id for _ in range(6)]
    assert sorted(first[:3]) == ["a", "b", "huge"]
    assert first[3:] == ["huge"] * 3
    started(local, "c")
    assert "c" in [local.poll_activity_task().workflow_id for _ in range(2)]


def test_run_until_idle_waits_for_limits_by_skipping_time():
    local = LocalEngine(
        [batch], [charge], clock=ManualClock(0), config={"queues": {"default": {"rate": 10}}}
    )
    local.client.start_workflow(batch, 20, workflow_id="b")
    local.run_until_idle()
    assert local.client.result("b") == 20
    assert local.clock.now_ms == 2_000


BAD = {
    "unknown table": ({"queue": {}}, "queues"),
    "unknown key": ({"queues": {"q": {"rates": 1}}}, r'queues\."q"\.rate'),
    "a rate of none": ({"queues": {"q": {"rate": 0}}}, "rate"),
    "no failures": ({"activities": {"a": {"breaker": {}}}}, "failures"),
    "a bad policy": ({"activities": {"a": {"retry": {"initial_ms": -1}}}}, "initial_ms"),
    "a bad name": ({"queues": {"a b": {}}}, "queues"),
}


@pytest.mark.parametrize(("config", "said"), BAD.values(), ids=BAD)
def test_what_rules_nothing_is_refused_by_name(config, said):
    with pytest.raises(InvalidArgument, match=said):
        engine(config)
