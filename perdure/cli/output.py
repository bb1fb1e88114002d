"""What commands print: tables for people, JSON for machines, and errors as one line that says what
to do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import typer

from perdure import errors

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

OK = 0
FAILED = 1
USAGE = 2
NO_NODE = 4
NOT_FOUND = 5
REFUSED = 6
INTERRUPTED = 130

EXIT_CODES: dict[str, int] = {
    errors.InvalidArgument.code: USAGE,
    errors.Unavailable.code: NO_NODE,
    errors.NotFound.code: NOT_FOUND,
    errors.AlreadyExists.code: REFUSED,
    errors.FailedPrecondition.code: REFUSED,
    errors.ResourceExhausted.code: REFUSED,
    errors.Unauthenticated.code: REFUSED,
    errors.DeadlineExceeded.code: REFUSED,
    errors.WorkflowFailed.code: FAILED,
    errors.UpdateFailed.code: FAILED,
    errors.UpdateRejected.code: FAILED,
    errors.Internal.code: FAILED,
}
"""The exit code of each error, as docs/cli.md lists them."""

UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))
CELL_CHARS_MAX = 200


def say(text: str = "") -> None:
    """One line on standard output, unwrapped."""
    with _written():
        print(text, flush=True)


@contextmanager
def _written() -> Iterator[None]:
    """A disk that is full ends the command with a line that says so, and exit code 1."""
    try:
        yield
    except BrokenPipeError:
        raise  # The reader has enough, which is no failure: see `main`.
    except OSError as problem:
        silence(sys.stdout)
        raise fail(f"cannot write standard output: {problem.strerror}", FAILED) from problem


def note(text: str) -> None:
    """One line on standard error: not what was asked for, but worth knowing.

    Where nobody reads it any more that changes nothing, least of all the exit code.
    """
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def warn(text: str | None) -> None:
    """A line about what was done all the same, where there is something to be said."""
    if text is not None:
        note(f"warning: {text}")


def silence(stream: TextIO) -> None:
    """Lead a broken stream nowhere, so that Python does not fail when it flushes it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def fail(message: str, exit_code: int) -> typer.Exit:
    """The exception that ends a command with `message` on standard error; to be raised."""
    note(f"perdure: {one_line(message)}")
    return typer.Exit(exit_code)


def check_log_level() -> None:
    """Ends the command where the environment names a level of the log that there is not."""
    from perdure import logs

    try:
        logs.level()
    except ValueError as problem:
        raise fail(str(problem), USAGE) from None


@contextmanager
def reported(*, no_node: str | Callable[[], str] = "") -> Iterator[None]:
    """Turns an error of the library into its line and its exit code. `no_node`, or what it returns,
    is said where nobody answers.
    """
    try:
        yield
    except errors.PerdureError as error:
        message = error.message or error.code
        if isinstance(error, errors.Unavailable) and no_node:
            message = no_node if isinstance(no_node, str) else no_node()
        raise fail(message, EXIT_CODES.get(error.code, FAILED)) from None


def one_line(text: str) -> str:
    """`text` without line breaks and control characters, so that an error stays one line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def plain(value: Any) -> Any:
    """`value` as JSON has it: answers, structs and dataclasses as maps, bytes as base64 text."""
    import msgspec

    return msgspec.to_builtins(value, str_keys=True, enc_hook=_simpler)


def _simpler(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def json_line(value: Any) -> str:
    """`value` as one line of JSON. Infinities and NaN, which JSON has not, become null."""
    import msgspec

    return msgspec.json.encode(plain(value)).decode()


def emit(value: Any) -> None:
    """`value` as JSON on standard output."""
    say(json_line(value))


def console(*, stderr: bool = False) -> Console:
    """A rich console; where standard output is no terminal it is wide enough to cut nothing."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, soft_wrap=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=240)


def show(*parts: RenderableType) -> None:
    """Prints for people."""
    out = console()
    with out.capture() as captured:
        for part in parts:
            out.print(part)
    text = captured.get()
    if not out.is_terminal:
        # Columns are padded to their width: of no use where nobody sees it.
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    with _written():
        sys.stdout.write(text)
        sys.stdout.flush()


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[str] = ()
) -> Any:
    """A table without a frame; columns named in `right` hold numbers."""
    from rich.table import Table
    from rich.text import Text

    made = Table(
        box=None, pad_edge=False, header_style="bold", show_edge=False, show_header=any(columns)
    )
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return made


def coloured(word: str) -> Any:
    """A state or status in the colour that says how it is doing."""
    from rich.text import Text

    colours = {
        "Completed": "green",
        "running": "green",
        "silent": "red",
        "ready": "green",
        "proved": "bold green",
        "clean": "bold green",
        "Failed": "red",
        "DeadLettered": "red",
        "violated": "bold red",
        "Retrying": "yellow",
        "inconclusive": "yellow",
        "Leased": "cyan",
        **dict.fromkeys(("mismatch", "history_limit", "parked", "dead_letter"), "red"),
        "no_worker": "yellow",
    }
    return Text(word, style=colours.get(word, ""))


def duration(length_ms: float) -> str:
    """A length for people: "850 ms", "12.5 s", "3m 20s", "2d 4h"."""
    length_ms = max(0, length_ms)
    if length_ms < 1_000:
        return f"{int(length_ms)} ms"
    if length_ms < 60_000:
        return f"{length_ms / 1_000:.1f} s"
    parts = []
    for unit, size_ms in UNITS_MS:
        count, length_ms = divmod(int(length_ms), size_ms)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def when(at_ms: int | None, now_ms: int) -> str:
    """An instant as seen from now: "3.2 s ago", "in 850 ms", "-" for none."""
    if at_ms is None:
        return "-"
    if at_ms > now_ms:
        return f"in {duration(at_ms - now_ms)}"
    return f"{duration(now_ms - at_ms)} ago"


def number(count: int) -> str:
    """1234567 as 1 234 567, with spaces that do not break, as the reports of drills have it."""
    return f"{count:,}".replace(",", "\u202f")


def counted(count: int, noun: str) -> str:
    """A number of things: "1 commit", "2 commits"."""
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"


def size(count: int | None) -> str:
    """Bytes for people."""
    return "-" if count is None else f"{count / 1_048_576:.1f} MiB"


def short(value: Any) -> str:
    """A value as one short line of JSON; an absent one as "-"."""
    if value is None:
        return "-"
    text = json_line(value)
    return text if len(text) <= CELL_CHARS_MAX else text[: CELL_CHARS_MAX - 1] + "…"


def failure_line(failure: Any) -> str:
    """A failure as "Type: message", "-" for none."""
    if not failure:
        return "-"
    message = one_line(str(failure.get("message") or ""))
    text = f"{failure.get('type')}: {message}" if message else str(failure.get("type"))
    return text if len(text) <= CELL_CHARS_MAX else text[: CELL_CHARS_MAX - 1] + "…"
