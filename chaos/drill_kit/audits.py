"""The end of every drill: the independent auditor reads the store of each node, with the ledgers of
its loads and what the drill's clients heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chaos.auditor import AuditReport, NoStore, audit_data_dir
from chaos.drill_kit.report import Audit, Operations

if TYPE_CHECKING:
    from chaos.drill_kit.arena import Arena

SHOWN_MAX = 3


def audit_all(arena: Arena) -> list[AuditReport]:
    """A report for each node that was ever started, beside those that the drill made itself."""
    reports = list(arena.audits)
    for node in arena.nodes:
        if not node.starts:
            continue
        ledgers = [
            load.ledger_path
            for load in arena.loads
            if load.node is node and load.ledger_path.exists()
        ]
        try:
            reports.append(
                audit_data_dir(
                    node.data, ledgers, arena.histories(node), settled=not arena.violations
                )
            )
        except (NoStore, OSError, ValueError) as error:
            arena.violate(f"the auditor could not read {node.data.parent.name}: {error}")
    return reports


def totals(reports: Sequence[AuditReport]) -> Audit:
    """What was read, over all stores."""
    return Audit(
        stores=len(reports),
        commits=sum(each.commits for each in reports),
        records=sum(each.records for each in reports),
        violations=sum(sum(each.found.values()) for each in reports),
    )


def operations(reports: Sequence[AuditReport]) -> Operations:
    """What clients were answered, over all stores."""
    return Operations(
        ok=sum(each.operations.ok for each in reports),
        refused=sum(each.operations.refused for each in reports),
        unknown=sum(each.operations.unknown for each in reports),
    )


def violations(reports: Sequence[AuditReport]) -> list[str]:
    """The first of what the auditor found of each invariant, and how much more, as sentences."""
    shown = []
    for number in sorted({number for each in reports for number in each.found}):
        found = [it for each in reports for it in each.violations if it.invariant == number]
        count = sum(each.found.get(number, 0) for each in reports)
        first = found[:SHOWN_MAX]
        shown += [f"invariant {it.invariant} at {it.where}: {it.what}" for it in first]
        if count > len(first):
            shown.append(f"invariant {number}: {count - len(first)} more violations")
    return shown
