"""Matching: who gets which task, and when it is given again."""

from __future__ import annotations

import msgspec
import pytest

from perdure.core import commands as c
from perdure.core.ids import Session
from perdure.core.links import (
    ActivityTask,
    Poll,
    Polled,
    Sessions,
    Sync,
    WorkflowTask,
    pack_session,
)
from perdure.core.matching import Matching
from perdure.policy import RetryPolicy

NODE = "node.1"
ONE, TWO = Session(NODE, 1), Session(NODE, 2)
GATEWAY = "gateway.1"


class Scheduler:
    """A Matching between a history that answers at once, workers and a gateway."""

    def __init__(self, history) -> None:
        self.history = history
        self.proposed: list[c.AnyCommand] = []
        self.sent: list[tuple[bytes, object]] = []
        self.polled: list[Polled] = []
        self.mind = Matching(
            history.key,
            self.proposed.append,
            lambda head, message: self.sent.append((head, message)),
            lambda gateway, message: self.polled.append(message),
        )
        self.asked: list[c.AnyCommand] = []
        history.listeners.append(self.hear)
        self.mind.load(history.open_state(), history.now_ms)
        self.mind.gateway(GATEWAY)
        self.live: set[int] = set()

    def hear(self, n, at_ms, workflow_id, records) -> None:
        self.mind.apply(n, at_ms, workflow_id, records, at_ms)

    def sets(self, *live: int, highest: int = 9) -> None:
        self.mind.sessions(Sessions(NODE, highest, live))
        self.step()

    def sync(self, session: Session = ONE, **fields) -> None:
        known = {
            "worker_id": f"worker-{session.ordinal}",
            "queues": ("default",),
            "activity_types": ("t",),
            "workflow_types": ("T",),
            "activity_slots": 10,
            "workflow_slots": 10,
            "tokens": (),
            "workflows": (),
            "n": 0,
        }
        self.mind.sync(session, Sync(**{**known, **fields}), self.history.now_ms)
        self.step()

    def hello(self, session: Session = ONE, **fields) -> None:
        """A set with this session, and its first Sync."""
        self.live.add(session.ordinal)
        self.mind.sessions(Sessions(NODE, max(self.live), tuple(self.live)))
        self.sync(session, **fields)

    def step(self, answers: bool = True) -> None:
        """A turn; with `answers` history judges at once, until nothing is proposed."""
        self.mind.step(self.history.n, self.history.now_ms)
        while answers and self.proposed:
            batch = list(self.proposed)
            self.proposed.clear()
            for command in batch:
                self.asked.append(command)
                answer = self.history.ask(command)
                self.mind.answered(command, answer, self.history.now_ms)
            self.mind.step(self.history.n, self.history.now_ms)

    def at(self, now_ms: int) -> None:
        self.history.now_ms = now_ms
        self.step()

    def tasks(self, kind=ActivityTask, session: Session | None = None) -> list:
        head = None if session is None else pack_session(session)
        found = [m for h, m in self.sent if isinstance(m, kind) and head in (None, h)]
        self.sent = [(h, m) for h, m in self.sent if m not in found]
        return found

    def poll(self, n: int = 1, wait_ms: int = 0, types=(), poll_id=None, worker_id="h") -> None:
        message = Poll(n, "default", worker_id, types, wait_ms, poll_id)
        self.mind.poll((GATEWAY, n), message, self.history.now_ms)
        self.step()


@pytest.fixture
def scheduler(history):
    return Scheduler(history)


# --- activities -----------------------------------------------------------------
def test_a_ready_activity_goes_to_a_session_when_its_grant_is_in_the_feed(history, scheduler):
    scheduler.hello()
    history.schedule(heartbeat_ms=5_000, start_to_close_ms=60_000)
    scheduler.mind.step(history.n, history.now_ms)
    assert scheduler.tasks() == []
    scheduler.step()
    [task] = scheduler.tasks(session=ONE)
    assert (task.attempt, task.lease_ms, task.attempt_ms) == (1, 5_000, 60_000)
    assert task.n == history.n
    done = history.ask(c.CompleteActivity(task.token, None))
    assert done == c.Done()


def test_a_session_never_gets_more_than_its_slots(history, scheduler):
    scheduler.hello(activity_slots=2)
    for name in "abcd":
        history.schedule(name)
    scheduler.mind.step(history.n, history.now_ms)
    assert len(scheduler.proposed) == 2, "proposals in flight take slots"
    scheduler.step()
    first, _ = scheduler.tasks()
    history.ask(c.CompleteActivity(first.token, None))
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks()] == ["c"]


def test_work_is_spread_over_sessions_with_free_slots(history, scheduler):
    scheduler.hello(ONE)
    scheduler.hello(TWO)
    for name in "abcd":
        history.schedule(name)
    scheduler.step()
    assert len(scheduler.tasks(session=ONE)) == 2
    assert len(scheduler.tasks(session=TWO)) == 2


@pytest.mark.parametrize(
    "unfit",
    [{"activity_types": ("u",)}, {"queues": ("other",)}, {"draining": True}],
    ids=lambda fields: next(iter(fields)),
)
def test_an_activity_waits_for_a_session_that_takes_its_kind(history, scheduler, unfit):
    scheduler.hello(ONE, **unfit)
    history.schedule()
    scheduler.step()
    assert scheduler.asked == []
    scheduler.hello(TWO)
    assert len(scheduler.tasks(session=TWO)) == 1


def test_a_kind_that_nobody_takes_does_not_hold_up_the_others(history, scheduler):
    scheduler.hello()
    history.schedule("a", type="unknown", priority=9)
    history.schedule("b")
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks()] == ["b"]


def test_a_silent_session_gets_nothing_until_it_is_heard_again(history, scheduler):
    scheduler.hello()
    scheduler.at(4_001)
    history.schedule()
    scheduler.step()
    assert scheduler.asked == []
    scheduler.sync()
    assert len(scheduler.tasks()) == 1


def test_a_refused_grant_frees_its_slot_and_the_activity_is_looked_at_again(history, scheduler):
    scheduler.hello(activity_slots=1)
    history.schedule("a")
    history.schedule("b")
    scheduler.mind.step(history.n, history.now_ms)
    [command] = scheduler.proposed
    scheduler.proposed.clear()
    scheduler.mind.answered(command, c.Refusal("FAILED_PRECONDITION", "no"), history.now_ms)
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks()] == ["b"]
    scheduler.sync(activity_slots=2)
    scheduler.at(1_250)
    assert [task.workflow_id for task in scheduler.tasks()] == ["a"]


def test_a_grant_refused_for_a_closed_activity_frees_its_slot(history, scheduler):
    scheduler.hello(activity_slots=1)
    history.schedule("a")
    scheduler.mind.step(history.n, history.now_ms)
    history.step("a", c.CompleteWorkflow(None))
    history.schedule("b")
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks()] == ["b"]


def test_a_type_handed_back_as_unknown_is_offered_elsewhere_only(history, scheduler):
    scheduler.hello(ONE)
    history.schedule()
    scheduler.step()
    [task] = scheduler.tasks(session=ONE)
    history.ask(c.ReleaseActivity(task.token, "unknown_type"))
    scheduler.step()
    scheduler.sync(ONE)
    assert scheduler.tasks() == []
    scheduler.sync(ONE, activity_types=("t", "u"))
    assert len(scheduler.tasks(session=ONE)) == 1


def test_a_task_that_a_sync_lacks_is_sent_again(history, scheduler):
    scheduler.hello()
    history.schedule()
    scheduler.step()
    [task] = scheduler.tasks()
    history.now_ms += 50
    scheduler.sync(n=history.n)
    assert scheduler.tasks() == [], "it may still be on its way"
    history.now_ms += 60
    scheduler.sync(n=history.n)
    [again] = scheduler.tasks()
    assert (again.token, again.deadline_ms) == (task.token, task.deadline_ms)
    assert again.lease_ms == task.lease_ms - 110
    history.now_ms += 1_000
    scheduler.sync(tokens=(task.token,), n=history.n)
    assert scheduler.tasks() == []


def test_a_task_is_sent_again_after_a_second_whatever_the_worker_has_seen(history, scheduler):
    scheduler.hello()
    history.schedule()
    scheduler.step()
    scheduler.tasks()
    history.now_ms += 1_000
    scheduler.sync(n=0)
    assert scheduler.tasks() == []
    history.now_ms += 1
    scheduler.sync(n=0)
    assert len(scheduler.tasks()) == 1


def test_a_sync_from_ahead_is_judged_only_when_we_are_there(history, scheduler):
    scheduler.hello()
    history.schedule()
    scheduler.step()
    scheduler.tasks()
    history.now_ms += 2_000
    scheduler.sync(n=history.n + 1)
    assert scheduler.tasks() == []
    history.start("other")
    scheduler.step()
    assert len(scheduler.tasks()) == 1


def test_leases_held_over_from_an_earlier_session_take_slots(history, scheduler):
    scheduler.hello(ONE)
    history.schedule("a")
    scheduler.step()
    [task] = scheduler.tasks()
    scheduler.hello(TWO, activity_slots=1, tokens=(task.token,), n=history.n)
    scheduler.sets(2)
    history.schedule("b")
    scheduler.step()
    assert scheduler.tasks() == []
    history.ask(c.CompleteActivity(task.token, None))
    scheduler.sync(TWO, activity_slots=1, n=history.n)
    assert [task.workflow_id for task in scheduler.tasks(session=TWO)] == ["b"]


def test_after_a_restart_a_grant_that_was_never_sent_is_found_by_the_sync(history):
    history.schedule()
    history.grant(session=ONE)
    scheduler = Scheduler(history)
    history.now_ms += 200
    scheduler.hello(ONE, n=history.n)
    assert len(scheduler.tasks(session=ONE)) == 1


# --- workflow tasks -------------------------------------------------------------
def test_a_new_workflow_comes_with_its_events_and_once(history, scheduler):
    scheduler.hello()
    history.start()
    scheduler.step()
    [task] = scheduler.tasks(WorkflowTask)
    assert (task.consumed, task.commands, len(task.events)) == (0, 0, 1)
    scheduler.step()
    assert scheduler.tasks(WorkflowTask) == []


def test_the_worker_whose_result_was_accepted_is_preferred_and_gets_new_events(history, scheduler):
    scheduler.hello(TWO)
    history.start()
    scheduler.step()
    assert len(scheduler.tasks(WorkflowTask, TWO)) == 1
    scheduler.hello(ONE, workflow_slots=99)
    history.schedule()
    scheduler.step()
    [activity] = scheduler.tasks()
    history.ask(c.CompleteActivity(activity.token, None))
    scheduler.step()
    [task] = scheduler.tasks(WorkflowTask, TWO)
    assert task.consumed == 1
    assert len(task.events) == 2


def test_another_worker_fetches_the_events_itself(history, scheduler):
    scheduler.hello(TWO)
    history.start()
    scheduler.step()
    history.schedule()
    scheduler.step()
    [activity] = scheduler.tasks()
    scheduler.hello(ONE)
    scheduler.sets(1)
    scheduler.tasks(WorkflowTask)
    history.ask(c.CompleteActivity(activity.token, None))
    scheduler.step()
    [task] = scheduler.tasks(WorkflowTask, ONE)
    assert task.events is None
    assert task.last_event_id == 4


def test_workflow_tasks_do_not_take_the_slots_of_activities(history, scheduler):
    scheduler.hello(activity_slots=1, workflow_slots=1)
    for name in "ab":
        history.start(name)
    history.schedule("c")
    scheduler.step()
    assert len(scheduler.tasks()) == 1
    assert [task.workflow_id for task in scheduler.tasks(WorkflowTask)] == ["a"]
    history.step("a", c.CompleteWorkflow(None))
    scheduler.step()
    assert [task.workflow_id for task in scheduler.tasks(WorkflowTask)] == ["b"]


def test_events_that_came_while_the_task_was_out_make_another(history, scheduler):
    scheduler.hello()
    history.start()
    history.step("w", c.StartTimer(1, 10), c.StartTimer(2, 20))
    scheduler.at(1_010)
    [first] = scheduler.tasks(WorkflowTask)
    scheduler.at(1_020)
    assert scheduler.tasks(WorkflowTask) == []
    history.ask(c.CompleteWorkflowTask("w", first.consumed, 2, first.last_event_id, ()))
    scheduler.step()
    [second] = scheduler.tasks(WorkflowTask)
    assert second.consumed == first.last_event_id
    assert len(second.events) == 1


def test_the_death_of_its_worker_gives_the_task_out_again_and_counts(history, scheduler):
    scheduler.hello(ONE)
    history.start()
    scheduler.step()
    scheduler.tasks(WorkflowTask)
    scheduler.hello(TWO)
    scheduler.sets(2)
    assert history.executions["w"].task_failures == 1
    assert len(scheduler.tasks(WorkflowTask, TWO)) == 1


def test_a_task_that_a_sync_lacks_is_sent_again_uncounted(history, scheduler):
    scheduler.hello()
    history.start()
    scheduler.step()
    [task] = scheduler.tasks(WorkflowTask)
    history.now_ms += 100
    scheduler.sync(n=history.n, workflows=(("w", 0, 0),))
    assert scheduler.tasks(WorkflowTask) == []
    scheduler.sync(n=history.n)
    assert scheduler.tasks(WorkflowTask) == [task]
    assert history.executions["w"].task_failures == 0


def test_a_task_that_takes_too_long_at_a_living_worker_times_out(history, scheduler):
    scheduler.hello()
    history.start()
    scheduler.step()
    for now_ms in range(1_900, 11_000, 1_000):
        history.now_ms = now_ms
        scheduler.sync(workflows=(("w", 0, 0),))
    assert history.executions["w"].task_failures == 0
    scheduler.at(11_000)
    assert history.executions["w"].task_reason == "timeout"


def test_a_task_at_a_worker_that_fell_silent_moves_uncounted(history, scheduler):
    scheduler.hello(ONE)
    history.start()
    scheduler.step()
    scheduler.tasks(WorkflowTask)
    history.now_ms = 11_000
    scheduler.hello(TWO)
    assert len(scheduler.tasks(WorkflowTask, TWO)) == 1
    assert history.executions["w"].task_failures == 0


def test_a_worker_that_does_not_know_the_type_is_not_asked_again(history, scheduler):
    scheduler.hello(ONE)
    history.start()
    scheduler.step()
    scheduler.tasks(WorkflowTask)
    history.ask(c.FailWorkflowTask("w", 0, 0, "unknown_type"))
    scheduler.at(2_500)
    scheduler.sync(ONE)
    assert scheduler.tasks(WorkflowTask) == []
    scheduler.hello(TWO)
    assert len(scheduler.tasks(WorkflowTask, TWO)) == 1


def test_after_a_restart_tasks_wait_for_the_syncs_that_may_list_them(history):
    history.start("held")
    history.start("free")
    scheduler = Scheduler(history)
    scheduler.sets(1, 2)
    scheduler.sync(ONE)
    assert scheduler.tasks(WorkflowTask) == []
    scheduler.sync(TWO, workflows=(("held", 0, 0),))
    assert [task.workflow_id for task in scheduler.tasks(WorkflowTask)] == ["free"]


def test_after_a_restart_tasks_do_not_wait_long(history):
    history.start()
    scheduler = Scheduler(history)
    scheduler.sets(1, 2)
    scheduler.sync(ONE)
    assert scheduler.mind.next_ms() == 1_300
    scheduler.at(1_300)
    assert len(scheduler.tasks(WorkflowTask)) == 1


def test_a_worker_that_comes_back_as_another_session_keeps_its_task(history):
    scheduler = Scheduler(history)
    old, new = Session(GATEWAY, 1), Session("gateway.2", 1)
    scheduler.sync(old)
    scheduler.at(1_300)
    history.start()
    scheduler.step()
    assert len(scheduler.tasks(WorkflowTask, old)) == 1
    scheduler.mind.gateway("gateway.2")
    scheduler.sync(new, workflows=(("w", 0, 0),), n=history.n)
    assert scheduler.tasks(WorkflowTask) == []
    history.step("w", c.StartTimer(1, 10))
    scheduler.at(1_400)
    [task] = scheduler.tasks(WorkflowTask, new)
    assert task.events is not None


# --- deadlines ------------------------------------------------------------------
def test_timers_fire_at_their_time(history, scheduler):
    history.start()
    history.step("w", c.StartTimer(1, 500))
    assert scheduler.mind.next_ms() == 1_500
    scheduler.at(1_499)
    assert scheduler.asked == []
    scheduler.at(1_500)
    assert scheduler.asked == [c.FireTimer("w", 1)]


def test_a_proposal_that_history_could_not_judge_is_made_again(history, scheduler):
    history.start()
    history.step("w", c.StartTimer(1, 500))
    history.now_ms = 1_500
    scheduler.step(answers=False)
    [command] = scheduler.proposed
    scheduler.proposed.clear()
    scheduler.mind.answered(command, c.Refusal("UNAVAILABLE", "unknown"), 1_500)
    scheduler.at(2_499)
    assert scheduler.asked == []
    scheduler.at(2_500)
    assert scheduler.asked == [command]


# --- polls ------------------------------------------------------------------------
def test_a_poll_without_waiting_is_answered_at_once(history, scheduler):
    scheduler.poll(1)
    assert scheduler.polled == [Polled(1, None)]
    history.schedule()
    scheduler.poll(2)
    task = scheduler.polled[1].task
    assert task is not None
    assert history.executions["w"].activities["a"].lease.session is None


def test_waiting_polls_are_served_in_the_order_they_came_and_time_out(history, scheduler):
    scheduler.poll(1, wait_ms=500, types=("other",))
    scheduler.poll(2, wait_ms=5_000)
    scheduler.poll(3, wait_ms=5_000)
    history.schedule()
    scheduler.step()
    assert [answer.n for answer in scheduler.polled] == [2]
    assert scheduler.mind.next_ms() == 1_500
    scheduler.at(1_500)
    assert scheduler.polled[1:] == [Polled(1, None)]
    scheduler.mind.unpoll((GATEWAY, 3))
    scheduler.at(6_000)
    assert len(scheduler.polled) == 2


def test_the_same_poll_id_gets_the_same_task_while_its_lease_lives(history, scheduler):
    history.schedule("a", retry=RetryPolicy(initial_ms=1))
    history.schedule("b")
    scheduler.poll(1, poll_id="p")
    scheduler.poll(2, poll_id="p")
    first, again = (answer.task for answer in scheduler.polled)
    assert first.token == again.token
    history.ask(c.CompleteActivity(first.token, None))
    scheduler.poll(3, poll_id="p")
    assert scheduler.polled[2].task.workflow_id == "b"


def test_two_who_wait_with_one_poll_id_get_one_task(history, scheduler):
    scheduler.poll(1, wait_ms=5_000, poll_id="p")
    scheduler.poll(2, wait_ms=5_000, poll_id="p")
    history.schedule("a")
    history.schedule("b")
    scheduler.step()
    assert len({answer.task.token for answer in scheduler.polled}) == 1
    assert [answer.n for answer in scheduler.polled] == [1, 2]


def test_a_poll_id_of_another_worker_is_another_poll(history, scheduler):
    history.schedule("a")
    history.schedule("b")
    scheduler.poll(1, poll_id="p", worker_id="one")
    scheduler.poll(2, poll_id="p", worker_id="two")
    assert scheduler.polled[0].task.token != scheduler.polled[1].task.token


def test_polls_and_sessions_take_turns(history, scheduler):
    scheduler.hello()
    for n in range(4):
        scheduler.poll(n, wait_ms=5_000)
    for name in "abcd":
        history.schedule(name)
    scheduler.step()
    assert len(scheduler.polled) == 2
    assert len(scheduler.tasks()) == 2


def test_a_lease_for_a_client_that_went_away_is_given_back(history, scheduler):
    scheduler.poll(1, wait_ms=5_000)
    history.schedule()
    scheduler.step(answers=False)
    scheduler.mind.unpoll((GATEWAY, 1))
    scheduler.step()
    held = history.executions["w"].activities["a"]
    assert (held.lease, held.attempt, held.handed_back) == (None, 1, "undelivered")


def test_a_grant_that_an_earlier_scheduler_proposed_reaches_its_own_poll_only(history, scheduler):
    scheduler.poll(1, wait_ms=5_000, worker_id="one", poll_id="p", types=("none",))
    scheduler.poll(2, wait_ms=5_000, worker_id="two", poll_id="q")
    history.schedule()
    scheduler.step(answers=False)
    assert [command.worker_id for command in scheduler.proposed] == ["two"]
    history.grant(worker_id="one", poll_id="p")
    scheduler.step()
    assert [(answer.n, answer.task.workflow_id) for answer in scheduler.polled] == [(1, "w")]
    history.schedule("v")
    scheduler.step()
    assert [answer.n for answer in scheduler.polled] == [1, 2]


def test_polls_through_an_earlier_gateway_take_no_tasks(history, scheduler):
    scheduler.poll(1, wait_ms=5_000)
    scheduler.mind.gateway("gateway.2")
    history.schedule()
    scheduler.step()
    assert scheduler.asked == []
    assert scheduler.mind.next_ms() is None


# --- sessions -------------------------------------------------------------------
def test_a_late_sync_of_a_dead_session_brings_nobody_back(history, scheduler):
    scheduler.hello(ONE)
    scheduler.sets()
    scheduler.sync(ONE)
    history.schedule()
    scheduler.step()
    assert scheduler.asked == []


def test_a_set_that_does_not_reach_a_session_says_nothing_about_it(history, scheduler):
    scheduler.sync(TWO)
    scheduler.sets(1, highest=1)
    history.schedule()
    scheduler.step()
    assert len(scheduler.tasks(session=TWO)) == 1


def test_tasks_can_be_encoded_as_they_are(history, scheduler):
    scheduler.hello()
    history.start("v")
    history.schedule()
    scheduler.step()
    for _, message in scheduler.sent:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))
