"""What operators do to the flow of work: `perdure queue`, `perdure activity`, and of `perdure wf`
pause, resume, retry and explain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli import output, unserved, wf_reset, wf_views
from perdure.cli.options import (
    TIMEOUT_S_DEFAULT,
    AsJson,
    Commands,
    Endpoint,
    Timeout,
    WorkflowId,
    ask,
    connected,
)

if TYPE_CHECKING:
    from perdure import wire

queue_app = typer.Typer(
    cls=Commands,
    help="Task queues: which there are, pause and resume them.",
    epilog="\b\nExample:\n  perdure queue pause mail --reason 'the provider is down'",
    no_args_is_help=True,
    rich_markup_mode=None,
)
activity_app = typer.Typer(
    cls=Commands,
    help="Activity types: which there are, pause and resume them.",
    epilog="\b\nExample:\n  perdure activity pause charge --reason 'the bank is down'",
    no_args_is_help=True,
    rich_markup_mode=None,
)

QueueName = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]
TypeName = Annotated[str, typer.Argument(metavar="TYPE", help="The activity's type.")]
SomeActivityId = Annotated[
    str | None,
    typer.Argument(metavar="[ACTIVITY]", help="One activity of it.", show_default=False),
]
Reason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Why; explain shows it.", show_default=False),
]


def add_to(app: typer.Typer, wf_app: typer.Typer) -> None:
    """The commands, on `perdure` and on `perdure wf`."""
    app.add_typer(queue_app, name="queue")
    app.add_typer(activity_app, name="activity")
    wf_app.command(epilog="\b\nExample:\n  perdure wf explain order-42 charge")(explain)
    wf_app.command(epilog="\b\nExample:\n  perdure wf retry order-42 charge")(retry)
    wf_app.command(epilog="\b\nExample:\n  perdure wf pause order-42 --reason 'a bad address'")(
        pause
    )
    wf_app.command(epilog="\b\nExample:\n  perdure wf resume order-42")(resume)
    wf_app.command(
        epilog="\b\nExamples:\n  perdure wf reset order-42 --to 7 --dry-run\n"
        "  perdure wf reset order-42 --to 7 --reason 'wrong price list' --yes"
    )(wf_reset.reset)


# --- queues and activity types -------------------------------------------------
@queue_app.command("list", epilog="\b\nExample:\n  perdure queue list")
def list_queues(
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """List the queues that workers serve or that are paused."""
    _list("queue", "queues", as_json, endpoint, timeout)


@queue_app.command("pause", epilog="\b\nExample:\n  perdure queue pause mail --reason 'no quota'")
def pause_queue(
    name: QueueName,
    reason: Reason = "",
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Give nothing of this queue to anybody until it is resumed. What runs goes on."""
    from perdure import wire_flow

    _change(wire_flow.PauseQueue, name, reason, as_json, endpoint, timeout)


@queue_app.command("resume", epilog="\b\nExample:\n  perdure queue resume mail")
def resume_queue(
    name: QueueName,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Go on with a queue."""
    from perdure import wire_flow

    _change(wire_flow.ResumeQueue, name, "", as_json, endpoint, timeout)


@activity_app.command("list", epilog="\b\nExample:\n  perdure activity list")
def list_types(
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """List the activity types that workers have or that are paused."""
    _list("activity_type", "activity_types", as_json, endpoint, timeout)


@activity_app.command("pause", epilog="\b\nExample:\n  perdure activity pause charge")
def pause_type(
    type_: TypeName,
    reason: Reason = "",
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Begin no attempt of this type until it is resumed. What runs goes on."""
    from perdure import wire_flow

    _change(wire_flow.PauseActivityType, type_, reason, as_json, endpoint, timeout)


@activity_app.command("resume", epilog="\b\nExample:\n  perdure activity resume charge")
def resume_type(
    type_: TypeName,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Go on with an activity type."""
    from perdure import wire_flow

    _change(wire_flow.ResumeActivityType, type_, "", as_json, endpoint, timeout)


# --- one workflow -----------------------------------------------------------------
def pause(
    workflow_id: WorkflowId,
    reason: Reason = "",
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Give no task of this workflow to anybody until it is resumed. What runs goes on."""
    from perdure import wire_flow

    _change(wire_flow.PauseWorkflow, workflow_id, reason, as_json, endpoint, timeout)


def resume(
    workflow_id: WorkflowId,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Go on with a workflow."""
    from perdure import wire_flow

    _change(wire_flow.ResumeWorkflow, workflow_id, "", as_json, endpoint, timeout)


def retry(
    workflow_id: WorkflowId,
    activity_id: SomeActivityId = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Try now what waits for its time: a parked workflow task, or activities in their backoff."""
    from perdure import wire_flow
    from perdure.request_ids import new_request_id

    args = wire_flow.RetryWorkflow(workflow_id, activity_id, new_request_id())
    with connected(endpoint, timeout) as client:
        ask(client, args)
    what = f"{activity_id} of {workflow_id}" if activity_id else workflow_id
    if as_json:
        output.emit({"workflow_id": workflow_id, "activity_id": activity_id, "done": "retried"})
    else:
        output.say(f"tried now: {what}")


def explain(
    workflow_id: WorkflowId,
    activity_id: SomeActivityId = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Say why a workflow, or one activity of it, is not running, what happens next, and when."""
    from perdure import wire_flow

    with connected(endpoint, timeout) as client:
        found = output.plain(ask(client, wire_flow.ExplainWorkflow(workflow_id, activity_id)))
    if as_json:
        output.emit(found)
        return
    now_ms = _now_ms()
    what = f"{workflow_id} {activity_id}" if activity_id else workflow_id
    output.say(f"{what} ({found['state']}): {found['reason']}")
    at_ms = found["at_ms"]
    is_ahead = at_ms is not None and at_ms > now_ms
    at = f", {output.when(at_ms, now_ms)}" if is_ahead else ""
    output.say(f"next{at}: {found['next']}")
    if found["details"].get("failure"):
        wf_views.show_failure(found["details"]["failure"])
    activities = found["details"].get("activities") or []
    if len(activities) > 1:
        rows = [
            (
                each["activity_id"],
                output.coloured(each["state"]),
                output.when(each.get("at_ms"), now_ms),
                output.one_line(each["reason"]),
            )
            for each in activities
        ]
        output.say()
        output.show(output.table(("ACTIVITY", "STATE", "NEXT", "WHY"), rows))


# --- what several share -------------------------------------------------------------
def _change(
    kind: type[wire.Args],
    name: str,
    reason: str,
    as_json: bool,
    endpoint: str | None,
    timeout: float,
) -> None:
    from perdure.request_ids import new_request_id

    made: Any = kind
    with output.reported():
        args = made(name, reason or None, new_request_id())
    word = "paused" if kind.__name__.startswith("Pause") else "resumed"
    offered = {"PauseQueue": "queues", "PauseActivityType": "activity_types"}.get(kind.__name__)
    with connected(endpoint, timeout) as client:
        ask(client, args)
        warning = None if offered is None else unserved.name(client, offered, name)
    if as_json:
        output.emit({"name": name, "done": word, "warning": warning})
    else:
        output.say(f"{word}: {name}")
    output.warn(warning)


def _list(kind: str, offered: str, as_json: bool, endpoint: str | None, timeout: float) -> None:
    from perdure import wire, wire_flow

    with connected(endpoint, timeout) as client:
        pauses = output.plain(ask(client, wire_flow.ListPauses()))["pauses"]
        workers = output.plain(ask(client, wire.WorkerTypes()))["workers"]
    paused = {each["name"]: each for each in pauses if each["kind"] == kind}
    names = sorted({*paused, *(name for worker in workers for name in worker[offered])})
    found = [
        {
            "name": name,
            "paused": name in paused,
            "since_ms": paused.get(name, {}).get("since_ms"),
            "reason": paused.get(name, {}).get("reason") or None,
            "workers": sum(name in worker[offered] for worker in workers),
        }
        for name in names
    ]
    if as_json:
        output.emit(found)
        return
    now_ms = _now_ms()
    rows = [
        (
            each["name"],
            output.coloured("paused" if each["paused"] else "running"),
            output.when(each["since_ms"], now_ms),
            each["reason"] or "-",
            each["workers"],
        )
        for each in found
    ]
    head = "QUEUE" if kind == "queue" else "TYPE"
    columns = (head, "STATE", "SINCE", "REASON", "WORKERS")
    output.show(output.table(columns, rows, right=("WORKERS",)))


def _now_ms() -> int:
    from perdure.clock import wall_ms

    return wall_ms()
