"""`perdure reload`: other code for the workers, or a fresh process for one actor, while the node
serves; `perdure workers`: who serves, and with which build.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Annotated, Any

import typer

from perdure.cli import output, reload_elsewhere
from perdure.cli.options import (
    DATA_DEFAULT,
    ENDPOINT_VARIABLE,
    TIMEOUT_S_DEFAULT,
    AsJson,
    Endpoint,
    Timeout,
    ask,
    connected,
    milliseconds,
)

WORKERS = "workers"
# One step: what a worker gets to finish, and what it may take to begin.
STEP_S = 180
REPLAYED_DEFAULT = 1_000


Actor = Annotated[
    str | None,
    typer.Argument(
        metavar="[ACTOR]",
        help="history, scheduler, lease_keeper, dlq, gateway, or one worker.",
        show_default=False,
    ),
]


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this noun."""
    app.command(
        epilog="\b\nExamples:\n  perdure reload --workers\n"
        "  perdure reload --workers --app shop_v2 --build v2\n  perdure reload scheduler\n\n"
        "Exit code 0: all were replaced. 1: a running workflow does not fit the new code, or a "
        "replacement does not come to serve. 2: the new code can't be loaded; nothing was touched.",
    )(reload)
    app.command(epilog="\b\nExample:\n  perdure workers")(workers)


def reload(
    actor: Actor = None,
    of_workers: Annotated[
        bool, typer.Option("--workers", help="Every worker, those of `perdure worker` as well.")
    ] = False,
    app: Annotated[
        list[str] | None,
        typer.Option("--app", metavar="MODULE", help="Other modules than until now (workers)."),
    ] = None,
    build: Annotated[
        str | None,
        typer.Option("--build", metavar="NAME", help="What the new code is called (workers)."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Go on although running workflows do not fit.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="Replay the newest N running workflows.")
    ] = REPLAYED_DEFAULT,
    data: Annotated[
        str, typer.Option(metavar="DIR", help="The node's data directory.")
    ] = DATA_DEFAULT,
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Replace processes one after the other while the node serves.

    With --workers the new code is loaded and the running workflows are replayed with it first, in a
    process of its own: what it would break is said, and nothing is touched. Then each worker
    finishes what it can, hands back the rest and is replaced; the next one waits until the one
    before serves. Workers that were started with `perdure worker` follow: each tries whether its
    own modules load, finishes, and executes itself again. --app can be repeated.
    """
    from perdure import node_client

    if of_workers == bool(actor):
        raise typer.BadParameter("give --workers, or the name of one actor")
    if not of_workers and (app or build):
        raise typer.BadParameter("--app and --build are for --workers")
    where = endpoint or os.environ.get(ENDPOINT_VARIABLE)
    root = _root_of(where) if where else data
    hint = f"no node answers at {where or data}: start one with `perdure up`"
    with output.reported(no_node=hint):
        if of_workers:
            (look,) = node_client.reload(root, {"what": "look"}, milliseconds(timeout))
            public = where or _public(data)
            words = [*(app or look["apps"]), "--limit", str(limit), "--endpoint", public]
            _check(words, look["cwd"], force=force, as_json=as_json)
        order = {"what": WORKERS if of_workers else actor, "apps": app, "build": build}
        last: dict[str, Any] = {}
        for last in node_client.reload(root, order, STEP_S * 1_000):
            if not as_json:
                _say(last)
    if of_workers and last["event"] == "done":
        last = _elsewhere(public, timeout, last, as_json=as_json)
    if as_json:
        output.emit(last)
    raise typer.Exit(output.OK if last["event"] == "done" else output.FAILED)


def _elsewhere(
    endpoint: str, timeout: float, last: dict[str, Any], *, as_json: bool
) -> dict[str, Any]:
    """Workers that the node has not started begin anew by themselves; those that do not are said
    plainly, since what they run is the old code.
    """
    with connected(endpoint, timeout) as client:
        done, kept = reload_elsewhere.restart_all(client, STEP_S, quiet=as_json)
    if not (done or kept):
        return last
    if done and not as_json:
        output.say(f"began anew: {' '.join(done)}")
    for name, why in kept.items():
        output.note(f"perdure: {name} keeps the code that it has: {output.one_line(why)}")
    if kept:
        output.note(
            "perdure: start new ones with `perdure worker`, and end the old ones by SIGTERM"
        )
    event = "failed" if kept else "done"
    return {**last, "event": event, "elsewhere": done, "kept": kept}


def workers(
    as_json: AsJson = False,
    endpoint: Endpoint = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """List the workers that serve now: build, queues, and how many types each has."""
    from perdure import wire

    with connected(endpoint, timeout) as client:
        found = output.plain(ask(client, wire.WorkerTypes()))["workers"]
    if as_json:
        output.emit(found)
        return
    rows = [
        (
            each["worker_id"],
            each["pid"],
            each["build"] or "-",
            " ".join(each["queues"]),
            len(each["workflow_types"]),
            len(each["activity_types"]),
        )
        for each in sorted(found, key=lambda each: each["worker_id"])
    ]
    columns = ("WORKER", "PID", "BUILD", "QUEUES", "WORKFLOWS", "ACTIVITIES")
    output.show(output.table(columns, rows, right=("PID", "WORKFLOWS", "ACTIVITIES")))


# --- before anything is touched ---------------------------------------------------
def _check(words: list[str], cwd: str, *, force: bool, as_json: bool) -> None:
    """Load the new code and replay what runs, in a process of its own; exits where that says no."""
    command = [sys.executable, "-m", "perdure.cli.main", "replay", "--running", "--json", *words]
    made = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    try:
        found = json.loads(made.stdout)
    except ValueError:
        said = made.stderr.strip().removeprefix("perdure: ") or f"exit code {made.returncode}"
        raise output.fail(
            f"nothing was touched: {said}", made.returncode or output.FAILED
        ) from None
    if made.stderr:
        output.note(made.stderr.strip())  # That there are more, for instance.
    misfits = [one for one in found["verdicts"] if one["verdict"] != "fits"]
    if not misfits:
        if not as_json:
            output.say(f"{found['checked']} of {found['checked']} running workflows fit")
        return
    if as_json and not force:
        output.emit({"event": "failed", "message": "running workflows do not fit", **found})
        raise typer.Exit(output.FAILED)
    for each in misfits:
        output.note(f"{each['verdict']}: {each['workflow_id']}, {_why(each)}")
    text = f"{len(misfits)} of {found['checked']} running workflows do not fit the new code"
    if not force:
        output.note(f"{text}; nothing was touched (--force goes on: they would be parked)")
        raise typer.Exit(output.FAILED)
    output.note(f"{text}: they will be parked until code is there that fits")


def _why(verdict: dict[str, Any]) -> str:
    if verdict["expected"]:
        return (
            f"at event {verdict['event_id']}: recorded {verdict['expected']}; the code:"
            f" {verdict['got']}" + (f", at {verdict['where']}" if verdict["where"] else "")
        )
    return output.one_line(verdict["message"])


def _public(data: str) -> str:
    from perdure.errors import Unavailable
    from perdure.node_client import read_node

    node = read_node(data)
    if node is None:
        raise Unavailable(f"no node runs on {data}")
    return node.endpoint


def _root_of(endpoint: str) -> str:
    from perdure.cli import node

    return node.root_of(endpoint)


def _say(step: dict[str, Any]) -> None:
    match step["event"]:
        case "stopping":
            output.say(f"{step['child']}: is told to finish")
        case "ready":
            build = f", build {step['build']}" if step["build"] else ""
            output.say(f"{step['child']}: serves (pid {step['pid']}{build})")
        case "done":
            output.say(f"replaced: {' '.join(step['replaced'])}")
        case _:
            output.note(f"perdure: {step['message']}")
