"""What a seed makes of the drill `flaky`: which kills fall when."""

from __future__ import annotations

import random

import msgspec

from chaos.drill_kit import Options

ACTIVITIES = 8


class Blow(msgspec.Struct, frozen=True):
    """A kill that is planned: when so many effects are there, or in a soak at its second."""

    kind: str  # "gap", "worker", "node"
    at_effects: int
    delay_s: float


def plan(options: Options, activities: int = ACTIVITIES) -> list[Blow]:
    """The kills of a seed, spread over the work; half of the worker kills wait for a gap."""
    dice = random.Random(options.seed)
    kinds = _kinds(options.kills, options.server_restarts, dice)
    total = options.workflows * activities
    blows = []
    for index, kind in enumerate(kinds):
        # The last kill falls while a quarter of the work is still to be done.
        share = 0.75 * (index + dice.random()) / len(kinds)
        blows.append(Blow(kind, int(share * total), dice.uniform(0, 0.06)))
    return blows


def soak_plan(options: Options) -> list[Blow]:
    """The kills of a soak, spread over its minutes; `delay_s` counts from its begin."""
    dice = random.Random(options.seed)
    kinds = _kinds(options.kills, options.server_restarts, dice)
    length_s = 60 * options.minutes
    return [
        Blow(kind, 0, length_s * (index + dice.random()) / len(kinds))
        for index, kind in enumerate(kinds)
    ]


def _kinds(kills: int, restarts: int, dice: random.Random) -> list[str]:
    gaps = (kills + 1) // 2
    kinds = ["gap"] * gaps + ["worker"] * (kills - gaps) + ["node"] * restarts
    dice.shuffle(kinds)
    return kinds
