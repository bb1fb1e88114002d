"""`perdure wf reset`: a workflow goes back to an earlier event, and on from there."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from perdure.cli import output
from perdure.cli.options import (
    TIMEOUT_S_DEFAULT,
    AsJson,
    Endpoint,
    Timeout,
    WorkflowId,
    ask,
    connected,
)


def reset(
    workflow_id: WorkflowId,
    to: Annotated[
        int,
        typer.Option(
            "--to", min=1, metavar="EVENT", help="The last event that counts (wf history)."
        ),
    ],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept.", show_default=False)
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be asked for again.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Take a workflow back to an event of its history, and on from there. One that has ended runs
    again.

    What came after the event does not count any more, but for signals: they are kept. What its code
    has had done since it will ask for again, under the same idempotency keys: it is listed first,
    with what becomes of the signals, updates and requests to cancel that have come since.
    """
    from perdure import wire_flow
    from perdure.clock import wall_ms
    from perdure.request_ids import new_request_id

    if not (yes or dry_run) and (as_json or not sys.stdin.isatty()):
        raise typer.BadParameter("nobody can be asked here: give --yes, or --dry-run to look first")
    reset_to, request_id = wire_flow.ResetWorkflow, new_request_id()
    with output.reported():
        look = reset_to(workflow_id, to, reason or None, None, True)
        args = reset_to(workflow_id, to, reason or None, request_id)
    with connected(endpoint, timeout) as client:
        if dry_run or not yes:
            found: dict[str, Any] = output.plain(ask(client, look))
            if as_json:
                output.emit({"workflow_id": workflow_id, "to_event": to, "done": None, **found})
                return
            _show(found, wall_ms())
            if dry_run:
                return
            if not typer.confirm(f"take {workflow_id} back to event {to}?"):
                raise typer.Exit(1)
        done = output.plain(ask(client, args))
    if as_json:
        output.emit({"workflow_id": workflow_id, "to_event": to, "done": "reset", **done})
        return
    if yes:
        _show(done, wall_ms())
    output.say(f"reset: {workflow_id} goes on behind event {to} (event {done['event_id']})")


# What becomes of what somebody said since, for people.
BECOMES = {
    "kept": "comes again",
    "failed": "fails: whoever waits is told",
    "taken_back": "was answered; what it did does not count any more",
    "dropped": "is dropped",
}


def _show(found: dict[str, Any], now_ms: int) -> None:
    _show_effects(found, now_ms)
    said = found.get("said") or []
    if not said:
        return
    rows = [
        (
            each["kind"],
            each["name"] or "-",
            output.when(each["at_ms"], now_ms),
            BECOMES.get(each["becomes"], each["becomes"]),
        )
        for each in said
    ]
    output.say(f"said to it since: {found['said_count']}")
    output.show(output.table(("WHAT", "NAME", "AT", "WHAT BECOMES OF IT"), rows))
    if len(said) < found["said_count"]:
        output.say(f"… and {found['said_count'] - len(said)} more")


def _show_effects(found: dict[str, Any], now_ms: int) -> None:
    effects = found["effects"]
    if not effects:
        output.say("nothing would be asked for again")
        return
    rows = [
        (
            each["id"],
            each["type"] or each["kind"],
            output.coloured(each["outcome"]),
            output.when(each["at_ms"], now_ms),
            each["idempotency_key"] or "-",
        )
        for each in effects
    ]
    output.say(f"asked for again: {found['effects_count']}, under the same keys")
    output.show(output.table(("ID", "TYPE", "OUTCOME", "AT", "KEY"), rows))
    if len(effects) < found["effects_count"]:
        output.say(f"… and {found['effects_count'] - len(effects)} more")
