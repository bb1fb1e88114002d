"""`perdure up` runs a node; `perdure ps` shows its tree."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli import output
from perdure.cli.options import (
    DATA_DEFAULT,
    ENDPOINT_VARIABLE,
    SEED_MAX,
    TIMEOUT_S_DEFAULT,
    AsJson,
    Build,
    Endpoint,
    Timeout,
    milliseconds,
)

DEMO = "perdure.demo"
WORKERS_DEFAULT = 2
# How long `ps` waits for the gateway, beside the root.
PAUSES_MS = 1_000
SLOTS_DEFAULT = 100
GRACE_MS_DEFAULT = 5_000


App = Annotated[
    list[str] | None,
    typer.Option("--app", metavar="MODULE", help="A module with workflows and activities."),
]
Workers = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help=f"Worker processes.  [default: {WORKERS_DEFAULT}]"),
]
Slots = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help=f"Activities at a time, a worker.  [default: {SLOTS_DEFAULT}]"
    ),
]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="NAME", help='Queue to serve.  [default: "default"]'),
]
Data = Annotated[
    str | None,
    typer.Option(metavar="DIR", help=f"Where the state is kept.  [default: {DATA_DEFAULT}]"),
]
ConfigFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Instead of perdure.toml.")]
Bind = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ENDPOINT",
        help="One more endpoint for clients: ipc://PATH, tcp://127.0.0.1:PORT.",
    ),
]
Outboxes = Annotated[
    list[str] | None,
    typer.Option(
        "--outbox",
        metavar="URL",
        help="A database whose outbox is drained: sqlite:///app.db, postgresql://….",
    ),
]
GraceMs = Annotated[
    int, typer.Option(min=0, metavar="MS", help="What workers get to finish at a stop.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=-SEED_MAX, max=SEED_MAX, metavar="N", help="Of the jitter, for repeatable runs."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this noun."""
    app.command(
        epilog="\b\nExamples:\n  perdure up\n  perdure up --app shop --workers 4",
    )(up)
    app.command(epilog="\b\nExample:\n  perdure ps --json")(ps)
    app.command(epilog="\b\nExample:\n  perdure aside --json")(aside)


def up(
    app: App = None,
    workers: Workers = None,
    slots: Slots = None,
    queue: Queues = None,
    data: Data = None,
    config: ConfigFile = None,
    bind: Bind = None,
    outbox: Outboxes = None,
    grace_ms: GraceMs = GRACE_MS_DEFAULT,
    seed: Seed = None,
    build: Build = "",
) -> None:
    """Run a node in the foreground.

    Prints `ready ENDPOINT` when it serves; logs go to standard error. Ctrl-C stops it in order,
    twice at once. --app, --queue, --bind and --outbox can be repeated. Without an application it
    runs perdure.demo.
    """
    from perdure import config as configuration
    from perdure.streams import protect_streams
    from supervisors.root import run_node

    protect_streams()
    output.check_log_level()
    with output.reported():
        settings = configuration.load(config, Path.cwd())
    node = settings.node
    apps = tuple(app or node.app)
    if not apps:
        output.note(f"perdure: no --app given, none configured: running {DEMO} (FlakyDemo)")
        apps = (DEMO,)
    data_dir = data or node.data or DATA_DEFAULT
    if DEMO in apps:
        os.environ.setdefault("PERDURE_LEDGER", os.path.realpath(Path(data_dir) / "effects.db"))
    made = _node_config(
        data_dir=data_dir,
        apps=apps,
        cwd=os.getcwd(),
        workers=_first(workers, node.workers, WORKERS_DEFAULT),
        slots=_first(slots, node.slots, SLOTS_DEFAULT),
        bind=tuple(bind or node.bind),
        queues=tuple(queue or node.queues or ("default",)),
        log_json=not sys.stderr.isatty(),
        dlq_after_attempts=settings.durable.dlq_after_attempts,
        retention_ms=settings.durable.retention_ms,
        audit_ms=settings.durable.audit_ms,
        recovery_grace_ms=settings.durable.recovery_grace_ms,
        reserve_bytes=settings.limits.reserve_bytes,
        bounds=settings.limits.bounds(),
        rules=settings.rules,
        outboxes=tuple(outbox or settings.outbox.urls()),
        seed=seed,
        grace_ms=grace_ms,
        build=build,
    )
    raise typer.Exit(run_node(made))


def _node_config(**fields: Any) -> Any:
    from supervisors.config import NodeConfig

    return NodeConfig(**fields)


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def ps(
    data: Annotated[
        str, typer.Option(metavar="DIR", help="The node's data directory.")
    ] = DATA_DEFAULT,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Show the supervisor tree: name, PID, state, restarts, uptime, memory.

    The root supervisor answers itself, so this works while the gateway is down.
    """
    from perdure import node_client

    where = endpoint or os.environ.get(ENDPOINT_VARIABLE)
    asked = root_of(where) if where else data
    hint = f"no node answers at {where or data}: start one with `perdure up`"
    with output.reported(no_node=hint):
        if not where:
            node_client.await_node(data, milliseconds(timeout))
        tree = node_client.ps(asked, milliseconds(timeout))
    if as_json:
        output.emit(tree)
        return
    from perdure.clock import wall_ms

    now_ms = wall_ms()
    rows = list(_rows(tree, now_ms, 0))
    columns = ("NAME", "PID", "STATE", "RESTARTS", "UP", "MEMORY", "BUILD")
    output.show(output.table(columns, rows, right=("PID", "RESTARTS", "UP", "MEMORY")))
    for line in _pauses(where, data):
        output.say(line)


def _pauses(endpoint: str | None, data: str) -> list[str]:
    """What is paused, a line each; the tree is shown without it where the gateway is silent."""
    from perdure.client import Client
    from perdure.errors import PerdureError

    try:
        with Client(endpoint, timeout_ms=PAUSES_MS, data_dir=data) as client:
            pauses = client.list_pauses()
    except PerdureError as problem:
        return ["", f"what is paused is not known: {output.one_line(problem.message)}"]
    lines = [
        output.one_line(
            f"paused: {it.kind.replace('_', ' ')} {it.name}" + (it.reason and f" ({it.reason})")
        )
        for it in pauses
    ]
    return ["", *lines] if lines else []


def aside(
    data: Annotated[
        str, typer.Option(metavar="DIR", help="The node's data directory.")
    ] = DATA_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show commands that made the engine fail: they changed nothing and were set aside.

    Each is a defect of the engine, or damage. Read from the store; no node need run.
    """
    from pathlib import Path

    from perdure.store.protocol import StoreError
    from perdure.store.sqlite import SqliteReader

    try:
        reader = SqliteReader(Path(data))
    except StoreError as problem:
        raise output.fail(str(problem), output.NOT_FOUND) from None
    kept = reader.asides()
    reader.close()
    if as_json:
        output.emit([_aside_view(row) for row in kept])
        return
    rows = [
        (row.command, row.workflow_id or "-", row.times, row.error.rstrip().rpartition("\n")[2])
        for row in kept
    ]
    output.show(output.table(("COMMAND", "WORKFLOW", "TIMES", "ERROR"), rows, right=("TIMES",)))


def _aside_view(row: Any) -> dict[str, Any]:
    from base64 import b64encode

    return {
        "command": row.command,
        "workflow_id": row.workflow_id or None,
        "times": row.times,
        "first_ms": row.first_ms,
        "last_ms": row.last_ms,
        "error": row.error,
        "body": None if row.body is None else b64encode(row.body).decode("ascii"),
    }


def root_of(endpoint: str) -> str:
    """The root's own endpoint, which lies beside the node's public one."""
    folder, slash, name = endpoint.rpartition("/")
    if not endpoint.startswith("ipc://") or not slash or name not in ("public", "root"):
        raise output.fail(
            "the tree can only be asked for beside the node: use --data, or its ipc endpoint as "
            "`perdure up` printed it",
            output.USAGE,
        )
    return f"{folder}/root"


def _state(tree: dict[str, Any]) -> Any:
    state, why = str(tree.get("state", "-")), tree.get("reason")
    return output.coloured(state) if not why else output.one_line(f"{state}: {why}")


def _rows(tree: dict[str, Any], now_ms: int, depth: int) -> Sequence[tuple[Any, ...]]:
    started_ms = tree.get("started_ms")
    rows: list[tuple[Any, ...]] = [
        (
            "  " * depth + str(tree["name"]),
            tree.get("pid") or "-",
            _state(tree),
            tree.get("restarts", 0),
            output.duration(now_ms - started_ms) if started_ms else "-",
            output.size(tree.get("rss_bytes")),
            tree.get("build") or "-",
        )
    ]
    for child in tree.get("children") or []:
        rows += _rows(child, now_ms, depth + 1)
    return rows
