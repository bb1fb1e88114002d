"""`perdure events`: what happens on a node."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from perdure.cli import output
from perdure.cli.options import TIMEOUT_S_DEFAULT, AsJson, Endpoint, Timeout, connected

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
    goes on with --after and the last id that it printed.
    """
    with connected(endpoint, timeout) as client:
        for event in client.events(after, kind, workflow, follow=follow):
            plain = output.plain(event)
            if as_json:
                output.emit(plain)
            else:
                output.say(line(plain))


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
