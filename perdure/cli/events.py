"""`perdure events`: what happens on a node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli import output
from perdure.cli.options import TIMEOUT_S_DEFAULT, AsJson, Endpoint, Timeout, connected

if TYPE_CHECKING:
    from perdure.client import Client

FOLLOW_MS = 5_000
RETRY_PAUSE_S = 0.2
EPILOG = (
    "\b\nExamples:\n  perdure events --follow --after now\n"
    "  perdure events --kind ActivityDeadLettered --json"
)
# In columns of their own.
COLUMNS = frozenset({"id", "kind", "at_ms", "workflow_id", "run", "event_id", "request_id"})


def add_to(app: typer.Typer) -> None:
    """The command, on the root of all commands."""
    app.command(epilog=EPILOG)(events)


def events(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")
    ] = False,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="ID", help="Only what came after this event, or `now`."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="KIND", help="Only of this kind; repeat it for more."),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", metavar="ID", help="Only of this workflow.")
    ] = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Print what has happened on the node, one event a line, each with an id to go on after.

    With --json an object a line. Each event comes at least once; a command that was interrupted
    goes on with --after and the last id that it printed. With --follow it waits for a node that
    went away, for as long as it takes, and misses nothing.
    """
    with connected(endpoint, timeout) as client:
        for event in _events(client, after, kind, workflow, follow=follow):
            plain = output.plain(event)
            if as_json:
                output.emit(plain)
            else:
                output.say(line(plain))


def _events(
    client: Client,
    after: str | None,
    kinds: list[str] | None,
    workflow_id: str | None,
    *,
    follow: bool,
) -> Iterator[Any]:
    """As client.events; but one that follows waits for a node that went away, however long."""
    from perdure import errors

    wait_ms = FOLLOW_MS if follow else 0
    if after == "now":
        after = client.read_events(after).next
    has_heard = is_away = False
    while True:
        try:
            page = client.read_events(after, kinds=kinds, workflow_id=workflow_id, wait_ms=wait_ms)
        except errors.Unavailable:
            if not (follow and has_heard):
                raise  # There may never have been one.
            if not is_away:
                output.note("no node answers: waiting for it")
            is_away = True
            time.sleep(RETRY_PAUSE_S)
            continue
        if is_away:
            output.note("the node answers again")
        has_heard, is_away = True, False
        yield from page.events
        if page.next == after and not follow:
            return
        after = page.next


def line(event: dict[str, Any]) -> str:
    """One event for people."""
    from datetime import datetime

    at = datetime.fromtimestamp(event["at_ms"] / 1_000).astimezone()
    parts = []
    for name, value in event.items():
        if name in COLUMNS or value in (None, "", False):
            continue
        shown = output.failure_line(value) if name == "failure" else output.short(value)
        parts.append(f"{name}={shown}")
    of = event.get("workflow_id") or "-"
    run = event.get("run") or 1
    where = f"{of}#{run}" if run > 1 else of
    clock = at.isoformat(timespec="milliseconds")
    return output.one_line(f"{event['id']}  {clock}  {event['kind']}  {where}  {'  '.join(parts)}")
