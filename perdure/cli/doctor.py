"""`perdure doctor`: is this store, with what receivers and clients saw, as it must be?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli import output
from perdure.cli.options import DATA_DEFAULT, AsJson

if TYPE_CHECKING:
    from chaos.auditor import AuditReport

SHOWN_MAX = 10  # Of one invariant; --json has more.
EPILOG = "\b\nExample:\n  perdure doctor --ledger .perdure/effects.db"


def add_to(app: typer.Typer) -> None:
    """The command, on the root of all commands."""
    app.command(epilog=EPILOG)(doctor)


def doctor(
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Where the state is kept.")
    ] = Path(DATA_DEFAULT),
    ledger: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A ledger of effects (SqliteEffects); repeat for more."),
    ] = None,
    history: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="What clients were told; repeat for more."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Audit a store, also of a running node: every invariant that data can show, by number.

    Exit code 0: clean; 1: something is violated; 2: a file is none; 5: there is no store.
    """
    from chaos.auditor import NoStore, audit_data_dir

    ledgers, histories = ledger or [], history or []
    try:
        report = audit_data_dir(data, ledgers, histories, pages=True)
    except NoStore as problem:
        raise output.fail(str(problem), output.NOT_FOUND) from None
    except (OSError, ValueError) as problem:
        raise output.fail(str(problem), output.USAGE) from None
    view = _view(report, data, has_ledger=bool(ledgers), has_history=bool(histories))
    if as_json:
        output.emit(view)
    else:
        _show(report, view)
    raise typer.Exit(output.OK if report.is_clean else output.FAILED)


def _view(
    report: AuditReport, data: Path, *, has_ledger: bool, has_history: bool
) -> dict[str, Any]:
    import msgspec

    from chaos.auditor import COVERAGE
    from chaos.auditor.coverage import HISTORY, LEDGER, LOG, TABLES, looked_at

    sources = {LOG, TABLES}
    sources |= {LEDGER} if has_ledger else set()
    sources |= {HISTORY} if has_history else set()
    looked = looked_at(frozenset(sources))
    view: dict[str, Any] = msgspec.to_builtins(report, str_keys=True)
    view["violations"] = [
        {"name": COVERAGE[each["invariant"]].name, **each} for each in view["violations"]
    ]
    return {
        "clean": report.is_clean,
        "data": str(data),
        **view,
        "records_per_s": report.records * 1_000 // max(1, report.took_ms),
        "looked_at": looked,
        "not_looked_at": {
            str(number): one.how for number, one in COVERAGE.items() if number not in looked
        },
    }


def _show(report: AuditReport, view: dict[str, Any]) -> None:
    from chaos.auditor.coverage import ranges

    heard = report.operations
    first = report.base_n + 1
    rows: list[tuple[str, Any]] = [
        ("store", view["data"]),
        ("commits", f"{report.commits:,} ({first} to {report.last_n}), {report.epochs} epochs"),
        ("records", f"{report.records:,}, {view['records_per_s']:,} a second"),
        ("workflows", f"{report.workflows:,}, {report.open_workflows:,} open"),
        (
            "activities",
            f"{report.activities:,}, {report.attempts:,} attempts, {report.dead_letters:,} dead",
        ),
        ("events compared", f"{report.events_compared:,}"),
        ("effects", f"{report.effects:,} in {report.deliveries:,} deliveries"),
        (
            "client operations",
            f"{heard.ok:,} ok, {heard.refused:,} refused, {heard.unknown:,} unknown",
        ),
        ("invariants looked at", ranges(view["looked_at"])),
        ("not looked at", ranges([int(number) for number in view["not_looked_at"]])),
        ("took", output.duration(report.took_ms)),
        ("verdict", output.coloured("clean" if report.is_clean else "violated")),
    ]
    output.show(output.table(("", ""), rows))
    for note in report.not_checked:
        output.note(f"not checked: {note}")
    for number, count in report.found.items():
        kept = [one for one in report.violations if one.invariant == number][:SHOWN_MAX]
        for violation in kept:
            output.note(f"violated: {violation}")
        if count > len(kept):
            output.note(f"violated: invariant {number}, {count - len(kept):,} more")
