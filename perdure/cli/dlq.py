"""`perdure wf dlq`: activities that ran out of attempts and wait for an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli import bulk, dlq_bulk, output
from perdure.cli.dlq_bulk import (
    ActivityType,
    By,
    Canary,
    CanaryTimeout,
    FailureType,
    How,
    OlderThan,
    OneActivity,
    OneWorkflow,
    Where,
)
from perdure.cli.filters import no_failure, pages
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
    type_: ActivityType = None,
    failure_type: FailureType = None,
    older_than_ms: OlderThan = None,
    by_failure: Annotated[
        bool, typer.Option("--by-failure", help="Count them, by what they died of.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="At most so many, oldest first.")
    ] = 100,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """List dead letters, the oldest first; or how many died of what."""
    where = Where(workflow_id, type_, failure_type, older_than_ms)
    with connected(endpoint, timeout) as client:
        size = None if by_failure else limit
        found, more = pages(client, where.page, "dead_letters", size)
        if failure_type and not found:
            others, _ = pages(client, where._replace(failure_type=None).page, "dead_letters", None)
            types = [each["failure_type"] for each in dlq_bulk.groups(others)]
            output.note(no_failure(failure_type, types))
    if by_failure:
        dlq_bulk.show_groups(found, as_json=as_json)
        return
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
            described = output.plain(ask(client, wire.DescribeWorkflow(workflow_id)))
            text = f"{activity_id} of {workflow_id} {_instead(described, activity_id)}"
            raise output.fail(text, output.NOT_FOUND)
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


@app.command(
    epilog="\b\nExamples:\n  perdure wf dlq redrive order-42 charge\n"
    "  perdure wf dlq redrive --all --failure-type Timeout --canary --rate 20"
)
def redrive(
    workflow_id: OneWorkflow = None,
    activity_id: OneActivity = None,
    input_: Annotated[
        str | None,
        typer.Option("--input", metavar="JSON", help="Instead of the input that it has."),
    ] = None,
    all_: bulk.All = False,
    type_: ActivityType = None,
    failure_type: FailureType = None,
    older_than_ms: OlderThan = None,
    canary: Canary = False,
    canary_timeout_ms: CanaryTimeout = 600_000,
    dry_run: bulk.DryRun = False,
    yes: bulk.Yes = False,
    rate: bulk.Rate = None,
    by: By = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Send a dead letter round again: attempt 1 with its full retry policy and the same idempotency
    key. With --all: all that match; ID then narrows it to one workflow.
    """
    from perdure import wire

    raw = wire.ABSENT if input_ is None else _raw(input_, "--input")

    def args(id_: str, activity: str, request_id: str) -> wire.Args:
        return wire.RedriveDeadLetter(id_, activity, raw, request_id, by)

    how = How("redrive", "redriven", args, dry_run, yes, rate, as_json, canary, canary_timeout_ms)
    where = Where(workflow_id, type_, failure_type, older_than_ms)
    dlq_bulk.resolve(where, activity_id, all_, how, endpoint, timeout)


@app.command(epilog="\b\nExample:\n  perdure wf dlq fail order-42 charge")
def fail(
    workflow_id: OneWorkflow = None,
    activity_id: OneActivity = None,
    all_: bulk.All = False,
    type_: ActivityType = None,
    failure_type: FailureType = None,
    older_than_ms: OlderThan = None,
    dry_run: bulk.DryRun = False,
    yes: bulk.Yes = False,
    rate: bulk.Rate = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Give a dead letter up: its workflow sees the last failure. With --all: all that match."""
    from perdure import wire

    def args(id_: str, activity: str, request_id: str) -> wire.Args:
        return wire.FailDeadLetter(id_, activity, request_id)

    how = How("fail", "failed", args, dry_run, yes, rate, as_json)
    where = Where(workflow_id, type_, failure_type, older_than_ms)
    dlq_bulk.resolve(where, activity_id, all_, how, endpoint, timeout)


@app.command(
    epilog="\b\nExample:\n  perdure wf dlq complete order-42 charge --result '\"receipt-7\"'"
)
def complete(
    result: Annotated[
        str, typer.Option("--result", metavar="JSON", help="What the activity would have returned.")
    ],
    workflow_id: OneWorkflow = None,
    activity_id: OneActivity = None,
    all_: bulk.All = False,
    type_: ActivityType = None,
    failure_type: FailureType = None,
    older_than_ms: OlderThan = None,
    dry_run: bulk.DryRun = False,
    yes: bulk.Yes = False,
    rate: bulk.Rate = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Settle a dead letter with a result: the work was done by hand. With --all: all that match."""
    from perdure import wire

    raw = _raw(result, "--result")

    def args(id_: str, activity: str, request_id: str) -> wire.Args:
        return wire.CompleteDeadLetter(id_, activity, raw, request_id)

    how = How("complete", "completed", args, dry_run, yes, rate, as_json)
    where = Where(workflow_id, type_, failure_type, older_than_ms)
    dlq_bulk.resolve(where, activity_id, all_, how, endpoint, timeout)


def _raw(text: str, option: str) -> Any:
    from perdure import wire
    from perdure.values import encode

    return wire.raw_payload(encode(json_option(text, option)))


def _instead(described: dict[str, Any], activity_id: str) -> str:
    """What an activity is that is no dead letter."""
    for one in described["pending_activities"]:
        if one["activity_id"] == activity_id:
            from perdure.policy import attempt_of

            again = "is redriven already" if one["generation"] > 1 else "is no dead letter"
            return (
                f"{again}: it is {one['state']}, {attempt_of(one['attempt'], one['max_attempts'])}"
            )
    if described["status"] != "Running":
        return f"is no dead letter: the workflow is {described['status']}"
    where = f"`perdure wf history {described['workflow_id']}`"
    return f"is no dead letter: nothing of that name is open; what was is in {where}"


def is_redriven(before: int, attempt: int | None) -> bool:
    """Whether a redrive lies between two failures in a row: attempt numbers rise within one life of
    a dead letter. `before` is 0 at the first.
    """
    return before > 0 and attempt is not None and attempt <= before


def _now_ms() -> int:
    from perdure.clock import wall_ms

    return wall_ms()
