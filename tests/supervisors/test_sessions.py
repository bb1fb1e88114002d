from __future__ import annotations

from perdure.core.ids import Session
from perdure.core.links import Sessions
from supervisors.sessions import DIED_KEPT, LocalSessions


def test_every_start_of_a_worker_is_a_session_of_its_own():
    sessions = LocalSessions("node.x")
    assert sessions.message() == Sessions("node.x", 0, ())
    assert [sessions.open(), sessions.open()] == [Session("node.x", 1), Session("node.x", 2)]
    assert sessions.message() == Sessions("node.x", 2, (1, 2), n=2)


def test_a_dead_session_leaves_when_the_gateway_has_passed_on_all_that_it_said():
    sessions = LocalSessions("node.x")
    session = sessions.open()
    sessions.died(session, 1_000)
    assert sessions.message().live == (1,)
    assert sessions.done(session) is True
    assert sessions.message() == Sessions("node.x", 1, (), ((1, 1_000),), n=2)
    assert sessions.expire(10_000) is False


def test_of_the_newest_dead_it_is_said_when_their_end_was_seen():
    sessions = LocalSessions("node.x")
    for at_ms in range(DIED_KEPT + 1):
        sessions.died(sessions.open(), at_ms)
    assert sessions.message().died == ()  # They are not taken out yet.
    sessions.expire(60_000)
    died = sessions.message().died
    assert (len(died), died[0], died[-1]) == (DIED_KEPT, (2, 1), (DIED_KEPT + 1, DIED_KEPT))


def test_a_dead_session_leaves_after_fifty_milliseconds_when_the_gateway_says_nothing():
    sessions = LocalSessions("node.x")
    assert sessions.died(sessions.open(), 1_000) == 1_050
    assert sessions.expire(1_049) is False
    assert sessions.expire(1_050) is True
    assert sessions.message().live == ()


def test_a_session_that_lives_or_is_another_node_s_cannot_be_done():
    sessions = LocalSessions("node.x")
    session = sessions.open()
    assert sessions.done(session) is False
    sessions.died(session, 0)
    assert sessions.done(Session("node.y", session.ordinal)) is False
    assert sessions.message().live == (1,)
