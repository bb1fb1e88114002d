"""Every activity of an application as a chain: its lease and retries, then the clients inside it.

Client policies are found in the activity's own source (in its decorators, its body, and the
module-level names that it uses), or given in a file of layers by activity.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.activity import Definition
from perdure.audit import words
from perdure.audit.chain import Chain, Layer, parse_layer
from perdure.audit.delays import delays, total
from perdure.audit.imports import activities, botocore, tenacity, urllib3
from perdure.audit.imports.draft import Draft
from perdure.audit.imports.python_source import Function, Source
from perdure.audit.review import Review, audit
from perdure.errors import InvalidArgument

OUTAGE_MS_DEFAULT = 300_000.0

Clients = Mapping[str, tuple[Layer, ...]]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What whoever audits an application knows beyond its code."""

    failure_rate: float
    max_amplification: float
    outage_ms: float = OUTAGE_MS_DEFAULT
    outage_is_assumed: bool = True
    dlq_after_attempts: int = 5
    clients: Clients = {}


def reviews(definitions: list[Definition], settings: Settings) -> list[Review]:
    """The audit of each activity, in the order of their names."""
    unknown = settings.clients.keys() - {each.name for each in definitions}
    if unknown:
        known = ", ".join(sorted(each.name for each in definitions)) or "none"
        raise InvalidArgument(
            f"the file of clients speaks of {min(unknown)!r}, which is no activity here; "
            f"there are {known}"
        )
    ordered = sorted(definitions, key=lambda each: each.name)
    return [audit(_chain(each, settings)) for each in ordered]


def parse_clients(data: Any) -> Clients:
    """Layers by activity, from {"charge": [{…}, …]} or {"charge": {…}}."""
    if not isinstance(data, Mapping) or not data:
        raise InvalidArgument("clients: must be an object of layers by activity")
    found = {}
    for name, layers in data.items():
        listed = layers if isinstance(layers, list) else [layers]
        parsed = [parse_layer(layer, number) for number, layer in enumerate(listed, 1)]
        declared = {"declared for it": "clients file"}
        found[str(name)] = tuple(
            each if each.is_imported else replace(each, origin=declared) for each in parsed
        )
    return found


def _chain(definition: Definition, settings: Settings) -> Chain:
    source, function = _source_of(definition)
    file = source.file if source is not None else definition.function.__module__
    line = function.lineno if function is not None else None
    lines = _option_lines(function)
    draft = activities.draft_of(
        definition.name, definition.options, file, lines, line, settings.dlq_after_attempts
    )
    clients = settings.clients.get(definition.name, ())
    if source is not None and function is not None:
        activities.judge_keys(draft, source, function)
        clients = (*_clients_in(source, function), *clients)
    else:
        draft.default("idempotent", False, "its source is not there to be read")
    _outage(draft, settings)
    return Chain(
        name=definition.name,
        failure_rate=settings.failure_rate,
        max_amplification=settings.max_amplification,
        layers=(draft.layer(), *clients),
    )


def _source_of(definition: Definition) -> tuple[Source | None, Function | None]:
    """The module's source and the function in it; None where there is no source."""
    function = inspect.unwrap(definition.function)
    try:
        file = inspect.getsourcefile(function)
        line = function.__code__.co_firstlineno
        text = Path(file).read_text(encoding="utf-8") if file else ""
        source = Source(text, _shown(file or ""))
    except (TypeError, AttributeError, OSError, UnicodeDecodeError, InvalidArgument):
        return None, None
    for each in source.functions():
        first = min([each.lineno, *(decorator.lineno for decorator in each.decorator_list)])
        if first == line and each.name == function.__name__:
            return source, each
    return None, None


def _shown(file: str) -> str:
    """A file as seen from the working directory, where it is below it."""
    path = Path(file)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _option_lines(function: Function | None) -> dict[str, int]:
    lines: dict[str, int] = {}
    for decorator in function.decorator_list if function is not None else []:
        if isinstance(decorator, ast.Call):
            lines |= {each.arg: each.value.lineno for each in decorator.keywords if each.arg}
    return lines


def _clients_in(source: Source, function: Function) -> list[Layer]:
    """Policies of HTTP clients and retry loops that this function makes, carries or uses."""
    body = _reached(source, function)
    part = Source.of_tree(ast.Module(body=body, type_ignores=[]), source.file)
    has_adapter = any(True for _ in part.calls(*urllib3.ADAPTER))
    http = "requests" if has_adapter else "urllib3"
    found = []
    for read in (
        partial(tenacity.layers, [part]),
        partial(urllib3.layers, [part], http),
        partial(botocore.of_source, part),
    ):
        try:
            layers = read()
        except InvalidArgument:  # There is none of this kind in it.
            continue
        if layers:
            # Of one kind they stand side by side: the most patient counts.
            found.append(max(layers, key=lambda layer: layer.attempts))
    return found


def _reached(source: Source, function: Function) -> list[ast.stmt]:
    """The statements of the module that this function's code leads to, and itself."""
    used = _names(function)
    body: list[ast.stmt] = [
        node for node in source.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    waiting = [node for node in source.tree.body if node not in body and node is not function]
    while hit := [node for node in waiting if _binds_one_of(node, used)]:
        body += hit
        waiting = [node for node in waiting if node not in hit]
        for node in hit:
            used |= _names(node)
    return [*body, function]


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _binds_one_of(node: ast.stmt, names: set[str]) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name in names and not _is_activity(node)
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    bound = {target.id for target in targets if isinstance(target, ast.Name)}
    # session.mount("https://", HTTPAdapter(…)) sets what a used name does.
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        bound = _names(node.value.func)
    return bool(bound & names)


def _is_activity(function: Function) -> bool:
    """Whether it is another activity: called directly it is a plain function, and rare."""
    return any("define" in ast.unparse(each) for each in function.decorator_list)


def _outage(draft: Draft, settings: Settings) -> None:
    """Whether the retries, all of them, are over before the longest outage is."""
    layer = draft.layer()
    each = delays(layer)
    most = total([delay.most for delay in each])
    mean = total([delay.expected for delay in each])
    if mean >= settings.outage_ms:
        return
    assumed = " (assumed; --outage-ms says how long)" if settings.outage_is_assumed else ""
    draft.note(
        "DLQ_BEFORE_OUTAGE_ENDS",
        f"{words.times(layer.attempts, 'attempt')} wait at most {words.length(most)} in all, mean "
        f"{words.length(mean)}: an outage of {words.length(settings.outage_ms)}{assumed} ends with "
        "dead letters; raise max_attempts, or max_interval_ms and initial_ms",
    )
