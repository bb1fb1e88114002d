"""The simulation's only clock and queue: what happens next, in which order.

Events of one instant come in an order that is drawn. Everything that happened goes into one running
hash: two runs that agree in it did the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from heapq import heappop as _pop
from heapq import heappush as _push
from typing import Any

from chaos.sim.chance import Chance

SECOND_US = 1_000_000
MS_US = 1_000


class Loop:
    """One heap of (instant, drawn tiebreak, number, call, arguments). Instants are microseconds."""

    __slots__ = ("_draw", "_hash", "_heap", "_number", "events", "now_us")

    def __init__(self, chance: Chance) -> None:
        self.now_us = 0
        self.events = 0
        self._number = 0
        self._heap: list[tuple[int, float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._draw = chance.stream("schedule").random
        self._hash = hashlib.blake2b(digest_size=16)

    def at(self, at_us: int, call: Callable[..., None], *args: Any) -> None:
        """Have `call(*args)` happen at that instant; now, where it has passed."""
        self._number = number = self._number + 1
        now_us = self.now_us
        _push(self._heap, (at_us if at_us > now_us else now_us, self._draw(), number, call, args))

    def after(self, delay_us: int, call: Callable[..., None], *args: Any) -> None:
        """Have `call(*args)` happen so much later."""
        self._number = number = self._number + 1
        _push(self._heap, (self.now_us + delay_us, self._draw(), number, call, args))

    def run(self, until_us: int, is_done: Callable[[], bool], look_us: int = SECOND_US) -> bool:
        """Let things happen until that instant, or until `is_done`, which is asked every `look_us`.

        True when it was done.
        """
        heap, pop = self._heap, _pop
        look_at = self.now_us
        events = self.events
        while heap:
            now_us, _, _, call, args = event = pop(heap)
            if now_us > until_us:
                _push(heap, event)
                break
            self.now_us = now_us
            events += 1
            call(*args)
            if now_us >= look_at:
                look_at = now_us + look_us
                self.events = events
                if is_done():
                    return True
        self.events = events
        self.now_us = max(self.now_us, until_us)
        return is_done()

    def clear(self) -> None:
        """Forget what was to happen."""
        self._heap.clear()

    def note(self, what: bytes) -> None:
        """Take this into the trace hash."""
        self._hash.update(what)

    def trace(self) -> str:
        """The hash of all that was noted so far."""
        return self._hash.hexdigest()
