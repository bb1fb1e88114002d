"""A report in words: the verdict in a sentence, the counts as rows of a table."""

from __future__ import annotations

from typing import Any

from chaos.drill_kit.base import RECOVERY
from chaos.drill_kit.report import Report, Verdict


def rows(report: Report, recovery: str = RECOVERY) -> list[tuple[str, Any]]:
    """The counts that a person wants to see, in order; what a drill has nothing of is left out.

    `recovery`: what `report.recovery_ms` measures, in words.
    """
    kept: list[tuple[str, Any]] = []
    if report.workflows:
        kept += [
            ("workflows completed", f"{number(report.completed)} of {number(report.workflows)}"),
            ("activities completed in history", number(report.keys)),
            ("  their effect applied exactly once", number(report.applied_once)),
            (
                "  their effect asked for more than once",
                number(report.delivered_more_than_once),
            ),
            ("  lost", number(report.lost)),
            ("  doubled", number(report.doubled)),
            ("attempts", number(report.attempts)),
            ("  cut off by a kill and run again", number(report.redelivered_by_kills)),
            ("reports of dead attempts refused", number(report.stale_refused)),
        ]
    kept += [(f"faults: {kind}", number(count)) for kind, count in report.faults_fired.items()]
    if report.server_restarts:
        kept.append(("  of the whole node, and restarted", number(report.server_restarts)))
    if report.recovery_ms.median is not None and report.recovery_ms.max is not None:
        found = (
            f"median {length(report.recovery_ms.median)}, longest {length(report.recovery_ms.max)}"
        )
        kept.append((recovery, found))
    kept += [(name, shown(value)) for name, value in report.figures.items()]
    if (asked := report.operations).ok + asked.refused + asked.unknown:
        kept.append(("answers to the drill's clients", _answers(report)))
    if report.audit.stores:
        text = f"{number(report.audit.commits)} commits, {number(report.audit.records)} records"
        kept.append(("read by the auditor", text))
        if report.audited_effects:
            kept.append(("  effects held against them", number(report.audited_effects)))
        kept.append(("  violations of an invariant", number(report.audit.violations)))
    return [
        *kept,
        ("took", length(report.took_ms)),
        ("seed", str(report.seed)),
        ("verdict", str(report.verdict)),
    ]


def _answers(report: Report) -> str:
    """How often the drill's clients heard yes, no and nothing definite. For each dead attempt both
    a report and a heartbeat were sent, so that many refusals had to be.
    """
    asked, due = report.operations, 2 * report.stale_refused
    why = f" ({number(due)} as dead attempts must be)" if 0 < due <= asked.refused else ""
    refused = f"{number(asked.refused)} refused{why}"
    return f"{number(asked.ok)} ok, {refused}, {number(asked.unknown)} unknown"


def sentence(report: Report, inconclusive: str) -> str:
    """The verdict as one sentence. `inconclusive`: when the drill proves nothing."""
    match report.verdict:
        case Verdict.VIOLATED:
            count = len(report.violations)
            what = "One thing is" if count == 1 else f"{number(count)} things are"
            return f"{what} not as promised."
        case Verdict.INCONCLUSIVE:
            return f"This run proves nothing: {inconclusive}."
        case Verdict.PROVED if report.keys:
            twice = report.delivered_more_than_once
            again = f", although {number(twice)} were asked for more than once" if twice else ""
            return (
                f"Each of {number(report.keys)} activities completed, its effect applied exactly "
                f"once{again}."
            )
        case Verdict.PROVED:
            return "Everything was as promised."


def number(count: int) -> str:
    """1234567 as 1 234 567, with spaces that do not break."""
    return f"{count:,}".replace(",", "\u202f")


def shown(value: Any) -> str:
    """A figure of a drill's own as a person reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return number(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def length(length_ms: float) -> str:
    """A length for people: "850 ms", "12.5 s", "61 m 40 s"."""
    if length_ms < 1_000:
        return f"{int(length_ms)} ms"
    if length_ms < 120_000:
        return f"{length_ms / 1_000:.1f} s"
    minutes, rest_ms = divmod(int(length_ms), 60_000)
    return f"{minutes} m {rest_ms // 1_000} s"
