"""A report is held back with all its repeats, let go as a whole, and its refusal is noticed."""

from __future__ import annotations

import pytest

from chaos.faults.held import Holder
from perdure.core import commands as c
from perdure.core import links


def report(*tokens: str, first: int = 1) -> bytes:
    asks = [links.Ask(n, c.CompleteActivity(t, None)) for n, t in enumerate(tokens, first)]
    return links.pack(asks)


def answer(n: int, what: c.AnyAnswer) -> bytes:
    return links.pack([links.Answer(n, 1, what)])


@pytest.fixture
def gone() -> list[str]:
    return []


def test_the_next_completion_is_held_with_its_repeats_and_others_pass(gone):
    holder = Holder()
    holder.hold(1)
    assert holder.holds(b"w", report("a"), lambda: gone.append("first"))
    assert not holder.holds(b"w", report("b"), lambda: gone.append("other"))
    assert holder.holds(b"w", report("a"), lambda: gone.append("again"))
    for go in holder.release():
        go()
    assert gone == ["first", "again"]
    assert not holder.holds(b"w", report("a"), lambda: None)


def test_a_repeat_of_an_earlier_report_and_a_frame_of_several_are_not_picked():
    holder = Holder()
    assert not holder.holds(b"w", report("a"), lambda: None)
    holder.hold(1)
    assert not holder.holds(b"w", report("a"), lambda: None)
    assert not holder.holds(b"w", report("b", "c"), lambda: None)
    assert not holder.holds(b"w", links.pack([links.Hello("r", "i", "n", 1)]), lambda: None)
    assert holder.tokens == set()


def test_only_the_refusal_of_a_held_report_to_its_own_worker_counts():
    holder = Holder()
    holder.hold(1)
    holder.holds(b"w", report("a", first=7), lambda: None)
    stale = c.Refusal("FAILED_PRECONDITION", "stale")
    holder.hears(b"w", answer(8, stale))
    holder.hears(b"v", answer(7, stale))
    holder.hears(b"w", answer(7, c.Done()))
    assert holder.refused == set()
    holder.hears(b"w", answer(7, stale))
    assert holder.refused == {"a"}
