"""What the commands of `perdure policy` share: their options, and how they read and print."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli import output
from perdure.cli.options import finite

if TYPE_CHECKING:
    from perdure.audit.chain import Chain
    from perdure.audit.review import Review

File = Annotated[
    str, typer.Argument(metavar="FILE", help="The chain, as JSON or YAML; - is standard input.")
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--failure-rate",
        metavar="P",
        callback=finite,
        help="Chance that one try fails, 0 to 1.",
    ),
]
Limit = Annotated[
    float | None,
    typer.Option(
        "--max-amplification",
        metavar="N",
        callback=finite,
        help="Calls that one call may become.",
    ),
]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown.")]
AsSarif = Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0.")]
Kind = Annotated[str, typer.Argument(metavar="KIND", help="What kind of settings.")]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="OUT", help="Write to this file.", dir_okay=False),
]
COLOURS = {"high": typer.colors.RED, "medium": typer.colors.YELLOW, "low": typer.colors.CYAN}


def table(review: Review) -> str:
    """The review as this terminal shows it."""
    from perdure.audit import render

    style = coloured if sys.stdout.isatty() else render.unstyled
    return render.table(review, shutil.get_terminal_size().columns, style)


def coloured(text: str, severity: str) -> str:
    """`text` in the colour of its severity."""
    return typer.style(text, fg=COLOURS.get(severity), bold=severity == "high")


def say_json(data: Any) -> None:
    """`data` as one line of JSON; whole numbers of any size."""
    output.say(json.dumps(data, ensure_ascii=False, allow_nan=False))


def chain_of(file: str, failure_rate: float | None, max_amplification: float | None) -> Chain:
    """The chain in `file`, these two settings replaced where they are given."""
    from msgspec.structs import replace

    from perdure.audit import documents, given
    from perdure.audit.chain import parse_chain

    chain = parse_chain(documents.read(file))
    if failure_rate is not None:
        chain = replace(chain, failure_rate=given.share(failure_rate, "--failure-rate"))
    if max_amplification is not None:
        limit = given.number(max_amplification, "--max-amplification", at_least=1)
        chain = replace(chain, max_amplification=limit)
    return chain


def write(text: str, out: Path | None) -> None:
    """`text` to the file `out`, or to standard output."""
    if out is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise output.fail(f"{out} can't be written: {problem.strerror}", output.USAGE) from None
    output.note(f"written to {out}")
