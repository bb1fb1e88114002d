"""Which workflows, which dead letters: the options that lists and bulk commands share."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from perdure.cli import output
from perdure.cli.options import ask, json_or_text

if TYPE_CHECKING:
    from perdure import wire
    from perdure.client import Client

PAGE = 1_000
STATUSES = ("Running", "Completed", "Failed", "Cancelled", "Terminated", "ContinuedAsNew")
PENDING_STATES = ("Scheduled", "Leased", "Retrying", "DeadLettered")

OfType = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="Only of this workflow type.")
]
WithStatus = Annotated[
    str | None, typer.Option("--status", metavar="STATUS", help="Running, Completed, Failed, ...")
]
WithPendingState = Annotated[
    str | None,
    typer.Option(
        "--pending-state",
        metavar="STATE",
        help="With an activity Scheduled, Leased, Retrying or DeadLettered.",
    ),
]
WithFailure = Annotated[
    str | None,
    typer.Option(
        "--failure-type", metavar="TYPE", help="With an activity that last failed with this."
    ),
]
WithActivity = Annotated[
    str | None,
    typer.Option("--activity-type", metavar="TYPE", help="With an open activity of this type."),
]
WithAttempts = Annotated[
    int | None,
    typer.Option("--attempts", min=1, metavar="N", help="With an activity at attempt N or later."),
]
OlderThan = Annotated[
    int | None,
    typer.Option("--older-than-ms", min=0, metavar="MS", help="Only those older than this."),
]
YoungerThan = Annotated[
    int | None,
    typer.Option("--younger-than-ms", min=0, metavar="MS", help="Only those younger than this."),
]
WithAttribute = Annotated[
    list[str] | None,
    typer.Option(
        "--attr", metavar="NAME=VALUE", help="With this search attribute; repeat it for more."
    ),
]
IsStuck = Annotated[
    bool,
    typer.Option("--stuck", help="Only those that go no further until somebody acts."),
]
OfParent = Annotated[
    str | None, typer.Option("--parent", metavar="ID", help="Only children of this workflow.")
]


class Where(NamedTuple):
    """What a list of workflows is narrowed to, as it was typed."""

    type: str | None = None
    status: str | None = None
    pending_state: str | None = None
    failure_type: str | None = None
    activity_type: str | None = None
    attempts: int | None = None
    older_than_ms: int | None = None
    younger_than_ms: int | None = None
    attributes: list[str] | None = None
    parent: str | None = None
    stuck: bool = False

    def checked(self) -> Where:
        """Itself; a usage error where a word is none that there is."""
        check_word("--status", self.status, STATUSES)
        check_word("--pending-state", self.pending_state, PENDING_STATES)
        attributes_of(self.attributes)
        return self

    def page(self, size: int, after: str | None) -> wire.Args:
        """The operation that asks for one page."""
        from perdure import wire

        return wire.ListWorkflows(
            type=self.type,
            status=self.status,  # type: ignore[arg-type]
            pending_state=self.pending_state,  # type: ignore[arg-type]
            failure_type=self.failure_type,
            activity_type=self.activity_type,
            older_than_ms=self.older_than_ms,
            limit=size,
            page=after,
            younger_than_ms=self.younger_than_ms,
            attempts=self.attempts,
            attributes=attributes_of(self.attributes),
            parent=self.parent,
            stuck=self.stuck,
        )


def attributes_of(words: list[str] | None) -> dict[str, Any] | None:
    """The search attributes that NAME=VALUE words say; a value is JSON, an instant with its time
    zone (ISO 8601), else a text.
    """
    if not words:
        return None
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--attr: {word!r} is not NAME=VALUE")
        value = json_or_text(text)
        found[name] = value if isinstance(value, str | int | float | bool) else text
        if found[name] == text:  # A text in quotes is taken as it is.
            found[name] = _instant_or_text(text)
    return found


def _instant_or_text(text: str) -> str:
    from perdure.wire_checks import instant

    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        return text
    return text if at.tzinfo is None else instant("--attr", at)


def check_word(option: str, word: str | None, known: tuple[str, ...]) -> None:
    """A usage error that names the nearest word where `word` is none of those known."""
    from perdure.config import nearest

    if word is None or word in known:
        return
    near = nearest(word, known)
    hint = f"did you mean {near}?" if near else f"known: {', '.join(known)}"
    raise typer.BadParameter(f"{option}: there is no {word!r}; {hint}")


def no_failure(failure_type: str, there: list[str]) -> str:
    """That nothing failed with this type, and what else there is, the nearest first."""
    from perdure.config import listed

    known = listed(there, failure_type) or "no failure"
    return f"nothing of these failed with {failure_type!r}; there is: {known}"


def pages(
    client: Client,
    args: Callable[[int, str | None], wire.Args],
    name: str,
    limit: int | None,
) -> tuple[list[dict[str, Any]], bool]:
    """(at most `limit` entries over as many pages as it takes, whether there are more).

    `args(size, page)` is the operation that asks for one page; `name` is the field that its entries
    are in. A limit of None: all.
    """
    found: list[dict[str, Any]] = []
    page: str | None = None
    while True:
        size = PAGE if limit is None else min(PAGE, limit - len(found))
        answer = output.plain(ask(client, args(size, page)))
        found += answer[name]
        page = answer.get("next_page")
        if page is None or (limit is not None and len(found) >= limit):
            return found[:limit], page is not None
