"""Runs a drill from its scratch directory to its report."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from chaos.auditor import AuditReport
from chaos.drill_kit import timeline
from chaos.drill_kit.arena import Arena
from chaos.drill_kit.audits import audit_all, operations, totals
from chaos.drill_kit.audits import violations as audit_violations
from chaos.drill_kit.base import Drill, Options
from chaos.drill_kit.report import Report, spread, verdict
from chaos.drill_kit.spreads import Measured
from chaos.harness import NodeTrouble
from chaos.history_audit import Counts
from perdure.clock import boottime_ms
from perdure.errors import PerdureError

SIGKILL = "SIGKILL"


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a drill: the report, and what a picture of it needs."""

    report: Report
    drill: Drill
    options: Options
    timeline: timeline.Timeline
    spreads: tuple[Measured, ...] = ()


def perform(
    drill: Drill, options: Options, *, live: bool | None = None, keep: Path | None = None
) -> Performance:
    """Runs the drill. Nothing is left running, and no file.

    `live`: a display that changes in place, by default where standard error is a terminal. `keep`:
    a directory where stores, ledgers and logs go if something was violated.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perdure-drill-") as scratch:
        arena = Arena(options, Path(scratch), name=drill.name, live=live)
        with arena.progress:
            try:
                found = _perform(drill, arena, began)
            finally:
                arena.close()
            if keep is not None and found.report.violations:
                _keep(Path(scratch), keep)
            return found


def _perform(drill: Drill, arena: Arena, began: float) -> Performance:
    bit, counted = False, []
    try:
        bit = drill.run(arena)
        counted = [load.counts() for load in arena.loads]
    except NodeTrouble as trouble:
        arena.violate(str(trouble))
    except PerdureError as error:
        arena.violate(f"the node could not be asked: {error.code}: {error.message}")
    seen = _timeline(arena)
    arena.close()
    audits = audit_all(arena)
    took_ms = int((time.monotonic() - began) * 1_000)
    report = judge(drill.name, arena, counted, audits, bit=bit, took_ms=took_ms)
    arena.say(str(report.verdict))
    return Performance(
        report=report,
        drill=drill,
        options=arena.options,
        timeline=seen,
        spreads=tuple(arena.spreads),
    )


def judge(
    name: str,
    arena: Arena,
    counted: Sequence[Counts],
    audits: Sequence[AuditReport],
    *,
    bit: bool,
    took_ms: int,
) -> Report:
    """The counts and the verdict."""
    counted, loads = [*counted, *arena.counted], arena.loads
    violations = (
        *arena.violations,
        *(text for each in counted for text in each.violations),
        *audit_violations(audits),
    )
    kills = [fault for fault in arena.faults if fault.kind == SIGKILL]
    return Report(
        drill=name,
        seed=arena.options.seed,
        verdict=verdict(violations=violations, bit=bit),
        workflows=arena.workflows + sum(len(load.ids) for load in loads),
        completed=arena.completed + sum(load.completed for load in loads),
        keys=sum(each.keys for each in counted),
        applied_once=sum(each.applied_once for each in counted),
        delivered_more_than_once=sum(each.delivered_more_than_once for each in counted),
        lost=sum(each.lost for each in counted),
        doubled=sum(each.doubled for each in counted),
        kills=sum(1 for fault in kills if fault.target != timeline.NODE),
        server_restarts=sum(1 for fault in kills if fault.target == timeline.NODE),
        stale_refused=sum(load.stale_refused for load in loads),
        recovery_ms=spread(arena.recoveries_ms),
        violations=violations,
        redelivered_by_kills=sum(load.redelivered for load in loads),
        attempts=sum(len(load.runs) for load in loads),
        audited_effects=sum(each.effects for each in audits),
        operations=operations(audits),
        audit=totals(audits),
        faults_fired=dict(sorted(arena.faults_by_kind.items())),
        figures=arena.figures,
        took_ms=took_ms,
    )


def _timeline(arena: Arena) -> timeline.Timeline:
    attempts, effects = list(arena.attempts), list(arena.effects)
    for load in arena.loads:
        runs = load.ledger.runs()
        attempts += timeline.attempts(runs, arena.faults, arena.roles)
        effects += timeline.applications(runs, load.ledger.effects())
    return timeline.Timeline(
        began_ms=arena.began_ms,
        ended_ms=boottime_ms(),
        faults=tuple(arena.faults),
        attempts=tuple(attempts),
        effects=tuple(sorted(effects, key=lambda it: it.at_ms)),
        events=tuple(arena.events),
    )


def _keep(scratch: Path, keep: Path) -> None:
    """Copies what an inquiry needs; sockets cannot be copied, and are of no use."""

    def skipped(directory: str, names: list[str]) -> set[str]:
        return {n for n in names if (p := Path(directory) / n).is_socket() or p.name == "run"}

    shutil.copytree(scratch, keep, ignore=skipped, dirs_exist_ok=True)
