"""Who does not read gets a bounded number of bytes; who reads gets everything."""

from __future__ import annotations

import pytest

from actors.gateway_unread import FAIR_SHARE, MARK_EVERY, TIDY_AT, Unread


class Wire:
    """Sends as a door does; what was sent to whom is taken when the test says so."""

    def __init__(self, **limits: int) -> None:
        self.unread = Unread(**limits)
        self.taken: set[bytes] = set()

    def send(self, identity: bytes, size: int) -> bool:
        if not self.unread.has_room(identity, size):
            return False
        if self.unread.sends(identity, size):
            self.unread.mark(identity, lambda: identity in self.taken)
        return True


@pytest.fixture
def wire() -> Wire:
    return Wire(client_max=10 * MARK_EVERY, all_max=10 * FAIR_SHARE)


def test_who_does_not_read_is_sent_so_much_and_no_more(wire):
    sent = sum(wire.send(b"slow", MARK_EVERY) for _ in range(50))
    assert sent == 10
    assert wire.unread.total == 10 * MARK_EVERY


def test_many_small_answers_count_like_one_large_one(wire):
    sent = sum(wire.send(b"slow", 1_024) for _ in range(5_000))
    assert sent == 10 * MARK_EVERY // 1_024


def test_who_takes_what_it_was_sent_gets_more(wire):
    while wire.send(b"slow", MARK_EVERY):
        pass
    wire.taken.add(b"slow")
    assert wire.send(b"slow", MARK_EVERY)
    assert wire.unread.total == MARK_EVERY


def test_who_has_nothing_waiting_gets_an_answer_of_any_size(wire):
    assert wire.send(b"c", 1_000 * MARK_EVERY)
    assert not wire.send(b"c", 1)


def test_where_all_together_have_too_much_only_those_with_much_wait():
    wire = Wire(client_max=100 * FAIR_SHARE, all_max=10 * FAIR_SHARE)
    for _ in range(9):
        wire.send(b"slow", FAIR_SHARE)
    wire.send(b"small", MARK_EVERY)
    wire.send(b"slow", FAIR_SHARE - MARK_EVERY)
    assert not wire.send(b"slow", MARK_EVERY)
    assert wire.send(b"small", MARK_EVERY)
    wire.taken.add(b"slow")
    assert wire.send(b"slow", MARK_EVERY)


def test_a_client_that_is_gone_counts_no_more(wire):
    while wire.send(b"slow", MARK_EVERY):
        pass
    wire.unread.forget(b"slow")
    assert wire.unread.total == 0
    assert wire.send(b"slow", MARK_EVERY)


def test_names_of_connections_that_came_and_went_are_forgotten(wire):
    while wire.send(b"slow", MARK_EVERY):
        pass
    for number in range(3 * TIDY_AT):
        wire.send(b"c%d" % number, 10)
    assert len(wire.unread._clients) <= TIDY_AT
    assert not wire.send(b"slow", MARK_EVERY)
