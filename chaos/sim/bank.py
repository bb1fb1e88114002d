"""The bug bank: plant each bug, count the seeds until the simulator finds it, and print the score.

The same seeds are run without any bug as well: what they find then would be no proof of anything.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import NamedTuple

from chaos.sim import run
from chaos.sim.bugs import BANK, Bug

SEEDS_MAX = 500
CONTROL_PART = 20


class Search(NamedTuple):
    """What became of one bug: `seeds` were run, `seed` is the one that found it (None: missed)."""

    bug: str
    seeds: int
    seed: int | None
    invariant: int
    what: str


def search(bug: str, seeds_max: int = SEEDS_MAX) -> Search:
    """Run seeds from 0 on with `bug` planted, until one of them violates something."""
    for seed in range(seeds_max):
        violations = run.run_seed(seed, bug=bug).violations
        if violations:
            first = violations[0]
            return Search(bug, seed + 1, seed, first.invariant, f"{first.where}: {first.what}")
    return Search(bug, seeds_max, None, 0, "")


def control(seeds: Sequence[int]) -> list[Search]:
    """What these seeds find without any bug: nothing, if all is well."""
    found = (search_one(seed) for seed in seeds)
    return [one for one in found if one is not None]


def search_one(seed: int) -> Search | None:
    """What one seed finds without any bug."""
    violations = run.run_seed(seed).violations
    if not violations:
        return None
    first = violations[0]
    return Search("", 1, seed, first.invariant, f"{first.where}: {first.what}")


class Score:
    """What all searches add up to."""

    def __init__(self, searches: Sequence[Search], control_seeds: int, wrong: list[Search]) -> None:
        order = {bug: number for number, bug in enumerate(Bug)}
        self.searches = sorted(searches, key=lambda one: order[Bug(one.bug)])
        self.found = [one for one in self.searches if one.seed is not None]
        self.missed = [one for one in self.searches if one.seed is None]
        self.control_seeds = control_seeds
        self.wrong = wrong

    @property
    def is_whole(self) -> bool:
        """Whether every bug was found, and nothing where there was none."""
        return not self.missed and not self.wrong

    @property
    def median(self) -> float:
        """The median number of seeds to find, of those that were found."""
        return statistics.median([one.seeds for one in self.found]) if self.found else 0

    def lines(self) -> Iterator[str]:
        """The table and the score, for people."""
        yield f"{'bug':<25} {'seeds':>5}  {'found by':<13} {'taken from'}"
        for one in self.searches:
            by = "MISSED" if one.seed is None else f"invariant {one.invariant}"
            yield f"{one.bug:<25} {one.seeds:>5}  {by:<13} {BANK[Bug(one.bug)].source}"
        for one in self.wrong:
            yield f"without a bug, seed {one.seed} violates invariant {one.invariant}, {one.what}"
        yield f"without a bug, {len(self.wrong)} of the same {self.control_seeds} seeds find one"
        yield (
            f"{len(self.found)} of {len(self.searches)} found,"
            f" median seeds to find: {self.median:g}"
        )

    def json(self) -> str:
        """All of it, for programs."""
        return json.dumps(
            {
                "bugs": [
                    {**one._asdict(), "source": BANK[Bug(one.bug)].source, "world": "engine"}
                    for one in self.searches
                ],
                "found": len(self.found),
                "of": len(self.searches),
                "median_seeds": self.median,
                "control": {
                    "seeds": self.control_seeds,
                    "violations": [one._asdict() for one in self.wrong],
                },
            },
            indent=1,
        )


def score(names: Sequence[Bug], seeds_max: int = SEEDS_MAX, processes: int = 2) -> Score:
    """Search for all of these, then run as many seeds as the slowest took without any bug.

    Says on the standard error how far it is.
    """
    began = time.monotonic()
    searches: list[Search] = []
    wrong: list[Search] = []
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        hunts: list[Future[Search]] = [pool.submit(search, bug, seeds_max) for bug in names]
        for hunt in as_completed(hunts):
            one = hunt.result()
            searches.append(one)
            how = "missed" if one.seed is None else f"invariant {one.invariant}"
            _say(began, f"{len(searches)}/{len(names)} {one.bug}: {how}, {one.seeds} seeds")
        seeds = range(max((one.seeds for one in searches), default=0))
        parts = [seeds[at : at + CONTROL_PART] for at in range(0, len(seeds), CONTROL_PART)]
        for number, found in enumerate(pool.map(control, parts), start=1):
            wrong += found
            _say(began, f"without a bug: {min(number * CONTROL_PART, len(seeds))}/{len(seeds)}")
    return Score(searches, len(seeds), wrong)


def _say(began: float, text: str) -> None:
    print(f"{time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)
