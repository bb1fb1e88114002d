"""The operator's configuration: perdure.toml, or [tool.perdure] in pyproject.toml. Frozen, and
checked whole.

A key that does nothing is worse than an error: only keys that work are accepted, and an unknown one
is refused with the nearest that is known.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from perdure.core.bounds import DEFAULT, Bounds
from perdure.core.limits import (
    AUDIT_MS,
    AUDIT_MS_MIN,
    GRACE_MS,
    INTEGER_MAX,
    NAME_CHARS_MAX,
    RESERVE_BYTES,
    RETENTION_MS,
)
from perdure.core.rules import (
    NO_RULES,
    ActivityRule,
    BreakerRule,
    QueueRule,
    RetryBudget,
    RetryRule,
    Rule,
    Rules,
)
from perdure.errors import InvalidArgument
from perdure.policy import ATTEMPTS_MAX, DLQ_AFTER_ATTEMPTS_DEFAULT
from perdure.wire_checks import check_name

CONFIG_FILE = "perdure.toml"
PROJECT_FILE = "pyproject.toml"

WORKERS_MAX = 1_000
SLOTS_MAX = 10_000
NAMES_LISTED_MAX = 8

Attempts = Annotated[int, msgspec.Meta(ge=1, le=ATTEMPTS_MAX)]
Workers = Annotated[int, msgspec.Meta(ge=0, le=WORKERS_MAX)]
Slots = Annotated[int, msgspec.Meta(ge=1, le=SLOTS_MAX)]
RetentionMs = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
AuditMs = Annotated[int, msgspec.Meta(ge=AUDIT_MS_MIN, le=INTEGER_MAX)]
GraceMs = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
ReserveBytes = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
Bound = Annotated[int, msgspec.Meta(ge=1, le=INTEGER_MAX)]
Module = Annotated[str, msgspec.Meta(min_length=1)]
Queue = Annotated[str, msgspec.Meta(pattern=rf"^[A-Za-z0-9_.-]{{1,{NAME_CHARS_MAX}}}$")]


class Durable(msgspec.Struct, frozen=True, kw_only=True):
    """[durable]: what history does. `dlq_after_attempts` stands in where a retry policy sets no
    limit; a closed workflow is kept for `retention_ms`, the commit log for `audit_ms`. After a
    restart a lease lasts at least its length, or `recovery_grace_ms` where that is shorter.
    """

    dlq_after_attempts: Attempts = DLQ_AFTER_ATTEMPTS_DEFAULT
    retention_ms: RetentionMs = RETENTION_MS
    audit_ms: AuditMs = AUDIT_MS
    recovery_grace_ms: GraceMs = GRACE_MS


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """[limits]: with less than `reserve_bytes` free on the disk of its data, a node refuses new
    work; what it has goes on. The others bound what one workflow may have (perdure.core.bounds).
    """

    reserve_bytes: ReserveBytes = RESERVE_BYTES
    pending_activities: Bound = DEFAULT.pending_activities
    pending_children: Bound = DEFAULT.pending_children
    pending_signals: Bound = DEFAULT.pending_signals
    open_updates: Bound = DEFAULT.open_updates
    search_attributes: Bound = DEFAULT.search_attributes
    history_events_warn: Bound = DEFAULT.history_events_warn
    history_events_max: Bound = DEFAULT.history_events_max
    history_bytes_max: Bound = DEFAULT.history_bytes_max

    def bounds(self) -> Bounds:
        """Those that history keeps to."""
        known = {
            name: getattr(self, name) for name in self.__struct_fields__ if name != "reserve_bytes"
        }
        return Bounds(**known)


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """[node]: what `perdure up` starts where the command line does not say; None is the command's
    own default.
    """

    app: tuple[Module, ...] = ()
    workers: Workers | None = None
    slots: Slots | None = None
    queues: tuple[Queue, ...] = ()
    data: Module | None = None
    bind: tuple[Module, ...] = ()


class Outbox(msgspec.Struct, frozen=True, kw_only=True):
    """[outbox]: databases whose table perdure_outbox a node drains (docs/outbox.md): paths of
    SQLite files, and postgresql:// URLs.
    """

    sqlite: tuple[Module, ...] = ()
    postgres: tuple[Module, ...] = ()

    def urls(self) -> tuple[str, ...]:
        """All of them, as `perdure up --outbox` takes them."""
        files = (it if it.startswith("sqlite:") else f"sqlite:///{it}" for it in self.sqlite)
        return (*files, *self.postgres)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All that an operator may set. `source` is the file it was read from, None where there was
    none.
    """

    durable: Durable = Durable()
    limits: Limits = Limits()
    node: Node = Node()
    outbox: Outbox = Outbox()
    rules: Rules = NO_RULES
    source: str | None = None


_TABLES: dict[str, type[msgspec.Struct]] = {
    "durable": Durable,
    "limits": Limits,
    "node": Node,
    "outbox": Outbox,
}
_RULES_WITHIN: dict[str, type[Rule]] = {
    "retry": RetryRule,
    "retry_budget": RetryBudget,
    "breaker": BreakerRule,
}
_RULED: dict[str, type[Rule]] = {"queues": QueueRule, "activities": ActivityRule}
_Table = TypeVar("_Table", bound=msgspec.Struct)


def load(path: Path | None, directory: Path) -> Config:
    """The configuration of `path`, else of perdure.toml, else of pyproject.toml in `directory`,
    else the defaults.

    Raises InvalidArgument naming the file, the key and what would be right.
    """
    if path is not None:
        return parse(_read(path), str(path), inside_project=path.name == PROJECT_FILE)
    own = directory / CONFIG_FILE
    if own.is_file():
        return parse(_read(own), CONFIG_FILE)
    project = directory / PROJECT_FILE
    if project.is_file():
        return parse(_read(project), PROJECT_FILE, inside_project=True)
    return Config()


def parse(text: str, source: str, *, inside_project: bool = False) -> Config:
    """The configuration that `text` says; with `inside_project` only its table [tool.perdure]
    counts.
    """
    try:
        tables: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        raise InvalidArgument(f"{source}: this is no TOML: {cause}") from None
    if inside_project:
        tables = tables.get("tool", {}).get("perdure", {})
        if not tables:
            return Config()
    if not isinstance(tables, dict):
        raise InvalidArgument(f"{source}: [tool.perdure] must be a table")
    _refuse_unknown(tables, {**_TABLES, **_RULED}, source, "")
    return Config(
        durable=_table(Durable, tables, "durable", source),
        limits=_table(Limits, tables, "limits", source),
        node=_table(Node, tables, "node", source),
        outbox=_table(Outbox, tables, "outbox", source),
        rules=rules_of({name: tables[name] for name in _RULED if name in tables}, source),
        source=source,
    )


def rules_of(tables: Mapping[str, Any], source: str) -> Rules:
    """What the tables [queues."NAME"] and [activities."TYPE"] rule.

    Raises InvalidArgument naming `source`, the key and what would be right.
    """
    _refuse_unknown(dict(tables), _RULED, source, "")
    made: dict[str, Any] = {}
    for of, named in tables.items():
        if not isinstance(named, Mapping):
            raise InvalidArgument(f'{source}: {of} must be tables, [{of}."NAME"]')
        made[of] = {
            name: _rule(_RULED[of], name, of, table, source) for name, table in named.items()
        }
    return Rules(**made)


def _rule(kind: type[Rule], name: str, of: str, table: Any, source: str) -> Rule:
    where = f'{of}."{name}"'
    try:
        check_name(of, name)
    except InvalidArgument as cause:
        raise InvalidArgument(f"{source}: {where}: {cause.message}") from None
    return _ruled(kind, table, where, source)


def _ruled(kind: type[Rule], table: Any, where: str, source: str) -> Rule:
    """The rule in this table; a table within it is a rule of its own."""
    if not isinstance(table, Mapping):
        raise InvalidArgument(f"{source}: {where} must be a table, [{where}]")
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    _refuse_unknown(dict(table), fields, source, f"{where}.")
    given: dict[str, Any] = {}
    for key, value in table.items():
        within = _RULES_WITHIN.get(key)
        try:
            if within is None:
                given[key] = msgspec.convert(value, fields[key])
            else:
                given[key] = _ruled(within, value, f"{where}.{key}", source)
        except msgspec.ValidationError as cause:
            raise InvalidArgument(f"{source}: {where}.{key}: {cause}", field=key) from None
    try:
        return kind(**given)
    except TypeError:
        required = [it.name for it in msgspec.structs.fields(kind) if it.required]
        missing = ", ".join(name for name in required if name not in given)
        raise InvalidArgument(f"{source}: {where} lacks {missing}") from None
    except InvalidArgument as cause:
        raise InvalidArgument(f"{source}: {where}: {cause.message}", field=cause.field) from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as cause:
        raise InvalidArgument(f"{path}: cannot be read: {cause.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path}: this is no UTF-8 text") from None


def _table(kind: type[_Table], tables: dict[str, Any], name: str, source: str) -> _Table:
    given = tables.get(name, {})
    if not isinstance(given, dict):
        raise InvalidArgument(f"{source}: {name} must be a table, [{name}]")
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    _refuse_unknown(given, fields, source, f"{name}.")
    for key, value in given.items():
        try:
            msgspec.convert(value, fields[key])
        except msgspec.ValidationError as cause:
            raise InvalidArgument(f"{source}: {name}.{key}: {cause}", field=key) from None
    return msgspec.convert(given, kind)


def _refuse_unknown(given: dict[str, Any], known: dict[str, Any], source: str, prefix: str) -> None:
    for key in given:
        if key in known:
            continue
        near = nearest(key, known)
        hint = f"did you mean {prefix}{near}?" if near else f"known: {', '.join(known)}"
        raise InvalidArgument(f"{source}: unknown key {prefix}{key}; {hint}", field=key)


def nearest(word: str, known: Any) -> str | None:
    """The known word that `word` was most likely meant to be, or None."""
    lowered = {str(name).lower(): str(name) for name in known}
    near = difflib.get_close_matches(word.lower(), list(lowered), n=1, cutoff=0.6)
    return lowered[near[0]] if near else None


def listed(names: Iterable[str], wanted: str = "") -> str:
    """Names for people: NAMES_LISTED_MAX at most, first the one nearest to what was `wanted`."""
    shown = list(names)
    near = nearest(wanted, shown)
    if near is not None:
        shown.remove(near)
        shown.insert(0, f"{near} (nearest)")
    more = ", …" if len(shown) > NAMES_LISTED_MAX else ""
    return ", ".join(shown[:NAMES_LISTED_MAX]) + more
