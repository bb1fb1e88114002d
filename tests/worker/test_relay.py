from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from perdure.worker import relay
from perdure.worker.relay import Parting, Relay

PATIENCE_S = 30


@pytest.fixture(autouse=True)
def short_ticks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(relay, "TICK_MS", 5)


class Turns:
    """A loop whose turns the test says: each runs between `enter` and `leave`."""

    def __init__(self, *works: Callable[[], None]) -> None:
        self.works = list(works)
        self.relay = Relay(self.lead)
        self.leaders: list[int] = []
        self.overtakes: list[bool] = []
        self.lost: list[int] = []

    def lead(self, *, overtakes: bool) -> Parting:
        self.overtakes.append(overtakes)
        while self.works:
            work = self.works.pop(0)
            self.leaders.append(threading.get_ident())
            number = self.relay.enter()
            work()
            if not self.relay.leave(number):
                self.lost.append(threading.get_ident())
                return Parting.LOST
        return Parting.OVER


def test_short_work_leaves_the_lead_where_it_is():
    turns = Turns(*[lambda: None] * 1_000)
    turns.relay.run()
    assert (turns.overtakes, turns.lost) == ([False], [])


def test_the_one_that_stands_by_leads_on_while_work_lasts_and_the_other_comes_back():
    reached, third = threading.Event(), threading.Event()

    def lasts() -> None:
        assert reached.wait(PATIENCE_S), "nobody took the lead over"

    def lets_it_end() -> None:
        reached.set()
        # The thread that lost the lead is back when it can take it over again.
        assert third.wait(PATIENCE_S), "nobody stood by"

    turns = Turns(lasts, lets_it_end, third.set)
    turns.relay.run()
    first, second, last = turns.leaders
    assert turns.overtakes == [False, True, True]
    assert first == last != second
    assert first in turns.lost


def test_the_thread_that_calls_runs_no_turn():
    turns = Turns(lambda: None)
    turns.relay.run()
    assert threading.get_ident() not in turns.leaders


def test_what_ends_the_loop_otherwise_comes_out_of_run():
    def fails() -> None:
        raise ZeroDivisionError

    turns = Turns(fails)
    with pytest.raises(ZeroDivisionError):
        turns.relay.run()


def test_after_a_dropped_thread_another_one_stands_by():
    release, dropped, reached = threading.Event(), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def lead(*, overtakes: bool) -> Parting:
        threads.append(threading.current_thread())
        if len(threads) == 1:  # Loses the lead for ever.
            number = both.enter()
            release.wait(PATIENCE_S)
            assert not both.leave(number)
            dropped.set()
            return Parting.DROPPED
        if len(threads) == 2:
            both.appoint()
            number = both.enter()
            reached.wait(PATIENCE_S)
            assert not both.leave(number)
            return Parting.LOST
        reached.set()
        return Parting.OVER

    both = Relay(lead)
    both.run()
    assert len(set(threads)) == 3
    release.set()
    threads[0].join(PATIENCE_S)
    assert (threads[0].is_alive(), dropped.is_set()) == (False, True)
