"""`perdure wf`: workflows, from their start to their result."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from perdure import errors
from perdure.cli import filters, output, unserved
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
from perdure.cli.wf_views import event_line, of_event, show_workflow, workflows

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

Run = Annotated[
    int | None, typer.Option("--run", min=1, metavar="N", help="An earlier run than the newest.")
]
StartInput = Annotated[
    str | None,
    typer.Option(
        "--input",
        metavar="JSON",
        help="Its input: an array is the arguments, an object the keyword arguments.",
    ),
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
    input_: StartInput = None,
    queue: Annotated[
        str, typer.Option("--queue", metavar="NAME", help="The workers' queue.")
    ] = "default",
    start_delay_ms: StartDelay = None,
    timeout_ms: TimeoutMs = None,
    attr: Attributes = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait for its end and print its result; no longer than a given --timeout.",
        ),
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
        warning = unserved.workflow(client, made, type_, queue)
        output.warn(warning)
        if not wait:
            if as_json:
                output.emit({**started, "warning": warning})
            else:
                output.say(made)
            return
        if not as_json:
            output.note(f"started {made}")
        _print_result(client, made, Wait.of(ctx, timeout, patient=True), as_json)


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
        if failure_type and not found:
            types = ask(client, where.page(1, None)).get("failure_types") or []
            output.note(filters.no_failure(failure_type, types))
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
            of_event(event),
            event_line(event),
        )
        for event in events
    ]
    output.show(output.table(("#", "AT", "KIND", "OF", "DETAILS"), rows, right=("#", "AT")))


@app.command(epilog="\b\nExample:\n  perdure wf result order-42 --wait")
def result(
    ctx: typer.Context,
    workflow_id: WorkflowId,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for its end, or a given --timeout long.")
    ] = False,
    run: Run = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Print a workflow's result. Exit code 1: it failed; 6: it has not ended in --timeout.

    With --wait it waits as long as it takes, unless --timeout is given.
    """
    with connected(endpoint, timeout) as client:
        _print_result(client, workflow_id, Wait.of(ctx, timeout, patient=wait), as_json, run)


# --- what several commands share ---------------------------------------------
class Wait(NamedTuple):
    """Seconds that an end is waited for (None: as long as it takes), and a node that is away."""

    all_s: float | None
    away_s: float

    @classmethod
    def of(cls, ctx: typer.Context, timeout_s: float, *, patient: bool) -> Wait:
        """By --timeout: where it was given it is how long a patient wait lasts, too."""
        source = ctx.get_parameter_source("timeout")
        is_said = source is not None and source.name != "DEFAULT"
        return cls(None if patient and not is_said else timeout_s, timeout_s)


def _print_result(
    client: Client, workflow_id: str, wait: Wait, as_json: bool, run: int | None = None
) -> None:
    try:
        value = _ended(client, workflow_id, wait, run)
    except errors.WorkflowFailed as error:
        failure = output.plain(error.failure)
        if as_json:
            output.emit({"workflow_id": workflow_id, "status": error.status, "failure": failure})
        why = output.failure_line(failure) if failure else ""
        if failure and failure["type"] == error.status:  # Cancelled: it says why and no more.
            why = output.one_line(failure["message"])
        how = _HOW.get(error.status) or error.status.lower()
        raise output.fail(
            f"{workflow_id} {how}: {why}" if why else f"{workflow_id}: {how}", output.FAILED
        ) from None
    except errors.DeadlineExceeded:
        raise output.fail(
            f"{workflow_id} has not ended within {output.duration((wait.all_s or 0) * 1_000)}: wait"
            f" for longer with `perdure wf result {workflow_id} --wait`, or look with `perdure wf"
            f" explain {workflow_id}`",
            output.REFUSED,
        ) from None
    if as_json:
        output.emit({"workflow_id": workflow_id, "status": "Completed", "result": value})
    else:
        output.say(output.json_line(value))


def _ended(client: Client, workflow_id: str, wait: Wait, run: int | None) -> Any:
    """The result. A patient wait outlives restarts of the node that take less than the timeout."""
    began = time.monotonic()
    lost_at: float | None = None
    while True:
        left_ms = WAIT_SLICE_MS
        if wait.all_s is not None:
            left_ms = max(0, int((began + wait.all_s - time.monotonic()) * 1_000))
        try:
            return client.result(workflow_id, timeout_ms=min(left_ms, WAIT_SLICE_MS), run=run)
        except errors.DeadlineExceeded:
            lost_at = None
            if left_ms <= WAIT_SLICE_MS and wait.all_s is not None:
                raise
        except errors.Unavailable:
            lost_at = time.monotonic() if lost_at is None else lost_at
            if time.monotonic() - lost_at > wait.away_s or not left_ms:
                raise
            time.sleep(RETRY_PAUSE_S)


def _now_ms() -> int:
    from perdure.clock import wall_ms

    return wall_ms()
