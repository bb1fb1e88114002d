"""Task queues: what is ready, in which order, and what falls due when."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core import commands as c
from perdure.core.ids import Address, Session, seal
from perdure.core.records import ActivityOptions
from perdure.core.task_queues import TaskQueues
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from perdure.values import refer


@pytest.fixture
def queues(history):
    return follow(history)


def follow(history) -> TaskQueues:
    queues = TaskQueues()

    def listen(n, at_ms, workflow_id, records):
        queues.apply(workflow_id, at_ms, records, n)

    history.listeners.append(listen)
    return queues


def workflows(queues, now_ms):
    return [work.workflow_id for work in queues.ready_workflows(now_ms)]


def activities(queues, now_ms, queue=None):
    ready = queues.ready_activities(queue, now_ms)
    return [(entry.work.workflow_id, entry.activity.activity_id) for entry in ready]


# --- workflow tasks -------------------------------------------------------------
def test_a_started_workflow_is_ready_until_its_task_is_done(history, queues):
    history.start("w")
    assert workflows(queues, 1_000) == ["w"]
    history.step("w")
    assert workflows(queues, 1_000) == []


def test_workflow_tasks_are_ready_in_the_order_of_their_waking(history, queues):
    for name in "abc":
        history.start(name)
        history.schedule(name)
    for name in "bca":
        address = history.grant(name)
        history.ask(c.CompleteActivity(seal(address, history.key), None))
    assert workflows(queues, 1_000) == ["b", "c", "a"]


def test_a_failed_workflow_task_is_parked_from_the_third_time_on(history, queues):
    history.start("w")
    fail = c.FailWorkflowTask("w", 0, 0, "error", None)
    for _ in range(2):
        history.ask(fail)
        assert workflows(queues, 1_000) == ["w"]
    history.ask(fail)
    assert workflows(queues, 1_999) == []
    assert queues.next_due_ms() == 2_000
    assert workflows(queues, 2_000) == ["w"]


def test_what_wakes_a_parked_workflow_does_not_unpark_it(history, queues):
    history.start("w")
    history.schedule("w")
    address = history.grant()
    history.ask(c.CompleteActivity(seal(address, history.key), None))
    for _ in range(3):
        history.ask(c.FailWorkflowTask("w", 1, 1, "error", None))
    assert workflows(queues, 1_500) == []


def test_a_task_that_is_out_is_not_ready_before_it_is_taken_back(history, queues):
    history.start("w")
    [work] = queues.ready_workflows(1_000)
    queues.give_workflow(work, "somebody")
    assert workflows(queues, 1_000) == []
    queues.take_back_workflow(work, 1_000)
    assert workflows(queues, 1_000) == ["w"]


def test_events_after_the_cursor_are_kept_and_dropped_with_it(history, queues):
    history.start("w")
    work = queues.works["w"]
    assert [event.event_id for event in work.events] == [1]
    history.schedule("w")
    assert [event.event_id for event in work.events] == [2]
    address = history.grant()
    history.ask(c.CompleteActivity(seal(address, history.key), None))
    assert [event.event_id for event in work.events] == [2, 4]


def test_events_whose_payload_is_kept_elsewhere_are_left_to_be_fetched(history, queues):
    reference = refer(b"m" + b"x" * 5_000)
    history.ask(c.StartWorkflow("w", "T", "default", reference, None, b""))
    assert queues.works["w"].events is None
    history.step("w")
    assert queues.works["w"].events == []


# --- activities -----------------------------------------------------------------
def test_higher_priority_goes_first_then_the_order_of_becoming_ready(history, queues):
    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -1)):
        history.schedule(name, priority=priority)
    assert [name for name, _ in activities(queues, 1_000)] == ["b", "d", "a", "c", "e"]


def test_a_queue_shows_its_own_activities_only(history, queues):
    history.schedule("a", task_queue="one")
    history.schedule("b", task_queue="two")
    assert activities(queues, 1_000, "two") == [("b", "a")]
    assert queues.ready_count == 2


def test_a_retry_is_ready_at_exactly_its_due_time(history, queues):
    history.schedule(retry=RetryPolicy(initial_ms=1_000))
    history.fail(history.grant())
    assert activities(queues, 1_499) == []
    assert queues.next_due_ms() == 1_500
    assert activities(queues, 1_500) == [("w", "a")]


def test_a_leased_activity_is_not_ready_and_a_released_one_is_again(history, queues):
    history.schedule()
    address = history.grant()
    assert activities(queues, 1_000) == []
    history.ask(c.ReleaseActivity(seal(address, history.key), "shutdown"))
    assert activities(queues, 1_000) == [("w", "a")]


def test_a_requeued_activity_keeps_its_place(history, queues):
    history.schedule("a")
    history.schedule("b")
    entry = queues.entry("a", "a")
    assert queues.withdraw_activity(entry)
    assert activities(queues, 1_000) == [("b", "a")]
    queues.requeue_activity(entry, 1_000)
    assert activities(queues, 1_000) == [("a", "a"), ("b", "a")]


def test_nothing_of_a_closed_workflow_is_ready_or_due(history, queues):
    history.schedule(schedule_to_close_ms=5_000, schedule_to_start_ms=900)
    history.step("w", c.StartTimer(1, 100), c.CompleteWorkflow(None))
    history.start("v")
    history.step("v", c.StartTimer(1, 100), c.ScheduleActivity("x", "t", None, options()))
    history.step("v", c.CompleteWorkflow(None))
    assert queues.ready_count == 0
    assert queues.next_due_ms() is None
    assert queues.works == {}


def options(**fields) -> ActivityOptions:
    return ActivityOptions(RetryPolicy(), **fields)


# --- deadlines --------------------------------------------------------------------
def test_proposals_come_in_the_order_of_their_due_times_and_once(history, queues):
    history.start("w")
    history.step(
        "w",
        c.StartTimer(1, 300),
        c.StartTimer(2, 100),
        c.ScheduleActivity("a", "t", None, options(schedule_to_start_ms=200)),
        c.ScheduleActivity("b", "t", None, options(schedule_to_close_ms=400)),
    )
    assert queues.next_due_ms() == 1_100
    assert queues.due(1_099) == []
    assert queues.due(1_400) == [
        c.FireTimer("w", 2),
        c.TimeOutActivity("w", "a", 1, "schedule_to_start"),
        c.FireTimer("w", 1),
        c.TimeOutActivity("w", "b", 1, "schedule_to_close"),
    ]
    assert queues.due(9_999) == []
    assert queues.next_due_ms() is None


def test_a_refused_proposal_is_made_again_while_its_cause_is_there(history, queues):
    history.start("w")
    history.step("w", c.StartTimer(1, 100))
    [command] = queues.due(1_100)
    queues.refused(command, 1_150)
    assert queues.due(1_149) == []
    assert queues.due(1_150) == [command]
    history.now_ms = 1_150
    history.ask(command)
    queues.refused(command, 1_200)
    assert queues.due(9_000) == []


def test_a_cancelled_timer_never_fires(history, queues):
    history.start("w")
    history.step("w", c.StartTimer(1, 100), c.CancelTimer(1))
    assert queues.next_due_ms() is None


def test_schedule_to_start_is_over_with_the_first_lease_of_a_generation(history, queues):
    history.schedule(schedule_to_start_ms=500, retry=RetryPolicy(max_attempts=1))
    address = history.grant()
    assert queues.next_due_ms() is None
    history.ask(c.ReleaseActivity(seal(address, history.key), "shutdown"))
    assert queues.next_due_ms() is None
    history.fail(history.grant())
    history.now_ms = 5_000
    history.ask(c.RedriveDeadLetter("w", "a"))
    assert queues.next_due_ms() == 5_500


def test_schedule_to_close_runs_in_every_state_but_dead_lettered(history, queues):
    history.schedule(schedule_to_close_ms=10_000, retry=RetryPolicy(max_attempts=2))
    assert queues.next_due_ms() == 11_000
    address = history.grant()
    assert queues.next_due_ms() == 11_000
    history.fail(address)
    assert ("schedule_to_close", 11_000) in [(kind, due) for due, kind, _, _ in queues.deadlines()]
    history.now_ms = 2_000
    history.fail(history.grant())
    assert queues.next_due_ms() is None
    history.now_ms = 50_000
    history.ask(c.RedriveDeadLetter("w", "a"))
    assert queues.next_due_ms() == 60_000


def test_leases_are_known_by_session_and_by_poll(history, queues):
    session = Session("node.1", 1)
    history.schedule("a")
    history.schedule("b")
    history.grant("a", session=session)
    address = history.grant("b", poll_id="p")
    assert [entry.work.workflow_id for entry in queues.leases[session]] == ["a"]
    assert queues.polled["w1", "p"].address() == address
    history.step("a", c.CancelActivity("a"))
    history.ask(c.CompleteActivity(seal(address, history.key), None))
    assert queues.leases == {}
    assert queues.polled == {}


# --- rebuilding ---------------------------------------------------------------------
MOVES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 2), st.integers(0, 3_000)), max_size=60
)


def move(history, what: int, which: int, by_ms: int) -> None:
    """One of the things that happen to a workflow; those that make no sense are refused."""
    history.now_ms += by_ms
    workflow_id = f"w{which}"
    execution = history.executions.get(workflow_id)
    if execution is None:
        history.start(workflow_id)
        return
    activity_id = f"a{execution.commands}"
    held = next(iter(execution.activities.values()), None)
    name = held.activity_id if held else "none"
    address = Address(workflow_id, name, held.generation if held else 1, held.grant if held else 1)
    token = seal(address, history.key)
    session = Session("node.1", which)
    grant = address.grant + 1
    attempt = held.attempt if held else 1
    cursor = (execution.consumed, execution.commands)
    long = options(schedule_to_start_ms=4_000, schedule_to_close_ms=60_000, priority=which)
    [
        lambda: history.step(workflow_id, c.ScheduleActivity(activity_id, "t", None, long)),
        lambda: history.step(workflow_id, c.StartTimer(execution.commands, 2_000)),
        lambda: history.ask(
            c.GrantLease(workflow_id, name, address.generation, grant, attempt, "w1", session)
        ),
        lambda: history.ask(c.CompleteActivity(token, None)),
        lambda: history.ask(c.FailActivity(token, Failure("Oops", ""), b"mx", 7)),
        lambda: history.ask(c.ReleaseActivity(token, "unknown_type")),
        lambda: history.ask(c.EndLease(address, "worker_died")),
        lambda: history.ask(c.RecordHeartbeat(token, 0, b"my", True)),
        lambda: history.step(workflow_id, c.CancelActivity(name)),
        lambda: history.ask(c.FireTimer(workflow_id, min(execution.timers, default=0))),
        lambda: history.ask(c.FailWorkflowTask(workflow_id, *cursor, "error")),
        lambda: history.ask(c.RedriveDeadLetter(workflow_id, name)),
        lambda: by_ms == 0 and history.step(workflow_id, c.CompleteWorkflow(None)),
    ][what]()


def picture(queues: TaskQueues, now_ms: int) -> dict:
    return {
        "workflows": sorted(workflows(queues, now_ms)),
        "activities": sorted(activities(queues, now_ms)),
        "deadlines": sorted(map(str, queues.deadlines())),
        "leases": {
            session: sorted(entry.address() for entry in held)
            for session, held in queues.leases.items()
        },
        "executions": {name: work.execution for name, work in queues.works.items()},
        "count": queues.ready_count,
    }


@settings(max_examples=200, deadline=None)
@given(moves=MOVES)
def test_begun_from_the_open_state_they_are_as_if_every_record_had_been_followed(
    make_history, moves
):
    history = make_history()
    followed = follow(history)
    for what, which, by_ms in moves:
        move(history, what, which, by_ms)
        loaded = TaskQueues()
        loaded.load(history.open_state(), history.now_ms)
        assert picture(loaded, history.now_ms) == picture(followed, history.now_ms)


def test_what_is_leased_with_its_scheduling_never_waits(history, queues, monkeypatch):
    queued = []
    monkeypatch.setattr(queues, "_queue_activity", lambda entry, *_: queued.append(entry))
    history.start("w")
    session = Session("node.1", 1)
    options = ActivityOptions(RetryPolicy(), schedule_to_start_ms=500, schedule_to_close_ms=900)
    steps = tuple(c.ScheduleActivity(name, "t", None, options) for name in "ab")
    hire = c.Hire("w1", session, ("a",))
    assert history.ask(c.CompleteWorkflowTask("w", 0, 0, 1, steps, hire)) == c.Done()
    assert [entry.activity.activity_id for entry in queued] == ["b"]
    assert [entry.activity.activity_id for entry in queues.leases[session]] == ["a"]
    kinds = [(kind, name) for _, kind, _, name in queues.deadlines()]
    assert sorted(kinds) == [
        ("schedule_to_close", "a"),
        ("schedule_to_close", "b"),
        ("schedule_to_start", "b"),
    ]
