"""`perdure verify`: a workflow, run once for each point at which a process of it can die."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli import output
from perdure.cli.options import (
    FIELDS_KEY,
    SECONDS_MAX,
    AsJson,
    FieldsCommand,
    finite,
    merged_input,
)

if TYPE_CHECKING:
    from perdure.verifying.compare import Finding
    from perdure.verifying.explore import Limits, Verification
    from perdure.verifying.life import Plan

INCONCLUSIVE = 3
DEPTH_MAX = 2
SCHEDULES_DEFAULT = 10_000
TIMEOUT_S_DEFAULT = 10.0
PROGRESS_S = 0.2
EFFECTS_SHOWN = 5


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this noun."""
    app.command(
        cls=FieldsCommand,
        epilog="\b\nExamples:\n  perdure verify shop:checkout --input '[\"o-42\"]'\n"
        "  perdure verify shop --order o-42 --depth 2\n\n"
        "Exit code 1: an effect would be doubled or lost. 3: it could not be found out.",
    )(verify)


Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE[:WORKFLOW]", help="The module, and the workflow's type if it has several."
    ),
]
Input = Annotated[
    str | None,
    typer.Option(
        "--input",
        metavar="JSON",
        help="Its input: an array is the arguments, an object the keyword arguments.",
    ),
]
Depth = Annotated[
    int, typer.Option(min=1, max=DEPTH_MAX, metavar="N", help="Crashes in one schedule.")
]
MaxSchedules = Annotated[int, typer.Option(min=1, metavar="N", help="Try no more than this.")]
Timeout = Annotated[
    float,
    typer.Option(
        min=0.1,
        max=SECONDS_MAX,
        callback=finite,
        metavar="SECONDS",
        help="How long one run may take.",
    ),
]
Redrive = Annotated[
    bool,
    typer.Option(
        "--redrive/--no-redrive",
        help="Redrive what becomes a dead letter by a crash, as an operator would.",
    ),
]


def verify(
    ctx: typer.Context,
    target: Target,
    input_: Input = None,
    depth: Depth = 1,
    max_schedules: MaxSchedules = SCHEDULES_DEFAULT,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    redrive: Redrive = True,
    as_json: AsJson = False,
) -> None:
    """Run a workflow once for each point at which its worker or node can die, and compare effects.

    Effects are those of perdure.effects and perdure.verify.effect. Any other option is a field of
    the input. No node is needed, and none is talked to.
    """
    has_input, value = merged_input(input_, ctx.meta[FIELDS_KEY])
    from perdure.values import encode
    from perdure.verifying.explore import Limits
    from perdure.verifying.target import planned

    began = time.monotonic()
    with output.reported():
        plan = planned(target, os.getcwd(), encode(value) if has_input else None, redrive=redrive)
        result = _verified(plan, Limits(depth, max_schedules, int(timeout * 1_000)))
    took_ms = int((time.monotonic() - began) * 1_000)
    if as_json:
        output.emit({**output.plain(result), "took_ms": took_ms})
    else:
        _show(result, took_ms)
    raise typer.Exit(_exit_code(result))


def _verified(plan: Plan, limits: Limits) -> Verification:
    from perdure.verifying.explore import verify

    progress, done = _progress()
    try:
        return verify(plan, limits, progress)
    finally:
        done()


def _exit_code(result: Verification) -> int:
    if result.bad_input:
        return output.USAGE
    return {"proved": output.OK, "violated": output.FAILED}.get(result.verdict, INCONCLUSIVE)


def _progress() -> tuple[Callable[[int], None], Callable[[], None]]:
    """(what shows how many schedules were tried, what takes it away): on a terminal only."""
    if not sys.stderr.isatty():
        return lambda _: None, lambda: None
    last = time.monotonic()

    def progress(schedules: int) -> None:
        nonlocal last
        if time.monotonic() - last >= PROGRESS_S:
            last = time.monotonic()
            print(f"\rschedules tried: {schedules}", end="", file=sys.stderr, flush=True)

    return progress, lambda: print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _show(result: Verification, took_ms: int) -> None:
    for finding in result.findings:
        _show_finding(finding)
    tried = (
        f"{result.schedules} schedules from {result.crash_points} crash points, "
        f"depth {result.depth}, {output.duration(took_ms)}"
    )
    if result.verdict == "inconclusive":
        output.note(f"perdure: {result.workflow}: {output.one_line(result.why)}")
        return
    for activity_type, count in result.dead_letters.items():
        output.say(
            f"note: {activity_type} became a dead letter in {count} schedules, for an operator to "
            "look at"
        )
    names = sorted({one.name for one in result.effects})
    shown = ", ".join(names[:EFFECTS_SHOWN]) + (", …" if len(names) > EFFECTS_SHOWN else "")
    effects = _counted(len(result.effects), "effect")
    if result.verdict == "proved":
        output.say(f"{result.workflow}: proved: {effects} ({shown}), each once, in {tried}")
    else:
        findings = _counted(len(result.findings), "finding")
        output.say(f"{result.workflow}: violated: {findings} in {tried}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _show_finding(finding: Finding) -> None:
    output.say(f"{finding.kind}: {finding.says}")
    for line in finding.schedule:
        output.say(f"  {output.one_line(line)}")
    output.say(f"  hint: {finding.hint}")
    output.say()
