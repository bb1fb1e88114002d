"""The drill `powerloss`: every state that a power loss may leave on the disk is opened.

A run of the engine on the real store is recorded at the VFS, each write, sync and truncation. For
each moment of it, whatever was synced is there, and any part of the rest (see powerloss_states).
First a few states of every moment, then more and more of them, and of further runs, until the time
is up: `--minutes N` gives it more.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from chaos.drill_kit import Arena, Drill, Options
from chaos.drills.powerloss_work import Outcome, Outline, Share, begin, look, record_run

PARALLEL = 2
WORKFLOWS = 4
SHARES = 40
# How many states of each moment: in the first pass, and in one after the other then; the last goes
# on and on.
FIRST_MOST = 1
MOSTS = (16, 16, 64, 256, 1_024, 4_096)
# Not all of the time that a drill has: what is under way must come to its end.
TIME_S = 95.0
RESERVE_S = 5.0
MEMORY = Path("/dev/shm")


class Opening:
    """All passes of one run of the drill."""

    def __init__(self, arena: Arena, scratch: Path, pool: ProcessPoolExecutor) -> None:
        self.arena = arena
        self.outline = Outline(0, 0, 0)
        self.runs = 0
        self.visited = 0
        self.complete = 0
        self.opened = 0
        self.contents = 0
        self.lies = 0
        self.is_whole = False
        self._scratch = scratch
        self._pool = pool
        spare_s = max(RESERVE_S, arena.options.limit_s - TIME_S)
        self._until = time.monotonic() + max(0.0, arena.left_s() - spare_s)

    def run(self) -> None:
        """The first pass over every moment of one run, then as many as there is time for."""
        path = self._record()
        self.is_whole = self._pass(path, FIRST_MOST, is_first=True)
        for most in self._mosts():
            if not self._pass(path, most):
                return
            path = self._record()

    def _mosts(self) -> Iterator[int]:
        yield from MOSTS
        while True:
            yield MOSTS[-1]

    def _record(self) -> str:
        path = str(self._scratch / f"run-{self.runs}")
        seed = self.arena.options.seed + self.runs
        self.outline = self._pool.submit(record_run, path, seed, WORKFLOWS).result()
        self.runs += 1
        self.arena.say(
            f"run {self.runs}: {self.outline.commits} commits, {self.outline.ops} operations,"
            f" {self.outline.moments} moments at which the power may fail"
        )
        return path

    def _pass(self, path: str, most: int, *, is_first: bool = False) -> bool:
        """Up to `most` states of every moment; False where the time was up before."""
        seed = self.arena.options.seed
        is_whole, visited = True, 0
        running: set[Future[Outcome]] = set()
        shares = iter(
            Share(path, first, SHARES, most, seed, self._until) for first in range(SHARES)
        )
        while True:
            while len(running) < 2 * PARALLEL and (share := next(shares, None)) is not None:
                running.add(self._pool.submit(look, share))
            if not running:
                break
            done, running = wait(running, 1.0, FIRST_COMPLETED)
            for each in done:
                outcome = each.result()
                is_whole &= not outcome.is_cut
                visited += outcome.moments
                self._add(outcome)
                self.arena.progress.bar(f"at most {most:,}", visited, self.outline.moments)
                self.arena.progress.text(f"{self.opened:,} states opened")
        if is_first:
            self.visited = visited
        return is_whole

    def _add(self, outcome: Outcome) -> None:
        self.opened += outcome.opened
        self.complete += outcome.complete
        self.contents += outcome.contents
        self.lies += outcome.lies
        for text in outcome.violations:
            self.arena.violate(text)


def run(arena: Arena) -> bool:
    """Opens the states; True where some of every moment of a run were opened."""
    if arena.over():
        return False
    where = MEMORY if os.access(MEMORY, os.W_OK) else arena.directory
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="perdure-powerloss-", dir=where) as scratch,
        ProcessPoolExecutor(PARALLEL, context, begin) as pool,
    ):
        opening = Opening(arena, Path(scratch), pool)
        try:
            opening.run()
        finally:
            pool.shutdown(cancel_futures=True)
    arena.figures["runs recorded"] = opening.runs
    arena.figures["moments of the first, each with its states"] = opening.visited
    arena.figures["states opened"] = opening.opened
    arena.figures["different contents audited"] = opening.contents
    arena.figures["commits lost by a lying disk, all noticed"] = opening.lies
    return opening.is_whole and opening.lies > 0


DRILL = Drill(
    name="powerloss",
    does="every state that a power loss may leave on the disk is opened and audited",
    inconclusive="there was no time to open states of every moment",
    run=run,
    defaults=Options(),
    takes=("minutes",),
)
