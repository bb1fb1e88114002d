"""What a worker does about leases when the node stood still, and when it did so itself."""

from __future__ import annotations

import pytest

from perdure.core import links
from perdure.worker.activities import ASK_MS, Activities


class Stuck:
    """Runs attempts that never end, and notes which were given up."""

    def __init__(self):
        self.given_up = []

    def attempt(self, task, recorded):
        return Held(task)

    def start(self, attempt, done):
        pass

    def give_up(self, attempt):
        self.given_up.append(attempt.task.token)


class Held:
    """As much of an attempt as its holder looks at."""

    def __init__(self, task):
        self.task = task
        self.definition = object()
        self.context = self

    def cancel(self, reason):
        pass


@pytest.fixture
def stuck():
    return Stuck()


@pytest.fixture
def held(stuck, task):
    """The activities of a worker that holds "t1" since 0, for 1 000 ms, at most 5 000."""
    activities = Activities(stuck, 1, None, None)
    activities.take(task("t1", "wait", lease_ms=1_000, attempt_ms=5_000), 0)
    return activities


def test_a_lease_that_was_moved_is_given_up_when_it_now_ends(held, stuck):
    held.terms(links.LeaseTerms(900, (("t1", 2_000, 8_000), ("unknown", 1, 1))))
    held.due(2_899)
    assert stuck.given_up == []
    held.due(2_900)
    assert stuck.given_up == ["t1"]


def test_terms_that_come_late_never_take_from_a_lease(held, stuck):
    held.terms(links.LeaseTerms(0, (("t1", 10, 10),)))
    held.due(999)
    assert stuck.given_up == []


def test_who_stood_still_past_a_lease_asks_before_it_gives_it_up(held, stuck):
    held.stood_still(9_000)
    held.due(9_000)
    assert stuck.given_up == []
    held.terms(links.LeaseTerms(9_000, (("t1", 1_500, 4_000),)))
    held.due(9_000 + ASK_MS)
    assert stuck.given_up == []
    held.due(10_500)
    assert stuck.given_up == ["t1"]


def test_who_hears_nothing_of_it_gives_it_up_in_the_end(held, stuck):
    held.stood_still(9_000)
    held.due(9_000 + ASK_MS)
    assert stuck.given_up == ["t1"]
