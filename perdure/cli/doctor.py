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
        typer.Option(metavar="FILE", help="What clients were told, or an outbox; repeat for more."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Audit a store, also of a running node: every invariant that data can show, by number.

    Exit code 0: clean; 1: something is violated; 2: a file is no ledger or no
    history; 5: there is no store, or no such file.
    """
    from chaos.auditor import NoStore, audit_data_dir

    ledgers, histories = ledger or [], history or []
    try:
        report = audit_data_dir(data, ledgers, histories, pages=True)
    except NoStore as problem:
        raise output.fail(str(problem), output.NOT_FOUND) from None
    except FileNotFoundError as problem:
        raise output.fail(str(problem), output.NOT_FOUND) from None
    except (OSError, ValueError) as problem:
        raise output.fail(str(problem), output.USAGE) from None
    sources = _sources(has_ledger=bool(ledgers), has_history=bool(histories))
    view = _view(report, data, sources)
    if as_json:
        output.emit(view)
    else:
        _show(report, view, sources)
    raise typer.Exit(output.OK if report.is_clean else output.FAILED)


def _view(report: AuditReport, data: Path, sources: frozenset[str]) -> dict[str, Any]:
    import msgspec

    from chaos.auditor import COVERAGE
    from chaos.auditor.coverage import left_out, looked_at

    view: dict[str, Any] = msgspec.to_builtins(report, str_keys=True)
    view["violations"] = [
        {"name": COVERAGE[each["invariant"]].name, **each} for each in view["violations"]
    ]
    return {
        "clean": report.is_clean,
        "data": str(data),
        **view,
        "records_per_s": report.records * 1_000 // max(1, report.took_ms),
        "looked_at": looked_at(sources),
        "not_looked_at": {str(number): why for number, why in left_out(sources).items()},
    }


def _sources(*, has_ledger: bool, has_history: bool) -> frozenset[str]:
    from chaos.auditor.coverage import HISTORY, LEDGER, LOG, TABLES

    given = {LEDGER: has_ledger, HISTORY: has_history}
    return frozenset({LOG, TABLES} | {source for source, has in given.items() if has})


def _show(report: AuditReport, view: dict[str, Any], sources: frozenset[str]) -> None:
    from chaos.auditor.coverage import NO_HISTORY, NO_LEDGER, grouped, ranges

    heard, number, counted = report.operations, output.number, output.counted
    span = f"{report.base_n + 1} to {report.last_n}"
    attempts = counted(report.attempts, "attempt")
    rows: list[tuple[str, Any]] = [
        ("store", view["data"]),
        ("commits", f"{number(report.commits)} ({span}), {counted(report.epochs, 'epoch')}"),
        ("records", f"{number(report.records)}, {number(view['records_per_s'])} a second"),
        ("workflows", f"{number(report.workflows)}, {number(report.open_workflows)} open"),
        (
            "activities",
            f"{number(report.activities)}, {attempts}, {number(report.dead_letters)} dead",
        ),
        ("events compared", number(report.events_compared)),
    ]
    if report.deliveries or NO_LEDGER not in report.not_checked:
        asked = report.deliveries
        asks = f"asked for {number(asked)} time{'' if asked == 1 else 's'}"
        rows.append(("effects", f"{number(report.effects)}, {asks}"))
    if NO_HISTORY not in report.not_checked:
        said = f"{number(heard.ok)} ok, {number(heard.refused)} refused"
        rows.append(("client operations", f"{said}, {number(heard.unknown)} unknown"))
    rows.append(("invariants looked at", ranges(view["looked_at"])))
    left = grouped(sources)
    rows += [("" if at else "not looked at", line) for at, line in enumerate(left)]
    rows += [
        ("took", output.duration(report.took_ms)),
        ("verdict", output.coloured("clean" if report.is_clean else "violated")),
    ]
    output.show(output.table(("", ""), rows))
    for note in report.not_checked:
        if note not in (NO_LEDGER, NO_HISTORY):  # The table has said so.
            output.note(f"not checked: {note}")
    for invariant, count in report.found.items():
        kept = [one for one in report.violations if one.invariant == invariant][:SHOWN_MAX]
        for violation in kept:
            output.note(f"violated: {violation}")
        if count > len(kept):
            output.note(f"violated: invariant {invariant}, {number(count - len(kept))} more")
