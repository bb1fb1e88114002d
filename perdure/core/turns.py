"""Whose turn it is: at one level of priority workflows take turns, whatever each has waiting.

An activity gets the number of its turn when it becomes ready: one more than the newest of its own
workflow's, and than the one that was given out last. So ten thousand of one workflow stand behind
the first of every other, and a place costs no more than in any ordered set.
"""

from __future__ import annotations

from perdure.core.open_work import Entry, Work

# Above every priority that an activity can have.
QUEUE_SPAN = 2**33


class Turns:
    """The turns that were given, by level (the lowest level goes first)."""

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given: dict[int, int] = {}  # The turn of what was given out last.

    def next(self, work: Work, level: int) -> int:
        """The turn of what becomes ready now."""
        given = self._given.get(level, 0)
        turns = work.turns
        if turns is None:
            work.turns = {level: given + 1}
            return given + 1
        own = turns.get(level, 0)
        turn = turns[level] = 1 + (own if own > given else given)
        return turn

    def take(self, entry: Entry) -> None:
        """It was given out: its turn has come, and with it all before."""
        level, turn = entry.rank[0], entry.rank[1]
        if turn > self._given.get(level, 0):
            self._given[level] = turn

    def skip(self, entry: Entry) -> None:
        """It went another way: its workflow's next may have its turn."""
        turns, level = entry.work.turns, entry.rank[0]
        if turns is not None and turns.get(level) == entry.rank[1]:
            turns[level] -= 1
