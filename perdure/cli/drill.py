"""`perdure drill`: hurt a real node on purpose, and prove that nothing was lost and nothing done
twice.
"""

from __future__ import annotations

import secrets
import signal
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from perdure.cli import output
from perdure.cli.options import SEED_MAX, AsJson, Commands, finite

if TYPE_CHECKING:
    from chaos.drill_kit import Drill, Options, Report

app = typer.Typer(
    cls=Commands,
    help="Chaos drills: kill a real node again and again, and count what came of it.",
    epilog="\b\nExample:\n  perdure drill run flaky --seed 7",
    no_args_is_help=True,
    rich_markup_mode=None,
)
WORKFLOWS_MAX = 10_000
BLOWS_MAX = 10_000
MINUTES_MAX = 1_440
DEPTH_MAX = 3
LIST_COLUMNS = 100
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=MINUTES_MAX,
        callback=finite,
        metavar="N",
        help="A soak: work and kills so long.",
    ),
]


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
    indent = " " * (2 + max(map(len, DRILLS)))
    for each in DRILLS.values():
        for head, text in (
            (each.name.ljust(len(indent)), each.does),
            (indent, f"proves nothing when {each.inconclusive}"),
        ):
            lines = textwrap.wrap(text, LIST_COLUMNS, initial_indent=head, subsequent_indent=indent)
            output.say("\n".join(lines))
    output.say()
    output.say("perdure drill run NAME runs one; docs/drills.md says what each does.")


@app.command(epilog="\b\nExample:\n  perdure drill run flaky --kills 20 --report reports")
def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="See `perdure drill list`.")],
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=SEED_MAX, metavar="N", help="Repeats a run's plan; else random."),
    ] = None,
    workflows: Annotated[
        int | None, typer.Option(min=1, max=WORKFLOWS_MAX, metavar="N", help="How many to run.")
    ] = None,
    kills: Annotated[
        int | None, typer.Option(min=0, max=BLOWS_MAX, metavar="N", help="SIGKILLs of one process.")
    ] = None,
    server_restarts: Annotated[
        int | None,
        typer.Option(min=0, max=BLOWS_MAX, metavar="N", help="SIGKILLs of the whole node."),
    ] = None,
    minutes: Minutes = None,
    depth: Annotated[
        int | None, typer.Option(min=1, max=DEPTH_MAX, metavar="N", help="Faults in one run.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write report.json, report.html, timeline.svg there."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run one drill. Exit code 0: proved; 1: violated; 3: inconclusive, its own faults did not
    bite.
    """
    from chaos.drill_kit import EXIT_CODES, pages, perform

    drill = _drill(name)
    given = {
        "seed": seed,
        "workflows": workflows,
        "kills": kills,
        "server_restarts": server_restarts,
        "minutes": minutes,
        "depth": depth,
    }
    options = _options(drill, {key: value for key, value in given.items() if value is not None})
    _make(report)
    # Whatever ends us, the node that we started is stopped on the way out.
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    with output.reported():
        found = perform(drill, options, keep=report and report / "kept")
    paths = [] if report is None else pages.write(found, report)
    if as_json:
        output.emit(found.report)
    else:
        _show(found.report, drill)
    for path in paths:
        output.note(f"report: {path}")
    raise typer.Exit(EXIT_CODES[found.report.verdict])


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


def _options(drill: Drill, given: dict[str, Any]) -> Options:
    """The drill's defaults and what was given; what means nothing to it is refused, not ignored."""
    for option in given.keys() - {"seed", *drill.takes}:
        flag = option.replace("_", "-")
        takes = ", ".join(f"--{each.replace('_', '-')}" for each in ("seed", *drill.takes))
        raise typer.BadParameter(f"the drill {drill.name} has no --{flag}; it takes {takes}")
    given.setdefault("seed", secrets.randbelow(1_000_000))
    return drill.options(given)


def _make(report: Path | None) -> None:
    """The directory of the report, before anything is done for it."""
    try:
        if report is not None:
            report.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        text = f"--report: cannot write in {report}: {problem.strerror}"
        raise output.fail(text, output.USAGE) from None


def _show(report: Report, drill: Drill) -> None:
    from chaos.drill_kit import words

    rows = [
        (name, output.coloured(value) if name == "verdict" else value)
        for name, value in words.rows(report, drill.recovery)
    ]
    output.say()
    output.show(output.table(("", ""), rows))
    for violation in report.violations:
        output.note(f"violated: {violation}")
    if report.verdict == "inconclusive":
        output.note(f"inconclusive: {drill.inconclusive}")
