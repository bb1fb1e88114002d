from __future__ import annotations

from chaos.drills.outage import clocks_apart
from chaos.ledger_audit import Run


def test_clocks_are_as_far_apart_as_the_quickest_of_all_starts_says():
    runs = [
        Run(1, "w/a", 1, 10, "t1", 5_070, None, None, None),
        Run(2, "w/b", 1, 10, "t2", 5_013, None, None, None),
        Run(3, "w/c", 1, 10, "t3", 1, None, None, None),
    ]
    given_ms = {("w/a", 1): 50, ("w/b", 1): 10}
    assert clocks_apart(runs, given_ms) == 5_003
    assert clocks_apart([], {}) == 0
