"""`perdure wf dlq`: activities that ran out of attempts and wait for an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli import output
from perdure.cli.options import (
    TIMEOUT_S_DEFAULT,
    ActivityId,
    AsJson,
    Commands,
    Endpoint,
    Timeout,
    WorkflowId,
    ask,
    connected,
    json_option,
)
from perdure.cli.wf import pages

if TYPE_CHECKING:
    from perdure import wire

app = typer.Typer(
    cls=Commands,
    help="Dead letters: list them, look, and send them round again or settle them by hand.",
    epilog="\b\nExample:\n  perdure wf dlq redrive order-42 charge",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list", epilog="\b\nExample:\n  perdure wf dlq list --failure-type Flaky")
def list_(
    workflow_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only of this workflow.")
    ] = None,
    type_: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Only of this activity type.")
    ] = None,
    failure_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Only those that died of this.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="At most so many, oldest first.")
    ] = 100,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """List dead letters, the oldest first."""
    from perdure import wire

    def page(size: int, after: str | None) -> wire.Args:
        return wire.ListDeadLetters(workflow_id, None, type_, failure_type, limit=size, page=after)

    with connected(endpoint, timeout) as client:
        found, more = pages(client, page, "dead_letters", limit)
    if as_json:
        output.emit(found)
        return
    now_ms = _now_ms()
    rows = [
        (
            each["workflow_id"],
            each["activity_id"],
            each["activity_type"],
            each["attempts"],
            output.when(each.get("dead_ms"), now_ms),
            each.get("redrives", 0),
            output.failure_line(each.get("last_failure")),
        )
        for each in found
    ]
    columns = ("WORKFLOW", "ACTIVITY", "TYPE", "ATTEMPTS", "DIED", "REDRIVES", "LAST FAILURE")
    output.show(output.table(columns, rows, right=("ATTEMPTS", "REDRIVES")))
    if more:
        output.note(f"there are more than {limit}: see --limit")


@app.command(epilog="\b\nExample:\n  perdure wf dlq show order-42 charge")
def show(
    workflow_id: WorkflowId,
    activity_id: ActivityId,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Show one dead letter: its input, and the failure of every attempt with its stack."""
    from perdure import wire

    with connected(endpoint, timeout) as client:
        args = wire.ListDeadLetters(workflow_id, activity_id)
        answer = output.plain(ask(client, args))["dead_letters"]
    if not answer:
        raise output.fail(
            f"{activity_id} of {workflow_id} is no dead letter: "
            f"see `perdure wf dlq list {workflow_id}`",
            output.NOT_FOUND,
        )
    letter: dict[str, Any] = answer[0]
    if as_json:
        output.emit(letter)
        return
    now_ms = _now_ms()
    facts = [
        ("workflow", letter["workflow_id"]),
        ("activity", letter["activity_id"]),
        ("type", letter["activity_type"]),
        ("key", letter.get("idempotency_key", "-")),
        ("scheduled", output.when(letter.get("scheduled_ms"), now_ms)),
        ("died", output.when(letter.get("dead_ms"), now_ms)),
        ("attempts", letter["attempts"]),
        ("redrives", letter.get("redrives", 0)),
        ("input", output.short(letter.get("input"))),
        ("details", output.short(letter.get("heartbeat_details"))),
    ]
    output.show(output.table(("", ""), [fact for fact in facts if fact[1] != "-"]))
    before = 0
    for each in letter.get("failures") or []:
        failure = each.get("failure") or each
        output.say()
        if is_redriven(before, each.get("attempt")):
            output.say("redriven, so attempts count from 1 again:")
            output.say()
        before = each.get("attempt") or 0
        head = f"attempt {each.get('attempt', '?')}, {output.when(each.get('at_ms'), now_ms)}"
        if each.get("worker_id"):
            head += f", {each['worker_id']}"
        output.say(f"{head}: {output.failure_line(failure)}")
        for line in str(failure.get("stack") or "").splitlines():
            output.say(f"  {line}")


@app.command(epilog="\b\nExample:\n  perdure wf dlq redrive order-42 charge")
def redrive(
    workflow_id: WorkflowId,
    activity_id: ActivityId,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Send a dead letter round again: attempt 1 with its full retry policy and the same idempotency
    key.
    """
    with connected(endpoint, timeout) as client:
        client.redrive_dead_letter(workflow_id, activity_id)
    _settled("redriven", workflow_id, activity_id, as_json)


@app.command(epilog="\b\nExample:\n  perdure wf dlq fail order-42 charge")
def fail(
    workflow_id: WorkflowId,
    activity_id: ActivityId,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Give a dead letter up: its workflow sees the last failure."""
    with connected(endpoint, timeout) as client:
        client.fail_dead_letter(workflow_id, activity_id)
    _settled("failed", workflow_id, activity_id, as_json)


@app.command(
    epilog="\b\nExample:\n  perdure wf dlq complete order-42 charge --result '\"receipt-7\"'"
)
def complete(
    workflow_id: WorkflowId,
    activity_id: ActivityId,
    result: Annotated[
        str, typer.Option("--result", metavar="JSON", help="What the activity would have returned.")
    ],
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Settle a dead letter with a result: the work was done by hand."""
    value = json_option(result, "--result")
    with connected(endpoint, timeout) as client:
        client.complete_dead_letter(workflow_id, activity_id, value)
    _settled("completed", workflow_id, activity_id, as_json)


def is_redriven(before: int, attempt: int | None) -> bool:
    """Whether a redrive lies between two failures in a row: attempt numbers rise within one life of
    a dead letter. `before` is 0 at the first.
    """
    return before > 0 and attempt is not None and attempt <= before


def _settled(word: str, workflow_id: str, activity_id: str, as_json: bool) -> None:
    if as_json:
        output.emit({"workflow_id": workflow_id, "activity_id": activity_id, "done": word})
    else:
        output.say(f"{word}: {activity_id} of {workflow_id}")


def _now_ms() -> int:
    from perdure.clock import wall_ms

    return wall_ms()
