"""The engine's evidence: what the durable history says was done, read through a client, and how it
is judged.

It shares no code with the engine's own folds: keys are built here anew, from the contract.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from chaos.ledger_audit import Effect, Run

EXAMPLES_MAX = 5


class Done(msgspec.Struct, frozen=True):
    """One activity that history says completed."""

    key: str
    attempt: int
    result: Any


class Told(msgspec.Struct, frozen=True):
    """What one workflow's history says."""

    workflow_id: str
    status: str
    scheduled: tuple[str, ...]
    done: tuple[Done, ...]
    result: Any
    parked: tuple[str, ...]


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of both sources."""

    keys: int
    applied_once: int
    delivered_more_than_once: int
    lost: int
    doubled: int
    violations: tuple[str, ...]


def key_of(workflow_id: str, activity_id: str, run: int = 1) -> str:
    """The idempotency key as the contract has it: "/", "%" and "#" inside an id are percent-
    encoded, and a later run says which it is.
    """
    of_run = f"#{run}" if run > 1 else ""
    return f"{_quoted(workflow_id)}{of_run}/{_quoted(activity_id)}"


def _quoted(part: str) -> str:
    for sign, code in (("%", "%25"), ("/", "%2F"), ("#", "%23")):
        part = part.replace(sign, code)
    return part


def read(workflow_id: str, events: Iterable[Mapping[str, Any]], run: int = 1) -> Told:
    """What the events of one run of a workflow say, taken as they come; those that an operator has
    taken back do not count.
    """
    counting: list[Mapping[str, Any]] = []
    for event in events:
        if event["kind"] == "WorkflowReset":
            counting = [it for it in counting if it["event_id"] <= event["to_event"]]
        counting.append(event)
    scheduled: list[str] = []
    done: list[Done] = []
    parked: list[str] = []
    status, result = "Running", None
    for event in counting:
        match event["kind"]:
            case "ActivityTaskScheduled":
                scheduled.append(key_of(workflow_id, event["activity_id"], run))
            case "ActivityTaskCompleted":
                key = key_of(workflow_id, event["activity_id"], run)
                done.append(Done(key, event["attempt"], event["result"]))
            case "ActivityDeadLettered":
                parked.append(key_of(workflow_id, event["activity_id"], run))
            case "WorkflowCompleted":
                status, result = "Completed", event["result"]
            case "WorkflowFailed":
                status = "Failed"
            case _:
                pass
    return Told(workflow_id, status, tuple(scheduled), tuple(done), result, tuple(parked))


def compare(
    told: Sequence[Told],
    effects: Sequence[Effect],
    runs: Sequence[Run],
    asked: Counter[str],
    *,
    parks: Collection[str] = (),
    by_hand: Collection[str] = (),
    returns_receipts: bool = True,
) -> Counts:
    """Holds history and ledger against each other; each disagreement is a violation.

    `parks`: the keys that may be parked. `by_hand`: those whose result an operator gave.
    `returns_receipts`: whether a workflow's result is the list of its activities' results.
    """
    scheduled = {key for each in told for key in each.scheduled}
    done = {it.key: it for each in told for it in each.done if it.key not in by_hand}
    applied: dict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        applied[effect.key].append(effect)
    lost = [key for key in done if not applied[key]]
    doubled = [key for key, found in applied.items() if len(found) > 1]
    once = [key for key in done if len(applied[key]) == 1]
    violations = [
        *_named("an activity completed in history without its effect in the ledger", lost),
        *_named("an effect was applied more than once", doubled),
        *_named(
            "the ledger has an effect that history never scheduled",
            [key for key, found in applied.items() if found and key not in scheduled],
        ),
        *_named(
            "an activity was parked",
            [key for each in told for key in each.parked if key not in parks],
        ),
        *_twice(told),
        *_receipts(told, applied, returns_receipts=returns_receipts),
        *_unseen(done, runs),
    ]
    return Counts(
        keys=len(done),
        applied_once=len(once),
        delivered_more_than_once=sum(1 for key in done if asked[key] > 1),
        lost=len(lost),
        doubled=len(doubled),
        violations=tuple(violations),
    )


def _twice(told: Sequence[Told]) -> list[str]:
    ends = Counter(it.key for each in told for it in each.done)
    return _named("an activity completed twice in history", [k for k, n in ends.items() if n > 1])


def _receipts(
    told: Sequence[Told], applied: Mapping[str, Sequence[Effect]], *, returns_receipts: bool
) -> list[str]:
    """What the workflow was given must be what the receiver noted at the first application."""
    wrong = []
    for each in told:
        for it in each.done:
            if applied[it.key] and it.result != applied[it.key][0].receipt:
                wrong.append(it.key)
        if returns_receipts and each.status == "Completed" and not _same(each):
            wrong.append(each.workflow_id)
    return _named("a result in history is not the receipt of the ledger", wrong)


def _same(told: Told) -> bool:
    """Whether the workflow's result is the list of its activities' results, in any order: those
    that ran side by side may have completed in another order than they were asked for.
    """
    results = told.result if isinstance(told.result, list) else [told.result]
    return sorted(map(repr, results)) == sorted(repr(it.result) for it in told.done)


def _unseen(done: Mapping[str, Done], runs: Sequence[Run]) -> list[str]:
    """Every attempt that history counts as completed was seen to return by the receiver."""
    returned = {(run.key, run.attempt) for run in runs if run.ending == "returned"}
    return _named(
        "history counts an attempt as completed that never returned",
        [it.key for it in done.values() if (it.key, it.attempt) not in returned],
    )


def _named(what: str, keys: Sequence[str]) -> list[str]:
    if not keys:
        return []
    shown = ", ".join(keys[:EXAMPLES_MAX])
    more = f" and {len(keys) - EXAMPLES_MAX} more" if len(keys) > EXAMPLES_MAX else ""
    return [f"{what}: {shown}{more}"]
