"""`perdure worker`: a worker on its own, beside a node."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

import typer

from perdure.cli import output
from perdure.cli.options import (
    DATA_DEFAULT,
    ENDPOINT_VARIABLE,
    TIMEOUT_S_DEFAULT,
    Build,
    Timeout,
    milliseconds,
    wrong_door,
)

SLOTS_DEFAULT = 100
GRACE_MS_DEFAULT = 5_000


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this noun."""
    app.command(
        epilog="\b\nExample:\n"
        "  perdure worker --app shop --connect ipc:///srv/shop/.perdure/run/4f0a2c/public",
    )(worker)


def worker(
    app: Annotated[
        list[str],
        typer.Option("--app", metavar="MODULE", help="A module with workflows and activities."),
    ],
    connect: Annotated[
        str | None,
        typer.Option(
            metavar="ENDPOINT",
            help=f"The node, as `perdure up` printed it; else ${ENDPOINT_VARIABLE}, "
            "else the node of ./.perdure.",
        ),
    ] = None,
    slots: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="Activities at a time.")
    ] = SLOTS_DEFAULT,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME", help='Queue to serve.  [default: "default"]'),
    ] = None,
    grace_ms: Annotated[
        int, typer.Option(min=0, metavar="MS", help="What it gets to finish at a stop.")
    ] = GRACE_MS_DEFAULT,
    build: Build = "",
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Run a worker in the foreground, for a node on this machine. Ctrl-C stops it in order.

    --app and --queue can be repeated. The worker looks for modules in the working directory first.
    """
    from perdure.worker.stopping import Stopping

    stopping = Stopping()  # Before anything that takes its time.
    from perdure.streams import protect_streams
    from perdure.wire_checks import check_name
    from perdure.worker.main import run_external

    protect_streams()
    output.check_log_level()
    with output.reported():
        for name in queue or ():
            check_name(f"queue {name!r:.80}", name)
        endpoint = connect or os.environ.get(ENDPOINT_VARIABLE) or _local_endpoint(app, timeout)
    with output.reported(no_node=wrong_door(endpoint)):
        code = run_external(
            tuple(app),
            os.getcwd(),
            endpoint,
            slots,
            tuple(queue or ("default",)),
            grace_ms=grace_ms,
            log_json=not sys.stderr.isatty(),
            stopping=stopping,
            build=build,
            timeout_ms=milliseconds(timeout),
        )
    raise typer.Exit(code)


def _local_endpoint(apps: list[str], timeout_s: float) -> str:
    from perdure.client import Client
    from perdure.errors import Unavailable
    from perdure.node_client import read_node
    from perdure.worker.main import check_apps

    node = read_node(DATA_DEFAULT)
    if node is None:
        # Whoever mistypes both is told of the one that no node will mend.
        checked = check_apps(apps, os.getcwd())
        if not checked.ok:
            raise output.fail(checked.message, output.USAGE)
        with (
            contextlib.suppress(Unavailable),
            Client(data_dir=DATA_DEFAULT, timeout_ms=milliseconds(timeout_s)) as client,
        ):
            client.ping()  # It may be starting.
        node = read_node(DATA_DEFAULT)
    if node is None:
        raise output.fail(
            "no node runs here: start one with `perdure up`, or name one with --connect",
            output.NO_NODE,
        )
    return node.endpoint
