"""What a supervisor is told about its children: values that can be printed, compared and checked.

The words are Erlang/OTP's. A tree is a `SupervisorSpec` whose children are processes (`ChildSpec`)
or supervisors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from supervisors.intensity import Intensity
from supervisors.strategy import Strategy

SILENCE_MS = 5_000
HISTORY_SILENCE_MS = 60_000
READY_WITHIN_MS = 60_000


class InvalidTree(ValueError):
    """A tree that cannot be started; the message names the child and the rule."""


class Restart(StrEnum):
    """When a child that has ended is started again."""

    PERMANENT = "permanent"  # Always.
    TRANSIENT = "transient"  # Unless it ended with status 0.
    TEMPORARY = "temporary"  # Never.

    def wants(self, exit_code: int | None) -> bool:
        """Whether a child that ended with this status (None: unknown) is started again."""
        match self:
            case Restart.PERMANENT:
                return True
            case Restart.TRANSIENT:
                return exit_code != 0
            case Restart.TEMPORARY:
                return False


class Kind(StrEnum):
    """What a node of the tree is, as `perdure ps` names it."""

    SUPERVISOR = "supervisor"
    ACTOR = "actor"
    WORKER = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """One process. `start` is "module:function", called in the child with its Boot.

    `shutdown_ms`: how long it may take to stop in order before it is killed. `silence_ms`: how long
    it may leave pings unanswered once it is ready before it is killed; None: it is watched as a
    process only. `ready_within_ms`: how long it may take to serve, once all before it do, before it
    is killed, which counts as a crash. `on_demand`: it is there only while it is wanted, and nobody
    waits for it.
    """

    id: str
    start: str
    kind: Kind = Kind.ACTOR
    restart: Restart = Restart.PERMANENT
    shutdown_ms: int = 1_000
    silence_ms: int | None = SILENCE_MS
    ready_within_ms: int = READY_WITHIN_MS
    on_demand: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSpec:
    """One supervisor and, in the order of their start, its children.

    `escalates` False: it never gives up, a crash loop only waits longer. `stops_together`: its
    children are asked to stop at once and not one after the other in reverse.
    """

    id: str
    children: tuple[ChildSpec | SupervisorSpec, ...]
    strategy: Strategy = Strategy.ONE_FOR_ONE
    intensity: Intensity = field(default_factory=Intensity)
    escalates: bool = True
    stops_together: bool = False


def processes(tree: SupervisorSpec) -> Iterator[ChildSpec]:
    """Every process of the tree, in the order of their start."""
    for child in tree.children:
        if isinstance(child, SupervisorSpec):
            yield from processes(child)
        else:
            yield child


def check_tree(tree: SupervisorSpec) -> None:
    """Raise InvalidTree where the tree breaks a rule; called before anything is started."""
    seen: set[str] = set()
    _check(tree, seen)


def _check(spec: SupervisorSpec, seen: set[str]) -> None:
    _check_id(spec.id, seen)
    if spec.strategy not in tuple(Strategy):
        raise InvalidTree(f"{spec.id}: unknown strategy {spec.strategy!r}")
    if spec.intensity.restarts_max < 0 or spec.intensity.period_ms < 1:
        raise InvalidTree(f"{spec.id}: intensity needs restarts_max >= 0 and period_ms >= 1")
    for child in spec.children:
        if isinstance(child, SupervisorSpec):
            _check(child, seen)
            continue
        _check_id(child.id, seen)
        module, colon, function = child.start.partition(":")
        if not (module and colon and function):
            raise InvalidTree(f"{child.id}: start must be module:function, not {child.start!r}")
        if child.restart not in tuple(Restart):
            raise InvalidTree(f"{child.id}: unknown restart {child.restart!r}")
        if child.kind is Kind.SUPERVISOR:
            raise InvalidTree(f"{child.id}: a process is no supervisor")
        if child.shutdown_ms < 0:
            raise InvalidTree(f"{child.id}: shutdown_ms must be >= 0")
        if child.ready_within_ms < 1:
            raise InvalidTree(f"{child.id}: ready_within_ms must be >= 1")
        if child.silence_ms is not None and child.silence_ms < 1:
            raise InvalidTree(f"{child.id}: silence_ms must be >= 1 or None")


def _check_id(name: str, seen: set[str]) -> None:
    if not name:
        raise InvalidTree("a child has an empty id")
    if name in seen:
        raise InvalidTree(f"two children have the id {name!r}")
    seen.add(name)
