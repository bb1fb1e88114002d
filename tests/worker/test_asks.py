from __future__ import annotations

from perdure.core import limits, links
from perdure.worker.asks import TO_GATEWAY, TO_HISTORY, Asks


def said(asks: Asks, dest: bytes = TO_HISTORY, now_ms: int = 0) -> int:
    n = asks.next_n()
    asks.add(n, dest, links.Fetch(n, "w", 0), f"subject {n}", now_ms)
    return n


def test_numbers_are_never_used_twice():
    asks = Asks()
    first = said(asks)
    asks.close(first)
    assert said(asks) > first


def test_an_answer_closes_a_message_once():
    asks = Asks()
    n = said(asks)
    assert (asks.close(n), asks.close(n), len(asks)) == (f"subject {n}", None, 0)


def test_what_has_no_answer_is_said_again_after_doubling_waits_up_to_the_longest():
    asks = Asks()
    said(asks)
    times = []
    while len(times) < 8:
        now_ms = asks.next_ms()
        assert now_ms is not None
        assert asks.due(now_ms - 1) == []
        assert len(asks.due(now_ms)) == 1
        times.append(now_ms)
    waits = [after - before for before, after in zip([0, *times], times, strict=False)]
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert limits.RESEND_MAX_MS == 30_000


def test_what_is_answered_is_not_said_again():
    asks = Asks()
    asks.close(said(asks))
    assert asks.next_ms() is None
    assert asks.due(10**9) == []


def test_a_new_history_hears_only_what_was_for_history():
    asks = Asks()
    first, _, third = said(asks), said(asks, TO_GATEWAY), said(asks)
    assert [entry.message.n for entry in asks.all(TO_HISTORY)] == [first, third]
    assert len(list(asks.all())) == 3
