"""The drill `outage`: something that a thousand activities call goes down for all of them at one
instant.

Full jitter promises that the next calls spread evenly over the whole backoff, so that what comes
back is not struck down by everybody at once. The drawn delays and the leases of the second attempts
(from the log), and their starts (from the ledger) are held against that by the test of Kolmogorov
and Smirnov. Of a machine so busy that its processes start a second late the starts prove nothing:
then they are shown, not judged.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from chaos.auditor.findings import Findings
from chaos.auditor.names import KINDS
from chaos.auditor.sqlite import SqliteStore
from chaos.drill_kit import Arena, Drill, Load, Options, Spread, Start, spread
from chaos.drill_kit.kills import TICK_S, bring_up
from chaos.drill_kit.kolmogorov import evenly
from chaos.drill_kit.spreads import Measured
from chaos.harness import NodeProcess
from chaos.ledger_audit import Run
from perdure.clock import boottime_ms

CALLS = 100  # Of one workflow.
INITIAL_MS = 10_000
BEFORE_MS = 8_000
DOWN_MS = 3_000
AT_ONCE_MS = 3_000
TOGETHER_MIN = 0.9
P_MIN = 1e-4
BUSY_SHARE = 0.02
MEASURED_MIN = 200


def run(arena: Arena) -> bool:
    """Whether enough calls failed together, and were tried again."""
    count = arena.options.workflows * CALLS
    node = arena.node(apps=("chaos.workload",), slots=count, only_ours=True)
    bring_up(arena, node)
    down_at_ms = boottime_ms() + BEFORE_MS
    arguments = {
        "count": CALLS,
        "down_at_ms": down_at_ms,
        "up_at_ms": down_at_ms + DOWN_MS,
        "initial_ms": INITIAL_MS,
    }
    load = arena.load(node, Start(type="Calls", arguments=arguments, effects=CALLS))
    load.submit()
    while boottime_ms() < down_at_ms:
        load.look()
        time.sleep(TICK_S * 5)
    fault = arena.fault("outage", "dependency", at_ms=down_at_ms)
    fault.until_ms = down_at_ms + DOWN_MS
    arena.say(f"{len(load.runs)} calls fail at once")
    while not load.done() and not arena.over():
        load.look()
        time.sleep(TICK_S * 5)
    load.await_end()
    return _measure(arena, node, load, down_at_ms)


class Retry(msgspec.Struct, kw_only=True):
    """The second attempt of a call. Instants by the clock of the log: when the first failed, and
    when the second was due, was given to a worker, and began by the ledger.
    """

    delay_ms: int
    failed_ms: int
    due_ms: int
    given_ms: int | None = None
    began_ms: int | None = None


def _measure(arena: Arena, node: NodeProcess, load: Load, down_at_ms: int) -> bool:
    runs = load.ledger.runs()
    failed = [run.ended_ms for run in runs if run.attempt == 1 and run.ended_ms is not None]
    together = sum(1 for at_ms in failed if down_at_ms <= at_ms < down_at_ms + AT_ONCE_MS)
    arena.figures["calls that failed together"] = together
    retries = list(_retries(node, runs).values())
    begun = [it for it in retries if it.began_ms is not None and it.given_ms is not None]
    if len(begun) < MEASURED_MIN:
        return False
    given = spread([(it.given_ms or 0) - it.due_ms for it in begun])
    began = spread([(it.began_ms or 0) - it.due_ms for it in begun])
    arena.figures["given to a worker after it was due by"] = _length(given)
    arena.figures["began after it was due by"] = _length(began)
    samples = {
        "drawn delays": [it.delay_ms for it in retries],
        "leases of retries": [(it.given_ms or 0) - it.failed_ms for it in begun],
        "starts of retries": [(it.began_ms or 0) - it.failed_ms for it in begun],
    }
    # The third depends on how soon the machine lets a process run.
    is_busy = (began.max or 0) - (given.max or 0) > BUSY_SHARE * INITIAL_MS
    for name, values in samples.items():
        _hold(arena, name, values, excused=is_busy and name == "starts of retries")
    return together >= TOGETHER_MIN * load.effects_wanted


def _hold(arena: Arena, name: str, values: list[int], *, excused: bool) -> None:
    """Holds values against an even spread; `excused`: a bad fit says nothing."""
    fit = evenly(values, 0, INITIAL_MS)
    judged = fit.p >= P_MIN or not excused
    text = f"{len(values)} values, distance {fit.distance:.4f}, p = {fit.p:.3g}"
    rule = f"Violated below {P_MIN:g}." if judged else "Not judged: the machine was too busy."
    arena.figures[name] = text if judged else f"{text}, not judged: the machine was too busy"
    if judged and fit.p < P_MIN:
        arena.violate(f"the {name} are not spread evenly over {INITIAL_MS} ms: p = {fit.p:.2g}")
    arena.spreads.append(
        Measured(
            title=f"{name[0].upper()}{name[1:]} after the outage",
            caption=f"{text} by the test of Kolmogorov and Smirnov. {rule}",
            axis="milliseconds after the failure",
            low=0,
            high=INITIAL_MS,
            values=tuple(float(value) for value in values),
        )
    )


def _length(found: Spread) -> str:
    return f"median {found.median} ms, longest {found.max} ms"


def _retries(node: NodeProcess, runs: list[Run]) -> dict[str, Retry]:
    """The second attempts by key, from the log of the node and the ledger."""
    found: dict[str, Retry] = {}
    given_ms: dict[tuple[str, int], int] = {}
    for workflow_id, kind, fields in _records(node):
        key = f"{workflow_id}/{fields.get('activity_id')}"
        if kind == "RetryScheduled" and fields["attempt"] == 1:
            found[key] = Retry(
                delay_ms=fields["delay_ms"], failed_ms=fields["at_ms"], due_ms=fields["due_ms"]
            )
        elif kind == "LeaseGranted":
            given_ms[key, fields["attempt"]] = fields["at_ms"]
    ahead_ms = clocks_apart(runs, given_ms)
    for run in runs:
        if run.attempt == 2 and run.key in found:
            found[run.key].given_ms = given_ms.get((run.key, 2))
            found[run.key].began_ms = run.began_ms - ahead_ms
    return found


def clocks_apart(runs: Sequence[Run], given_ms: Mapping[tuple[str, int], int]) -> int:
    """How far the ledger's clock is ahead of the log's: nothing begins before it was given, and
    the quickest of many began at once.
    """
    return min(
        (
            run.began_ms - given_ms[run.key, run.attempt]
            for run in runs
            if (run.key, run.attempt) in given_ms
        ),
        default=0,
    )


def _records(node: NodeProcess) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every record of the log: its workflow, its kind and its fields by name."""
    store = SqliteStore(node.data, Findings())
    try:
        for row in store.commits():
            for workflow_id, records in msgspec.msgpack.decode(row.body)[3]:
                for record in records:
                    kind = KINDS[record[0]]
                    yield workflow_id, kind.name, dict(zip(kind.fields, record[1:], strict=False))
    finally:
        store.close()


DRILL = Drill(
    name="outage",
    does="a thousand activities fail at one instant; their retries must spread as jitter promises",
    inconclusive="fewer than nine in ten calls failed together, or too few were tried again",
    run=run,
    defaults=Options(workflows=10),
    takes=("workflows",),
)
