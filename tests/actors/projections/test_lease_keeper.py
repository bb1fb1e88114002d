"""The lease keeper's shell: heartbeats go to history and back, ends are proposed."""

from __future__ import annotations

import pytest

from actors.lease_keeper import LeaseKeeper
from perdure.clock import boottime_ms
from perdure.core import commands as c
from perdure.core import links
from perdure.core.ids import Address, Session, seal
from perdure.core.links import Answer, CancelTask, Heartbeat, Sessions, Sync, pack_session

SESSION = Session("node.1", 1)
HEAD = pack_session(SESSION)


@pytest.fixture
def around(surround):
    around = surround(LeaseKeeper)
    around.connect_gateway()
    return around


def lease(around, session=SESSION, **options) -> str:
    around.schedule(**options)
    answer = around.commit(c.GrantLease("w", "a", 1, 1, 1, "w1", session))
    assert answer == c.Done()
    return seal(Address("w", "a", 1, 1), around.key)


def test_a_workers_heartbeat_is_answered_to_that_worker_after_the_commit(around):
    token = lease(around, heartbeat_ms=5_000)
    around.begin()
    around.say("gateway.1", Heartbeat(3, token, 1, b"mx", True), head=HEAD)
    [ask] = around.asked()
    assert around.hears_nothing("gateway.1")
    around.answer(ask)
    [answer] = around.from_actor(HEAD)
    assert (answer.n, type(answer.answer)) == (3, c.Deadline)


def test_a_clients_heartbeat_is_answered_to_its_gateway(around):
    token = lease(around, None, heartbeat_ms=5_000)
    around.begin()
    around.say("gateway.1", Heartbeat(4, token, 0, None, False))
    around.answer(*around.asked())
    [answer] = around.from_actor()
    assert isinstance(answer, Answer)
    assert answer.n == 4


def test_a_dead_sessions_lease_ends(around):
    lease(around)
    around.begin()
    around.say("root", Sessions("node.1", 1, ()))
    [ask] = around.asked()
    assert ask.command == c.EndLease(Address("w", "a", 1, 1), "worker_died")


def test_when_a_session_died_is_said_on_the_boot_clock(around):
    lease(around)
    around.begin()
    around.say("root", Sessions("node.1", 1, (), ((1, boottime_ms() - 60_000),)))
    [ask] = around.asked()
    assert ask.command == c.EndLease(Address("w", "a", 1, 1), "undelivered")


def test_a_set_heard_before_the_state_was_read_counts(around):
    lease(around)
    around.say("root", Sessions("node.1", 1, ()))
    around.turn()
    around.begin()
    [ask] = around.asked()
    assert ask.command == c.EndLease(Address("w", "a", 1, 1), "worker_died")


def test_leases_of_another_node_start_end_when_it_begins(around):
    lease(around, Session("node.0", 1))
    around.begin()
    [ask] = around.asked()
    assert ask.command.reason == "node_restart"


def test_a_worker_is_told_of_a_token_that_is_not_live(around):
    token = lease(around)
    around.commit(c.CompleteActivity(token, None))
    around.begin()
    around.say("gateway.1", Sync("w1", (), (), (), 1, 1, (token,), (), 1), head=HEAD)
    assert around.from_actor(HEAD) == [CancelTask(token, "stale")]


def test_a_new_history_is_not_asked_to_expire_what_the_old_one_did_not_answer(around):
    around.host.stop_clock()
    lease(around, heartbeat_ms=400)
    around.begin()
    around.pass_ms(2_000)
    [ask] = around.asked()
    assert isinstance(ask.command, c.ExpireLease)
    around.begin("history.2")
    assert around.hears_nothing("history.2")
    around.pass_ms(2_000)
    [again] = around.asked("history.2")
    assert again.command == ask.command, "a new judgement, after a new hold"


def gateways(around, name: str) -> None:
    """As the root says who is there: this gateway, beside history."""
    history = (links.HISTORY, "history.1", f"ipc://{around.tmp}/history.1")
    around.say("root", links.Peers((history, (links.GATEWAY, name, "ipc://elsewhere"))))
    while around.actor.there.get(links.GATEWAY) != name:
        around.turn()


def beat(around, gateway: str, token: str, n: int) -> None:
    around.say(gateway, Heartbeat(n, token, n, None, False), head=HEAD)


def test_the_first_word_of_a_gateway_that_has_died_is_not_taken_for_a_new_gateways(around):
    token = lease(around, heartbeat_ms=5_000)
    around.begin()
    gateways(around, "gateway.1")
    around.connect_gateway("gateway.2")
    gateways(around, "gateway.2")
    beat(around, "gateway.2", token, 1)
    around.answer(*around.asked())
    beat(around, "gateway.1", token, 2)  # Read behind its successor's, as it may be.
    beat(around, "gateway.2", token, 3)
    around.answer(*around.asked())
    assert around.actor.gateway == "gateway.2"
    answers = [around.from_actor(HEAD, "gateway.2")[0].n for _ in range(2)]
    assert answers == [1, 3]


def test_whom_the_root_calls_the_gateway_is_heard_whoever_spoke_last(around):
    token = lease(around, heartbeat_ms=5_000)
    around.begin()
    around.connect_gateway("gateway.2")
    beat(around, "gateway.2", token, 1)
    around.answer(*around.asked())
    beat(around, "gateway.1", token, 2)  # Nobody has said yet that it is gone.
    around.answer(*around.asked())
    gateways(around, "gateway.2")
    beat(around, "gateway.2", token, 3)
    around.answer(*around.asked())
    assert around.actor.gateway == "gateway.2"
