"""`perdure backup` and `perdure restore`: copies of a store, and the way back to one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli import output
from perdure.cli.options import DATA_DEFAULT, AsJson

if TYPE_CHECKING:
    from perdure.store.backup import Copied
    from perdure.store.restore import Restored, Unknown

SHOWN_MAX = 20

Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="Where the state is kept.")]


def add_to(app: typer.Typer) -> None:
    """The commands, on the root of all commands."""
    app.command(epilog="\b\nExample:\n  perdure backup /backups/monday.db")(backup)
    app.command(
        epilog=(
            "\b\nExamples:\n  perdure restore /backups/monday.db --ledger effects.db\n"
            "  perdure restore --accept --ledger effects.db"
        )
    )(restore)


def backup(
    dest: Annotated[Path, typer.Argument(metavar="DEST", help="The file to make.")],
    data: Data = Path(DATA_DEFAULT),
    as_json: AsJson = False,
) -> None:
    """Copy the store, also of a running node, as of one commit: checked, whole, durable.

    Exit code 0: done; 1: the store is damaged; 2: DEST can't be written; 5: there is no store, or
    no directory for DEST; 6: DEST is there already.
    """
    from perdure.store import backup as copies
    from perdure.store.protocol import NoRoom, StoreError
    from perdure.store.sqlite import DATABASE_NAME

    if not (data / DATABASE_NAME).is_file():
        raise output.fail(f"there is no store in {data}: name one with --data", output.NOT_FOUND)
    if dest.exists():
        raise output.fail(f"{dest} is there already: name a file that is not", output.REFUSED)
    if not dest.absolute().parent.is_dir():
        raise output.fail(f"there is no directory {dest.absolute().parent}", output.NOT_FOUND)
    try:
        copied = copies.backup(data, dest)
    except (copies.NotWritable, NoRoom) as problem:
        raise output.fail(str(problem), output.USAGE) from None
    except StoreError as problem:
        raise output.fail(str(problem), output.FAILED) from None
    if as_json:
        output.emit(copied)
        return
    size = output.size(copied.bytes)
    output.say(f"{copied.path}: commit {copied.n}, {_workflows(copied)}, {size}")


def restore(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="[SRC]", help="What a backup made.", show_default=False),
    ] = None,
    accept: Annotated[
        bool,
        typer.Option("--accept", help="Take the store that is there, with what it has lost."),
    ] = False,
    ledger: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A ledger of effects (SqliteEffects); repeat for more."),
    ] = None,
    data: Data = Path(DATA_DEFAULT),
    as_json: AsJson = False,
) -> None:
    """Put a backup in the store's place, while no node runs; what was there is kept beside it.

    Lists the effects that the ledgers know and the store does not. With --accept the store stays
    that is there, though its witness has seen more: the only way to go on with it.

    Exit code 0: done; 2: SRC or a ledger is none, or is damaged; 5: there is no such file, or with
    --accept no store; 6: a node runs.
    """
    from perdure.store import restore as restoring
    from perdure.store.protocol import StoreError
    from supervisors.node_files import NodeFiles, Refused

    ledgers = ledger or []
    _check_asked(source, ledgers, data, accept=accept)
    files = NodeFiles(str(data))
    try:
        files.hold()
    except Refused as refused:
        raise output.fail(refused.message, refused.exit_code) from None
    try:
        restoring.check_ledgers(ledgers)
        done = (
            restoring.accept(files.data_dir, _stamp())
            if source is None
            else restoring.restore(files.data_dir, source.absolute(), _stamp())
        )
        unknown = list(restoring.unknown_effects(files.data_dir, ledgers))
    except StoreError as problem:
        raise output.fail(str(problem), output.USAGE) from None
    finally:
        files.release()
    if as_json:
        plain: dict[str, Any] = output.plain(done)
        output.emit({**plain, "unknown_effects": unknown})
    else:
        _show(done, unknown, has_ledger=bool(ledgers))


def _check_asked(source: Path | None, ledgers: list[Path], data: Path, *, accept: bool) -> None:
    """Before the data directory is touched, or made."""
    from perdure.store.sqlite import DATABASE_NAME

    if accept and source is not None:
        raise typer.BadParameter(
            f"--accept takes the store that is in {data}, so it goes without SRC: leave out"
            f" --accept to restore {source}"
        )
    if not accept and source is None:
        raise typer.BadParameter("give SRC, or --accept to take the store that is there")
    if accept and not (data / DATABASE_NAME).is_file():
        raise output.fail(
            f"there is no store in {data} to accept: name one with --data, or restore a backup",
            output.NOT_FOUND,
        )
    named = [("backup", source), *(("ledger", path) for path in ledgers)]
    for what, path in named:
        if path is not None and not path.exists():
            raise output.fail(f"there is no {what} {path}", output.NOT_FOUND)


def _workflows(store: Copied) -> str:
    return output.counted(store.workflows, "workflow")


def _stamp() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def _show(done: Restored, unknown: list[Unknown], *, has_ledger: bool) -> None:
    store = done.store
    output.say(f"{store.path}: commit {store.n}, {_workflows(store)}")
    if done.aside is None:
        output.say("nothing is lost: the witness has seen no more; nothing was changed")
    elif done.lost:
        output.say(f"lost: {output.counted(done.lost, 'commit')}, {store.n + 1} to {done.seen}")
    if done.aside is not None:
        output.say(f"what was there: {done.aside}")
    if not has_ledger:
        output.note("no --ledger given: nobody knows which effects the store does not know")
        return
    output.say(f"effects that the store does not know: {len(unknown)}")
    if unknown:
        rows = [(it.why, it.key, it.ledger) for it in unknown[:SHOWN_MAX]]
        output.show(output.table(("WHY", "KEY", "LEDGER"), rows))
    if len(unknown) > SHOWN_MAX:
        output.say(f"… and {len(unknown) - SHOWN_MAX} more; --json lists all")
