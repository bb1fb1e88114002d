"""`perdure policy`: the auditor of retries, backoff and timeouts across a call chain."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli import output, policy_import, policy_pictures
from perdure.cli.options import AsJson, Commands
from perdure.cli.policy_options import (
    AsMarkdown,
    AsSarif,
    File,
    Limit,
    Out,
    Rate,
    chain_of,
    say_json,
    table,
    write,
)

if TYPE_CHECKING:
    from perdure.audit.review import Review

app = typer.Typer(
    cls=Commands,
    help="Audit the retries, backoff and timeouts of a whole call chain. No node is needed.",
    epilog="\b\nExample:\n  perdure policy check chain.json",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(
    epilog="\b\nExample:\n  perdure policy check chain.json --failure-rate 0.5\n\n"
    "Exit code 1: there is a finding of severity high."
)
def check(
    file: File,
    failure_rate: Rate = None,
    max_amplification: Limit = None,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
    as_sarif: AsSarif = False,
) -> None:
    """Say how long a call can take, how many calls it turns into, and what is unsafe."""
    if as_json + as_markdown + as_sarif > 1:
        raise typer.BadParameter("give one of --json, --markdown and --sarif")
    from perdure.audit.review import audit

    with output.reported():
        review = audit(chain_of(file, failure_rate, max_amplification))
    _print(review, file, as_json, as_markdown, as_sarif)
    raise typer.Exit(output.FAILED if review.high else output.OK)


def _print(review: Review, file: str, as_json: bool, as_markdown: bool, as_sarif: bool) -> None:
    from perdure.audit import render
    from perdure.audit.review import as_json as review_json

    if as_json:
        say_json(review_json(review))
    elif as_markdown:
        output.say(render.markdown(review).rstrip("\n"))
    elif as_sarif:
        from perdure import __version__
        from perdure.audit.sarif import sarif

        say_json(sarif([review], file, __version__))
    else:
        output.say(table(review))


@app.command("self-test", epilog="\b\nExample:\n  perdure policy self-test")
def self_test(as_json: AsJson = False) -> None:
    """Run the built-in checks: known chains with known answers."""
    from perdure.audit import selftest

    results = selftest.run()
    passed = sum(holds for _, holds in results)
    if as_json:
        checks = [{"claim": claim, "passed": holds} for claim, holds in results]
        say_json({"passed": passed, "checks": checks})
    else:
        for claim, holds in results:
            output.say(f"{'ok  ' if holds else 'FAIL'}  {claim}")
        output.say(f"{passed}/{len(results)} passed")
    raise typer.Exit(output.OK if passed == len(results) else output.FAILED)


@app.command(
    epilog="\b\nExample:\n  perdure policy fix chain.json -o fixed.json\n\n"
    "Exit code 1: a high finding remains."
)
def fix(
    file: File,
    out: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="OUT", help="Write the repaired chain; - is here."),
    ] = None,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="As it can be once every write carries a key.")
    ] = False,
    failure_rate: Rate = None,
    max_amplification: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Propose a repaired chain, with before and after side by side and a reason for each change."""
    from perdure.audit import repair, report
    from perdure.audit.chain import as_data

    with output.reported():
        found = repair.repair(chain_of(file, failure_rate, max_amplification), with_keys=with_keys)
    shown = report.side_by_side(found, shutil.get_terminal_size().columns)
    text = json.dumps(as_data(found.after.chain), indent=2, ensure_ascii=False) + "\n"
    if as_json:
        say_json(repair.as_json(found))
    elif out == "-":
        output.note(shown)
        sys.stdout.write(text)
    else:
        output.say(shown)
    if out is not None and out != "-":
        write(text, Path(out))
    raise typer.Exit(output.FAILED if found.after.high else output.OK)


@app.command(epilog="\b\nExample:\n  perdure policy report chain.json -o review.md")
def report(
    file: File,
    out: Out = None,
    failure_rate: Rate = None,
    max_amplification: Limit = None,
) -> None:
    """Write the review as Markdown: chain, findings, proposed policy, what is left to do."""
    from perdure.audit import repair
    from perdure.audit.report import document

    with output.reported():
        found = repair.repair(chain_of(file, failure_rate, max_amplification))
    write(document(found), out)


policy_import.add_to(app)
policy_pictures.add_to(app)
