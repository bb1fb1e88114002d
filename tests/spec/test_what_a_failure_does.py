"""spec/activities.md, "What a failure does": the table, in its order, and how policies match."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import RetryPolicy, activity, workflow
from perdure.failures import Failure
from perdure.testing import LocalEngine, ManualClock
from tests.spec.conftest import WORKED, Scene, begun

SCHEDULED = ["WorkflowStarted", "ActivityTaskScheduled"]


# --- the table ---------------------------------------------------------------
@pytest.mark.parametrize(
    ("policy", "failure"),
    [
        (RetryPolicy(max_attempts=4), Failure("Bad", "no", non_retryable=True)),
        (RetryPolicy(max_attempts=4, non_retryable=("Bad",)), Failure("Bad", "no")),
    ],
)
def test_a_failure_that_is_not_retried_ends_the_activity_and_the_workflow_sees_it(policy, failure):
    scene = begun(retry=policy)
    assert scene.fail(failure) == "Dropped"
    assert not scene.is_pending()
    assert scene.kinds() == [*SCHEDULED, "ActivityTaskStarted", "ActivityTaskFailed"]
    assert scene.last("ActivityTaskFailed").failure.type == "Bad"
    assert scene.engine.list_dead_letters() == []
    assert scene.result() == ["Bad", "no"]


def test_the_last_attempt_is_dead_lettered_and_the_workflow_keeps_waiting():
    scene = begun(retry=WORKED)
    scene.exhaust()
    assert scene.kinds() == [*SCHEDULED, "ActivityDeadLettered"]
    event = scene.last("ActivityDeadLettered")
    assert (event.attempts, event.at_ms) == (4, 7_000)
    assert (event.last_failure.type, event.last_failure.message) == ("Boom", "it broke")
    assert scene.engine.run_workflow_tasks() == 0
    assert scene.engine.describe_workflow("w").status == "Running"
    assert scene.pending().state == "DeadLettered"


def test_any_other_failure_leaves_no_trace_in_the_history():
    scene = begun(retry=WORKED)
    assert scene.fail() == "Retrying"
    assert scene.kinds() == SCHEDULED
    assert scene.engine.run_workflow_tasks() == 0
    pending = scene.pending()
    assert (pending.state, pending.attempt, pending.due_ms) == ("Retrying", 2, 1_000)
    assert (pending.last_failure.type, pending.last_failure.message) == ("Boom", "it broke")


def test_success_after_three_failures_costs_the_history_two_events():
    scene = begun(retry=WORKED)
    for due_ms in (1_000, 3_000, 7_000):
        scene.fail()
        scene.at(due_ms)
    scene.engine.complete_activity_task(scene.take().token, "done")
    assert scene.kinds() == [*SCHEDULED, "ActivityTaskStarted", "ActivityTaskCompleted"]
    assert scene.last("ActivityTaskStarted").attempt == 4
    assert scene.last("ActivityTaskStarted").at_ms == 7_000
    assert scene.result() == "done"


def test_a_failure_that_is_not_retried_is_no_dead_letter_on_the_last_attempt_either():
    scene = begun(retry=RetryPolicy(max_attempts=1))
    assert scene.fail(Failure("Bad", "no", non_retryable=True)) == "Dropped"
    assert scene.engine.list_dead_letters() == []


def test_a_non_retryable_failure_on_a_later_attempt_ends_it_there():
    scene = begun(retry=RetryPolicy(max_attempts=9, non_retryable=("Bad",)))
    scene.fail()
    scene.at(1_000)
    assert scene.fail(Failure("Bad", "no")) == "Dropped"
    assert scene.last("ActivityTaskFailed").attempt == 2


# --- how an entry of the policy matches --------------------------------------
CHAIN = ("shop.errors.CardExpired", "shop.errors.CardError", "builtins.ValueError")


@pytest.mark.parametrize(
    ("entry", "state"),
    [
        ("CardError", "Dropped"),  # A short name in the chain.
        ("shop.errors.CardError", "Dropped"),  # A whole name in the chain.
        ("CardExpired", "Dropped"),  # The type.
        ("ValueError", "Dropped"),
        ("bank.errors.CardError", "Retrying"),  # Another class of the same short name.
        ("errors.CardError", "Retrying"),
        ("Card", "Retrying"),
        ("carderror", "Retrying"),
        ("expired", "Retrying"),  # Words of the message.
        ("the card is CardErrors", "Retrying"),
        (ValueError, "Dropped"),
        (KeyError, "Retrying"),
    ],
)
def test_an_entry_is_compared_with_the_type_and_the_chain(entry, state):
    scene = begun(retry=RetryPolicy(max_attempts=4, non_retryable=(entry,)))
    failure = Failure("CardExpired", "the card is CardErrors expired", type_chain=CHAIN)
    assert scene.fail(failure) == state


def test_the_message_is_never_looked_at():
    scene = begun(retry=RetryPolicy(max_attempts=4, non_retryable=("Bad",)))
    assert scene.fail(Failure("Other", "Bad")) == "Retrying"
    assert scene.pending().last_failure.type == "Other"


def test_the_failures_the_engine_makes_can_be_listed_too():
    listed = ("StartToCloseTimeout",)
    scene = begun(retry=RetryPolicy(max_attempts=4, non_retryable=listed), start_to_close_ms=50)
    scene.take()
    scene.at(50)
    assert not scene.is_pending()
    assert scene.result()[0] == "StartToCloseTimeout"


# --- real functions ----------------------------------------------------------
class Rejected(Exception):
    pass


class RejectedHard(Rejected):
    pass


def runs(raiser: Any, *listed: Any, attempts: int = 3) -> tuple[int, Any]:
    """How often the activity ran, and the failure that the workflow saw (None: a dead letter)."""
    count = 0

    @activity.define(name="real", retry=RetryPolicy(max_attempts=attempts, non_retryable=listed))
    def real() -> None:
        nonlocal count
        count += 1
        raiser()

    @workflow.define(name="real_one")
    async def real_one() -> Any:
        try:
            return await workflow.execute_activity(real)
        except workflow.ActivityFailed as error:
            return error.failure.type

    engine = LocalEngine([real_one], [real], ManualClock(0))
    handle = engine.client.start_workflow(real_one, workflow_id="w")
    engine.run_until_idle()
    return count, None if engine.list_dead_letters() else handle.result()


def raise_wrapped(error: Exception) -> None:
    raise RuntimeError("wrapped") from error


def raise_while_handling(error: Exception) -> None:
    try:
        raiser(error)()
    except type(error):
        raise RuntimeError("a new one")  # noqa: B904 - the implicit context is what is tested


def raiser(error: BaseException) -> Any:
    def call() -> None:
        raise error

    return call


@pytest.mark.parametrize(
    ("call", "listed", "count", "seen"),
    [
        (raiser(Rejected("x")), (Rejected,), 1, "Rejected"),
        (raiser(Rejected("x")), ("Rejected",), 1, "Rejected"),
        (raiser(RejectedHard("x")), (Rejected,), 1, "RejectedHard"),
        (raiser(Rejected("x")), (Exception,), 1, "Rejected"),
        (raiser(Rejected("x")), ("Exception",), 1, "Rejected"),
        (raiser(Rejected("x")), (BaseException,), 1, "Rejected"),
        (raiser(SystemExit(3)), (Exception,), 3, None),
        (raiser(SystemExit(3)), (BaseException,), 1, "SystemExit"),
        (raiser(RejectedHard("x")), ("Rejected",), 1, "RejectedHard"),
        (raiser(Rejected("x")), (RejectedHard,), 3, None),
        (raiser(ValueError("Rejected")), ("Rejected",), 3, None),
        (raiser(activity.Error("Late", "x")), ("Late",), 1, "Late"),
        (raiser(activity.Error("Late", "x")), (), 3, None),
        (raiser(activity.NonRetryable("Late", "x")), (), 1, "Late"),
        (lambda: raise_wrapped(activity.NonRetryable("Late", "x")), (), 1, None),
        (lambda: raise_wrapped(Rejected("x")), (Rejected,), 1, None),
        (lambda: raise_wrapped(activity.Error("Late", "x")), ("Late",), 1, None),
        (lambda: raise_while_handling(activity.NonRetryable("Late", "x")), (), 3, None),
        (lambda: raise_while_handling(Rejected("x")), (Rejected,), 3, None),
        (raiser(ExceptionGroup("g", [activity.NonRetryable("A", "x")] * 2)), (), 1, None),
        (
            raiser(ExceptionGroup("g", [activity.NonRetryable("A", "x"), ValueError("y")])),
            (),
            3,
            None,
        ),
    ],
)
def test_what_real_exceptions_lead_to(call, listed, count, seen):
    ran, result = runs(call, *listed)
    assert ran == count
    if seen is not None:
        assert result == seen
    assert (result is None) == (count == 3)


def test_a_failure_of_a_wrapped_error_keeps_type_and_cause():
    scene = begun(retry=WORKED)
    failure = Failure("Outer", "o", cause=Failure("Inner", "i"), stack="line 3", details={"k": 1})
    scene.fail(failure)
    shown = scene.pending().last_failure
    assert (shown.type, shown.message, shown.stack) == ("Outer", "o", "line 3")
    assert (shown.cause.type, shown.cause.message) == ("Inner", "i")
    assert shown.details == {"k": 1}


class Nasty(Exception):
    def __init__(self, *, a: int) -> None:
        super().__init__(lambda: a)

    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def test_an_exception_that_cannot_be_shown_is_a_failure_all_the_same():
    assert runs(raiser(Nasty(a=1)), attempts=2) == (2, None)
    assert runs(raiser(Nasty(a=1)), "Nasty") == (1, "Nasty")
    assert runs(raiser(SystemExit(3)), "SystemExit") == (1, "SystemExit")


def test_a_megabyte_of_message_is_cut_to_64_kib_and_marked():
    scene = begun(retry=WORKED)
    text = "x" * 1_000_000
    scene.fail(Failure("Boom", text, stack=text))
    shown = scene.pending().last_failure
    for part in (shown.message, shown.stack):
        assert len(part.encode()) <= 64 * 1024
        assert "cut" in part


def ends(function: Any, *args: Any) -> Any:
    @workflow.define(name="ends")
    async def one() -> Any:
        try:
            return await workflow.execute_activity(function, *args)
        except workflow.ActivityFailed as error:
            return [error.failure.type, error.failure.message]

    engine = LocalEngine([one], [function])
    handle = engine.client.start_workflow(one, workflow_id="w")
    engine.run_until_idle()
    return handle.result()


def test_arguments_that_do_not_fit_are_bad_input_and_not_retried():
    @activity.define
    def takes_a_number(count: int) -> int:
        return count

    kind, text = ends(takes_a_number, "many")
    assert kind == "BadInput"
    assert "count" in text


def test_a_result_that_cannot_be_converted_is_bad_result_and_the_effect_is_not_repeated():
    calls = []

    @activity.define
    def returns_a_lock() -> Any:
        calls.append(1)
        return object()

    assert ends(returns_a_lock)[0] == "BadResult"
    assert calls == [1]


def test_a_result_above_the_limit_is_payload_too_large_naming_the_limit():
    @activity.define
    def returns_much() -> str:
        return "x" * (2 * 1024 * 1024 + 1)

    kind, text = ends(returns_much)
    assert kind == "PayloadTooLarge"
    assert "result" in text
    assert "2" in text


def test_a_failure_says_how_it_was_dropped_only_once():
    scene: Scene = begun(retry=WORKED)
    scene.fail(Failure("Bad", non_retryable=True))
    assert scene.result() == ["Bad", ""]
    assert scene.kinds().count("ActivityTaskFailed") == 1
    assert scene.kinds()[-1] == "WorkflowCompleted"
