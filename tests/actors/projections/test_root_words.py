"""What an actor makes of the root's words when they come twice, late or not at all."""

from __future__ import annotations

import msgspec
import pytest

from actors.lease_keeper import LeaseKeeper
from perdure.core import links
from perdure.core.links import Peers, Ping, Pong, Sessions

_to_root = msgspec.msgpack.Decoder(list[links.ToRoot])


@pytest.fixture
def around(surround):
    return surround(LeaseKeeper)


def pong(around) -> Pong:
    around.say("root", Ping(7))
    [said] = around.hear("root", _to_root)
    return said


def test_it_says_the_numbers_of_the_newest_that_it_has_heard(around):
    assert pong(around) == Pong(7, 0, 0)
    around.say("root", Peers((), 4), Sessions("node.1", 3, (3,), n=5))
    assert pong(around) == Pong(7, 4, 5)


def test_a_list_of_peers_that_comes_late_changes_nothing(around):
    new, old = ((links.HISTORY, f"history.{n}", f"ipc://{around.tmp}/history.{n}") for n in (2, 1))
    around.say("root", Peers((new,), 9))
    around.say("root", Peers((old,), 8))
    assert pong(around).peers == 9
    assert around.actor.peers == {"history": "history.2"}


def test_it_greets_again_where_its_greeting_was_not_heard(around):
    around.say("root", Ping(7, is_greeted=False, is_ready=False))
    hello, said = around.hear("root", _to_root)
    assert (hello.incarnation, said.n) == (around.name, 7)


def test_it_says_again_that_it_is_ready_where_that_was_not_heard(around):
    ready = links.ChildReady("lease_keeper", around.name)
    around.begin()
    assert around.hear("root", _to_root) == [ready]
    assert pong(around) == Pong(7)
    around.say("root", Ping(8, is_ready=False))
    assert around.hear("root", _to_root) == [ready, Pong(8)]


def test_an_order_to_stop_that_comes_twice_is_obeyed_once(around):
    orders = []
    around.actor.on_orderly_stop = orders.append
    around.say("root", links.Stop(500), links.Stop(400))
    around.turn()
    assert orders == [500]
