"""The options that many commands share, and how a command line's words become values."""

from __future__ import annotations

import inspect
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from perdure.cli import output
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from perdure import wire
    from perdure.client import Client

TIMEOUT_S_DEFAULT = 5.0
ENDPOINT_VARIABLE = "PERDURE_ENDPOINT"
DATA_DEFAULT = ".perdure"

SECONDS_MAX = 1e9
SEED_MAX = 2**63 - 1


def finite(value: float | None) -> float | None:
    """The callback of an option that takes a number: no "nan" and no "inf" gets past it."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no finite number")
    return value


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="ENDPOINT",
        help=f"The node to talk to; else ${ENDPOINT_VARIABLE}, else the node of ./.perdure.",
        show_default=False,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.0,
        max=SECONDS_MAX,
        callback=finite,
        metavar="SECONDS",
        help="How long to wait for the node to answer.",
    ),
]
WorkflowId = Annotated[str, typer.Argument(metavar="ID", help="The workflow's id.")]
Build = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What this build of the application is called; else by what its files hold.",
        show_default=False,
    ),
]
ActivityId = Annotated[str, typer.Argument(metavar="ACTIVITY", help="The activity's id.")]

FIELDS_KEY = "perdure.fields"


class Commands(TyperGroup):
    """A group whose list shows the first sentence of each command whole, however long."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        command: Any = super().get_command(ctx, cmd_name)
        if command is not None and command.help and not command.short_help:
            command.short_help = first_sentence(command.help)
        return command


def first_sentence(text: str) -> str:
    """The first sentence of a help text, on one line."""
    paragraph = " ".join(inspect.cleandoc(text).split("\n\n")[0].split())
    return paragraph.split(". ")[0].removesuffix(".") + "."


class FieldsCommand(TyperCommand):
    """A command whose unknown options are fields of an input: --fail-rate 0.5 is fail_rate=0.5."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Takes the fields out of `args`, in whatever order they stand, and leaves the rest to be
        parsed as usual.
        """
        known: dict[str, bool] = {}
        for param in self.get_params(ctx):
            takes_value = not getattr(param, "is_flag", False)
            known |= {
                name: takes_value and param.param_type_name == "option"
                for name in [*param.opts, *param.secondary_opts]
                if name.startswith("-")
            }
        rest, fields = split_fields(args, known)
        ctx.meta[FIELDS_KEY] = fields
        return super().parse_args(ctx, rest)


def split_fields(args: list[str], known: dict[str, bool]) -> tuple[list[str], dict[str, Any]]:
    """(what is left, the fields). `known`: the command's own options, and whether each takes a
    value.

    A field's value is what follows "=", else the next word unless that is an option, else true. A
    word that begins with one dash is a value (-5). After "--" nothing is an option.
    """
    rest: list[str] = []
    fields: dict[str, Any] = {}
    words = iter(range(len(args)))
    for index in words:
        word = args[index]
        if word == "--":
            rest += args[index:]
            break
        name, equals, text = word.partition("=")
        if not word.startswith("--") or name in known:
            rest.append(word)
            # The word behind a known option that takes a value is that value, whatever it looks
            # like.
            if name in known and known[name] and not equals and index + 1 < len(args):
                rest.append(args[next(words)])
            continue
        if not equals and index + 1 < len(args) and not args[index + 1].startswith("--"):
            value = json_or_text(args[next(words)])
        else:
            value = json_or_text(text) if equals else True
        field = name[2:].replace("-", "_")
        if field in fields:
            raise typer.BadParameter(f"{name} is given twice")
        fields[field] = value
    return rest, fields


def json_or_text(text: str) -> Any:
    """What `text` says as JSON, else the text itself."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return text


def json_option(text: str, name: str) -> Any:
    """What `text` says as JSON; a usage error that names the option where it is none."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as cause:
        raise typer.BadParameter(
            f"{name}: this is no JSON ({cause}); a text needs quotes: {name} '\"text\"'"
        ) from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not in JSON")


def merged_input(given: str | None, fields: dict[str, Any]) -> tuple[bool, Any]:
    """(whether there is an input, the input) of --input and the fields together."""
    if given is None:
        return bool(fields), fields
    value = json_option(given, "--input")
    if not fields:
        return True, value
    if not isinstance(value, dict):
        names = ", ".join("--" + name for name in fields)
        raise typer.BadParameter(f"--input must be a JSON object to go together with {names}")
    for name in fields:
        if name in value:
            raise typer.BadParameter(f"{name} is given both in --input and as an option")
    return True, value | fields


@contextmanager
def connected(endpoint: str | None, timeout_s: float) -> Iterator[Client]:
    """A client of the node that is meant; errors become their line and exit code."""
    from perdure.client import Client

    where = endpoint or os.environ.get(ENDPOINT_VARIABLE)
    timeout_ms = milliseconds(timeout_s)
    with (
        output.reported(no_node=lambda: _no_node(where)),
        Client(endpoint, timeout_ms=timeout_ms) as client,
    ):
        yield client


def _no_node(where: str | None) -> str:
    """What to do where no node answers."""
    who = f"no node answers at {where}" if where else "no node of ./.perdure answers"
    pid = None if where else _running_pid(DATA_DEFAULT)
    if pid is not None:
        return f"the node of ./.perdure (process {pid}) does not answer: see `perdure ps`"
    return wrong_door(where) or f"{who}: start one with `perdure up`, or name one with --endpoint"


def _running_pid(data_dir: str) -> int | None:
    """The root process of the node that serves, or served, on this directory, if it is alive."""
    import psutil

    from perdure.errors import Unavailable
    from perdure.node_client import read_node

    try:
        node = read_node(data_dir)
        if node is None:
            return None
        process = psutil.Process(node.pid)
        is_it = process.create_time() == node.pid_started
        return node.pid if is_it and process.status() != psutil.STATUS_ZOMBIE else None
    except (Unavailable, psutil.Error):
        return None


def instant_ms(text: str | None, time_zone: str, name: str) -> int | None:
    """The instant of an ISO date and time, in `time_zone` where it names none; None for None."""
    import datetime

    from perdure.times import zone

    if text is None:
        return None
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{name}: {text!r} is no time like 2026-12-24T18:00 or 2026-12-24T18:00+01:00"
        ) from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=zone(time_zone))
    return max(0, int(at.timestamp() * 1000))


def milliseconds(seconds: float) -> int:
    """A wait that was given in seconds, in whole milliseconds; at least one."""
    return max(1, int(seconds * 1_000))


def wrong_door(endpoint: str | None) -> str:
    """What is wrong with an endpoint that is another of a node's than the one for everybody; empty
    where nothing is to be seen.
    """
    address, _, name = (endpoint or "").rpartition("/")
    if name not in ("workers", "root"):
        return ""
    whose = "its workers, once they have connected" if name == "workers" else "its own processes"
    return (
        f"{endpoint} is where a node talks to {whose}: give the endpoint that `perdure up` printed,"
        f" likely {address}/public"
    )


def ask(client: Client, args: wire.Args) -> Any:
    """The `ok` of the answer to one operation, as plain data; raises its error."""
    [outcome] = client.call_many([args])
    if isinstance(outcome, PerdureError):
        raise outcome
    return outcome
