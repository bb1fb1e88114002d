"""`perdure wf signal`, `query`, `update`, `cancel`, `terminate`: to one workflow, or to many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli import bulk, filters, output
from perdure.cli.filters import Where
from perdure.cli.options import (
    TIMEOUT_S_DEFAULT,
    AsJson,
    Endpoint,
    Timeout,
    WorkflowId,
    ask,
    connected,
    json_option,
)
from perdure.cli.wf import Run

if TYPE_CHECKING:
    import msgspec

    from perdure import wire

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name in the workflow's code.")]
Value = Annotated[
    str | None,
    typer.Argument(
        metavar="[JSON]",
        help="The input: an array is the arguments, an object the keyword arguments.",
        show_default=False,
    ),
]
SomeWorkflowId = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="The workflow's id.", show_default=False)
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept.")]
RequestId = Annotated[
    str | None,
    typer.Option("--request-id", metavar="ID", help="The same one again takes effect once."),
]
StartType = Annotated[
    str | None,
    typer.Option("--start", metavar="TYPE", help="Start it first, where there is none of this id."),
]
StartInput = Annotated[
    str | None, typer.Option("--input", metavar="JSON", help="Its input, with --start.")
]
StartQueue = Annotated[
    str | None, typer.Option("--queue", metavar="NAME", help="Its workers' queue, with --start.")
]


def add_to(app: typer.Typer) -> None:
    """The commands, on `perdure wf`."""
    app.command(
        epilog="\b\nExamples:\n  perdure wf signal order-42 approve '[\"ann\"]'\n"
        "  perdure wf signal cart-7 add '[\"lamp\"]' --start cart --input '[\"c-7\"]'"
    )(signal)
    app.command(epilog="\b\nExample:\n  perdure wf query order-42 state")(query)
    app.command(epilog="\b\nExample:\n  perdure wf update order-42 set_address '[\"Elm Street\"]'")(
        update
    )
    app.command(
        epilog="\b\nExamples:\n  perdure wf cancel order-42 --reason 'out of stock'\n"
        "  perdure wf cancel --all --type checkout --older-than-ms 86400000 --dry-run"
    )(cancel)
    app.command(
        epilog="\b\nExamples:\n  perdure wf terminate order-42 --reason 'never again'\n"
        "  perdure wf terminate --all --failure-type BadSpec --dry-run"
    )(terminate)


def signal(
    workflow_id: WorkflowId,
    name: Name,
    value: Value = None,
    start: StartType = None,
    input_: StartInput = None,
    queue: StartQueue = None,
    request_id: RequestId = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Hand a signal to a workflow's code. It is durable when this returns.

    With --start the workflow is started with it, where there is none of this id.
    """
    from perdure import wire
    from perdure.request_ids import new_request_id

    first, chosen = _first(start, input_, queue), request_id or new_request_id()
    args = wire.SignalWorkflow(workflow_id, name, _raw(value), chosen, first)
    with connected(endpoint, timeout) as client:
        answer = ask(client, args)
    started = bool(answer and answer.get("started"))
    _said("started and signalled" if started else "signalled", workflow_id, as_json)
    if answer and answer.get("taken") is False:
        output.note(
            f"its code, as it stands, takes no signal {name!r}: it waits until there is a handler "
            f"(`perdure wf describe {workflow_id}` lists what it takes)"
        )


def query(
    workflow_id: WorkflowId,
    name: Name,
    value: Value = None,
    run: Run = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Ask a workflow's code, running or ended, and print what it says."""
    from perdure import wire

    wait_ms = int(timeout * 1_000)
    args = wire.QueryWorkflow(workflow_id, name, _raw(value), run, wait_ms)
    with connected(endpoint, timeout) as client:
        found = _one(client, args, wait_ms)["result"]
    if as_json:
        output.emit({"workflow_id": workflow_id, "result": found})
    else:
        output.say(output.json_line(found))


def update(
    workflow_id: WorkflowId,
    name: Name,
    value: Value = None,
    start: StartType = None,
    input_: StartInput = None,
    queue: StartQueue = None,
    request_id: RequestId = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Ask a workflow's code for a change, and print its answer. Exit code 1: it was rejected, or
    failed; 6: it is not done in --timeout.

    With --start the workflow is started with it, where there is none of this id.
    """
    from perdure import wire
    from perdure.request_ids import new_request_id

    wait_ms = int(timeout * 1_000)
    chosen = request_id or new_request_id()
    first = _first(start, input_, queue)
    args = wire.UpdateWorkflow(workflow_id, name, chosen, _raw(value), wait_ms, first)
    with connected(endpoint, timeout) as client:
        found = _one(client, args, wait_ms)["result"]
    if as_json:
        output.emit({"workflow_id": workflow_id, "result": found})
    else:
        output.say(output.json_line(found))


def cancel(
    workflow_id: SomeWorkflowId = None,
    reason: Reason = "",
    all_: bulk.All = False,
    type_: filters.OfType = None,
    pending_state: filters.WithPendingState = None,
    failure_type: filters.WithFailure = None,
    activity_type: filters.WithActivity = None,
    attempts: filters.WithAttempts = None,
    older_than_ms: filters.OlderThan = None,
    younger_than_ms: filters.YoungerThan = None,
    attr: filters.WithAttribute = None,
    parent: filters.OfParent = None,
    stuck: filters.IsStuck = False,
    dry_run: bulk.DryRun = False,
    yes: bulk.Yes = False,
    rate: bulk.Rate = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Ask a workflow to end: its code may clean up first. With --all: all that run and match."""
    where = Where(
        type_,
        "Running",
        pending_state,
        failure_type,
        activity_type,
        attempts,
        older_than_ms,
        younger_than_ms,
        attr,
        parent,
        stuck,
    )
    how = _How("cancel", "asked to end", "CancelWorkflow", reason, dry_run, yes, rate, as_json)
    _end(workflow_id, all_, where, how, endpoint, timeout)


def terminate(
    workflow_id: SomeWorkflowId = None,
    reason: Reason = "",
    all_: bulk.All = False,
    type_: filters.OfType = None,
    pending_state: filters.WithPendingState = None,
    failure_type: filters.WithFailure = None,
    activity_type: filters.WithActivity = None,
    attempts: filters.WithAttempts = None,
    older_than_ms: filters.OlderThan = None,
    younger_than_ms: filters.YoungerThan = None,
    attr: filters.WithAttribute = None,
    parent: filters.OfParent = None,
    stuck: filters.IsStuck = False,
    dry_run: bulk.DryRun = False,
    yes: bulk.Yes = False,
    rate: bulk.Rate = None,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """End a workflow at once, its code unasked. With --all: all that run and match."""
    where = Where(
        type_,
        "Running",
        pending_state,
        failure_type,
        activity_type,
        attempts,
        older_than_ms,
        younger_than_ms,
        attr,
        parent,
        stuck,
    )
    how = _How("terminate", "terminated", "TerminateWorkflow", reason, dry_run, yes, rate, as_json)
    _end(workflow_id, all_, where, how, endpoint, timeout)


# --- what they share -----------------------------------------------------------
class _How:
    """How workflows are ended."""

    def __init__(
        self,
        verb: str,
        word: str,
        op: str,
        reason: str,
        dry_run: bool,
        yes: bool,
        rate: float | None,
        as_json: bool,
    ) -> None:
        self.verb, self.word, self.op, self.reason = verb, word, op, reason
        self.dry_run, self.yes, self.rate, self.as_json = dry_run, yes, rate, as_json

    def args(self, workflow_id: str) -> wire.Args:
        """The operation that ends this one."""
        from perdure import wire
        from perdure.request_ids import new_request_id

        kind: Any = wire.OPERATIONS[self.op]
        made: wire.Args = kind(workflow_id, self.reason or None, new_request_id())
        return made


def _end(
    workflow_id: str | None,
    all_: bool,
    where: Where,
    how: _How,
    endpoint: str | None,
    timeout: float,
) -> None:
    filters_given = where.checked() != Where(status="Running")
    if (workflow_id is None) != all_ or (filters_given and not all_):
        raise typer.BadParameter(
            f"name one workflow (perdure wf {how.verb} ID), or --all with filters, not both"
        )
    with connected(endpoint, timeout) as client:
        if workflow_id is not None and not how.dry_run:
            ask(client, how.args(workflow_id))
            _said(how.word, workflow_id, how.as_json)
            return
        ids = [] if workflow_id is None else [workflow_id]
        if workflow_id is None:
            found, _ = filters.pages(client, where.page, "workflows", None)
            ids = [it["workflow_id"] for it in found]
        if how.dry_run:
            bulk.counted(len(ids), "workflow", as_json=how.as_json)
            return
        bulk.confirmed(f"{how.verb} workflows:", len(ids), yes=how.yes)
        items = [bulk.Item(id_, how.args(id_)) for id_ in ids]
        bulk.run(
            client, items, rate=how.rate, verb=how.verb, done_word=how.word, as_json=how.as_json
        )


def _one(client: Any, args: wire.Args, wait_ms: int) -> Any:
    [outcome] = client.call_many([args], client.timeout_ms + wait_ms)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _raw(value: str | None) -> msgspec.Raw:
    from perdure import wire
    from perdure.values import encode

    if value is None:
        return wire.ABSENT
    return wire.raw_payload(encode(json_option(value, "JSON")))


def _first(type_: str | None, input_: str | None, queue: str | None) -> wire.StartFirst | None:
    """How the workflow is started, where there is none to hear it."""
    from perdure import wire

    if type_ is None:
        if input_ is not None or queue is not None:
            raise typer.BadParameter("--input and --queue are of a start: give --start TYPE, too")
        return None
    return wire.StartFirst(type_, _raw(input_), queue or "default")


def _said(word: str, workflow_id: str, as_json: bool) -> None:
    if as_json:
        output.emit({"workflow_id": workflow_id, "done": word})
    else:
        output.say(f"{word}: {workflow_id}")
