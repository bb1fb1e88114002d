"""The tree of runs: one without a crash, one from each of its crash points, and on from these."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Hashable, Iterator
from functools import partial

import msgspec

from perdure.errors import Internal
from perdure.verifying import compare, life
from perdure.verifying.compare import Finding, Found
from perdure.verifying.forks import CallFailed, ProcessEnded, in_child
from perdure.verifying.life import Plan
from perdure.verifying.world import RUNNING, Killed, Outcome, Point, Step, StepKind, Who, World

TIMEOUT_MS = 10_000

PROVED = "proved"
VIOLATED = "violated"
INCONCLUSIVE = "inconclusive"


class Effect(msgspec.Struct, frozen=True):
    """An effect of the run without a crash."""

    name: str
    key: str | None
    activity_type: str
    activity_id: str


class Verification(msgspec.Struct, kw_only=True):
    """What came of it. `why` says what an inconclusive one lacks.

    `runs`: schedules that begin from the same, as right after a commit and right before the next,
    are run once. `status` is how the workflow ends without a crash. `dead_letters` counts, by
    activity type, the schedules in which an activity became a dead letter, which is no violation:
    it waits for an operator.
    """

    workflow: str
    verdict: str = PROVED
    why: str = ""
    bad_input: bool = False
    status: str = ""
    depth: int = 1
    crash_points: int = 0
    schedules: int = 0
    runs: int = 0
    effects: list[Effect] = []
    findings: list[Finding] = []
    dead_letters: dict[str, int] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How far to go: crashes in one schedule, schedules in all, ms of real time for one run."""

    depth: int = 1
    schedules: int = 10_000
    timeout_ms: int = TIMEOUT_MS


Progress = Callable[[int], None]


def verify(plan: Plan, limits: Limits, progress: Progress = lambda _: None) -> Verification:
    """Run the workflow without a crash, then once from each crash point and kind of death.

    `progress` is told how many schedules have been tried.
    """
    return _Explorer(plan, limits, progress).explore()


class _Explorer:
    def __init__(self, plan: Plan, limits: Limits, progress: Progress) -> None:
        self._plan = plan
        self._limits = limits
        self._progress = progress
        self._found: dict[tuple[compare.Kind, str, str], Found] = {}
        self._result = Verification(workflow=plan.workflow, depth=limits.depth)
        self._baseline: Outcome
        # How runs went that began from the same: only once is each run.
        self._known: dict[Hashable, tuple[World, Outcome]] = {}

    def explore(self) -> Verification:
        life.warm_up()
        gc.freeze()  # What is there now is not looked through by each child anew.
        try:
            return self._explored()
        finally:
            gc.unfreeze()

    def _explored(self) -> Verification:
        result = self._result
        try:
            self._baseline = self._run(World(), None, "0", keep_points=True)
        except ProcessEnded as ended:
            return self._inconclusive(f"the run without a crash gave no result: {ended}")
        result.status = self._baseline.status
        result.bad_input = self._baseline.bad_input
        if self._baseline.bad_input:
            return self._inconclusive(self._baseline.why)
        if self._baseline.is_open:
            return self._inconclusive(f"without a crash it does not end: {self._baseline.why}")
        result.effects = [
            Effect(one.name, one.key, one.who.activity_type, one.who.activity_id)
            for one in compare.pairs(self._baseline.applied).values()
        ]
        points = self._baseline.points
        result.crash_points = len(points)
        is_whole = self._try_all(points, "")
        if self._limits.depth > 1 and is_whole:
            is_whole = self._pairs(points)
        result.findings = [one.finding() for one in self._found.values()]
        if result.findings:
            result.verdict = VIOLATED
        elif not is_whole:
            return self._inconclusive(
                f"there are more than {self._limits.schedules} schedules (--max-schedules)"
            )
        elif not result.effects:
            return self._inconclusive(
                "no effect was seen: apply them through perdure.effects, or say where they are "
                "with perdure.verify.effect"
            )
        return result

    def _inconclusive(self, why: str) -> Verification:
        self._result.verdict, self._result.why = INCONCLUSIVE, why
        return self._result

    def _run(self, world: World, killed: Killed | None, seed: str, *, keep_points: bool) -> Outcome:
        call = partial(life.run, self._plan, world, killed, seed, keep_points=keep_points)
        try:
            outcome: Outcome = in_child(call, self._limits.timeout_ms)
        except CallFailed as failed:
            raise Internal(f"a run failed in the engine itself:\n{failed}") from failed
        return outcome

    # --- schedules ----------------------------------------------------------
    def _try_all(self, points: list[Point], seed: str) -> bool:
        """Try each point with each death. False if the limit was reached before."""
        for world, killed, name in _deaths(points, seed):
            if self._result.schedules >= self._limits.schedules:
                return False
            self._try(world, killed, name)
        return True

    def _try(self, world: World, killed: Killed, seed: str) -> None:
        self._result.schedules += 1
        beginning = world.beginning(killed)
        if beginning not in self._known:
            self._result.runs += 1
            self._known[beginning] = world, self._tried(world, killed, seed)
        run = self._known[beginning][1].after(self._known[beginning][0], world)
        for activity_type in {type_ for type_, _ in run.dead}:
            counts = self._result.dead_letters
            counts[activity_type] = counts.get(activity_type, 0) + 1
        for trouble in compare.troubles(self._baseline, run):
            found = Found(trouble, run, world.crashes, killed)
            before = self._found.get(trouble.group)
            self._found[trouble.group] = found if before is None else before.joined(found)
        self._progress(self._result.schedules)

    def _tried(self, world: World, killed: Killed, seed: str) -> Outcome:
        try:
            return self._run(world, killed, seed, keep_points=False)
        except ProcessEnded as ended:
            return Outcome(RUNNING, str(ended), world.applied, world.steps, [])

    def _pairs(self, points: list[Point]) -> bool:
        # Each first run is made again, since the worlds at the points of all of them are too much.
        beginning: Hashable = None
        seconds: list[Point] = []
        for world, killed, name in _deaths(points, ""):
            if world.beginning(killed) != beginning:
                beginning = world.beginning(killed)
                try:
                    seconds = self._run(world, killed, name, keep_points=True).points
                except ProcessEnded:
                    seconds = []  # It was a finding when it was tried.
            if not self._try_all(seconds, name):
                return False
        return True


def _deaths(points: list[Point], seed: str) -> Iterator[tuple[World, Killed, str]]:
    """The worlds after each death at each point, with a name of the schedule."""
    for number, point in enumerate(points, start=1):
        for killed in Killed:
            crash = Step(StepKind.CRASH, Who(), f"the {killed} dies {point.place}")
            world = dataclasses.replace(
                point.world,
                steps=(*point.world.steps, crash),
                crashes=point.world.crashes + 1,
            )
            yield world, killed, f"{seed}/{number}{killed}"
