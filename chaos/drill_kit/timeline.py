"""What happened when: the data of a report's picture. Instants are boot time in milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chaos.ledger_audit import Effect, Run

NODE = "node"


class Fault(msgspec.Struct, kw_only=True):
    """A fault that was done: a `kind`, as in a sentence ("SIGKILL"), and what it hit.

    `target` is a role ("history", "worker-1"), "node" for all of it, or a word of the drill's.
    `until_ms`: when it was over, where it lasted. `pids`: the processes that it ended.
    """

    kind: str
    target: str
    at_ms: int
    until_ms: int | None = None
    pids: tuple[int, ...] = ()
    note: str = ""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an activity. `ending`: "returned", "failed", "killed", or "open" at the end."""

    lane: str
    label: str
    began_ms: int
    ended_ms: int | None
    ending: str


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """An effect as it was asked for: `first` where it was applied, else it was ignored."""

    at_ms: int
    label: str
    first: bool


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A line of what the drill said while it ran."""

    at_ms: int
    text: str


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the picture shows."""

    began_ms: int
    ended_ms: int
    faults: tuple[Fault, ...]
    attempts: tuple[Attempt, ...]
    effects: tuple[Applied, ...]
    events: tuple[Event, ...]


def attempts(
    runs: Iterable[Run], faults: Sequence[Fault], roles: Mapping[int, str]
) -> list[Attempt]:
    """The runs of a ledger as attempts; one that its process did not survive ends at its kill."""
    killed_ms = {pid: fault.at_ms for fault in faults for pid in fault.pids}
    return [_attempt(run, killed_ms.get(run.pid), roles) for run in runs]


def _attempt(run: Run, killed_ms: int | None, roles: Mapping[int, str]) -> Attempt:
    if run.ending is not None:
        ending = "returned" if run.ending == "returned" else "failed"
    else:
        ending = "open" if killed_ms is None else "killed"
    return Attempt(
        lane=roles.get(run.pid, f"pid {run.pid}"),
        label=f"{run.key} #{run.attempt}: {run.ending or ending}",
        began_ms=run.began_ms,
        ended_ms=run.ended_ms if run.ending is not None else killed_ms,
        ending=ending,
    )


def applications(runs: Iterable[Run], effects: Iterable[Effect]) -> list[Applied]:
    """When each effect was asked for, and whether it was applied then."""
    due = {(effect.key, effect.attempt) for effect in effects}
    runs, found = list(runs), []
    for run in runs:
        if run.applied_ms is not None:
            which = (run.key, run.attempt)
            label = f"{run.key} #{run.attempt}"
            found.append(Applied(at_ms=run.applied_ms, label=label, first=which in due))
            due.discard(which)
    # What was killed between its effect and the note of it: the begin is all that is known.
    for run in runs:
        if (run.key, run.attempt) in due:
            due.discard((run.key, run.attempt))
            label = f"{run.key} #{run.attempt}"
            found.append(Applied(at_ms=run.began_ms, label=label, first=True))
    return sorted(found, key=lambda it: it.at_ms)
