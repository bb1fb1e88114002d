"""How hard the drill `flaky` is, and what a seed makes of it: which kills fall when."""

from __future__ import annotations

import random

import msgspec


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How hard. `kills` are of single workers, `server_restarts` kills of the whole tree."""

    seed: int = 0
    workflows: int = 20
    kills: int = 8
    server_restarts: int = 2
    activities: int = 8
    fail_rate: float = 0.4
    work_ms: int = 200
    deadline_s: float = 110.0
    live: bool | None = None


class Blow(msgspec.Struct, frozen=True):
    """A kill that is planned: when so many effects are there."""

    kind: str  # "gap", "worker", "node"
    at_effects: int
    delay_s: float


def plan(options: Options) -> list[Blow]:
    """The kills of a seed, spread over the work; half of the worker kills wait for a gap."""
    dice = random.Random(options.seed)
    gaps = (options.kills + 1) // 2
    kinds = (
        ["gap"] * gaps + ["worker"] * (options.kills - gaps) + ["node"] * options.server_restarts
    )
    dice.shuffle(kinds)
    total = options.workflows * options.activities
    blows = []
    for index, kind in enumerate(kinds):
        # The last kill falls while a quarter of the work is still to be done.
        share = 0.75 * (index + dice.random()) / len(kinds)
        blows.append(Blow(kind, int(share * total), dice.uniform(0, 0.06)))
    return blows
