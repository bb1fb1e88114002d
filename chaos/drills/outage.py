"""The drill `outage`: something that a thousand activities call goes down for all of them at one
instant.

Full jitter promises that the next calls spread evenly over the whole backoff, so that what comes
back is not struck down by everybody at once. The drawn delays (from the log) and the starts of the
second attempts (from the ledger) are held against that by the test of Kolmogorov and Smirnov.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
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
from perdure.clock import boottime_ms

CALLS = 100  # Of one workflow.
INITIAL_MS = 8_000
BEFORE_MS = 8_000
DOWN_MS = 2_000
AT_ONCE_MS = 1_500
P_MIN = 1e-4
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


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """The second attempt of a call, by the log: how long it was to wait, and how much later than
    due it was given to a worker.
    """

    delay_ms: int
    late_ms: int | None = None


def _measure(arena: Arena, node: NodeProcess, load: Load, down_at_ms: int) -> bool:
    failed_ms: dict[str, int] = {}
    waits_ms: dict[str, int] = {}
    for run in load.ledger.runs():
        if run.attempt == 1 and run.ended_ms is not None and run.ended_ms >= down_at_ms:
            failed_ms[run.key] = run.ended_ms
        elif run.attempt == 2 and run.key in failed_ms:
            waits_ms[run.key] = run.began_ms - failed_ms[run.key]
    together = sum(1 for at_ms in failed_ms.values() if at_ms < down_at_ms + AT_ONCE_MS)
    arena.figures["calls that failed together"] = together
    retries = _retries(node)
    if not retries or len(waits_ms) < MEASURED_MIN:
        return False
    late = [waits_ms[key] - retry.delay_ms for key, retry in retries.items() if key in waits_ms]
    from_failure, from_due = (
        spread(late),
        spread([it.late_ms for it in retries.values() if it.late_ms]),
    )
    arena.figures["given to a worker after it was due by"] = _length(from_due)
    arena.figures["began after failure and drawn delay by"] = _length(from_failure)
    _hold(arena, "drawn delays", [it.delay_ms for it in retries.values()], 0)
    _hold(arena, "starts of retries", list(waits_ms.values()), from_failure.median or 0)
    return together >= 0.9 * load.effects_wanted


def _hold(arena: Arena, name: str, values: list[int], way_ms: int) -> None:
    """Holds values against an even spread; `way_ms` is what each of them takes on its way."""
    plain = evenly(values, 0, INITIAL_MS)
    fit = evenly([value - way_ms for value in values], 0, INITIAL_MS) if way_ms else plain
    text = f"{len(values)} values, distance {fit.distance:.4f}, p = {fit.p:.3g}"
    arena.figures[name] = text
    if fit.p < P_MIN:
        arena.violate(f"the {name} are not spread evenly over {INITIAL_MS} ms: p = {fit.p:.2g}")
    way = f", the median way of {way_ms} ms taken off (else p = {plain.p:.3g})" if way_ms else ""
    arena.spreads.append(
        Measured(
            title=f"{name[0].upper()}{name[1:]} after the outage",
            caption=f"{text} by the test of Kolmogorov and Smirnov{way}. Violated below {P_MIN:g}.",
            axis="milliseconds after the failure",
            low=0,
            high=INITIAL_MS,
            values=tuple(float(value) for value in values),
        )
    )


def _length(found: Spread) -> str:
    return f"median {found.median} ms, longest {found.max} ms"


def _retries(node: NodeProcess) -> dict[str, Retry]:
    """The second attempts, by key, from the log of the node."""
    found: dict[str, Retry] = {}
    due_ms: dict[str, int] = {}
    for workflow_id, kind, fields in _records(node):
        key = f"{workflow_id}/{fields.get('activity_id')}"
        if kind == "RetryScheduled" and fields["attempt"] == 1:
            found[key] = Retry(delay_ms=fields["delay_ms"])
            due_ms[key] = fields["due_ms"]
        elif kind == "LeaseGranted" and fields["attempt"] == 2 and key in found:
            late_ms = fields["at_ms"] - due_ms[key]
            found[key] = Retry(delay_ms=found[key].delay_ms, late_ms=late_ms)
    return found


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
