"""perdure.activity: definitions, options, and what code in an attempt may ask."""

from __future__ import annotations

import asyncio
import contextvars
import datetime
import threading

import pytest

from perdure import activity, effects, values, workflow
from perdure.errors import FailedPrecondition, InvalidArgument
from perdure.policy import RetryPolicy


def info(**changes):
    given = {
        "workflow_id": "o/1",
        "workflow_type": "checkout",
        "activity_id": "charge",
        "activity_type": "charge",
        "attempt": 2,
        "generation": 1,
        "fence": 5,
        "idempotency_key": "o%2F1/charge",
    }
    return activity.Info(**{**given, **changes})


def context(beats=None, details=None):
    return activity.ActivityContext(
        info=info(),
        token="tok",
        details=details,
        heartbeat=(lambda payload: None) if beats is None else beats.append,
    )


# --- define ------------------------------------------------------------------------


def test_define_works_bare_and_with_options_and_leaves_the_function_callable():
    @activity.define
    def plain(x):
        return x + 1

    @activity.define(name="other.Name", start_to_close_ms=5, retry=RetryPolicy(max_attempts=2))
    async def named():
        return "async"

    assert plain(1) == 2
    assert asyncio.run(named()) == "async"
    one, two = activity.definition_of(plain), activity.definition_of(named)
    assert (one.name, one.is_async, one.options) == ("plain", False, activity.Options())
    assert (two.name, two.is_async) == ("other.Name", True)
    assert two.options.start_to_close_ms == 5
    assert two.options.retry == RetryPolicy(max_attempts=2)


BAD_NUMBERS = [-1, float("nan"), float("inf"), True, False, "5", 1.5, 2**53]


@pytest.mark.parametrize("value", BAD_NUMBERS, ids=repr)
@pytest.mark.parametrize(
    "field", ["start_to_close_ms", "heartbeat_ms", "schedule_to_start_ms", "schedule_to_close_ms"]
)
def test_a_duration_that_can_not_be_is_refused_where_it_is_built_naming_the_field(field, value):
    with pytest.raises(InvalidArgument, match=field) as raised:
        activity.define(**{field: value})
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("retry", {"max_attempts": 3}, "RetryPolicy"),
        ("task_queue", "a b", "task_queue"),
        ("task_queue", "", "task_queue"),
        ("priority", True, "whole number"),
        ("priority", 1.0, "whole number"),
        ("on_exhausted", "die", '"park" or "fail"'),
        ("cancellation", "now", '"try", "wait" or "abandon"'),
        ("isolation", "container", '"thread" or "process"'),
        ("grace_ms", -1, "grace_ms"),
    ],
)
def test_an_option_that_can_not_be_is_refused_naming_the_field(field, value, text):
    with pytest.raises(InvalidArgument, match=text) as raised:
        activity.define(**{field: value})
    assert raised.value.field == field


@pytest.mark.parametrize(
    "build",
    [
        lambda length: activity.Options(start_to_close_ms=length),
        lambda length: RetryPolicy(initial_ms=length),
        lambda length: asyncio.run(workflow.sleep_ms(length)),
    ],
)
def test_a_timedelta_for_milliseconds_is_answered_with_what_to_write(build):
    with pytest.raises(InvalidArgument, match=r"ms\(seconds=1\.5\)$"):
        build(datetime.timedelta(seconds=1.5))


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="timeout"):
        activity.define(timeout=5)


@pytest.mark.parametrize("name", ["", "a b", "x" * 129, "größe", 5])
def test_a_name_that_can_not_be_one_is_refused(name):
    with pytest.raises(InvalidArgument, match="name"):
        activity.define(name=name)(lambda: None)


def test_a_lambda_needs_a_name_and_a_generator_is_no_activity():
    with pytest.raises(InvalidArgument, match="name"):
        activity.define(lambda: None)

    def generator():
        yield 1

    with pytest.raises(InvalidArgument, match="generator"):
        activity.define(generator)
    with pytest.raises(InvalidArgument, match="takes a function"):
        activity.define(5)
    with pytest.raises(InvalidArgument, match=r"@activity\.define"):
        activity.definition_of(print)


def test_options_win_field_by_field():
    base = activity.Options(heartbeat_ms=5, priority=1, retry=RetryPolicy(max_attempts=1))
    over = activity.Options(heartbeat_ms=0, retry=RetryPolicy(initial_ms=9))
    assert base.under(over) == activity.Options(
        heartbeat_ms=0, priority=1, retry=RetryPolicy(initial_ms=9)
    )


# --- inside an activity --------------------------------------------------------------


QUESTIONS = [
    activity.info,
    activity.attempt,
    activity.fence,
    activity.idempotency_key,
    activity.task_token,
    activity.cancelled,
    activity.heartbeat_details,
    activity.record_heartbeat,
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_outside_an_activity_there_is_no_answer(question):
    with pytest.raises(FailedPrecondition, match=f"{question.__name__}.*inside a running activity"):
        question()


def test_an_attempt_knows_who_it_is():
    with activity.bound(context()):
        assert activity.info() == info()
        assert activity.attempt() == 2
        assert activity.fence() == 5
        assert activity.task_token() == "tok"
        assert activity.idempotency_key() == "o%2F1/charge"
        assert activity.cancelled() is False
        assert activity.heartbeat_details() is None
        assert effects.current_activity() == ("o%2F1/charge", 2)
    assert effects.current_activity() is None


def test_heartbeats_carry_details_or_leave_them():
    beats = []
    with activity.bound(context(beats)):
        activity.record_heartbeat({"offset": 7})
        activity.record_heartbeat()
        activity.record_heartbeat(None)
    assert beats == [values.encode({"offset": 7}), None, values.encode(None)]


def test_heartbeat_details_are_converted_by_the_asked_type():
    with activity.bound(context(details=values.encode([1, 2]))):
        assert activity.heartbeat_details() == [1, 2]
        assert activity.heartbeat_details(tuple[int, int]) == (1, 2)
        with pytest.raises(InvalidArgument):
            activity.heartbeat_details(str)


@pytest.mark.parametrize("details", [object(), "x" * (2 * 1024 * 1024 + 1)], ids=["odd", "large"])
def test_details_that_can_not_be_kept_are_refused(details):
    beats = []
    with activity.bound(context(beats)), pytest.raises(InvalidArgument):
        activity.record_heartbeat(details)
    assert beats == []


def test_a_cancelled_attempt_hears_of_it_from_its_next_heartbeat():
    beats, attempt = [], context()
    with activity.bound(attempt):
        attempt.cancel("timeout")
        attempt.cancel("later")
        assert activity.cancelled() is True
        with pytest.raises(activity.Cancelled, match="timeout"):
            activity.record_heartbeat(1)
    assert beats == []
    assert issubclass(activity.Cancelled, asyncio.CancelledError)


def test_tasks_and_threads_of_the_activity_see_it():
    async def nested():
        return await asyncio.gather(
            asyncio.create_task(ask()), asyncio.to_thread(activity.task_token)
        )

    async def ask():
        return activity.task_token()

    seen = []
    with activity.bound(context()):
        assert asyncio.run(nested()) == ["tok", "tok"]
        run = contextvars.copy_context().run
        thread = threading.Thread(target=run, args=(lambda: seen.append(activity.attempt()),))
        thread.start()
        thread.join()
    assert seen == [2]


def test_whoever_listens_for_a_cancellation_hears_of_it_once_whenever_it_began_to():
    heard = []
    it = context()
    it.on_cancel(heard.append)
    assert heard == []
    it.cancel("timeout")
    it.cancel("again")
    it.on_cancel(lambda reason: heard.append(f"late: {reason}"))
    assert heard == ["timeout", "late: timeout"]
