"""`perdure replay`: the code of a module against recorded histories, before it is deployed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli import output
from perdure.cli.options import TIMEOUT_S_DEFAULT, AsJson, Endpoint, Timeout, connected

if TYPE_CHECKING:
    from perdure.client import Client
    from perdure.registry import Registry
    from perdure.replaying import History, Verdict

HASH_SEED = "PYTHONHASHSEED"
LIMIT_DEFAULT = 1_000
PAGE = 1_000


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this noun."""
    app.command(
        epilog="\b\nExamples:\n  perdure wf history order-42 --json > histories/order-42.json\n"
        "  perdure replay shop --history histories/\n"
        "  perdure replay shop --running --type checkout\n\n"
        "Exit code 0: every history fits the code. 1: one does not.",
    )(replay)


Modules = Annotated[
    list[str], typer.Argument(metavar="MODULE...", help="The application's modules.")
]
Histories = Annotated[
    list[Path] | None,
    typer.Option(
        "--history",
        metavar="FILE",
        help="A file that `perdure wf history ID --json` has written, or a folder of such.",
    ),
]
Running = Annotated[bool, typer.Option("--running", help="Every open workflow of a node.")]
Type = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="With --running: of this type only.")
]
Status = Annotated[
    str, typer.Option("--status", metavar="STATUS", help="With --running: others than open ones.")
]
Limit = Annotated[
    int, typer.Option("--limit", min=1, metavar="N", help="With --running: at most so many.")
]


def replay(
    modules: Modules,
    history: Histories = None,
    running: Running = False,
    type_: Type = None,
    status: Status = "Running",
    limit: Limit = LIMIT_DEFAULT,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Replay recorded histories with the code of MODULE, and name each that it does not agree with.

    Nothing is changed, and no activity is run. What differs would stop that workflow when this code
    is deployed: it is parked until code is there that agrees with its history.
    """
    if bool(history) == running:
        raise typer.BadParameter("give --history FILE (as often as needed), or --running")
    _pin_hash_seed()
    with output.reported():
        registry = _loaded(modules)
        if running:
            with connected(endpoint, timeout) as client:
                verdicts = [_checked(registry, one) for one in _open(client, type_, status, limit)]
        else:
            verdicts = [_checked(registry, one) for one in _read(history or [])]
    if as_json:
        output.emit(
            {"checked": len(verdicts), "fit": sum(v.fits for v in verdicts), "verdicts": verdicts}
        )
    else:
        _show(verdicts)
    raise typer.Exit(output.OK if all(v.fits for v in verdicts) else output.FAILED)


def _pin_hash_seed() -> None:
    """Sets of texts have one order in every worker, and so here: see docs/replay.md."""
    if os.environ.get(HASH_SEED) != "0":
        os.environ[HASH_SEED] = "0"
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _loaded(modules: list[str]) -> Registry:
    from perdure import registry
    from perdure.worker import guard

    guard.install()  # Before the application, which may import by name what is guarded.
    return registry.load(modules, os.getcwd())


def _checked(registry: Registry, one: History) -> Verdict:
    from perdure.replaying import check

    return check(registry, one)


def _read(paths: list[Path]) -> Iterator[History]:
    from perdure.replaying import read_histories

    for path in paths:
        yield from read_histories(path)


def _open(client: Client, type_: str | None, status: str, limit: int) -> Iterator[History]:
    """The histories of workflows of a node, the newest first."""
    from perdure.errors import NotFound
    from perdure.replaying import history_of

    page: str | None = None
    while limit:
        found: Any = client.list_workflows(
            type=type_,
            status=status,  # type: ignore[arg-type]
            limit=min(PAGE, limit),
            page=page,
        )
        for each in found.workflows:
            id_, run = each["workflow_id"], each.get("run") or 1
            try:
                events = client.history(id_, run=run)
            except NotFound:
                continue  # Removed by retention since it was listed.
            yield history_of(list(events), id_, run=run)
        limit -= len(found.workflows)
        page = found.next_page
        if page is None:
            return
    if page is not None:
        output.note("there are more: see --limit")


def _short(where: str) -> str:
    """FILE:LINE, from here on where the file lies below."""
    return where.removeprefix(f"{os.getcwd()}/")


def _show(verdicts: list[Verdict]) -> None:
    for each in verdicts:
        if each.fits:
            continue
        name = each.workflow_id if each.run == 1 else f"{each.workflow_id} (run {each.run})"
        at = "" if each.event_id is None else f" at event {each.event_id}"
        output.say(f"{each.verdict}: {name}, {each.workflow_type}{at}")
        if each.expected:
            output.say(f"  recorded: {each.expected}")
            output.say(
                f"  the code: {each.got}" + (f", at {_short(each.where)}" if each.where else "")
            )
        else:
            output.say(f"  {output.one_line(each.message)}")
    fit = sum(each.fits for each in verdicts)
    if not verdicts:
        output.say("no history to replay")
    elif fit == len(verdicts):
        output.say(f"{fit} of {fit} histories fit")
    else:
        output.say(f"{len(verdicts) - fit} of {len(verdicts)} histories do not fit the code")
