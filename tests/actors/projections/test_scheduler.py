"""The scheduler's shell: what it hears reaches its mind, and what that wants said is sent."""

from __future__ import annotations

import msgspec
import pytest

from actors.scheduler import Scheduler
from perdure.core import commands as c
from perdure.core.ids import Session
from perdure.core.links import (
    ActivityTask,
    Direct,
    Lent,
    Newest,
    Poll,
    Polled,
    Sessions,
    Sync,
    ToHistory,
    WorkflowTask,
    pack_session,
)
from perdure.core.records import ActivityOptions
from perdure.policy import RetryPolicy

SESSION = Session("node.1", 1)
HEAD = pack_session(SESSION)
_to_history = msgspec.msgpack.Decoder(list[ToHistory])
SYNC = Sync("w1", ("default",), ("t",), ("T",), 5, 5, (), (), 0)


@pytest.fixture
def around(surround):
    around = surround(Scheduler)
    around.connect_gateway()
    around.say("root", Sessions("node.1", 1, (1,)))
    around.say("gateway.1", SYNC, head=HEAD)
    return around


def test_tasks_reach_the_worker_under_its_head(around):
    around.begin()
    around.commit(c.StartWorkflow("w", "T", "default", None, None, b""))
    around.publish()
    [task] = around.from_actor(HEAD)
    assert isinstance(task, WorkflowTask)
    assert task.workflow_id == "w"


def test_what_was_said_before_the_state_was_read_counts(around):
    around.schedule()
    around.turn()
    around.begin()
    around.answer(*around.asked())
    [task] = around.from_actor(HEAD)
    assert isinstance(task, ActivityTask)
    assert around.commit(c.CompleteActivity(task.token, None)) == c.Done()


def test_a_commit_that_got_lost_on_the_way_is_read_from_the_log(around):
    around.begin()
    around.schedule()
    around.feeds.clear()
    around.say("history.1", Newest(around.ledger.n, around.ledger.n))
    [ask] = around.asked()
    assert isinstance(ask.command, c.GrantLease)


def test_a_new_history_is_asked_again_what_was_not_answered(around):
    around.schedule()
    around.begin()
    [ask] = around.asked()
    around.begin("history.2")
    assert around.asked("history.2") == [ask]


def test_polls_are_answered_by_their_number(around):
    around.begin()
    around.say("gateway.1", Poll(7, "default", "h", (), 0, None))
    assert around.from_actor() == [Polled(7, None)]


def test_a_worker_can_neither_poll_nor_speak_for_a_source(around):
    around.begin()
    around.say("gateway.1", Poll(7, "default", "h", (), 0, None), head=HEAD)
    around.say("gateway.1", Sessions("node.1", 9, ()), head=HEAD)
    around.say("gateway.1", Sessions("node.1", 9, ()))
    assert around.hears_nothing("gateway.1")
    around.commit(c.StartWorkflow("w", "T", "default", None, None, b""))
    around.publish()
    assert len(around.from_actor(HEAD)) == 1


def test_a_new_gateway_is_spoken_to_from_its_first_word_on(around):
    around.begin()
    around.turn()
    around.connect_gateway("gateway.2")
    around.say("gateway.2", SYNC, head=HEAD)
    around.turn()
    around.say("gateway.1", Poll(7, "default", "h", (), 0, None))
    around.commit(c.StartWorkflow("w", "T", "default", None, None, b""))
    around.publish()
    [task] = around.from_actor(HEAD, "gateway.2")
    assert isinstance(task, WorkflowTask)
    assert around.hears_nothing("gateway.1")


# --- a worker that can be spoken to without the gateway ---------------------------
WORKER = "worker-1.aa"


@pytest.fixture
def direct(around):
    around.connect_gateway(WORKER)
    around.say(WORKER, Direct(), head=HEAD)
    around.begin()
    around.turn()
    return around


def test_its_tasks_go_to_itself(direct):
    direct.commit(c.StartWorkflow("w", "T", "default", None, None, b""))
    direct.publish()
    [task] = direct.from_actor(HEAD, WORKER)
    assert isinstance(task, WorkflowTask)


def test_a_task_with_a_payload_by_reference_goes_where_that_is_put_in(direct):
    direct.commit(c.StartWorkflow("w", "T", "default", None, None, b""))
    step = c.ScheduleActivity("a", "t", b"m" + bytes(2_000), ActivityOptions(RetryPolicy()))
    direct.commit(c.CompleteWorkflowTask("w", 0, 0, 1, (step,)))
    direct.publish()
    direct.answer(*direct.asked())
    [task] = direct.from_actor(HEAD)
    assert isinstance(task, ActivityTask)


def test_nothing_is_sent_to_one_that_has_ended(direct):
    direct.say("root", Sessions("node.1", 2, (2,)))
    direct.say("gateway.1", SYNC, head=pack_session(Session("node.1", 2)))
    direct.commit(c.StartWorkflow("w", "T", "default", None, None, b""))
    direct.publish()
    [task] = direct.from_actor(pack_session(Session("node.1", 2)))
    assert isinstance(task, WorkflowTask)
    assert direct.hears_nothing(WORKER)


def test_only_a_worker_of_this_node_can_ask_for_that(around):
    around.say("gateway.1", Direct(), head=HEAD)
    around.begin()
    around.turn()
    around.commit(c.StartWorkflow("w", "T", "default", None, None, b""))
    around.publish()
    [task] = around.from_actor(HEAD)
    assert isinstance(task, WorkflowTask)


@pytest.mark.parametrize("is_early", [True, False])
def test_a_new_scheduler_need_not_wait_for_the_next_sync_of_a_worker(surround, is_early):
    around = surround(Scheduler)
    around.connect_gateway()
    around.connect_gateway(WORKER)
    around.say("root", Sessions("node.1", 1, (1,)))
    if not is_early:
        around.begin()
    around.say(WORKER, Direct(SYNC), head=HEAD)
    around.turn()
    if is_early:
        around.begin()
    around.commit(c.StartWorkflow("w", "T", "default", None, None, b""))
    around.publish()
    [task] = around.from_actor(HEAD, WORKER)
    assert isinstance(task, WorkflowTask)


def test_history_is_lent_what_its_own_connection_reaches(direct):
    [lent] = direct.hear("history.1", _to_history)
    assert (lent.session, lent.worker, lent.workflow_types) == (SESSION, WORKER, ("T",))
    direct.commit(c.StartWorkflow("w", "T", "default", None, None, b""))
    direct.say("history.1", *direct.feeds, Lent(SESSION, 1, lent.up_to, ("w",)))
    assert direct.hears_nothing(WORKER)
