"""The bug bank: its list is whole, what is planted is found, and goes away again."""

from __future__ import annotations

import json

import pytest

from chaos.sim import bank, bugs, run
from chaos.sim.bank import Score, Search
from chaos.sim.broken_plant import BrokenPlant
from chaos.sim.bugs import BANK, Bug
from perdure.errors import InvalidArgument


def test_every_bug_of_the_list_can_be_planted_and_says_what_it_is_and_where_it_was_met():
    assert list(BANK) == list(Bug)
    assert len(Bug) >= 25
    for bug, entry in BANK.items():
        assert entry.plant.__name__ == bug
        assert entry.plant.__doc__
        assert entry.source


def test_what_is_planted_is_gone_afterwards():
    before = run.run_seed(3).trace
    for bug in Bug:
        with bugs.planted(bug):
            pass
    assert run.run_seed(3).trace == before


def test_a_bug_that_is_not_in_the_list_is_refused_by_name():
    with pytest.raises(InvalidArgument, match="there is no bug 'typo'"), bugs.planted("typo"):
        pass


@pytest.mark.parametrize(
    ("bug", "invariants"),
    [
        (Bug.FAILED_SYNC_RETRIED, {4, 5, 9, 35, 36}),
        (Bug.EXPIRY_NOT_COUNTED, {19}),
        (Bug.HEARTBEAT_IGNORED, {21}),
        (Bug.TIMERS_NOT_REBUILT, {36}),
        (Bug.DEAD_LETTERS_LOST, {31}),
        # What stands in the log under no id is a gate's: a workflow there makes no sense either.
        (Bug.EMPTY_ID_ACCEPTED, {13, 48}),
        (Bug.FOLLOWED_AT_ANOTHER_TIME, {35}),
        (Bug.LEFT_OPEN_ENDS_WITH_ITS_WORKER, {21}),
        (Bug.DEATH_TAKEN_FOR_LEFT_OPEN, {17}),
        (Bug.RATE_SAVED_UP, {28}),
        (Bug.PROMISED_NOT_COUNTED, {28}),
        (Bug.LEASED_PAST_THE_LIMIT, {28}),
        (Bug.PROBES_UNLIMITED, {28}),
    ],
)
def test_a_planted_bug_is_found_within_a_few_seeds(bug, invariants):
    found = bank.search(bug, 25)
    assert found.invariant in invariants
    assert found.seeds == (found.seed or 0) + 1


def test_a_plant_that_is_broken_itself_counts_as_nothing_found(monkeypatch):
    def plant(patches):
        bugs.talk.update_done_again(patches)
        patches.set(bugs.talk, "_Unasked", None)

    monkeypatch.setitem(BANK, Bug.UPDATE_DONE_AGAIN, bugs.Entry("nowhere", plant))
    with pytest.raises(BrokenPlant, match="TypeError"):
        bank.search(Bug.UPDATE_DONE_AGAIN, 25)


def test_a_bug_without_consequence_is_missed(monkeypatch):
    harmless = bugs.Entry("nowhere", lambda patches: None)
    monkeypatch.setitem(BANK, Bug.WALL_CLOCK, harmless)
    assert bank.search(Bug.WALL_CLOCK, 2) == Search(Bug.WALL_CLOCK, 2, None, 0, "")


FOUND = Search(Bug.ACK_BEFORE_SYNC, 3, 2, 4, "at 5 ms: told too early")
MISSED = Search(Bug.WALL_CLOCK, 500, None, 0, "")


def test_the_score_is_whole_only_where_all_was_found_and_nothing_without_a_bug():
    assert Score([FOUND], 3, []).is_whole
    assert not Score([FOUND, MISSED], 500, []).is_whole
    assert not Score([FOUND], 3, [Search("", 1, 2, 4, "at 5 ms: oh")]).is_whole


def test_the_score_ends_with_how_many_were_found_and_the_median():
    lines = list(Score([MISSED, FOUND], 500, []).lines())
    assert lines[-1] == "1 of 2 found, median seeds to find: 3"
    assert lines[1].split() == ["ack_before_sync", "3", "invariant", "4", *_source(FOUND)]
    assert "MISSED" in lines[2]


def test_the_score_can_be_read_by_programs():
    told = json.loads(Score([FOUND], 3, []).json())
    assert (told["found"], told["of"], told["median_seeds"]) == (1, 1, 3)
    assert told["bugs"][0]["source"] == BANK[Bug.ACK_BEFORE_SYNC].source
    assert told["control"] == {"seeds": 3, "violations": []}


def _source(one: Search) -> list[str]:
    return BANK[Bug(one.bug)].source.split()
