"""What a load makes of what it sees in the ledger; without a node."""

from __future__ import annotations

import pytest

from chaos.drill_kit import Arena, Options, flaky
from chaos.ledger_audit import Run
from perdure.core.ids import Address, seal


def run(number, grant, *, pid=10, attempt=1):
    token = seal(Address("w", "a", 1, grant), b"k" * 32)
    return Run(number, "w/a", attempt, pid, token, 100 * number, None, None, None)


@pytest.fixture
def load(tmp_path):
    arena = Arena(Options(), tmp_path, name="test", live=False)
    yield arena.load(arena.node(), flaky(seed=0), workflows=1)
    arena.close()


def saw(load, *runs):
    for each in runs:
        load._saw(each)
    return [it.number for it in load._stale]


def test_a_token_is_dead_once_there_is_a_run_under_a_younger_grant(load):
    assert saw(load, run(1, 1)) == []
    assert saw(load, run(2, 2), run(3, 3)) == [1, 2]


def test_who_begins_late_under_an_older_grant_is_the_dead_one(load):
    assert saw(load, run(1, 1), run(2, 3), run(3, 2)) == [1, 3]
    assert saw(load, run(4, 4)) == [1, 3, 2]


def test_a_run_of_the_same_grant_kills_no_token(load):
    assert saw(load, run(1, 1), run(2, 1)) == []


def test_a_run_that_a_kill_cut_off_counts_as_delivered_again_once_another_process_runs_it(load):
    fault = load.arena.fault("SIGKILL", "worker-1", at_ms=150)
    load._cut_off[1] = fault
    saw(load, run(1, 1), run(2, 2, pid=10))
    assert load.redelivered == 0
    saw(load, run(3, 3, pid=11))
    assert load.redelivered == 1
    assert load.arena.recoveries_ms == [150]
