"""A workflow that is taken back to an earlier event of its history."""

from __future__ import annotations

import asyncio

import pytest

from chaos.auditor import Auditor
from chaos.auditor.memory import ReaderTables
from perdure import activity, errors, workflow
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from perdure.testing import LocalEngine, ManualClock

PRICE = {"now": 1}
FAILS = {13}
CHARGED: list[tuple[str, int]] = []


@activity.define
def price() -> int:
    return PRICE["now"]


@activity.define
def charge(cents: int) -> str:
    CHARGED.append((activity.info().idempotency_key, cents))
    return f"receipt-{cents}"


@activity.define(retry=RetryPolicy(max_attempts=1))
def strict(word: str) -> str:
    if word != "right":
        raise ValueError(f"no {word}")
    return word


@workflow.define
async def order() -> str:
    cents = await workflow.execute_activity(price, activity_id="price")
    if cents in FAILS:
        raise ValueError("a bug")
    receipt = await workflow.execute_activity(charge, cents, activity_id="charge")
    await asyncio.sleep(60)
    return receipt


@workflow.define
async def chatty() -> list[int]:
    got: list[int] = []

    @workflow.signal
    def add(n: int) -> None:
        got.append(n)

    await workflow.execute_activity(price, activity_id="first")
    await workflow.wait_condition(lambda: len(got) >= 2)
    await workflow.execute_activity(price, activity_id="second")
    return got


@workflow.define
async def parent() -> str:
    await workflow.execute_activity(price, activity_id="before")
    await workflow.execute_child(order)
    return await workflow.execute_activity(charge, 5, activity_id="after")


@workflow.define
async def careful() -> str:
    return await workflow.execute_activity(strict, "right", activity_id="strict")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(clock):
    PRICE["now"] = 1
    CHARGED.clear()
    FAILS.add(13)
    engine = LocalEngine([order, chatty, parent, careful], [price, charge, strict], clock=clock)
    yield engine
    reader, auditor = engine._core.store.reader(), Auditor()
    for row in reader.commits(0, 1_000):
        auditor.feed(row)
    assert auditor.finish(ReaderTables(reader)).violations == ()


def kinds(client, workflow_id: str = "w") -> list[str]:
    return [f"{one.event_id} {one.kind}" for one in client.history(workflow_id)]


@pytest.mark.parametrize("restarted", [False, True])
def test_what_came_after_the_event_does_not_count_any_more(engine, restarted) -> None:
    client = engine.client
    client.start_workflow(order, workflow_id="w")
    engine.run_until_idle(skip_time=False)
    assert kinds(client)[-1] == "8 TimerStarted"
    PRICE["now"] = 2
    client.reset_workflow("w", 1, "wrong price")
    if restarted:
        engine.restart()
    engine.run_until_idle()
    assert client.result("w") == "receipt-2"
    assert [cents for _, cents in CHARGED] == [1, 2]
    reset = next(one for one in client.history("w") if one.kind == "WorkflowReset")
    assert (reset.event_id, reset.to_event, reset.reason) == (9, 1, "wrong price")
    assert "state" not in reset


def test_what_is_asked_for_again_has_the_same_key_and_another_fence(engine) -> None:
    client = engine.client
    client.start_workflow(order, workflow_id="w")
    engine.run_until_idle(skip_time=False)
    client.reset_workflow("w", 4)
    engine.run_until_idle()
    (first, _), (second, _) = CHARGED
    assert first == second == "w/charge"
    ends = [one for one in client.history("w") if one.kind == "ActivityTaskCompleted"]
    assert [(one.activity_id, one.generation) for one in ends] == [
        ("price", 1),
        ("charge", 1),
        ("charge", 2),
    ]


@pytest.mark.parametrize("ended", [False, True])
def test_a_dry_run_lists_what_would_be_asked_for_again_and_changes_nothing(engine, ended) -> None:
    client = engine.client
    client.start_workflow(order, workflow_id="w")
    engine.run_until_idle(skip_time=ended)
    before = kinds(client)
    told = client.reset_workflow("w", 1, dry_run=True)
    assert told.event_id is None
    assert told.effects_count == 2
    assert [(e.id, e.type, e.idempotency_key, e.outcome, e.at_ms) for e in told.effects] == [
        ("price", "price", "w/price", "Completed", 0),
        ("charge", "charge", "w/charge", "Completed", 0),
    ]
    assert [e.id for e in client.reset_workflow("w", 4, dry_run=True).effects] == ["charge"]
    assert kinds(client) == before


def test_the_same_request_again_is_answered_as_the_first_time(engine) -> None:
    client = engine.client
    client.start_workflow(order, workflow_id="w")
    engine.run_until_idle(skip_time=False)
    first = client.reset_workflow("w", 1, request_id="r1")
    engine.run_until_idle(skip_time=False)
    assert client.reset_workflow("w", 1, request_id="r1") == first
    assert sum("WorkflowReset" in one for one in kinds(client)) == 1
    with pytest.raises(errors.FailedPrecondition, match="another to_event or reason"):
        client.reset_workflow("w", 4, request_id="r1")


def test_a_workflow_that_has_ended_runs_again_and_ends_anew(engine) -> None:
    client = engine.client
    client.start_workflow(order, workflow_id="w")
    engine.run_until_idle()
    assert client.result("w") == "receipt-1"
    PRICE["now"] = 3
    client.reset_workflow("w", 1)
    assert client.describe_workflow("w").status == "Running"
    engine.run_until_idle()
    assert client.result("w") == "receipt-3"
    # And once more, from an event that came after the first reset.
    newest = next(o for o in reversed(client.history("w")) if o.kind == "ActivityTaskCompleted")
    client.reset_workflow("w", newest.event_id)
    engine.run_until_idle()
    assert client.result("w") == "receipt-3"
    assert [cents for _, cents in CHARGED] == [1, 3]


def test_what_was_open_is_made_again_and_the_token_of_before_is_stale(engine) -> None:
    client = engine.client
    client.start_workflow(order, workflow_id="w")
    engine.run_workflow_tasks()
    old = client.poll_activity_task("default", "by-hand")
    client.reset_workflow("w", 2)  # Where the activity had been scheduled.
    with pytest.raises(errors.FailedPrecondition):
        client.complete_activity_task(old.token, 7)
    new = client.poll_activity_task("default", "by-hand")
    assert (new.activity_id, new.attempt, new.idempotency_key) == ("price", 1, "w/price")
    assert new.token != old.token
    client.complete_activity_task(new.token, 7)
    engine.run_until_idle()
    assert client.result("w") == "receipt-7"


def test_the_token_of_an_activity_that_is_scheduled_anew_is_not_the_one_of_before(engine) -> None:
    client = engine.client
    client.start_workflow(order, workflow_id="w")
    engine.run_workflow_tasks()
    old = client.poll_activity_task("default", "by-hand")
    client.reset_workflow("w", 1)
    engine.run_workflow_tasks()
    new = client.poll_activity_task("default", "by-hand")
    with pytest.raises(errors.FailedPrecondition):
        client.complete_activity_task(old.token, 7)
    client.complete_activity_task(new.token, 8)
    engine.run_until_idle()
    assert client.result("w") == "receipt-8"


def test_a_timer_that_ran_at_the_event_runs_on_and_a_later_one_does_not(engine, clock) -> None:
    client = engine.client
    client.start_workflow(order, workflow_id="w")
    engine.run_until_idle(skip_time=False)
    clock.advance_ms(30_000)
    client.reset_workflow("w", 7)  # Behind the charge, before the timer.
    engine.run_until_idle(skip_time=False)
    clock.advance_ms(30_000)  # The first timer's time.
    engine.run_until_idle(skip_time=False)
    assert client.describe_workflow("w").status == "Running"
    clock.advance_ms(30_000)
    engine.run_until_idle(skip_time=False)
    assert client.result("w") == "receipt-1"
    assert len(CHARGED) == 1


def test_signals_that_came_later_are_kept(engine) -> None:
    client = engine.client
    client.start_workflow(chatty, workflow_id="w")
    engine.run_until_idle()
    client.signal_workflow("w", "add", 1)
    client.signal_workflow("w", "add", 2)
    engine.run_until_idle()
    assert client.result("w") == [1, 2]
    client.reset_workflow("w", 2)
    engine.run_until_idle()
    assert client.result("w") == [1, 2]


@workflow.define
async def obliging() -> list[int]:
    got: list[int] = []

    @workflow.update
    def put(n: int) -> int:
        got.append(n)
        return len(got)

    @workflow.update
    async def slowly(n: int) -> int:
        await asyncio.sleep(3_600)
        return n

    await workflow.execute_activity(price, activity_id="first")
    await workflow.wait_condition(lambda: len(got) >= 9)
    return got


def test_what_was_said_since_is_listed_with_what_becomes_of_it(clock) -> None:
    engine = LocalEngine([obliging], [price], clock=clock)
    client = engine.client
    client.start_workflow(obliging, workflow_id="w")
    engine.run_until_idle(skip_time=False)
    to_event = client.history("w")[-1].event_id
    client.signal_workflow("w", "anything", 1)
    assert client.update_workflow("w", "put", 1) == 1
    with pytest.raises(errors.DeadlineExceeded):
        client.update_workflow("w", "slowly", 1, timeout_ms=0)
    client.cancel_workflow("w", "no more")
    found = client.reset_workflow("w", to_event, dry_run=True)
    said = [(one.kind, one.name, one.becomes) for one in found.said]
    assert said == [
        ("signal", "anything", "kept"),
        ("update", "put", "taken_back"),
        ("update", "slowly", "failed"),
        ("cancel", "no more", "dropped"),
    ]
    assert found.said_count == 4
    done = client.reset_workflow("w", to_event, request_id="r")
    assert [(one.kind, one.name, one.becomes) for one in done.said] == said
    # The same answer to the same request, once what it failed is in the history.
    again = client.reset_workflow("w", to_event, request_id="r")
    assert again.said == done.said
    assert client.reset_workflow("w", client.history("w")[-1].event_id, dry_run=True).said == []


def test_a_failed_workflow_is_saved_by_code_that_does_not_fail(engine) -> None:
    client = engine.client
    PRICE["now"] = 13
    client.start_workflow(order, workflow_id="w")
    engine.run_until_idle()
    assert client.describe_workflow("w").status == "Failed"
    FAILS.clear()
    assert client.reset_workflow("w", 4).effects_count == 0
    engine.run_until_idle()
    assert client.result("w") == "receipt-13"
    with pytest.raises(errors.InvalidArgument, match="the workflow ended with it"):
        client.reset_workflow("w", client.history("w")[-1].event_id)


def test_a_dead_letter_goes_with_what_does_not_count(engine) -> None:
    client = engine.client

    client.start_workflow("careful", workflow_id="w")
    engine.run_workflow_tasks()
    task = client.poll_activity_task("default", "by-hand")
    client.fail_activity_task(task.token, Failure("Boom", "no"))
    assert len(client.list_dead_letters()) == 1
    client.reset_workflow("w", 1)
    assert not client.list_dead_letters()
    engine.run_until_idle()
    assert client.result("w") == "right"


# --- where it can't go back to ---------------------------------------------------
@pytest.mark.parametrize(
    ("to_event", "why"),
    [
        (3, "it does not count by itself; the nearest it can go back to: 2 and 4"),
        (99, "the history ends at event 8; the nearest it can go back to: 8"),
    ],
)
def test_an_event_that_is_no_point_is_refused_with_the_nearest(engine, to_event, why) -> None:
    client = engine.client
    client.start_workflow(order, workflow_id="w")
    engine.run_until_idle(skip_time=False)
    with pytest.raises(errors.InvalidArgument, match="none to go back to") as caught:
        client.reset_workflow("w", to_event)
    assert why in caught.value.message


def test_what_a_reset_took_back_is_no_point_any_more(engine) -> None:
    client = engine.client
    client.start_workflow(order, workflow_id="w")
    engine.run_until_idle(skip_time=False)
    client.reset_workflow("w", 2)
    engine.run_until_idle(skip_time=False)
    with pytest.raises(errors.InvalidArgument, match="2 and 9"):
        client.reset_workflow("w", 7)


def test_it_does_not_go_back_behind_the_start_of_a_child(engine) -> None:
    client = engine.client
    client.start_workflow(parent, workflow_id="w")
    engine.run_until_idle()
    with pytest.raises(errors.InvalidArgument, match="a child was started after it"):
        client.reset_workflow("w", 2)
    started = next(o.event_id for o in client.history("w") if o.kind == "ChildWorkflowStarted")
    # The child's end came later: it is told again.
    client.reset_workflow("w", started)
    engine.run_until_idle()
    assert client.result("w") == "receipt-5"
    assert [cents for _, cents in CHARGED] == [1, 5, 5]


def test_a_run_that_continued_as_new_is_not_reset_and_nobody_is_not_found(engine) -> None:
    with pytest.raises(errors.NotFound):
        engine.client.reset_workflow("nobody", 1)


def test_a_history_with_a_reset_can_be_replayed_against_code(engine) -> None:
    from perdure import registry, replaying

    client = engine.client
    client.start_workflow(order, workflow_id="w")
    engine.run_until_idle()
    PRICE["now"] = 2
    client.reset_workflow("w", 4)
    engine.run_until_idle()
    found = registry.Registry([order])
    verdict = replaying.check(found, replaying.history_of(client.history("w"), "w"))
    assert verdict.fits, verdict
    client.reset_workflow("w", 1)
    engine.run_until_idle()
    assert replaying.check(found, replaying.history_of(client.history("w"), "w")).fits


DRAWS: list[int] = []


@workflow.define
async def lucky() -> list[object]:
    got: list[int] = []

    @workflow.signal
    def add(n: int) -> None:
        got.append(n)

    DRAWS.append(workflow.side_effect(lambda: len(DRAWS)))
    is_new = workflow.patched("new")
    await workflow.wait_condition(lambda: len(got) == 1)
    return [DRAWS[-1], is_new]


def test_a_side_effect_that_was_taken_back_is_drawn_anew_though_a_signal_had_come_by_then():
    engine = LocalEngine([lucky], [], clock=ManualClock(0))
    client = engine.client
    client.start_workflow("lucky", workflow_id="w")
    client.signal_workflow("w", "add", 1)  # Before the first workflow task, which reads both.
    engine.run_until_idle()
    before = client.result("w")
    client.reset_workflow("w", 2)
    engine.run_until_idle()
    assert (before, client.result("w")) == ([0, True], [1, True])
