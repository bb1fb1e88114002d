"""The dead-letter actor's shell: lists are answered when it knows what their asker knows."""

from __future__ import annotations

import pytest

from actors.dlq import Dlq
from perdure.core import commands as c
from perdure.core.ids import Address, seal
from perdure.core.links import Answer, DeadListed, ListDead, Newest
from perdure.failures import Failure
from perdure.policy import RetryPolicy


@pytest.fixture
def around(surround):
    around = surround(Dlq)
    around.connect_gateway()
    return around


def die(around) -> None:
    around.schedule(retry=RetryPolicy(max_attempts=1))
    around.commit(c.GrantLease("w", "a", 1, 1, 1, "w1", None))
    token = seal(Address("w", "a", 1, 1), around.key)
    around.commit(c.FailActivity(token, Failure("Oops", "message")))


def ask(around, n: int = 1, page: str | None = None) -> None:
    around.say("gateway.1", ListDead(n, around.ledger.n, None, None, None, None, None, 10, page))


def test_a_list_shows_what_the_command_line_shows(around):
    die(around)
    around.begin()
    ask(around)
    [listed] = around.from_actor()
    assert isinstance(listed, DeadListed)
    [entry] = listed.entries
    assert entry.keys() >= {
        "workflow_id",
        "activity_id",
        "activity_type",
        "attempts",
        "first_failure",
        "last_failure",
        "scheduled_ms",
        "dead_ms",
        "redrives",
        "idempotency_key",
    }
    assert (entry["attempts"], entry["last_failure"]["type"]) == (1, "Oops")


def test_a_list_shows_the_commit_that_its_asker_has_seen_before_the_feed_brings_it(around):
    around.begin()
    die(around)
    ask(around)
    [listed] = around.from_actor()
    assert len(listed.entries) == 1
    around.publish()
    ask(around)
    [listed] = around.from_actor()
    assert len(listed.entries) == 1


def test_what_history_did_not_send_does_not_concern_us_and_what_was_lost_is_read(around):
    around.begin()
    reached = around.ledger.n
    around.schedule("other")
    around.say("history.1", Newest(around.ledger.n, reached))
    die(around)
    around.say("history.1", Newest(around.ledger.n, around.ledger.n))
    ask(around)
    [listed] = around.from_actor()
    assert [entry["activity_id"] for entry in listed.entries] == ["a"]


def test_a_commit_that_is_not_about_dead_letters_counts_as_reached_all_the_same(around):
    around.begin()
    around.schedule("other")
    assert not any(around.concerns)
    around.publish()
    ask(around)
    [listed] = around.from_actor()
    assert listed.entries == ()


def test_a_page_that_no_list_gave_is_refused(around):
    around.begin()
    ask(around, page="nonsense")
    [answer] = around.from_actor()
    assert isinstance(answer, Answer)
    assert answer.answer.code == "INVALID_ARGUMENT"
