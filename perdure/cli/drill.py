"""`perdure drill`: hurt a real node on purpose, and prove that nothing was lost and nothing done
twice.
"""

from __future__ import annotations

import secrets
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from perdure.cli import output
from perdure.cli.options import AsJson

if TYPE_CHECKING:
    from chaos.drills import Drill
    from chaos.report import Report

app = typer.Typer(
    help="Chaos drills: kill a real node again and again, and count what came of it.",
    epilog="\b\nExample:\n  perdure drill run flaky --seed 7",
    no_args_is_help=True,
    rich_markup_mode=None,
)
WORKFLOWS_MAX = 10_000
BLOWS_MAX = 1_000


@app.command("list", epilog="\b\nExample:\n  perdure drill list")
def list_(as_json: AsJson = False) -> None:
    """List the drills."""
    from chaos.drills import DRILLS

    if as_json:
        output.emit(
            [
                {"name": each.name, "does": each.does, "inconclusive": each.inconclusive}
                for each in DRILLS.values()
            ]
        )
        return
    rows = [(each.name, each.does, each.inconclusive) for each in DRILLS.values()]
    output.show(output.table(("NAME", "DOES", "INCONCLUSIVE WHEN"), rows))


@app.command(epilog="\b\nExample:\n  perdure drill run flaky --kills 20 --report reports")
def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="See `perdure drill list`.")],
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Repeats a run's plan; else random.")
    ] = None,
    workflows: Annotated[
        int | None, typer.Option(min=1, max=WORKFLOWS_MAX, metavar="N", help="How many to run.")
    ] = None,
    kills: Annotated[
        int | None, typer.Option(min=0, max=BLOWS_MAX, metavar="N", help="SIGKILLs of one worker.")
    ] = None,
    server_restarts: Annotated[
        int | None,
        typer.Option(min=0, max=BLOWS_MAX, metavar="N", help="SIGKILLs of the whole node."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write report and evidence there, as JSON.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run one drill. Exit code 0: proved; 1: violated; 3: inconclusive, its own faults did not
    bite.
    """
    import msgspec

    from chaos import report as reports
    from chaos.harness import NodeTrouble

    drill = _drill(name)
    given = {
        "seed": seed if seed is not None else secrets.randbelow(1_000_000),
        "workflows": workflows,
        "kills": kills,
        "server_restarts": server_restarts,
    }
    wanted = {key: value for key, value in given.items() if value is not None}
    options = msgspec.structs.replace(drill.defaults, **wanted)
    # Whatever ends us, the node that we started is stopped on the way out.
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        with output.reported():
            found, evidence = drill.run(options)
    except NodeTrouble as trouble:
        head, *log = str(trouble).splitlines()
        error = output.fail(head, output.FAILED)
        for line in log:
            output.note(line)
        raise error from None
    path = None if report is None else reports.write(found, report, evidence)
    if as_json:
        output.emit(found)
    else:
        _show(found, drill)
    if path is not None:
        output.note(f"report: {path}")
    raise typer.Exit(reports.EXIT_CODES[found.verdict])


def _interrupt(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _drill(name: str) -> Drill:
    from chaos.drills import DRILLS
    from perdure.config import nearest

    if name in DRILLS:
        return DRILLS[name]
    near = nearest(name, DRILLS)
    hint = f"did you mean {near}?" if near else f"known: {', '.join(DRILLS)}"
    raise typer.BadParameter(f"there is no drill {name!r}; {hint}")


def _show(report: Report, drill: Drill) -> None:
    recovery = report.recovery_ms
    median, longest = (
        "-" if each is None else output.duration(each) for each in (recovery.median, recovery.max)
    )
    rows = [
        ("workflows completed", f"{report.completed} of {report.workflows}"),
        ("activities completed in history", report.keys),
        ("  their effect applied exactly once", report.applied_once),
        ("  their effect asked for more than once", report.delivered_more_than_once),
        ("  lost", report.lost),
        ("  doubled", report.doubled),
        ("workers killed", report.kills),
        ("nodes killed and restarted", report.server_restarts),
        ("attempts cut off by a kill and run again", report.redelivered_by_kills),
        ("reports of dead attempts refused", report.stale_refused),
        ("from a worker's kill to the next attempt", f"median {median}, longest {longest}"),
        ("took", output.duration(report.took_ms)),
        ("seed", report.seed),
        ("verdict", output.coloured(report.verdict)),
    ]
    output.say()
    output.show(output.table(("", ""), rows))
    for violation in report.violations:
        output.note(f"violated: {violation}")
    if report.verdict == "inconclusive":
        output.note(f"inconclusive: {drill.inconclusive}")
