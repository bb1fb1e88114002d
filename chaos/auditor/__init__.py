"""The independent auditor: is this store, with what receivers and clients saw, as it must be?

It shares no code with the engine's folds: it reads the log with statements and a decoder of its
own, keeps its own state of every workflow, and holds the store's tables, the ledgers of effects
and the histories of clients against it. One pass over the log; a store that can't be read is a
violation, never an exception.

    report = audit_data_dir(Path(".perdure"), ledgers=[Path("effects.db")])
    report = audit(rows, ReaderTables(reader), ledgers=[ledger], histories=[history])

For a run that goes on, `Auditor.feed` takes rows as they come, and `finish` does the rest. Which
invariant is checked how: chaos.auditor.coverage.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from chaos.auditor import histories as client_histories
from chaos.auditor import interactions, sqlite
from chaos.auditor import ledgers as effect_ledgers
from chaos.auditor.coverage import COVERAGE, NO_HISTORY, NO_LEDGER
from chaos.auditor.effects import LedgerCheck
from chaos.auditor.findings import AuditReport, Findings, Operations, Violation
from chaos.auditor.fold import Fold
from chaos.auditor.histories import Header, History, HistoryCheck, Operation
from chaos.auditor.ledgers import Delivery, Ledger
from chaos.auditor.log import Base, CommitRow, Log
from chaos.auditor.memory import ReaderTables
from chaos.auditor.source import Tables
from chaos.auditor.sqlite import LogRow, NoStore, SqliteStore
from chaos.auditor.state import DEAD
from chaos.auditor.tables import TableCheck

__all__ = [
    "COVERAGE",
    "AuditReport",
    "Auditor",
    "Base",
    "CommitRow",
    "Delivery",
    "Header",
    "History",
    "Ledger",
    "LogRow",
    "NoStore",
    "Operation",
    "ReaderTables",
    "Tables",
    "Violation",
    "audit",
    "audit_data_dir",
]


class Auditor:
    """One audit, commit by commit. `pruned_base`: after which commit the log begins."""

    def __init__(self, pruned_base: Base | None = None, *, found: Findings | None = None) -> None:
        self.found = found or Findings()
        base = pruned_base or Base()
        self._fold = Fold(self.found, base.n)
        self._log = Log(self.found, self._fold, base)

    def feed(self, row: CommitRow) -> None:
        """The next commit. What is wrong with it is in `found` at once."""
        self._log.feed(row)

    def seen(self, n: int, link: bytes, by: str) -> None:
        """`by` (a witness, a projection, a client) says that commit `n` was durable with the hash
        `link`. To be told before that commit is fed.
        """
        self._log.seen(n, link, by)

    def finish(
        self,
        tables: Tables | None = None,
        ledgers: Sequence[Ledger] = (),
        histories: Sequence[History] = (),
        *,
        key: bytes | None = None,
        rekeyed_ms: int = 0,
        settled: bool = False,
    ) -> AuditReport:
        """Compare the whole log with all else there is; may be called again after more rows.

        `key` is the store's, for tokens in ledgers; of those from before `rekeyed_ms` nothing is
        known. `settled`: faults have stopped, and the run
        was left alone until nothing moved, so what is still open must be waiting for an operator.
        """
        found, fold, log = self.found, self._fold, self._log
        log.lost()
        check = TableCheck(found, fold, log)
        present: set[str] = set()
        removed: set[str] = set()
        if tables is None:
            found.note("tables: none were given")
        else:
            check.run(tables)
            removed = check.removed
            if log.base.n:
                present = removed | {row.workflow_id for row in tables.executions()}
        if log.base.n:
            found.note(f"the log begins after commit {log.base.n}: what was before is not known")
        interactions.check_runs(fold, found.add)
        if fold.follow_ups:
            found.note(f"{fold.follow_ups} more records follow from what is violated")
        if fold.skipped:
            found.note(f"{fold.skipped} records are about activities that began before the log")
        by_ledger = LedgerCheck(found, fold, key, removed, rekeyed_ms)
        by_ledger.run(list(ledgers))
        if not ledgers:
            found.note(NO_LEDGER)
        operations = Operations()
        if histories:
            operations = HistoryCheck(found, fold, log.n, present).run(histories)
        else:
            found.note(NO_HISTORY)
        if settled:
            self._settled()
        return self._report(check, by_ledger, operations)

    # --- within ------------------------------------------------------------
    def _settled(self) -> None:
        for workflow in self._fold.workflows.values():
            if not workflow.is_open or workflow.is_tainted:
                continue
            activities = workflow.activities
            for activity_id, activity in activities.items():
                if activity.lease is not None:
                    where = f"{workflow.workflow_id}/{activity_id}"
                    text = f"grant {activity.grant} of {activity.lease[0]} is live for ever"
                    self.found.add(22, where, text)
            if not any(one.state == DEAD for one in activities.values()):
                text = "it is open, no dead letter holds it up, and nothing moves"
                self.found.add(37, workflow.workflow_id, text)

    def _report(
        self, check: TableCheck, by_ledger: LedgerCheck, operations: Operations
    ) -> AuditReport:
        fold, log = self._fold, self._log
        open_workflows = [one for one in fold.workflows.values() if one.is_open]
        dead = sum(one.state == DEAD for each in open_workflows for one in each.activities.values())
        return AuditReport(
            violations=tuple(self.found.kept),
            found=dict(sorted(self.found.count.items())),
            commits=log.commits,
            records=fold.records,
            epochs=len(log.openings),
            base_n=log.base.n,
            last_n=log.n,
            workflows=len(fold.workflows),
            open_workflows=len(open_workflows),
            activities=fold.scheduled,
            attempts=fold.attempts,
            dead_letters=dead,
            events_compared=check.events,
            deliveries=by_ledger.deliveries,
            effects=by_ledger.effects,
            operations=operations,
            not_checked=tuple(self.found.notes),
        )


def audit(
    log: Iterable[CommitRow],
    tables: Tables | None = None,
    ledgers: Sequence[Ledger] = (),
    histories: Sequence[History] = (),
    pruned_base: Base | None = None,
    *,
    key: bytes | None = None,
    settled: bool = False,
) -> AuditReport:
    """The verdict on a log and whatever else is given; see `Auditor.finish`."""
    auditor = Auditor(pruned_base)
    for row in log:
        auditor.feed(row)
    return auditor.finish(tables, ledgers, histories, key=key, settled=settled)


def audit_data_dir(
    path: Path,
    ledgers: Sequence[Path | Ledger] = (),
    histories: Sequence[Path | History] = (),
    *,
    settled: bool = False,
    pages: bool = False,
) -> AuditReport:
    """The verdict on the store in this directory, as of one instant; a node may go on with it.

    `pages`: have the database look at all its pages as well. NoStore where there is none; OSError
    and ValueError for a ledger or history that is none.
    """
    began = time.monotonic_ns()
    # Nothing here refers to itself in a circle, and a lot is kept: the collector would look through
    # it again and again, for nothing.
    collects = gc.isenabled()
    gc.disable()
    try:
        report = _audited(path, ledgers, histories, settled=settled, pages=pages)
    finally:
        if collects:
            gc.enable()
    took_ms = (time.monotonic_ns() - began) // 1_000_000
    return msgspec.structs.replace(report, took_ms=took_ms)


def _audited(
    path: Path,
    ledgers: Sequence[Path | Ledger],
    histories: Sequence[Path | History],
    *,
    settled: bool,
    pages: bool,
) -> AuditReport:
    found = Findings()
    # What was heard, and under which leases effects were asked for, stands in any later state of
    # the store; which effects completed activities had, in any later state of a ledger. So
    # histories come first, ledgers last, and how far they were at first is noted.
    heard = [
        client_histories.read(one, found) if isinstance(one, Path) else one for one in histories
    ]
    lengths = [effect_ledgers.length(one) if isinstance(one, Path) else None for one in ledgers]
    witness = sqlite.witness(path, found)
    store = SqliteStore(path, found)
    try:
        auditor = Auditor(store.base(), found=found)
        for n, link in witness:
            auditor.seen(n, link, "the witness")
        for row in store.commits():
            auditor.feed(row)
        store.look_around()
        if pages:
            store.check_pages()
        books = [
            effect_ledgers.read(one, found, leased=length) if isinstance(one, Path) else one
            for one, length in zip(ledgers, lengths, strict=True)
        ]
        return auditor.finish(
            store,
            books,
            heard,
            key=store.key(),
            rekeyed_ms=store.rekeyed_ms(),
            settled=settled,
        )
    finally:
        store.close()
