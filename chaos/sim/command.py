"""The simulator's command line.

    python -m chaos.sim run [--seed N | --seeds A:B] [--processes N] [--world engine|fast|small]
                            [--bug B]
    python -m chaos.sim shrink SEED|PLAN [--save FILE] [--seconds N]
    python -m chaos.sim replay PLAN
    python -m chaos.sim bench
    python -m chaos.sim bugbank [--bug NAME] [--seeds N] [--processes N] [--json]

Exit 0: nothing was violated; 1: something was, or of many seeds none reached some goal; 2: bad
usage. Of bugbank, 0: each planted bug was found; 1: one was not.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from chaos.sim import bank, diagram, draw, run, shrink
from chaos.sim.bugs import Bug
from chaos.sim.plan import read, write
from chaos.sim.result import Result

SEEDS_A_TASK = 20
SEEDS_A_PROCESS = 1_000
SHRINK_S = 60.0
GOAL_SEEDS = 2_000  # From so many on a goal that was never reached is a failure.
BENCH_SEEDS = {"engine": 60, "fast": 300}


def main(arguments: list[str]) -> int:
    """What `python -m chaos.sim` does; its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    match options.command:
        case "run":
            return _run(options)
        case "shrink":
            return _shrink(options)
        case "bench":
            return _bench()
        case "bugbank":
            return _bank(options)
        case _:
            return _replay(options.plan)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaos.sim")
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run seeds")
    which = runs.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int)
    which.add_argument("--seeds", default="0:100", metavar="A:B")
    runs.add_argument("--processes", type=int, default=1)
    runs.add_argument("--world", choices=draw.WORLDS, default="engine")
    runs.add_argument("--bug", default="")
    runs.add_argument("--plans", type=Path, help="keep what fails as plans in this directory")
    smaller = commands.add_parser("shrink", help="make a failing seed or plan small")
    smaller.add_argument("what", help="a seed, or a plan's file")
    smaller.add_argument("--bug", default="")
    smaller.add_argument("--world", choices=draw.WORLDS, default="engine")
    smaller.add_argument("--seconds", type=float, default=shrink.TIME_BOX_S)
    smaller.add_argument("--save", type=Path, help="where the plan is kept")
    commands.add_parser("bench", help="events a second of each world, on one core")
    replay = commands.add_parser("replay", help="run a plan from a file")
    replay.add_argument("plan", type=Path)
    banked = commands.add_parser("bugbank", help="plant bugs, and see that each is found")
    banked.add_argument("--bug", choices=[str(bug) for bug in Bug], help="this one only")
    banked.add_argument("--seeds", type=int, default=bank.SEEDS_MAX, help="at most, for each bug")
    banked.add_argument("--processes", type=int, default=2)
    banked.add_argument("--json", action="store_true")
    return parser


def seeds_of(text: str) -> range:
    """The seeds that "A:B" means, B not among them. ValueError for anything else."""
    first, colon, last = text.partition(":")
    if not colon:
        raise ValueError(f"--seeds is A:B, not {text}")
    return range(int(first), int(last))


class Tally:
    """What many runs add up to."""

    def __init__(self) -> None:
        self.results = 0
        self.events = 0
        self.simulated_ms = 0
        self.records = 0
        self.operations: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()
        self.goals: Counter[str] = Counter()
        self.failed: list[Result] = []

    def add(self, result: Result) -> None:
        """One more."""
        self.results += 1
        self.events += result.events
        self.simulated_ms += result.simulated_ms
        self.records += result.records
        self.operations.update(result.operations)
        self.fired.update(result.fired)
        self.goals.update(result.goals)
        if result.violations:
            self.failed.append(result)

    def lines(self, took_s: float) -> Iterator[str]:
        """All of it, for people."""
        rate = int(self.events / max(took_s, 0.001))
        yield (
            f"{self.results} seeds, {self.events} events ({rate} a second), "
            f"{self.simulated_ms // 1_000} simulated seconds, {self.records} records"
        )
        for name, counts in (
            ("operations", self.operations),
            ("faults", self.fired),
            ("sometimes", self.goals),
        ):
            yield f"{name}: " + ", ".join(f"{key} {n}" for key, n in sorted((+counts).items()))
        for result in self.failed:
            yield f"seed {result.seed}: {result.violations[0]}"


def results(
    seeds: Iterable[int], *, world: str = "engine", bug: str = "", processes: int = 1
) -> Iterator[Result]:
    """The result of each seed, as they come."""
    if processes <= 1:
        for seed in seeds:
            yield run.run_seed(seed, world=world, bug=bug)
        return
    every = list(seeds)
    # Fresh processes now and then, by fresh pools: one with max_tasks_per_child may stop for ever
    # when a child has had its fill (CPython gh-115634).
    for begin in range(0, len(every), processes * SEEDS_A_PROCESS):
        end = min(begin + processes * SEEDS_A_PROCESS, len(every))
        parts = [every[at : min(at + SEEDS_A_TASK, end)] for at in range(begin, end, SEEDS_A_TASK)]
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            for found in pool.map(_part, parts, [world] * len(parts), [bug] * len(parts)):
                yield from found


def _part(seeds: list[int], world: str, bug: str) -> list[Result]:
    return [run.run_seed(seed, world=world, bug=bug) for seed in seeds]


def _keep(result: Result, world: str, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    plan = draw.plan_of(result.seed, world=world)
    shrunk = shrink.Shrinker(plan, SHRINK_S).shrink()
    write(shrunk.plan, directory / f"{world}-{result.seed}.json")


def _bench() -> int:
    """Processor time, so that a busy machine says nearly the same as an idle one."""
    for world, seeds in BENCH_SEEDS.items():
        run.run_seed(0, world=world)
        began = time.process_time()
        events = sum(run.run_seed(seed, world=world).events for seed in range(seeds))
        took_s = time.process_time() - began
        print(f"{world}: {seeds} seeds, {events} events, {int(events / took_s)} a second per core")
    return 0


def _run(options: argparse.Namespace) -> int:
    seeds = seeds_of(options.seeds) if options.seed is None else [options.seed]
    began = time.perf_counter()
    tally = Tally()
    for result in results(seeds, world=options.world, bug=options.bug, processes=options.processes):
        tally.add(result)
    for line in tally.lines(time.perf_counter() - began):
        print(line)
    return 1 if tally.failed else 0


def _shrink(options: argparse.Namespace) -> int:
    if options.what.isdecimal():
        plan = draw.plan_of(int(options.what), world=options.world, bug=options.bug)
    else:
        plan = read(Path(options.what))
    try:
        shrunk = shrink.Shrinker(plan, options.seconds).shrink()
    except ValueError as problem:
        print(problem)
        return 0
    result, world = run.run_world(shrunk.plan)
    for line in diagram.lines(shrunk.plan, result, world):
        print(line)
    print(f"{shrunk.runs} runs" + ("" if shrunk.is_done else "; the time was up"))
    if options.save is not None:
        write(shrunk.plan, options.save)
    return 1


def _bank(options: argparse.Namespace) -> int:
    names = list(Bug) if options.bug is None else [Bug(options.bug)]
    score = bank.score(names, options.seeds, options.processes)
    if options.json:
        print(score.json())
    else:
        for line in score.lines():
            print(line)
    return 0 if score.is_whole else 1


def _replay(path: Path) -> int:
    plan = read(path)
    result, world = run.run_world(plan)
    for line in diagram.lines(plan, result, world):
        print(line)
    print(f"trace {result.trace}, {result.events} events, {result.simulated_ms} ms simulated")
    return 1 if result.violations else 0
