"""`perdure wf`: workflows, from their start to their result."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure import errors
from perdure.cli import filters, output
from perdure.cli.options import (
    FIELDS_KEY,
    TIMEOUT_S_DEFAULT,
    AsJson,
    Commands,
    Endpoint,
    FieldsCommand,
    Timeout,
    WorkflowId,
    ask,
    connected,
    merged_input,
)
from perdure.cli.wf_views import event_line, show_workflow, workflows

if TYPE_CHECKING:
    from perdure.client import Client

app = typer.Typer(
    cls=Commands,
    help="Start workflows and look at them.",
    epilog="\b\nExample:\n  perdure wf start FlakyDemo --fail-rate 0.5 --wait",
    no_args_is_help=True,
    rich_markup_mode=None,
)

# How a workflow ended, in a sentence, where its status in small letters is none.
_HOW = {"ContinuedAsNew": "continued as new"}

WAIT_SLICE_MS = 20_000
RETRY_PAUSE_S = 0.2
# What workers take at most to find a gateway that has just started again.
WORKERS_PAUSE_S = 0.5

Run = Annotated[
    int | None, typer.Option("--run", min=1, metavar="N", help="An earlier run than the newest.")
]
StartDelay = Annotated[
    int | None,
    typer.Option("--start-delay-ms", min=0, metavar="MS", help="Until its first step."),
]
TimeoutMs = Annotated[
    int | None,
    typer.Option("--timeout-ms", min=0, metavar="MS", help="When it fails, if it runs so long."),
]
Attributes = Annotated[
    list[str] | None,
    typer.Option("--attr", metavar="NAME=VALUE", help="A search attribute; repeat for more."),
]


@app.command(
    cls=FieldsCommand,
    epilog="\b\nExamples:\n  perdure wf start FlakyDemo --fail-rate 0.5 --wait\n"
    "  perdure wf start checkout --id order-42 --input '[\"o-42\", 1999]'",
)
def start(
    ctx: typer.Context,
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="The workflow's type.")],
    workflow_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Its id; a random one is made.")
    ] = None,
    input_: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="JSON",
            help="Its input: an array is the arguments, an object the keyword arguments.",
        ),
    ] = None,
    queue: Annotated[
        str, typer.Option("--queue", metavar="NAME", help="The workers' queue.")
    ] = "default",
    start_delay_ms: StartDelay = None,
    timeout_ms: TimeoutMs = None,
    attr: Attributes = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for its end and print its result.")
    ] = False,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Start a workflow. Any other option is a field of its input: --fail-rate 0.5 is fail_rate=0.5.

    The value of a field is JSON if it parses as JSON, else a text. Names that clash with an option
    go through --input.
    """
    has_input, value = merged_input(input_, ctx.meta[FIELDS_KEY])
    made = workflow_id if workflow_id is not None else f"{type_}-{secrets.token_hex(5)}"
    from perdure import wire
    from perdure.operations import new_request_id, start_options
    from perdure.values import encode

    with connected(endpoint, timeout) as client:
        raw = wire.raw_payload(encode(value) if has_input else None)
        options = start_options(start_delay_ms, timeout_ms, filters.attributes_of(attr))
        args = wire.StartWorkflow(type_, made, raw, new_request_id(), queue, options)
        started = ask(client, args)
        _warn_if_unserved(client, made, type_, queue)
        if not wait:
            if as_json:
                output.emit(started)
            else:
                output.say(made)
            return
        if not as_json:
            output.note(f"started {made}")
        _print_result(client, made, timeout, as_json, patient=True)


@app.command("list", epilog="\b\nExample:\n  perdure wf list --status Running --type FlakyDemo")
def list_(
    type_: filters.OfType = None,
    status: filters.WithStatus = None,
    pending_state: filters.WithPendingState = None,
    failure_type: filters.WithFailure = None,
    activity_type: filters.WithActivity = None,
    attempts: filters.WithAttempts = None,
    older_than_ms: filters.OlderThan = None,
    younger_than_ms: filters.YoungerThan = None,
    attr: filters.WithAttribute = None,
    parent: filters.OfParent = None,
    stuck: filters.IsStuck = False,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="At most so many, newest first.")
    ] = 100,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """List workflows, the newest first; of one that continues as new, each run."""
    where = filters.Where(
        type_,
        status,
        pending_state,
        failure_type,
        activity_type,
        attempts,
        older_than_ms,
        younger_than_ms,
        attr,
        parent,
        stuck,
    ).checked()
    with connected(endpoint, timeout) as client:
        found, more = filters.pages(client, where.page, "workflows", limit)
    if as_json:
        output.emit(found)
        return
    output.show(workflows(found, _now_ms()))
    if more:
        output.note(f"there are more than {limit}: see --limit")


@app.command(epilog="\b\nExample:\n  perdure wf describe order-42")
def describe(
    workflow_id: WorkflowId,
    run: Run = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Show a workflow and what is open in it: each activity's state, attempt, last failure and due
    time.
    """
    from perdure import wire

    with connected(endpoint, timeout) as client:
        found = output.plain(ask(client, wire.DescribeWorkflow(workflow_id, run)))
    if as_json:
        output.emit(found)
        return
    show_workflow(found, _now_ms())


@app.command(epilog="\b\nExample:\n  perdure wf history order-42")
def history(
    workflow_id: WorkflowId,
    run: Run = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Show what happened to a workflow, in order.

    Of an activity it has the attempt that ended it. How others failed: `perdure wf describe` shows
    the last one while the activity is open, `perdure wf dlq show` all of a dead letter.
    """
    with connected(endpoint, timeout) as client:
        events = output.plain(client.history(workflow_id, run=run))
    if as_json:
        output.emit(events)
        return
    began_ms = events[0]["at_ms"] if events else 0
    rows = [
        (
            event["event_id"],
            f"+{output.duration(event['at_ms'] - began_ms)}",
            output.coloured(event["kind"]),
            event.get("activity_id") or event.get("timer_id") or "",
            event_line(event),
        )
        for event in events
    ]
    output.show(output.table(("#", "AT", "KIND", "OF", "DETAILS"), rows, right=("#", "AT")))


@app.command(epilog="\b\nExample:\n  perdure wf result order-42 --wait")
def result(
    workflow_id: WorkflowId,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end, however long.")] = False,
    run: Run = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Print a workflow's result. Exit code 1: it failed; 6: it has not ended in --timeout."""
    with connected(endpoint, timeout) as client:
        _print_result(client, workflow_id, timeout, as_json, patient=wait, run=run)


# --- what several commands share ---------------------------------------------
def _print_result(
    client: Client,
    workflow_id: str,
    timeout_s: float,
    as_json: bool,
    *,
    patient: bool,
    run: int | None = None,
) -> None:
    try:
        value = _ended(client, workflow_id, timeout_s, patient=patient, run=run)
    except errors.WorkflowFailed as error:
        failure = output.plain(error.failure)
        if as_json:
            output.emit({"workflow_id": workflow_id, "status": error.status, "failure": failure})
        why = output.failure_line(failure) if failure else ""
        how = _HOW.get(error.status) or error.status.lower()
        raise output.fail(
            f"{workflow_id} {how}: {why}" if why else f"{workflow_id}: {how}", output.FAILED
        ) from None
    except errors.DeadlineExceeded:
        raise output.fail(
            f"{workflow_id} has not ended yet: wait with --wait, or look with "
            f"`perdure wf describe {workflow_id}`",
            output.REFUSED,
        ) from None
    if as_json:
        output.emit({"workflow_id": workflow_id, "status": "Completed", "result": value})
    else:
        output.say(output.json_line(value))


def _ended(
    client: Client, workflow_id: str, timeout_s: float, *, patient: bool, run: int | None
) -> Any:
    """The result. A patient wait outlives restarts of the node that take less than the timeout."""
    wait_ms = WAIT_SLICE_MS if patient else int(timeout_s * 1_000)
    lost_at: float | None = None
    while True:
        try:
            return client.result(workflow_id, timeout_ms=wait_ms, run=run)
        except errors.DeadlineExceeded:
            lost_at = None
            if not patient:
                raise
        except errors.Unavailable:
            lost_at = time.monotonic() if lost_at is None else lost_at
            if not patient or time.monotonic() - lost_at > timeout_s:
                raise
            time.sleep(RETRY_PAUSE_S)


def _warn_if_unserved(client: Client, workflow_id: str, type_: str, queue: str) -> None:
    """Says so where no worker has the type on that queue: accepted, since a deploy may bring it."""
    from perdure import waiting, wire

    for is_last in (False, True):
        try:
            workers = ask(client, wire.WorkerTypes())["workers"]
        except errors.PerdureError:
            return  # The start was accepted: a warning is not worth an error.
        if workers or is_last:
            break
        time.sleep(WORKERS_PAUSE_S)
    offers = [
        waiting.Offer(
            tuple(each["queues"]), tuple(each["activity_types"]), tuple(each["workflow_types"])
        )
        for each in workers
    ]
    text = waiting.sentence("workflow", type_, queue, offers)
    if text is not None:
        output.note(f"warning: {workflow_id} waits for {text}")


def _now_ms() -> int:
    from perdure.clock import wall_ms

    return wall_ms()
