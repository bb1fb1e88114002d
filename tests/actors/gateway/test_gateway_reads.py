from __future__ import annotations

import msgspec
import pytest

from actors import gateway_reads
from perdure import errors, values, wire
from perdure.core.links import ActivityTask, Fetch
from perdure.core.records import (
    ActivityOptions,
    ActivityTaskCompleted,
    ActivityTaskScheduled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowStarted,
    decode_event,
    encode_event,
)
from perdure.core.state import Activity, ActivityState, AttemptFailure, Execution, Status
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from perdure.waiting import Offer

OPTIONS = ActivityOptions(RetryPolicy())
BIG = values.encode("x" * 5_000)
EVENT_BYTES = 10_000  # Each event counts as so many, whatever it holds.
EVENTS = [
    WorkflowStarted(1, 10, "T", "default", values.encode([1]), None, b""),
    ActivityTaskScheduled(2, 11, "a", "charge", BIG, OPTIONS),
    ActivityTaskCompleted(4, 13, "a", 1, 1, 1, values.encode(5), 12, "w1"),
    WorkflowCompleted(5, 14, values.encode({"done": True})),
]


class Store:
    """What a Reader answers about one workflow, `w`."""

    def __init__(self, events=EVENTS, **changes):
        fields = {
            "workflow_id": "w",
            "workflow_type": "T",
            "task_queue": "default",
            "started_ms": 10,
            "request_id": None,
            "digest": b"",
            "last_event_id": events[-1].event_id,
        }
        self.held = Execution(**{**fields, **changes})
        self.all = {event.event_id: encode_event(event) for event in events}

    def gates(self):
        return []

    def execution(self, workflow_id):
        return self.held if workflow_id == "w" else None

    def event(self, workflow_id, event_id):
        return self.all.get(event_id)

    def events(self, workflow_id, after, limit, bytes_max):
        there = self.all if workflow_id == "w" else {}
        found = [raw for event_id, raw in there.items() if event_id > after][:limit]
        return found[: max(1, bytes_max // EVENT_BYTES)]

    def details(self, workflow_id, activity_id):
        return BIG

    def list_workflows(self, where, limit, page):
        self.asked = (where, limit, page)
        return [self.held], "next"


CLOSED = {"status": Status.COMPLETED, "closed_ms": 14}


def look(store, args, form=wire.JSON, offers=()):
    request = wire.Request(form, msgspec.Raw(b"1"), type(args).__name__, args)
    return gateway_reads.look(store, request, offers, 1_000)


@pytest.mark.parametrize(
    "args",
    [wire.DescribeWorkflow("no"), wire.GetHistory("no"), wire.GetResult("no")],
    ids=lambda it: type(it).__name__,
)
def test_a_workflow_that_was_never_started_is_not_found(args):
    with pytest.raises(errors.NotFound, match="no"):
        look(Store(), args)


def test_describe_shows_input_result_and_status():
    shown = look(Store(**CLOSED), wire.DescribeWorkflow("w"))
    assert (shown["status"], shown["input"], shown["result"]) == ("Completed", [1], {"done": True})


def test_describe_shows_details_that_are_kept_elsewhere():
    held = Activity("a", "charge", None, OPTIONS, 2, 11, details=values.refer(BIG))
    shown = look(Store(activities={"a": held}), wire.DescribeWorkflow("w"))
    assert shown["pending_activities"][0]["heartbeat_details"] == "x" * 5_000


def test_a_history_is_given_page_by_page_without_gaps():
    seen, after = [], None
    while True:
        ok = look(Store(), wire.GetHistory("w", after, 2))
        seen += [event["event_id"] for event in ok["events"]]
        after = ok["next_after"]
        if after is None:
            break
    assert seen == [1, 2, 3, 4, 5]


def test_a_result_without_a_wait_comes_from_the_store():
    with pytest.raises(errors.DeadlineExceeded):
        look(Store(), wire.GetResult("w"))
    ok = look(Store(**CLOSED), wire.GetResult("w"))
    assert bytes(ok["result"]) == b'{"done":true}'
    failed = [*EVENTS[:3], WorkflowFailed(5, 14, Failure("Boom", "why"))]
    with pytest.raises(errors.WorkflowFailed) as caught:
        look(Store(failed, status=Status.FAILED), wire.GetResult("w"))
    assert (caught.value.status, caught.value.failure.type) == ("Failed", "Boom")


def test_an_age_becomes_an_instant():
    store = Store()
    ok = look(store, wire.ListWorkflows(type="T", older_than_ms=400))
    where, limit, page = store.asked
    assert (where.workflow_type, where.older_than_ms, limit, page) == ("T", 600, 100, None)
    assert (ok["workflows"][0]["workflow_id"], ok["next_page"]) == ("w", "next")


def test_a_whole_dead_letter_has_its_failures_input_and_details():
    dead = Activity(
        "a",
        "charge",
        values.refer(BIG),
        OPTIONS,
        2,
        11,
        state=ActivityState.DEAD_LETTERED,
        details=values.encode(3),
        failures_newest=[AttemptFailure(1, 1, 12, "w1", Failure("Boom"))],
    )
    entry = {"workflow_id": "w", "run": 1, "activity_id": "a"}
    whole = gateway_reads.whole_dead_letter(Store(activities={"a": dead}), entry)
    assert (whole["input"], whole["heartbeat_details"]) == ("x" * 5_000, 3)
    assert whole["failures"][0]["failure"]["type"] == "Boom"
    assert gateway_reads.whole_dead_letter(Store(), entry) == entry


def test_a_task_gets_its_payloads_in_the_place_of_references():
    task = ActivityTask(
        *("t", "w", "T", "a", "charge", 1, 1, 1, values.refer(BIG), values.refer(BIG), 0),
        *(OPTIONS, 2, 0, 0, 0, 0, 1),
    )
    assert gateway_reads.has_reference(task)
    whole = gateway_reads.resolved(Store(), task)
    assert (whole.input, whole.details) == (BIG, BIG)
    assert not gateway_reads.has_reference(whole)


def test_a_worker_gets_events_and_learns_whether_there_are_more():
    page = gateway_reads.page(Store(), Fetch(7, "w", 2))
    assert (page.n, page.complete) == (7, True)
    assert [decode_event(raw).event_id for raw in page.events] == [4, 5]
    many = [WorkflowStarted(n, 10, "T", "default", None, None, b"") for n in range(1, 202)]
    first = gateway_reads.page(Store(many), Fetch(7, "w", 0))
    assert (len(first.events), first.complete) == (104, False)
    assert gateway_reads.page(Store(many), Fetch(7, "w", 104)).complete is True
    assert gateway_reads.page(Store(), Fetch(7, "w", 5)).events == ()
    assert gateway_reads.page(Store(), Fetch(7, "no", 0)).events is None


def test_a_workflow_that_no_worker_has_says_so_while_it_is_described():
    store = Store(EVENTS[:1], last_wake_id=1)
    args = wire.DescribeWorkflow("w")
    offer = Offer(("default",), (), ("t",))
    assert look(store, args, offers=[offer])["workflow_task"]["waiting_for"] == (
        "a worker that has workflow 'T' on queue 'default'; workers have: t (nearest)"
    )
    served = offer._replace(workflow_types=("T",))
    assert look(store, args, offers=[served])["workflow_task"]["waiting_for"] is None
