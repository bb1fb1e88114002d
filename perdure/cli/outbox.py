"""`perdure outbox`: the rows that applications wrote into their own databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli import output
from perdure.cli.options import AsJson, Commands

if TYPE_CHECKING:
    from perdure.outbox.places import Place

app = typer.Typer(
    cls=Commands,
    help="Starts and signals that applications wrote in transactions of their own.",
    epilog="\b\nExample:\n  perdure outbox list --outbox sqlite:///app.db",
    no_args_is_help=True,
)


class State(StrEnum):
    """What may become of a row."""

    PENDING = "pending"
    FAILED = "failed"
    DONE = "done"


class Database(StrEnum):
    """Those whose table can be printed."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


Outboxes = Annotated[
    list[str] | None,
    typer.Option(
        "--outbox",
        metavar="URL",
        help="sqlite:///app.db or postgresql://…; else those of the configuration.",
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Instead of perdure.toml.")
]


@app.command(
    name="list", epilog="\b\nExample:\n  perdure outbox list --state failed --outbox app.db"
)
def list_rows(
    outbox: Outboxes = None,
    state: Annotated[
        State | None, typer.Option(help="Only these; else the pending and the failed ones.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Of each state.")] = 100,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show rows of outboxes, the newest first: what waits, and what a node has refused and why.

    Read from the databases; no node need run.
    """
    wanted = (State.FAILED, State.PENDING) if state is None else (state,)
    found = []
    for place in _places(outbox, config):
        with _opened(place) as source:
            for each in wanted:
                rows = source.entries(each.value, limit)
                found += [{"outbox": str(place), **row._asdict()} for row in rows]
    if as_json:
        output.emit(found)
        return
    from perdure.clock import wall_ms

    now_ms = wall_ms()
    rows = [
        (
            it["id"],
            it["op"],
            it["workflow_id"],
            it["name"],
            output.when(it["created_ms"], now_ms),
            it["state"],
            output.short(f"{it['code']}: {it['message']}") if it["code"] else "-",
        )
        for it in found
    ]
    columns = ("ID", "OPERATION", "WORKFLOW", "NAME", "WRITTEN", "STATE", "WHY")
    output.show(output.table(columns, rows))


@app.command(epilog="\b\nExample:\n  perdure outbox retry 6f1c2a… --outbox app.db")
def retry(
    row_id: Annotated[str, typer.Argument(metavar="ID", help="The row's id.")],
    outbox: Outboxes = None,
    config: ConfigFile = None,
) -> None:
    """Have a row that was refused asked again.

    Exit code 5: no outbox has a failed row of this id.
    """
    for place in _places(outbox, config):
        with _opened(place) as source:
            if source.retry(row_id):
                output.say(f"{row_id} is pending again")
                return
    raise output.fail(f"no outbox has a failed row {row_id}", output.NOT_FOUND)


@app.command(epilog="\b\nExample:\n  perdure outbox schema postgres | psql shop")
def schema(
    database: Annotated[Database, typer.Argument(metavar="sqlite|postgres", help="Of which kind.")],
) -> None:
    """Print the SQL that creates the table."""
    from perdure.outbox import POSTGRES_SCHEMA, SQLITE_SCHEMA

    text = SQLITE_SCHEMA if database is Database.SQLITE else POSTGRES_SCHEMA
    output.say(text.rstrip())


def _places(given: list[str] | None, config: Path | None) -> list[Place]:
    from perdure import config as configuration
    from perdure.outbox.places import check_driver, place_of

    with output.reported():
        urls = given or configuration.load(config, Path.cwd()).outbox.urls()
        places = [place_of(url, Path.cwd()) for url in urls]
        for place in places:
            check_driver(place)
    if not places:
        raise output.fail("no outbox is configured: name one with --outbox", output.USAGE)
    return places


@contextmanager
def _opened(place: Place) -> Iterator[Any]:
    from perdure.outbox.places import SQLITE
    from perdure.outbox.postgres import PostgresSource
    from perdure.outbox.sqlite import SqliteSource
    from perdure.outbox.table import Trouble

    of: Any = SqliteSource if place.kind == SQLITE else PostgresSource
    try:
        with closing(of(place.address)) as source:
            yield source
    except Trouble as trouble:
        raise output.fail(f"{place}: {trouble}", output.NOT_FOUND) from None
