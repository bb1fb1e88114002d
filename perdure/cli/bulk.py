"""One operation for each of many: a count first, then at a rate, with progress."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from perdure import errors
from perdure.cli import output
from perdure.cli.options import finite

if TYPE_CHECKING:
    from perdure import wire
    from perdure.client import Client

All = Annotated[
    bool, typer.Option("--all", help="All that the filters leave, instead of one by its id.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many it would be.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate",
        min=0.001,
        callback=finite,
        metavar="N",
        help="At most so many a second.",
    ),
]

WINDOW = 500
SLICES_A_SECOND = 10
SHOWN_MAX = 10
# These say that there was nothing left to do.
GONE = frozenset({errors.NotFound.code, errors.FailedPrecondition.code})


class Item(NamedTuple):
    """One of many: how it is named, and what is asked about it."""

    name: str
    args: wire.Args


def is_terminal() -> bool:
    """Whether somebody sits there who can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(what: str, count: int, *, yes: bool) -> None:
    """Goes on, or ends the command: on a terminal somebody is asked, unless --yes said so."""
    if yes or not count or not is_terminal():
        return
    if not typer.confirm(f"{what} {count}?", err=True):
        raise output.fail("nothing was done", output.OK)


def run(
    client: Client,
    items: Sequence[Item],
    *,
    rate: float | None,
    verb: str,
    done_word: str,
    as_json: bool,
) -> None:
    """Asks each; says what came of it. Exit code 1 where one was refused for another reason than
    that there was nothing left to do.
    """
    counts: Counter[str] = Counter()
    failed: list[dict[str, Any]] = []
    began = told = time.monotonic()
    sent = 0
    while sent < len(items):
        size = WINDOW if rate is None else max(1, int(rate / SLICES_A_SECOND))
        part = items[sent : sent + size]
        try:
            outcomes = client.call_many([it.args for it in part])
        except KeyboardInterrupt:
            output.note(f"stopped: {done_word} at least {counts['done']} of {len(items)}")
            raise
        for item, outcome in zip(part, outcomes, strict=True):
            if not isinstance(outcome, errors.PerdureError):
                counts["done"] += 1
            elif outcome.code in GONE:
                counts["gone"] += 1
            else:
                failed.append({"of": item.name, "code": outcome.code, "message": outcome.message})
        sent += len(part)
        now = time.monotonic()
        if is_terminal() and not as_json and now - told >= 1:
            told = now
            output.note(f"{verb}: {sent} of {len(items)}")
        if rate is not None and sent < len(items):
            time.sleep(max(0.0, began + sent / rate - now))
    _report(len(items), counts, failed, done_word, as_json=as_json)


def _report(
    count: int, counts: Counter[str], failed: list[dict[str, Any]], word: str, *, as_json: bool
) -> None:
    if as_json:
        output.emit(
            {
                "matched": count,
                "done": counts["done"],
                "gone": counts["gone"],
                "failed": failed,
            }
        )
    else:
        gone = f", {counts['gone']} had gone already" if counts["gone"] else ""
        output.say(f"{word} {counts['done']} of {count}{gone}")
    for each in failed[:SHOWN_MAX]:
        output.note(f"perdure: {each['of']}: {output.one_line(each['message'])}")
    if failed:
        raise output.fail(f"{len(failed)} of {count} were refused", output.FAILED)


def counted(count: int, what: str, *, as_json: bool) -> None:
    """The answer of a dry run."""
    if as_json:
        output.emit({"matched": count})
    else:
        output.say(matching(count, what))


def matching(count: int, noun: str) -> str:
    """How many match: "1 workflow matches", "2 workflows match"."""
    return f"{output.counted(count, noun)} {'matches' if count == 1 else 'match'}"
