"""The command `perdure`: its nouns, and how it ends."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import perdure
from perdure.cli import (
    dlq,
    doctor,
    drill,
    events,
    flow,
    node,
    outbox,
    output,
    policy,
    reload,
    replay,
    schedule,
    store,
    verify,
    wf,
    wf_acts,
    worker,
)
from perdure.cli.options import Commands

EPILOG = """\b
Example:
  perdure up &
  perdure wf start FlakyDemo --fail-rate 0.5 --wait"""

# typer carries its own copy of click, or uses the one that is installed, as its version has it.
_CLICK_ERROR: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="perdure",
    cls=Commands,
    help="Durable execution: workflows that survive the death of any process.",
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
node.add_to(app)
worker.add_to(app)
doctor.add_to(app)
store.add_to(app)
app.add_typer(wf.app, name="wf")
wf_acts.add_to(wf.app)
flow.add_to(app, wf.app)
events.add_to(app)
app.add_typer(schedule.app, name="schedule")
app.add_typer(outbox.app, name="outbox")
app.add_typer(drill.app, name="drill")
verify.add_to(app)
replay.add_to(app)
reload.add_to(app)
app.add_typer(policy.app, name="policy")
wf.app.add_typer(dlq.app, name="dlq")


def _version(wanted: bool) -> None:
    if wanted:
        output.say(f"perdure {perdure.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(args: Sequence[str] | None = None) -> None:
    """Runs one command and ends the process with its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # An id is any UTF-8; what this terminal can't show is escaped, as on standard error.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(list(sys.argv[1:] if args is None else args)))


def run(args: list[str]) -> int:
    """Runs one command; its exit code. Errors are on standard error by then, one line first."""
    try:
        code: Any = _called(args)
        if sys.stdout is not None:  # None: it was closed before this began.
            sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return output.INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has enough; Python must not fail again when it flushes at its end.
        output.silence(sys.stdout)
        return output.OK
    return code if isinstance(code, int) else output.OK


def _called(args: list[str]) -> Any:
    try:
        return app(args, prog_name="perdure", standalone_mode=False)
    except _CLICK_ERROR as error:
        return _usage(error)


# What Click calls by the names of Python's types.
_NO_NUMBER = re.compile(r"is not a valid (int|integer|float)(?: range)?\.$")
_NUMBERS = {
    "int": "is no whole number",
    "integer": "is no whole number",
    "float": "is no number",
}


def _usage(error: Any) -> int:
    context: Any = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        output.say(context.get_help())
        return output.OK
    # A message of our own says what is wrong by itself; others need the name of their parameter.
    is_ours = isinstance(error, typer.BadParameter) and not (error.param or error.param_hint)
    message = error.message if is_ours else error.format_message()
    message = _NO_NUMBER.sub(lambda it: _NUMBERS[it[1]], message)
    if type(error).__name__ == "MissingParameter":
        message = f"{message} {getattr(error.param, 'help', None) or ''}"
    output.note(f"perdure: {output.one_line(message)}")
    if context is not None:
        output.note(f"Try `{context.command_path} --help`.")
    return output.USAGE


if __name__ == "__main__":
    main()
