"""A projection gets its log however many greetings and answers are lost on the way."""

from __future__ import annotations

import msgspec
import pytest

from actors import follower
from actors.dlq import Dlq
from actors.lease_keeper import LeaseKeeper
from actors.scheduler import Scheduler
from perdure.core import links

_to_history = msgspec.msgpack.Decoder(list[links.ToHistory])


@pytest.fixture(params=[Scheduler, LeaseKeeper, Dlq])
def around(request, surround):
    """Surroundings in which time passes only where a test says so."""
    around = surround(request.param)
    around.host.stop_clock()
    return around


def welcome(around, name="history.1"):
    return links.Welcome(name, 1, around.ledger.n, around.base_ms)


def test_a_greeting_that_history_does_not_answer_is_said_again(around):
    around.meet()
    assert around.hears_nothing("history.1")
    around.host.pass_ms(follower.HELLO_AGAIN_MS)
    [again] = around.hear("history.1", _to_history)
    assert isinstance(again, links.Hello)
    assert again.follow


def test_once_welcomed_it_greets_no_more(around):
    around.begin()
    around.host.pass_ms(follower.HELLO_AGAIN_MS)
    assert around.hears_nothing("history.1")


def test_a_new_history_whose_answer_was_lost_is_greeted_again(around):
    around.begin()
    around.meet("history.2")
    around.host.pass_ms(follower.HELLO_AGAIN_MS)
    [again] = around.hear("history.2", _to_history)
    assert isinstance(again, links.Hello)


def test_the_welcome_of_a_history_that_has_died_is_no_welcome(around):
    around.begin()
    around.meet("history.2")
    around.say("history.2", welcome(around, "history.1"))
    assert around.hears_nothing("history.2")
    around.host.pass_ms(follower.HELLO_AGAIN_MS)
    [again] = around.hear("history.2", _to_history)
    assert isinstance(again, links.Hello)


def test_a_history_that_falls_silent_is_greeted_again_as_it_may_have_forgotten_us(around):
    around.begin()
    around.host.pass_ms(follower.SILENT_MS)
    [again] = around.hear("history.1", _to_history)
    assert isinstance(again, links.Hello)


def test_a_history_that_is_heard_is_not_greeted_again(around):
    around.begin()
    for _ in range(3):
        around.host.pass_ms(follower.SILENT_MS - 1)
        n = around.actor.reached + 1  # Of a commit that does not concern us: so we see it heard.
        around.say("history.1", links.Newest(n, around.ledger.n))
        while around.actor.reached < n:
            around.turn()
    assert around.hears_nothing("history.1")
