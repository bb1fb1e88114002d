from __future__ import annotations

from perdure.core.links import Quarantine
from supervisors.quarantine import QuarantinePool


def test_as_many_as_are_asked_for_run_and_never_more_than_there_can_be():
    pool = QuarantinePool(["q1", "q2"])
    pool.heard(Quarantine(1), {})
    assert pool.wanted == {"q1"}
    pool.heard(Quarantine(7), {"q1": 5})
    assert pool.wanted == {"q1", "q2"}


def test_one_goes_when_the_scheduler_has_let_go_of_it_and_not_because_fewer_are_wanted():
    pool = QuarantinePool(["q1", "q2"])
    pool.heard(Quarantine(2), {})
    pool.heard(Quarantine(0), {"q1": 5, "q2": 6})
    assert pool.wanted == {"q1", "q2"}
    pool.heard(Quarantine(1, (5,)), {"q1": 5, "q2": 6})
    assert pool.wanted == {"q2"}


def test_a_new_one_takes_no_name_of_one_that_is_on_its_way_out():
    pool = QuarantinePool(["q1", "q2"])
    pool.heard(Quarantine(1), {})
    pool.heard(Quarantine(1, (5,)), {"q1": 5})
    assert pool.wanted == {"q2"}


def test_one_that_ends_by_itself_comes_back_only_if_so_many_are_still_wanted():
    pool = QuarantinePool(["q1", "q2"])
    pool.heard(Quarantine(1), {})
    assert not pool.ended("q1")
    pool.heard(Quarantine(0), {"q1": 5})
    assert pool.ended("q1")
    assert pool.wanted == frozenset()
    assert not pool.ended("q1")
