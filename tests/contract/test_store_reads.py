"""One exam for every store, second part: what was written is what is read."""

from __future__ import annotations

import msgspec
import pytest

from perdure.core.gates import Gate
from perdure.core.ids import execution_id
from perdure.core.more import More
from perdure.core.records import ActivityTaskFailed, encode_event
from perdure.core.start import Parent
from perdure.core.state import ActivityState, Status
from perdure.errors import InvalidArgument
from perdure.store.protocol import WorkflowFilter
from perdure.store.sqlite import SqliteReader
from tests.contract.conftest import (
    BOOT_MS,
    FAILURE,
    WALL_MS,
    Line,
    activity,
    closed,
    completed_event,
    dead,
    execution,
    full_activity,
    started_event,
    stored,
)


# --- executions ---------------------------------------------------------------
def test_load_gives_back_what_was_written(store):
    line = Line(store)
    one = execution(
        request_id="r", shard=1023, task_failure=FAILURE, task_failures=2, task_due_ms=9,
        task_reason="error", last_event_id=7, last_wake_id=6, consumed=5, commands=4,
    )  # fmt: skip
    rows = [("w", full_activity()), ("w", dead())]
    line.commit(started=[one], activities=rows, timers=[("w", 1, WALL_MS + 5)])
    one.activities = {"full": full_activity(), "dead": dead()}
    one.timers = {1: WALL_MS + 5}
    assert line.writer.load("w") == one
    assert store.reader().execution("w") == one
    assert Line(store).writer.load("w") == one
    assert line.writer.load("W") is None
    assert store.reader().execution("nobody") is None


def test_a_touched_execution_and_its_rows_are_replaced(store):
    line = Line(store)
    rows = [("w", activity("a")), ("w", activity("b"))]
    line.commit(
        started=[execution()], activities=rows, timers=[("w", 1, WALL_MS), ("w", 2, WALL_MS)]
    )
    after = execution(
        last_event_id=9, last_wake_id=8, consumed=7, commands=6, task_failures=1,
        task_due_ms=5, task_failure=FAILURE, task_reason="mismatch",
    )  # fmt: skip
    line.commit(
        touched=[after],
        activities=[("w", dead("b"))],
        activities_closed=[("w", "a"), ("w", "never there")],
        timers_closed=[("w", 1), ("w", 99)],
    )
    after.activities, after.timers = {"b": dead("b")}, {2: WALL_MS}
    assert line.writer.load("w") == after


def test_what_is_open_is_what_was_put_whatever_the_execution_holds(store):
    line = Line(store)
    live = execution(activities={"a": activity("a"), "b": activity("b")}, timers={1: WALL_MS})
    line.commit(started=[live], activities=[("w", activity("a"))])
    assert line.writer.load("w") == execution(activities={"a": activity("a")})
    line.commit(touched=[live], timers=[("w", 2, WALL_MS)])
    expected = execution(activities={"a": activity("a")}, timers={2: WALL_MS})
    assert line.writer.load("w") == expected
    assert store.reader().open_state() == (3, [expected])


def test_what_one_change_both_puts_and_closes_is_closed(store):
    line = Line(store)
    line.commit(
        started=[execution()],
        activities=[("w", activity())],
        activities_closed=[("w", "a")],
        timers=[("w", 1, WALL_MS)],
        timers_closed=[("w", 1)],
    )
    assert line.writer.load("w") == execution()


def test_stored_objects_are_copies_at_both_edges(store):
    line = Line(store)
    one, other = execution(), full_activity()
    line.commit(started=[one], activities=[("w", other)])
    one.consumed = other.attempt = 99
    other.failures_newest.clear()
    first = line.writer.load("w")
    assert first == execution(activities={"full": full_activity()})
    first.activities["full"].attempt = 98
    first.timers[1] = 1
    assert line.writer.load("w") == execution(activities={"full": full_activity()})


def test_opening_reads_only_what_is_open(store):
    line = Line(store)
    line.commit(
        started=[execution("first"), execution("ended"), execution("last")],
        activities=[("last", activity("a")), ("first", dead()), ("first", activity("b"))],
        timers=[("last", 3, WALL_MS)],
    )
    ended = closed(execution("ended"), Status.FAILED)
    line.commit(touched=[ended])
    n, found = store.reader().open_state()
    assert n == 3
    assert found == [
        execution("first", activities={"b": activity("b"), "dead": dead()}),
        execution("last", activities={"a": activity("a")}, timers={3: WALL_MS}),
    ]
    assert line.writer.load("ended") == ended


def test_what_waits_for_a_worker_is_counted(store):
    line = Line(store)
    states = [activity(state.value, state=state) for state in ActivityState]
    seen = execution("seen", last_wake_id=1, consumed=1)
    line.commit(
        started=[execution("ready", last_wake_id=1), seen, execution("ended", last_wake_id=1)],
        activities=[("seen", one) for one in states],
    )
    line.commit(touched=[closed(execution("ended", last_wake_id=1))])
    # Scheduled and Retrying, and one workflow task.
    assert line.writer.ready_count() == 3


# --- events ------------------------------------------------------------------
def test_the_event_that_closed_an_activity_is_found(store):
    line = Line(store)
    event = completed_event()
    rows = [stored(started_event()), stored(event, closes="a"), stored(started_event(5))]
    line.commit(started=[execution(), execution("v")], events=rows)
    assert line.writer.closing_event("w", "a") == event
    assert line.writer.closing_event("w", "b") is None
    assert line.writer.closing_event("v", "a") is None
    assert line.writer.closing_event("nobody", "a") is None


def test_the_event_that_an_operators_request_made_is_found(store):
    line = Line(store)
    event = ActivityTaskFailed(3, WALL_MS, "a", 1, 1, 1, FAILURE, None, "", "request-1")
    line.commit(started=[execution()], events=[stored(event, closes="a", request_id="request-1")])
    assert line.writer.requested_event("w", "request-1") == event
    assert line.writer.requested_event("w", "request-2") is None
    assert line.writer.requested_event("nobody", "request-1") is None


def test_events_come_in_order_in_parts_of_bounded_size(store):
    line = Line(store)
    events = [started_event(event_id, b"x" * 100) for event_id in (1, 2, 4, 5)]
    line.commit(started=[execution()], events=[stored(one) for one in reversed(events)])
    bodies = [encode_event(one) for one in events]
    reader = store.reader()
    assert reader.events("w", 0, 10, 10_000) == bodies
    assert reader.events("w", 2, 10, 10_000) == bodies[2:]
    assert reader.events("w", 0, 2, 10_000) == bodies[:2]
    assert reader.events("w", 0, 10, 2 * len(bodies[0])) == bodies[:2]
    assert reader.events("w", 0, 10, 1) == bodies[:1]
    assert reader.events("w", 5, 10, 1) == []
    assert reader.events("nobody", 0, 10, 10_000) == []
    assert reader.event("w", 4) == line.writer.event("w", 4) == bodies[2]
    assert reader.event("w", 3) is None
    assert line.writer.event("w", 3) is None


def test_the_details_of_an_open_activity_are_read(store):
    line = Line(store)
    line.commit(started=[execution()], activities=[("w", full_activity()), ("w", activity())])
    reader = store.reader()
    assert reader.details("w", "full") == b"\x01details"
    assert reader.details("w", "a") is None
    assert reader.details("w", "nothing") is None
    line.commit(activities_closed=[("w", "full")])
    assert reader.details("w", "full") is None


# --- lists -------------------------------------------------------------------
def test_a_list_has_the_newest_start_first_and_goes_on_from_its_page_token(store):
    line = Line(store)
    for number in range(3):
        line.commit(started=[execution(f"w{number}a"), execution(f"w{number}b")])
    reader = store.reader()
    seen, page = [], None
    for expected in (4, 2):
        found, page = reader.list_workflows(WorkflowFilter(), 4, page)
        assert len(found) == expected
        seen += [one.workflow_id for one in found]
        line.commit(started=[execution(f"meanwhile{expected}")])
    assert page is None
    assert seen == ["w2b", "w2a", "w1b", "w1a", "w0b", "w0a"]
    # Where the last page is full there is no other.
    assert reader.list_workflows(WorkflowFilter(), 8, None)[1] is None


@pytest.mark.parametrize("page", ["", "é", "not base64!", "AAAA====", "kgE="])
def test_a_page_that_is_no_token_is_refused(store, page):
    Line(store)
    with pytest.raises(InvalidArgument, match="page"):
        store.reader().list_workflows(WorkflowFilter(), 10, page)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, ["late", "boom", "bang", "ended"]),
        ({"workflow_type": "U"}, ["bang"]),
        ({"status": "Running"}, ["late", "boom", "bang"]),
        ({"status": "Completed"}, ["ended"]),
        ({"older_than_ms": WALL_MS + 10}, ["boom", "bang", "ended"]),
        ({"younger_than_ms": WALL_MS + 10}, ["late"]),
        ({"attempts": 2}, ["bang"]),
        ({"attempts": 2, "failure_type": "Boom"}, []),
        ({"attributes": (("customer", "c-7"),)}, ["boom"]),
        ({"attributes": (("customer", "c-7"), ("vip", True))}, ["boom"]),
        ({"attributes": (("vip", 1),)}, []),
        ({"attributes": (("customer", "c-8"),)}, []),
        ({"parent": "p"}, ["boom"]),
        ({"parent": "q"}, []),
        ({"parent": "p", "workflow_type": "U"}, []),
        ({"pending_state": "DeadLettered"}, ["boom", "bang"]),
        ({"failure_type": "Bang"}, ["bang"]),
        ({"activity_type": "charge"}, ["late", "boom", "bang"]),
        ({"pending_state": "Scheduled", "activity_type": "charge"}, ["late"]),
        # Of one and the same activity.
        ({"pending_state": "Scheduled", "failure_type": "Boom"}, []),
        ({"status": "Completed", "pending_state": "Scheduled"}, []),
        ({"workflow_type": "T", "status": "Running", "failure_type": "Boom"}, ["boom"]),
        ({"status": "no such status"}, []),
    ],
)
def test_a_list_is_narrowed_by_every_filter(store, where, expected):
    line = Line(store)
    bang = msgspec.structs.replace(execution("bang"), workflow_type="U")
    more = More(
        parent=Parent(execution_id("p", 3), "boom"), attributes={"customer": "c-7", "vip": True}
    )
    boom = msgspec.structs.replace(execution("boom"), more=more)
    second = msgspec.structs.replace(dead(failure="Bang"), attempt=2)
    line.commit(
        started=[execution("ended"), bang, boom],
        activities=[("bang", second), ("boom", dead(failure="Boom"))],
    )
    line.commit(
        started=[execution("late", started_ms=WALL_MS + 10)],
        touched=[closed(execution("ended"))],
        activities=[("late", activity())],
    )
    found, page = store.reader().list_workflows(WorkflowFilter(**where), 10, None)
    assert [one.workflow_id for one in found] == expected
    assert page is None
    open_there = {"bang": [second], "boom": [dead(failure="Boom")], "late": [activity()]}
    for one in found:
        assert list(one.activities.values()) == open_there.get(one.workflow_id, [])


def test_a_writer_has_the_events_behind_one(store):
    line = Line(store)
    events = [started_event(), completed_event(3), completed_event(5)]
    line.commit(started=[execution()], events=[stored(one) for one in events])
    assert line.writer.history("w") == events
    assert line.writer.history("w", 1) == events[1:]
    assert line.writer.history("w", 5) == line.writer.history("nobody") == []


def test_a_list_that_is_judged_shows_only_what_runs_and_goes_on_page_by_page(store, monkeypatch):
    monkeypatch.setattr("perdure.store.sqlite_reader.JUDGED_AT_ONCE", 3)
    line = Line(store)
    for number in range(8):
        rows = [(f"w{number}", dead())] if number % 2 else []
        line.commit(started=[execution(f"w{number}")], activities=rows)
    line.commit(touched=[closed(execution("w5"))], activities_closed=[("w5", "a")])
    where = WorkflowFilter(judge=lambda one: bool(one.activities))
    reader, seen, page = store.reader(), [], None
    while True:
        found, page = reader.list_workflows(where, 2, page)
        assert len(found) <= 2
        seen += [one.workflow_id for one in found]
        if page is None:
            break
    assert seen == ["w7", "w3", "w1"]
    assert [one.workflow_id for one in reader.list_workflows(where, 1, None)[0]] == ["w7"]


def test_a_page_ends_behind_many_open_activities_and_the_next_goes_on_there(store, monkeypatch):
    monkeypatch.setattr("perdure.store.sqlite_reader.ACTIVITIES_AT_ONCE", 3)
    line = Line(store)
    ids = [f"w{number}" for number in range(5)]
    rows = [(id_, activity(f"a{number}")) for id_ in ids for number in range(2)]
    line.commit(started=[execution(id_) for id_ in ids], activities=rows)
    reader, seen, page, pages = store.reader(), [], None, 0
    while page is not None or not pages:
        found, page = reader.list_workflows(WorkflowFilter(), 10, page)
        assert found
        seen += [(one.workflow_id, len(one.activities)) for one in found]
        pages += 1
    assert seen == [(id_, 2) for id_ in reversed(ids)]
    assert pages == (3 if isinstance(reader, SqliteReader) else 1)


def test_dead_letters_are_those_that_wait_for_an_operator(store):
    line = Line(store)
    line.commit(
        started=[execution("z"), execution("b")],
        activities=[("b", dead("2")), ("b", dead("1")), ("z", dead()), ("z", activity())],
    )
    found = [(id_, kind, one) for id_, kind, one in store.reader().dead_letters()]
    assert found == [("z", "T", dead()), ("b", "T", dead("1")), ("b", "T", dead("2"))]
    line.commit(activities_closed=[("b", "2")], activities=[("z", activity("dead"))])
    assert [one.activity_id for _, _, one in store.reader().dead_letters()] == ["1"]


# --- gates ----------------------------------------------------------------------
def test_gates_are_kept_by_kind_and_name_and_the_newest_counts(store):
    line = Line(store)
    assert line.writer.gates() == store.reader().gates() == []
    mail = Gate("queue", "mail", True, WALL_MS, "no quota", (("r1", True),))
    line.commit(gates=[mail, Gate("activity_type", "t", True, WALL_MS, "")])
    after = Gate("queue", "mail", False, WALL_MS + 1, "", (("r1", True), ("r2", False)))
    line.commit(gates=[after])
    expected = [Gate("activity_type", "t", True, WALL_MS, ""), after]
    assert store.reader().gates() == line.writer.gates() == expected
    assert Line(store).writer.gates() == expected


def test_a_reader_knows_when_the_present_epoch_began(store):
    line = Line(store)
    assert store.reader().began_ms() == store.reader().commits(0, 1)[0].at_ms
    line.commit()
    Line(store, "history.2", boot_ms=BOOT_MS + 5_000)
    first, _, opening = store.reader().commits(0, 10)
    assert store.reader().began_ms() == opening.at_ms == first.at_ms + 5_000
