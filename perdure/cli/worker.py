"""`perdure worker`: a worker on its own, beside a node."""

from __future__ import annotations

from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this noun."""
    app.command(
        epilog="\b\nExample:\n"
        "  perdure worker --app shop.workflows --connect ipc://.perdure/run/4f0a2c/public",
    )(worker)


def worker(
    app: Annotated[
        list[str],
        typer.Option("--app", metavar="MODULE", help="A module with workflows and activities."),
    ],
    connect: Annotated[
        str, typer.Option(metavar="ENDPOINT", help="The node, as `perdure up` printed it.")
    ],
    slots: Annotated[int, typer.Option(min=1, metavar="N", help="Activities at a time.")] = 8,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME", help='Queue to serve.  [default: "default"]'),
    ] = None,
) -> None:
    """Run a worker in the foreground, for a node on this machine. Ctrl-C stops it in order."""
    raise NotImplementedError
