"""The drill `boundaries`: somebody dies at every crash point there is, and the work goes on.

Two journeys at a time (see boundaries_plan), each on a node of its own. With `--depth` 2 or 3,
chains of boundaries of any roles follow until the time is up; `--minutes N` gives it more.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import chain

from chaos.drill_kit import Arena, Drill, Options
from chaos.drills.boundaries_plan import Journey, boundaries, chains, journeys
from chaos.drills.boundaries_visit import Death, Visit
from perdure.crash_points import CrashPoint

PARALLEL = 2
# What a chain may still take when it is begun.
RESERVE_S = 20.0
EXAMPLES = 5
LOAD_A_CORE_MAX = 6


class Travels:
    """All journeys of one run."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.covered: set[tuple[str, CrashPoint]] = set()
        self.chained = 0
        self.took_ms: list[int] = []
        self._wanted = len(boundaries())
        self._under_way: set[Visit] = set()
        self._lock = threading.Lock()
        self._number = 0

    def run(self) -> None:
        """All boundaries, then chains if the depth asks for them."""
        options = self.arena.options
        self.arena.progress.bar("boundaries", 0, self._wanted)
        plan: Iterator[Journey] = iter(journeys(self.arena.dice("journeys")))
        if options.depth > 1:
            more = chains(self.arena.dice("chains"), options.depth)
            plan = chain(plan, self._in_time(more))
        # The threads live until the last node has ended: a node would die with the thread that
        # started it.
        with ThreadPoolExecutor(PARALLEL) as threads:
            try:
                self._travel_all(plan, threads)
            except BaseException:
                self._abort()
                raise

    def _in_time(self, more: Iterator[Journey]) -> Iterator[Journey]:
        while self.arena.left_s() > RESERVE_S:
            yield next(more)

    def _travel_all(self, plan: Iterator[Journey], threads: ThreadPoolExecutor) -> None:
        running: set[Future[None]] = set()
        for journey in plan:
            if self.arena.over():
                break
            running.add(threads.submit(self._travel, journey))
            while len(running) >= PARALLEL:
                done, running = wait(running, 1.0, FIRST_COMPLETED)
                for each in done:
                    each.result()
        while running:
            done, running = wait(running, 1.0)
            for each in done:
                each.result()

    def _travel(self, journey: Journey) -> None:
        """A journey; where it gets stuck, the rest of it once more."""
        visited = self._travel_once(journey)
        if visited < len(journey.legs) and not self.arena.over():
            self._travel_once(journey.again(visited))

    def _travel_once(self, journey: Journey) -> int:
        """How many of its boundaries were visited."""
        with self._lock:
            self._number += 1
            directory = self.arena.directory / f"j{self._number}"
        directory.mkdir()
        visit = Visit(journey, directory, self._heard)
        with self._lock:
            self._under_way.add(visit)
        try:
            visit.travel()
        finally:
            visit.close()
            with self._lock:
                self._under_way.discard(visit)
                self._told(visit)
        if not visit.violations:
            shutil.rmtree(directory, ignore_errors=True)
        return len(visit.deaths)

    def _told(self, visit: Visit) -> None:
        arena = self.arena
        arena.workflows += visit.workflows
        arena.completed += visit.workflows
        if visit.audit is not None:
            arena.audits.append(visit.audit)
        if visit.counts is not None:
            arena.counted.append(visit.counts)
        for text in visit.violations:
            arena.violate(text)
        if len(visit.deaths) > 1 and visit.journey.name.startswith("chain"):
            self.chained += 1

    def _heard(self, death: Death) -> None:
        with self._lock:
            self.covered.add(death.leg.boundary)
            self.took_ms.append(death.took_ms)
            fault = self.arena.fault("SIGKILL", death.leg.role, at_ms=death.at_ms)
            fault.note = death.leg.point.truth
            self.arena.say(f"{death.leg.name}: done after {death.took_ms} ms")
            self.arena.progress.bar("boundaries", len(self.covered), self._wanted)

    def _abort(self) -> None:
        with self._lock:
            for visit in self._under_way:
                visit.abort()


def too_busy(load: float, cores: int) -> str:
    """Why crash points were not reached, where it is the machine's load; else an empty text."""
    if load <= LOAD_A_CORE_MAX * cores:
        return ""
    return (
        f"a load of {load:.0f} on {cores} cores is too much for the time limits of this drill: run "
        "it again when the machine is less busy, or with --minutes 5"
    )


def run(arena: Arena) -> bool:
    """Visits every boundary; True where all were reached."""
    travels = Travels(arena)
    travels.run()
    every = boundaries()
    missed = [
        f"{role} at {point.name}" for role, point in every if (role, point) not in travels.covered
    ]
    figures = arena.figures
    figures["crash points"] = len(CrashPoint)
    figures["boundaries covered"] = f"{len(travels.covered)} of {len(every)}"
    if missed:
        more = f" and {len(missed) - EXAMPLES} more" if len(missed) > EXAMPLES else ""
        figures["not reached"] = ", ".join(missed[:EXAMPLES]) + more
        busy = too_busy(os.getloadavg()[0], os.cpu_count() or 1)
        if busy:
            figures["the machine"] = busy
            arena.say(busy)
    if arena.options.depth > 1:
        figures["chains in which more than one died"] = travels.chained
    ordered = sorted(travels.took_ms)
    if ordered:
        figures["from a death to the end of the work, median"] = f"{ordered[len(ordered) // 2]} ms"
        figures["the longest"] = f"{ordered[-1]} ms"
    return not missed


DRILL = Drill(
    name="boundaries",
    does="somebody is SIGKILLed at every crash point there is, and the work goes on",
    inconclusive="a crash point was not reached, as on a machine that is too busy",
    run=run,
    defaults=Options(),
    takes=("depth", "minutes"),
)
