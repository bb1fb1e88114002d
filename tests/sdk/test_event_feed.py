"""The feed of what has happened, derived from the commit log."""

from __future__ import annotations

import pytest

from perdure import activity, errors, event_feed, workflow
from perdure.failures import Failure
from perdure.policy import RetryPolicy
from perdure.store.protocol import CommitRow
from perdure.testing import LocalEngine, ManualClock

ONCE = RetryPolicy(max_attempts=1)


@activity.define(retry=ONCE, start_to_close_ms=1_000, heartbeat_ms=500)
def step(x: int = 0) -> int:
    return x + 1


@workflow.define(name="One")
async def one(x: int = 0) -> int:
    return await workflow.execute_activity(step, x, activity_id="a")


@pytest.fixture
def engine():
    return LocalEngine([one], [step])


def by_hand():
    return LocalEngine([one], [], clock=ManualClock(0))


def ids(events):
    return [event.id for event in events]


def kinds(events):
    return [event.kind for event in events]


def test_what_happened_comes_in_order_each_with_an_id_of_its_own(engine):
    engine.client.start_workflow(one, 1, workflow_id="w")
    engine.run_until_idle()
    events = list(engine.client.events())
    assert kinds(events) == [
        "WorkflowStarted",
        "ActivityTaskScheduled",
        "ActivityTaskCompleted",
        "WorkflowCompleted",
    ]
    assert len(set(ids(events))) == 4
    assert {event.workflow_id for event in events} == {"w"}
    assert {event.run for event in events} == {1}


def test_every_event_is_where_to_go_on_from(engine):
    for number in range(3):
        engine.client.start_workflow(one, 1, workflow_id=f"w{number}")
        engine.run_until_idle()
    events = list(engine.client.events())
    for at, event in enumerate(events):
        assert ids(engine.client.events(event.id)) == ids(events[at + 1 :])


def test_an_id_does_not_depend_on_what_is_listened_to(engine):
    engine.client.start_workflow(one, 1, workflow_id="w")
    engine.client.start_workflow(one, 1, workflow_id="v")
    engine.run_until_idle()
    everything = {event.id: event.kind for event in engine.client.events()}
    some = list(engine.client.events(kinds=["ActivityTaskCompleted"], workflow_id="v"))
    assert kinds(some) == ["ActivityTaskCompleted"]
    assert everything[some[0].id] == "ActivityTaskCompleted"


def test_pages_of_any_size_make_the_same_feed(engine):
    for number in range(5):
        engine.client.start_workflow(one, 1, workflow_id=f"w{number}")
    engine.run_until_idle()
    whole = ids(engine.client.events())
    for limit in (1, 2, 3, 7):
        found, after = [], None
        while (page := engine.client.read_events(after, limit)).events:
            assert len(page.events) <= limit
            found += ids(page.events)
            after = page.next
        assert found == whole


def test_from_now_on_is_only_what_comes(engine):
    engine.client.start_workflow(one, 1, workflow_id="w")
    engine.run_until_idle()
    after = engine.client.read_events("now").next
    assert list(engine.client.events(after)) == []
    engine.client.start_workflow(one, 1, workflow_id="v")
    assert [event.workflow_id for event in engine.client.events(after)] == ["v"]


def test_a_kind_that_there_is_not_is_refused_naming_those_that_there_are(engine):
    with pytest.raises(errors.InvalidArgument, match="ActivityDeadLettered"):
        list(engine.client.events(kinds=["Nonsense"]))


@pytest.mark.parametrize("after", ["x", "1.2.3", "-1", "", "1.", " 1"])
def test_a_place_that_is_none_is_refused_naming_the_field(engine, after):
    with pytest.raises(errors.InvalidArgument) as caught:
        list(engine.client.events(after))
    assert caught.value.field == "after"


def test_a_place_that_is_not_there_yet_is_refused(engine):
    with pytest.raises(errors.FailedPrecondition, match="no 99999 yet"):
        list(engine.client.events("99999"))


def dead(engine):
    return [it for it in engine.client.events() if it.kind == "ActivityDeadLettered"]


def by_failure(engine, task):
    engine.fail_activity_task(task.token, Failure("Boom", "no"))


def by_timeout(engine, task):
    engine.record_heartbeat(task.token)
    for _ in range(4):
        engine.clock.advance_ms(300)
        try:
            engine.record_heartbeat(task.token)
        except errors.FailedPrecondition:
            return


def by_silence(engine, task):
    engine.clock.advance_ms(10_000)


@pytest.mark.parametrize("way", [by_failure, by_timeout, by_silence])
def test_each_way_into_the_dead_letters_is_exactly_one_event(way):
    engine = by_hand()
    engine.client.start_workflow(one, 1, workflow_id="w")
    engine.run_workflow_tasks()
    way(engine, engine.poll_activity_task())
    [letter] = engine.list_dead_letters()
    [event] = dead(engine)
    assert (event.activity_id, event.attempt) == ("a", 1)
    assert event.failure.type == letter.last_failure.type
    engine.restart()
    assert ids(dead(engine)) == [event.id]
    engine.redrive_dead_letter("w", "a")
    assert kinds(engine.client.events(event.id)) == ["ActivityRedriven"]
    way(engine, engine.poll_activity_task())
    assert len(set(ids(dead(engine)))) == 2


def test_a_failed_attempt_that_is_tried_again_is_an_event_and_the_log_of_it_is_brief():
    engine = LocalEngine([one], [], clock=ManualClock(0))

    @activity.define(name="step")
    def again(x: int) -> int:
        return x

    engine = LocalEngine([one], [], clock=engine.clock)
    engine.client.start_workflow(one, 1, workflow_id="w")
    engine.run_workflow_tasks()
    task = engine.poll_activity_task()
    engine.fail_activity_task(task.token, Failure("Boom", "x" * 5_000, stack="s" * 5_000))
    [event] = dead(engine)
    assert len(event.failure.message) == event_feed.MESSAGE_CHARS_MAX
    assert not hasattr(event.failure, "stack")
    assert "input" not in event


class Pruned:
    """A reader of a log that begins after commit 10, and ends with 20."""

    def base(self):
        return 10, b""

    def newest(self):
        return 20

    def commits(self, after, limit):
        return []


@pytest.mark.parametrize("after", ["3", "9", "9.99", "10.0"])
def test_what_was_pruned_is_refused_with_the_place_from_which_it_goes_on(after):
    with pytest.raises(errors.FailedPrecondition, match=r"after 10$"):
        event_feed.start_of(after, Pruned())


@pytest.mark.parametrize(
    ("after", "place"),
    [(None, "10"), ("10", "10"), ("11.2", "11.2"), ("20", "20"), ("now", "20")],
)
def test_what_is_kept_can_be_gone_on_from(after, place):
    start = event_feed.start_of(after, Pruned())
    assert str(start) == place
    assert event_feed.read(Pruned(), start, event_feed.Wanted(None, None), 10).is_end


def test_what_is_pruned_while_it_is_read_is_not_left_out_in_silence():
    reader = Pruned()
    reader.commits = lambda after, limit: [CommitRow(15, 1, 0, b"", b"", b"")]
    with pytest.raises(errors.FailedPrecondition, match=r"after 14$"):
        event_feed.read(reader, event_feed.Position(12, 0), event_feed.Wanted(None, None), 10)


def test_every_kind_that_a_feed_has_can_be_asked_for():
    assert set(event_feed.kinds()) == set(event_feed.KINDS.values())
    assert len(event_feed.kinds()) == len(event_feed.KINDS)


def test_what_a_schedule_does_is_an_event_with_its_id_and_the_workflow_that_it_starts(engine):
    engine.client.create_schedule("s", one, 1, every_ms=1_000)
    engine.clock.advance_ms(1_000)
    engine.run_workflow_tasks()
    made, fired = [it for it in engine.client.events() if it.kind.startswith("Schedule")]
    assert (made.kind, made.schedule_id, made.workflow_id) == ("ScheduleSet", "s", None)
    assert (fired.kind, fired.schedule_id) == ("ScheduleFired", "s")
    [run] = engine.client.list_workflows(type="One")
    assert fired.workflow_id == run.workflow_id


def test_an_answer_looks_at_a_part_of_a_long_log_only_and_the_asker_goes_on(engine, monkeypatch):
    monkeypatch.setattr(event_feed, "RECORDS_AN_ANSWER", 10)
    for number in range(20):
        engine.client.start_workflow(one, 1, workflow_id=f"w{number}")
    engine.run_until_idle()
    wanted = ["WorkflowCompleted"]
    first = engine.client.read_events(kinds=wanted)
    assert (list(first.events), first.next != "0") == ([], True)
    assert len(list(engine.client.events(kinds=wanted))) == 20
    assert len(list(engine.client.events(kinds=wanted, workflow_id="w7"))) == 1


def test_a_pause_says_whether_a_queue_or_an_activity_type_of_that_name_is_meant(engine):
    engine.client.pause_queue("step")
    engine.client.pause_activity_type("step")
    events = engine.client.events(kinds=["GateSet"], follow=False)
    assert [(it.gate, it.name) for it in events] == [
        ("queue", "step"),
        ("activity_type", "step"),
    ]
