"""What is wrong with a run, next to the run without a crash. Pure."""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from perdure.verifying.world import Applied, Killed, Outcome, Step, StepKind, Who, shown_activity

Pair = tuple[str, str | None, int]  # Name, key, and the how-manieth it is where it has no key.

WORKFLOW = "the workflow"
# A schedule of many failures is told by its beginning and its end.
LINES_MAX = 16
LINES_FIRST = 9


class Kind(enum.StrEnum):
    """What a crash does to the workflow."""

    DOUBLED = "doubled"
    LOST = "lost"
    STUCK = "stuck"
    ENDING = "ending"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, with the shortest schedule that shows it.

    `activity_type` and `effect` are empty where it is the workflow's own code, or no effect at all.
    `kills` are the deaths that show it, `schedules` how many of the schedules tried do.
    """

    kind: Kind
    activity_type: str
    activity_id: str
    effect: str
    says: str
    schedule: tuple[str, ...]
    crashes: int
    hint: str
    kills: tuple[Killed, ...]
    schedules: int = 1


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong with one run. `is_clear`: nothing else in the run explains it. `is_renamed`:
    without a crash the effect is that of an activity with another id.
    """

    kind: Kind
    who: Who
    effect: str
    says: str
    is_clear: bool
    applied: Applied | None = None
    is_renamed: bool = False

    @property
    def group(self) -> tuple[Kind, str, str]:
        """What belongs together: one finding."""
        return self.kind, self.who.activity_type, self.effect


def pairs(applied: Iterable[Applied]) -> dict[Pair, Applied]:
    """The different effects among them, each with its first application."""
    found: dict[Pair, Applied] = {}
    keyless: Counter[str] = Counter()
    for one in applied:
        if one.key is None:
            keyless[one.name] += 1
        found.setdefault((one.name, one.key, keyless[one.name] if one.key is None else 0), one)
    return found


def troubles(baseline: Outcome, run: Outcome) -> list[Trouble]:
    """All that is wrong with `run`: at most one for each kind and effect of an activity."""
    expected, found = pairs(baseline.applied), pairs(run.applied)
    new = [one for pair, one in found.items() if pair not in expected]
    absent = [one for pair, one in expected.items() if pair not in found]
    made: list[Trouble] = []
    for one in new:
        rivals = _named(absent, one)
        if len(_named(new, one)) >= len(rivals):
            made.append(_doubled(one, expected.values(), rivals))
    if not run.is_parked:
        for one in absent:
            rivals = _named(new, one)
            if len(_named(absent, one)) > len(rivals):
                made.append(_lost(one, run, is_clear=not rivals))
        if not made and run.status != baseline.status:
            made.append(_otherwise(baseline, run))
    unique: dict[object, Trouble] = {}
    for trouble in made:
        unique.setdefault(trouble.group, trouble)
    return list(unique.values())


def _named(effects: list[Applied], like: Applied) -> list[Applied]:
    return [one for one in effects if one.name == like.name]


def _doubled(one: Applied, expected: Iterable[Applied], rivals: list[Applied]) -> Trouble:
    """`rivals`: effects of the same name without a crash that this one may stand for."""
    if rivals:
        keys = "" if rivals[0].key is None else f", {one.key} instead of {rivals[0].key}"
        says = f"its effect {one.name} gets another key after a crash{keys}, so it could be doubled"
    elif any(other.name == one.name for other in expected):
        says = f"its effect {one.name} would be doubled"
    else:
        says = f"its effect {one.name} would be applied, and is not without a crash"
    return Trouble(
        kind=Kind.DOUBLED,
        who=one.who,
        effect=one.name,
        says=says,
        is_clear=not rivals,
        applied=one,
        is_renamed=bool(rivals)
        and one.who.activity_id not in {it.who.activity_id for it in rivals},
    )


def _lost(one: Applied, run: Outcome, *, is_clear: bool) -> Trouble:
    says = f"its effect {one.name} would be lost"
    if run.is_open:
        says += f": the workflow stands still, since {run.why}"
    return Trouble(kind=Kind.LOST, who=one.who, effect=one.name, says=says, is_clear=is_clear)


def _otherwise(baseline: Outcome, run: Outcome) -> Trouble:
    who = Who()
    if run.is_open and run.dead:
        who = Who(run.dead[-1][1], run.dead[-1][0])
        kind, says = Kind.STUCK, f"it would fail again and again, redriven or not: {run.why}"
    elif run.is_open:
        kind, says = Kind.STUCK, f"it would stand still: {run.why}"
    else:
        why = f" ({run.why})" if run.why else ""
        kind, says = Kind.ENDING, f"it would end {run.status}{why}, not {baseline.status}"
    return Trouble(kind=kind, who=who, effect="", says=says, is_clear=True)


# --- findings ----------------------------------------------------------------
@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A trouble and the run that shows it: the shortest of `schedules` runs that do.

    `kills`: the last deaths of those that have as few crashes.
    """

    trouble: Trouble
    run: Outcome
    crashes: int
    killed: Killed
    kills: frozenset[Killed] = frozenset()
    schedules: int = 1

    def joined(self, other: Found) -> Found:
        """Both, as one."""
        best = min(self, other, key=Found._length)
        kills = {
            kill
            for one in (self, other)
            if one.crashes == best.crashes
            for kill in (one.killed, *one.kills)
        }
        return dataclasses.replace(
            best, kills=frozenset(kills), schedules=self.schedules + other.schedules
        )

    def _length(self) -> tuple[int, bool, int]:
        return self.crashes, not self.trouble.is_clear, len(schedule(self.trouble, self.run))

    def finding(self) -> Finding:
        """For the reader."""
        trouble = self.trouble
        kills = self.kills | {self.killed}
        return Finding(
            kind=trouble.kind,
            activity_type=trouble.who.activity_type,
            activity_id=trouble.who.activity_id,
            effect=trouble.effect,
            says=f"{subject(trouble)}: {trouble.says}",
            schedule=schedule(trouble, self.run),
            crashes=self.crashes,
            hint=hint(trouble, self.run, kills),
            kills=tuple(kill for kill in Killed if kill in kills),
            schedules=self.schedules,
        )


def schedule(trouble: Trouble, run: Outcome) -> tuple[str, ...]:
    """What happens in `run`, as far as it concerns the trouble, as numbered lines."""
    shown = [step for step in run.steps if _concerns(step, trouble)]
    lines = [step.text for step in shown]
    if trouble.applied is not None:
        last = next(n for n, step in enumerate(shown) if step.applied is trouble.applied)
        del lines[last + 1 :]
    elif trouble.kind is Kind.LOST and not run.is_open:
        lines.append(f"the workflow ends {run.status} without {trouble.effect}")
    else:
        ending = f"ends {run.status}" if not run.is_open else "stands still"
        lines.append(f"the workflow {ending}{f': {run.why}' if run.why else ''}")
    unique = [line for line, _ in itertools.groupby(lines)]
    kept = {step.text for step in shown if step.kind in (StepKind.CRASH, StepKind.OPERATOR)}
    return tuple(_numbered(unique, kept))


def _numbered(lines: list[str], kept: set[str]) -> Iterator[str]:
    """Each line with its number; of many, those in the middle are only counted, but for `kept`."""
    last = len(lines) - (LINES_MAX - LINES_FIRST - 1)
    is_long, begun = len(lines) > LINES_MAX, 0
    for number, line in enumerate(lines, start=1):
        if is_long and LINES_FIRST < number <= last and line not in kept:
            begun = begun or number
            continue
        if begun:
            yield f"{begun}. (and so on, {_steps(number - begun)})"
            begun = 0
        yield f"{number}. {line}"


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _concerns(step: Step, trouble: Trouble) -> bool:
    if step.kind is StepKind.CRASH:
        return True
    if trouble.who.activity_id:
        return step.who.activity_id == trouble.who.activity_id and step.kind is not StepKind.COMMIT
    if trouble.effect:
        return step.kind is StepKind.EFFECT and step.who == trouble.who
    return step.who == Who() or step.kind is not StepKind.COMMIT


def subject(trouble: Trouble) -> str:
    """Whom the finding names."""
    if not trouble.who.activity_id:
        return WORKFLOW
    return shown_activity(trouble.who.activity_type, trouble.who.activity_id)


def hint(trouble: Trouble, run: Outcome, kills: frozenset[Killed]) -> str:
    """What is usually behind it."""
    who = trouble.who
    if trouble.kind is Kind.STUCK and who.activity_id:
        return "what was done before is no failure: let a repeat succeed"
    if trouble.kind is Kind.LOST and not run.is_open:
        reports = [step for step in run.steps if step.kind is StepKind.ENDS]
        if all(step.who.activity_id != who.activity_id for step in reports):
            return "the workflow did not wait for it: what it does depends on what is done first"
        return (
            "a later attempt took for granted that an earlier one had applied it: note that it is "
            "done after the effect, not before"
        )
    if trouble.kind is not Kind.DOUBLED and run.is_open and run.dead:
        return "an attempt that follows a crash has to be able to succeed"
    if trouble.kind is not Kind.DOUBLED:
        return "what the workflow's code does may only depend on its input and what it awaits"
    if not who.activity_id:
        return "the workflow's code runs again after a crash: do it in an activity"
    if trouble.applied is not None and trouble.applied.key is None:
        return "the receiver gets no key to know a repeat by: give it activity.idempotency_key()"
    if trouble.is_renamed:
        return (
            "the activity has another id after a crash, and so another key: what the workflow's "
            "code does may only depend on its input and what it awaits"
        )
    if kills == {Killed.WORKER}:
        return "the key follows the attempt's number: use activity.idempotency_key()"
    return "the key is made anew by every attempt: use activity.idempotency_key()"
