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
def around(request, surround, monkeypatch):
    monkeypatch.setattr(follower, "HELLO_AGAIN_MS", 30)
    return surround(request.param)


def welcome(around, name="history.1"):
    return links.Welcome(name, 1, around.ledger.n, around.base_ms)


def test_a_greeting_that_history_does_not_answer_is_said_again(around):
    around.meet()
    [again] = around.hear("history.1", _to_history)
    assert isinstance(again, links.Hello)
    assert again.follow


def test_once_welcomed_it_greets_no_more(around):
    around.begin()
    around.actor.inbox.timeout_ms = lambda: 40
    assert around.hears_nothing("history.1")


def test_a_new_history_whose_answer_was_lost_is_greeted_again(around):
    around.begin()
    around.meet("history.2")
    [again] = around.hear("history.2", _to_history)
    assert isinstance(again, links.Hello)


def test_the_welcome_of_a_history_that_has_died_is_no_welcome(around):
    around.begin()
    around.meet("history.2")
    around.say("history.2", welcome(around, "history.1"))
    [again] = around.hear("history.2", _to_history)
    assert isinstance(again, links.Hello)


def test_a_history_that_falls_silent_is_greeted_again_as_it_may_have_forgotten_us(
    around, monkeypatch
):
    monkeypatch.setattr(follower, "SILENT_MS", 60)
    around.begin()
    [again] = around.hear("history.1", _to_history)
    assert isinstance(again, links.Hello)


def test_a_history_that_is_heard_is_not_greeted_again(around, monkeypatch):
    monkeypatch.setattr(follower, "SILENT_MS", 60_000)
    around.begin()
    for _ in range(3):
        around.say("history.1", links.Newest(around.ledger.n, around.ledger.n))
        around.turn()
    assert around.hears_nothing("history.1")
