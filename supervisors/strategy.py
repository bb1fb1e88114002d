"""Which siblings are restarted with a child that died. Pure."""

from __future__ import annotations

from enum import StrEnum


class Strategy(StrEnum):
    """How far a death reaches."""

    ONE_FOR_ONE = "one_for_one"  # Only the dead one.
    ONE_FOR_ALL = "one_for_all"  # All of them.
    REST_FOR_ONE = "rest_for_one"  # The dead one and those started after it.


def restarted_with(strategy: Strategy, ids: tuple[str, ...], dead: str) -> tuple[str, ...]:
    """The children to stop, where they run, and to start again, in the order of their start.

    `ids` are the supervisor's children in that order; `dead` is one of them and is part of the
    answer.
    """
    match strategy:
        case Strategy.ONE_FOR_ONE:
            return (dead,)
        case Strategy.ONE_FOR_ALL:
            return ids
        case Strategy.REST_FOR_ONE:
            return ids[ids.index(dead) :]
