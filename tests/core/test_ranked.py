"""Ranked: a heap in which things can be moved and removed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.ranked import SWEEP_FROM, Ranked

STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "pop"]), st.integers(0, 9), st.integers(0, 99))
)


@given(STEPS)
def test_it_gives_the_lowest_rank_and_among_equals_the_first_that_came(steps):
    ranked: Ranked[int] = Ranked()
    model: dict[int, tuple[int, int]] = {}
    for number, (what, key, rank) in enumerate(steps):
        if what == "put":
            ranked.put(key, rank)
            model[key] = (rank, number)
        elif what == "remove":
            assert ranked.remove(key) == (model.pop(key, None) is not None)
        else:
            lowest = min(model, key=model.__getitem__, default=None)
            assert ranked.pop() == lowest
            model.pop(lowest, None)  # type: ignore[arg-type]
        assert len(ranked) == len(model)
        in_order = sorted(model, key=model.__getitem__)
        assert [key for _, key in ranked.in_order()] == in_order
        first = ranked.first()
        assert (first and first[1]) == (in_order[0] if in_order else None)


def test_nothing_above_the_given_rank_is_taken_out():
    ranked: Ranked[str] = Ranked()
    ranked.put("late", 20)
    ranked.put("early", 10)
    assert ranked.pop_up_to(9) is None
    assert ranked.pop_up_to(10) == "early"
    assert ranked.pop_up_to(19) is None


def test_what_was_removed_or_moved_takes_no_lasting_room():
    ranked: Ranked[int] = Ranked()
    for key in range(20_000):
        ranked.put(key, key)
        ranked.put(key, key + 1)
        ranked.remove(key)
    assert len(ranked) == 0
    assert len(ranked._line) + len(ranked._heap) <= SWEEP_FROM
