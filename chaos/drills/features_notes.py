"""What the people of the drill `features` did and were told, and what of it must hold. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

EXAMPLES = 3


class Stall(msgspec.Struct):
    """A stall's customer: the signals and orders that were acknowledged, and its end.

    `answers` are those of the orders, `again` what the same orders were answered once more.
    """

    workflow_id: str
    signals: list[int] = []
    answers: dict[int, Any] = {}
    again: dict[int, Any] = {}
    result: Mapping[str, Sequence[int]] | None = None
    runs: int = 1


class Pause(msgspec.Struct, frozen=True):
    """Wall time from when something was paused, as history says, to when it was to go on again."""

    since_ms: int
    until_ms: int


class Bell(msgspec.Struct, frozen=True):
    """One run of a schedule: when it was due, and when it was started."""

    workflow_id: str
    due_ms: int
    started_ms: int


class Row(msgspec.Struct, frozen=True):
    """What was written to the outbox for one workflow, in one transaction."""

    workflow_id: str
    committed: bool


def check_stall(stall: Stall) -> list[str]:
    """Each acknowledged signal is seen once and in order, each order is done once, and has one
    answer.
    """
    name, result = stall.workflow_id, stall.result
    if result is None:
        return [f"{name} has no result"]
    found = []
    if list(result["heard"]) != stall.signals:
        wrong = _differences(stall.signals, result["heard"])
        found.append(f"{name}: of the acknowledged signals, in order, {wrong}")
    if sorted(result["orders"]) != sorted(stall.answers):
        wrong = _differences(sorted(stall.answers), result["orders"])
        found.append(f"{name}: of the acknowledged updates {wrong}")
    other = [number for number, it in stall.again.items() if it != stall.answers[number]]
    if other:
        found.append(f"{name}: asked again, updates {_some(other)} have another answer")
    return found


def _differences(wanted: Sequence[int], seen: Sequence[int]) -> str:
    times = Counter(seen)
    lost = [number for number in wanted if not times[number]]
    doubled = [number for number, count in times.items() if count > 1]
    besides = [number for number in times if number not in wanted]
    parts = [
        f"{_some(numbers)} {what}"
        for what, numbers in (("lost", lost), ("doubled", doubled), ("not asked for", besides))
        if numbers
    ]
    return ", ".join(parts) or f"the order is {_some(seen)}"


def check_bells(
    every_ms: int,
    bells: Sequence[Bell],
    *,
    whole: tuple[int, int] | None = None,
    pauses: Sequence[Pause] = (),
) -> list[str]:
    """No time has two runs, and none is started before its time or due in a pause. `whole`: each
    time that was due in this span has a run.
    """
    found = []
    runs = Counter(bell.due_ms for bell in bells)
    if whole is not None:
        first_ms, last_ms = whole
        due = range(-(-first_ms // every_ms) * every_ms, last_ms + 1, every_ms)
        if missing := [at_ms for at_ms in due if not runs[at_ms]]:
            found.append(f"the runs due at {_some(missing)} were never started")
    if doubled := [at_ms for at_ms, count in runs.items() if count > 1]:
        found.append(f"more than one run was started for {_some(doubled)}")
    if early := [bell.workflow_id for bell in bells if bell.started_ms < bell.due_ms]:
        found.append(f"started before their time: {_some(early)}")
    paused = [
        bell.workflow_id
        for bell in bells
        if any(it.since_ms < bell.due_ms < it.until_ms for it in pauses)
    ]
    if paused:
        found.append(f"due while the schedule was paused: {_some(paused)}")
    return found


def check_rows(rows: Iterable[Row], started: Mapping[str, str]) -> list[str]:
    """Each committed row is a workflow that completed; of a transaction that was rolled back there
    is none. `started`: the status of those that there are.
    """
    rows, found = list(rows), []
    kept = [row.workflow_id for row in rows if row.committed]
    undone = [row.workflow_id for row in rows if not row.committed]
    if lost := [name for name in kept if started.get(name) != "Completed"]:
        found.append(f"committed to the outbox, and not completed: {_some(lost)}")
    if phantoms := [name for name in undone if name in started]:
        found.append(f"rolled back, and started all the same: {_some(phantoms)}")
    return found


def check_gates(pauses: Sequence[Pause], started_ms: Mapping[str, Sequence[int]]) -> list[str]:
    """No attempt of what was paused was begun meanwhile. `started_ms`: by workflow."""
    found = [
        name
        for name, instants in started_ms.items()
        if any(it.since_ms < at_ms < it.until_ms for at_ms in instants for it in pauses)
    ]
    return [f"begun while its type was paused: {_some(found)}"] if found else []


def check_hands(
    results: Mapping[str, Sequence[Any]], offered: Mapping[str, Sequence[Any]]
) -> list[str]:
    """What was completed by hand was completed once, with what somebody said. Both by key."""
    found = []
    if wrong := [key for key, them in results.items() if len(them) != 1]:
        found.append(f"not completed once by hand: {_some(wrong)}")
    strange = [key for key, them in results.items() if not set(them) <= set(offered.get(key, ()))]
    if strange:
        found.append(f"completed with what nobody reported: {_some(strange)}")
    return found


def _some(items: Sequence[Any]) -> str:
    shown = ", ".join(map(str, items[:EXAMPLES]))
    return shown + (f" and {len(items) - EXAMPLES} more" if len(items) > EXAMPLES else "")
