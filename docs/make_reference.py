"""Writes docs/reference.md, what can be imported, and the table of commands in docs/cli.md."""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from perdure.cli.main import app
from perdure.cli.options import first_sentence

PAGE = Path(__file__).with_name("reference.md")
COMMANDS_PAGE = Path(__file__).with_name("cli.md")
WIDTH = 100

# Each section: what it is imported from, and its names. A name with a star: its methods as well.
SECTIONS: dict[str, tuple[str, str]] = {
    "Activities": (
        "perdure.activity",
        """define idempotency_key attempt fence info Info heartbeat_details record_heartbeat
        progress Progress cancelled on_cancel task_token Error NonRetryable Cancelled CompleteLater
        is_non_retryable""",
    ),
    "Workflows": (
        "perdure.workflow",
        """define execute_activity ActivityHandle* sleep_ms wait_condition now_ms random uuid4 info
        Info ParentInfo signal receive Box* query update Update* all_handlers_finished execute_child
        start_child ChildHandle* earlier_children external ExternalHandle* Sent continue_as_new
        patched side_effect set_search_attributes logger ActivityFailed ChildFailed ExternalFailed
        NonDeterminism""",
    ),
    "Retries": ("perdure.policy", "RetryPolicy* ms backoff_ms jitter_ms"),
    "Failures": ("perdure.failures", "Failure"),
    "Clients": ("perdure.client", "Client* WorkflowHandle*"),
    "Asynchronous clients": ("perdure.async_client", "AsyncClient"),
    "Answers": ("perdure.answers", "Answer* Page*"),
    "Schedules": ("perdure.schedule_operations", "ScheduleHandle*"),
    "Errors": (
        "perdure.errors",
        """PerdureError InvalidArgument NotFound AlreadyExists FailedPrecondition
        ResourceExhausted Unauthenticated Unavailable DeadlineExceeded Internal WorkflowFailed
        UpdateFailed UpdateRejected""",
    ),
    "Effects": ("perdure.effects", "SqliteEffects* DirectoryEffects* Delivery http_headers"),
    "Programs": ("perdure.subprocess", "run arun"),
    "Outboxes": ("perdure.outbox", "SqliteOutbox* PostgresOutbox* drain"),
    "Tests": ("perdure.testing", "LocalEngine* ManualClock*"),
    "Verification": ("perdure.verify", "effect outside"),
    "Replays": ("perdure.replaying", "read_histories check Verdict History"),
}

# How its names are usually written, where that is not the bare name.
PREFIXES = {
    "perdure.activity": "activity.",
    "perdure.workflow": "workflow.",
    "perdure.errors": "errors.",
    "perdure.subprocess": "perdure.subprocess.",
    "perdure.verify": "verify.",
    "perdure.replaying": "replaying.",
}

HEAD = """# Reference

Made by `make reference` from the docstrings: do not edit. Lengths of time and instants are whole
milliseconds and end in `_ms`. The package `perdure` itself has `activity`, `workflow`, `effects`,
`errors`, `subprocess`, `Client`, `AsyncClient`, `RetryPolicy`, `Failure` and `ms`.

`workflow.start_activity` is another name of `workflow.execute_activity`, and `workflow.Cancelled`
of `asyncio.CancelledError`.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, " · ".join(f"[{title}](#{anchor(title)})" for title in SECTIONS) + "\n"]
    for title, (where, names) in SECTIONS.items():
        module = importlib.import_module(where)
        parts.append(f"## {title}\n\nFrom `{where}`.\n")
        for name in names.split():
            bare = name.rstrip("*")
            shown = f"{PREFIXES.get(where, '')}{bare}"
            parts += entry(shown, getattr(module, bare), with_methods=name != bare)
    return "\n".join(parts)


def anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def entry(name: str, it: Any, with_methods: bool) -> Iterator[str]:
    """What stands for one name, and below it for its methods."""
    if it is typing.Any or not (callable(it) or type(it).__doc__):
        raise TypeError(f"{name} can't be described")
    yield f"### {name}\n"
    yield f"```text\n{signature(name, it)}\n```\n"
    yield prose(it)
    if with_methods:
        for method_name, method in methods(it):
            if isinstance(method, property):
                yield f"**`{name}.{method_name}`**\n"
                yield prose(method.fget)
            else:
                yield f"```text\n{signature(f'{name}.{method_name}', method)}\n```\n"
                yield prose(method)


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties with a docstring, in the order of writing."""
    seen: set[str] = set()
    for base in kind.__mro__:
        if not base.__module__.startswith("perdure"):
            continue
        for name, it in vars(base).items():
            if name in seen or name.startswith("_"):
                continue
            seen.add(name)
            if isinstance(it, property) or inspect.isfunction(it):
                described = it.fget if isinstance(it, property) else it
                if inspect.getdoc(described) and name not in {"give_up"}:
                    yield name, it


def prose(it: Any) -> str:
    """The docstring as text: names in the code's own quotes stay, indents go."""
    if isinstance(it, type) and "__doc__" not in vars(it):
        return ""
    text = inspect.getdoc(it) or ""
    pieces = re.split(r"(`[^`]*`)", text)  # Between `quotes` it is code, and stays.
    pieces[::2] = [re.sub("[<>]", lambda found: f"\\{found[0]}", piece) for piece in pieces[::2]]
    return "".join(pieces) + "\n"


def signature(name: str, it: Any) -> str:
    """`name(…) -> …`, one parameter a line where it would be too long."""
    try:
        found = inspect.signature(it)
    except ValueError:
        return name
    except TypeError:  # An object that is there to be used.
        return f"{name}: {type(it).__name__}"
    # Where the function itself takes what its overloads name, they say more.
    for overload in typing.get_overloads(it) if inspect.isfunction(it) else ():
        found = max(found, inspect.signature(overload), key=lambda one: len(one.parameters))
    parameters = [
        parameter.replace(default=_shown(parameter.default), annotation=_annotation(parameter))
        for parameter in found.parameters.values()
        if parameter.name != "self"
    ]
    returns = "" if isinstance(it, type) else _returns(found)
    shown = str(found.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    if len(name + shown + returns) <= WIDTH:
        return f"{name}{shown}{returns}"
    lines = _lines(parameters)
    return f"{name}(\n{lines}){returns}"


def _lines(parameters: list[inspect.Parameter]) -> str:
    lines: list[str] = []
    kinds = inspect.Parameter
    for index, parameter in enumerate(parameters):
        before = parameters[index - 1].kind if index else None
        if parameter.kind is kinds.KEYWORD_ONLY and before not in (
            kinds.KEYWORD_ONLY,
            kinds.VAR_POSITIONAL,
        ):
            lines.append("    *,\n")
        lines.append(f"    {parameter},\n")
        after = parameters[index + 1].kind if index + 1 < len(parameters) else None
        if parameter.kind is kinds.POSITIONAL_ONLY and after is not kinds.POSITIONAL_ONLY:
            lines.append("    /,\n")
    return "".join(lines)


class _Bare(str):
    """A text that a signature shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _shown(default: Any) -> Any:
    if default is inspect.Parameter.empty or type(default) in (int, float, str, bool, type(None)):
        return default
    if isinstance(default, tuple) or default is ...:
        return default
    return _Bare("…")


def _annotation(parameter: inspect.Parameter) -> Any:
    found = parameter.annotation
    if found is inspect.Parameter.empty:
        return found
    return _Bare(found if isinstance(found, str) else inspect.formatannotation(found))


def _returns(found: inspect.Signature) -> str:
    given = found.return_annotation
    if given is inspect.Signature.empty:
        return ""
    return f" -> {given if isinstance(given, str) else inspect.formatannotation(given)}"


# --- commands ------------------------------------------------------------------------------
_table = re.compile(r"(?<=<!-- made by `make reference` -->\n\n).*?(?=\n<!-- end -->)", re.DOTALL)


def commands_page(text: str) -> str:
    """`text`, the page of the command line, with its table of commands as it is to be."""
    rows = ["| command | does |\n|---|---|\n"]
    for words, command in leaves(typer.main.get_command(app)):
        usage = " ".join(filter(None, [f"perdure {words}", *map(_argument, command.params)]))
        does = first_sentence(command.help or "")
        rows.append(f"| `{usage.replace('|', ' or ')}` | {does} |\n")
    made, count = _table.subn(lambda _: "".join(rows), text)
    if count != 1:
        raise ValueError("the page of the command line has no place for the table of commands")
    return made


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that help shows: its words, and what it is."""
    found = getattr(group, "commands", None)
    if found is None:
        yield " ".join(path), group
    for name, command in (found or {}).items():
        if not command.hidden:
            yield from leaves(command, (*path, name))


def _argument(parameter: Any) -> str:
    if parameter.param_type_name != "argument":
        return ""
    name = parameter.human_readable_name.upper()
    return name if parameter.required else f"[{name.removeprefix('[').removesuffix(']')}]"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    commands = commands_page(COMMANDS_PAGE.read_text(encoding="utf-8"))
    COMMANDS_PAGE.write_text(commands, encoding="utf-8")
