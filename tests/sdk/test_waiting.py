from __future__ import annotations

import pytest

from perdure import waiting
from perdure.core.records import ActivityOptions
from perdure.core.state import Activity, ActivityState, Execution, Status
from perdure.policy import RetryPolicy
from perdure.waiting import Offer

SHOP = Offer(("default", "slow"), ("charge", "ship"), ("checkout",))
SIDE = Offer(("side",), ("paint",), ())


def execution(*activities, **changes):
    fields = {
        "workflow_id": "w",
        "workflow_type": "checkout",
        "task_queue": "default",
        "started_ms": 0,
        "request_id": None,
        "digest": b"",
        "activities": {each.activity_id: each for each in activities},
    }
    return Execution(**{**fields, **changes})


def activity(activity_id, activity_type="chrage", queue="default", **changes):
    options = ActivityOptions(RetryPolicy(), task_queue=queue)
    return Activity(activity_id, activity_type, None, options, 2, 0, **changes)


@pytest.mark.parametrize(
    ("type_", "queue", "offers", "text"),
    [
        ("charge", "default", [SIDE, SHOP], None),
        (
            "chrage",
            "default",
            [SHOP, SIDE],
            "a worker that has activity 'chrage' on queue 'default'; "
            "workers have: charge (nearest), ship",
        ),
        (
            "mend",
            "side",
            [SHOP, SIDE],
            "a worker that has activity 'mend' on queue 'side'; workers have: paint",
        ),
        (
            "charge",
            "default",
            [],
            "a worker that has activity 'charge' on queue 'default'; no worker is connected",
        ),
        (
            "paint",
            "default",
            [SHOP, SIDE],
            "a worker that has activity 'paint' on queue 'default'; "
            "workers have it on other queues: 'side'",
        ),
        (
            "mend",
            "hand",
            [SHOP, SIDE],
            "a worker that has activity 'mend' on queue 'hand', or a poll by hand; "
            "no worker serves that queue; workers serve: 'default', 'side', 'slow'",
        ),
    ],
)
def test_who_is_waited_for_is_said_and_who_is_there_instead(type_, queue, offers, text):
    assert waiting.sentence("activity", type_, queue, offers) == text


def test_types_and_queues_must_be_served_by_one_and_the_same_worker():
    assert waiting.sentence("activity", "paint", "slow", [SHOP, SIDE]) is not None


def test_many_types_are_not_all_listed():
    many = Offer(("default",), tuple(f"t{n}" for n in range(500)), ())
    text = waiting.sentence("activity", "quite-other", "default", [many])
    assert text is not None
    assert text.endswith("t0, t1, t10, t100, t101, t102, t103, t104, …")


def test_what_an_engine_has_not_may_be_polled_by_hand():
    engine = Offer(None, (), ())
    assert waiting.sentence("activity", "a", "any", [engine], in_engine=True) == (
        "a worker that has activity 'a' on queue 'any', or a poll by hand; "
        "the engine has no activity"
    )
    assert waiting.sentence("workflow", "w", "any", [engine], in_engine=True) == (
        "a worker that has workflow 'w' on queue 'any'; the engine has no workflow"
    )


def test_only_what_is_due_and_open_waits_for_a_worker():
    found = execution(
        activity("scheduled"),
        activity("retrying", state=ActivityState.RETRYING, due_ms=100),
        activity("later", state=ActivityState.RETRYING, due_ms=101),
        activity("runs", state=ActivityState.LEASED),
        activity("dead", state=ActivityState.DEAD_LETTERED),
        activity("served", "charge"),
    )
    waits = waiting.of_execution(found, [SHOP], 100)
    assert set(waits.activities) == {"scheduled", "retrying"}
    assert waits.task is None


def test_a_workflow_waits_while_its_task_is_ready_and_due():
    def task(**changes):
        found = execution(**{"workflow_type": "chekout", "last_wake_id": 1, **changes})
        return waiting.of_execution(found, [SHOP], 100).task

    assert task() == (
        "a worker that has workflow 'chekout' on queue 'default'; workers have: checkout (nearest)"
    )
    assert task(consumed=1) is None
    assert task(task_due_ms=101) is None
    assert task(status=Status.COMPLETED) is None
    assert task(workflow_type="checkout") is None
