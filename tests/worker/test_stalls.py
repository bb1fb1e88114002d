"""What a worker does about leases when the node stood still, and when it did so itself."""

from __future__ import annotations

import pytest

from perdure.core import links
from perdure.core.commands import Deadline
from perdure.worker.activities import ASK_MS, Activities
from perdure.worker.asks import Asks
from perdure.worker.heartbeats import Beats


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
        self.beats = Beats(task.options.heartbeat_ms, 0)

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


class Line:
    """The way to the gateway, and what went there."""

    def __init__(self):
        self.sent = []

    def send(self, dest, message):
        self.sent.append(message)


class Beating:
    """An attempt that beats, leased since 0 for 1 000 ms, in a worker of this machine or not."""

    def __init__(self, stuck, task, *, is_local):
        self.line = Line()
        self.activities = Activities(stuck, 1, Asks(), self.line, is_local=is_local)
        made, stuck.attempt = stuck.attempt, self.attempt
        self._make = made
        self.activities.take(
            task("t1", "wait", heartbeat_ms=1_000, lease_ms=1_000, attempt_ms=2_500), 0
        )

    def attempt(self, task, recorded):
        self.one = self._make(task, recorded)
        return self.one

    def beat(self, now_ms):
        self.one.beats.record(None)
        self.activities.beat_recorded("t1", now_ms)
        return self.line.sent[-1].n


def test_a_heartbeat_that_was_not_heard_yet_counts_for_a_worker_of_the_nodes_own_machine(
    stuck, task
):
    held = Beating(stuck, task, is_local=True)
    held.beat(800)
    held.activities.due(1_799)
    assert stuck.given_up == []
    held.activities.due(1_800)
    assert stuck.given_up == ["t1"]


def test_a_heartbeat_that_nobody_hears_does_not_outlast_the_attempts_own_time(stuck, task):
    held = Beating(stuck, task, is_local=True)
    for now_ms in (800, 1_600, 2_400):
        held.beat(now_ms)
        held.activities.due(now_ms)
    held.activities.due(2_499)
    assert stuck.given_up == []
    held.activities.due(2_500)
    assert stuck.given_up == ["t1"]


def test_for_a_worker_elsewhere_only_what_was_answered_counts_as_it_may_be_cut_off(stuck, task):
    held = Beating(stuck, task, is_local=False)
    n = held.beat(100)
    held.activities.answered(n, Deadline(0), 150)
    held.beat(900)
    held.activities.due(1_099)
    assert stuck.given_up == []
    held.activities.due(1_100)
    assert stuck.given_up == ["t1"]
