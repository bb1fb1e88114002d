"""What the root knows about each child, and the tree that `ps` shows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import psutil

from perdure.core.ids import Session
from supervisors.child_spec import ChildSpec, Kind, SupervisorSpec
from supervisors.liveness import PING_MS, Liveness
from supervisors.processes import Handle

# Who has not answered so many pings is shown as silent: it may well be killed for it later.
SILENT_MS = 3 * PING_MS


class State(StrEnum):
    """Where a child is in its life, as `ps` names it."""

    WAITING = "waiting"  # For the time of its restart.
    STARTING = "starting"
    RUNNING = "running"
    SILENT = "silent"  # It runs, as far as is known, and does not answer; only shown.
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(slots=True)
class Child:
    """One process of the tree; what belongs to a single life of it is reset by `reset`."""

    spec: ChildSpec
    state: State = State.STOPPED
    supervisor: Any = None  # The pykka reference that hears of its end.
    restarts: int = 0
    starts: int = 0  # Also names a wait for a restart, so that a cancelled one is known.
    incarnation: str = ""
    endpoint: str = ""
    handle: Handle | None = None
    session: Session | None = None
    has_said_hello: bool = False
    started_wall_ms: int = 0
    ready_at_ms: int | None = None
    build: str = ""  # Of the application that a worker has loaded.
    liveness: Liveness | None = None
    beginning: Liveness | None = None  # Counts the time that it takes to become ready.
    is_late: bool = False
    awaits_pong: bool = False
    kill_at_ms: int | None = None
    stop_by_ms: int | None = None  # It was told to end by then.
    remote_workers: tuple[str, ...] = ()  # The gateway's: the workers from elsewhere.
    outboxes: tuple[tuple[str, str, str], ...] = ()  # Those that it drains: where, state, why.

    def reset(self) -> None:
        """The process has ended."""
        self.incarnation = ""
        self.endpoint = ""
        self.handle = None
        self.session = None
        self.has_said_hello = False
        self.ready_at_ms = None
        self.build = ""
        self.liveness = None
        self.beginning = None
        self.is_late = False
        self.awaits_pong = False
        self.kill_at_ms = None
        self.stop_by_ms = None
        self.remote_workers = ()
        self.outboxes = ()

    @property
    def shown(self) -> State:
        """What it is to be called before people."""
        is_silent = self.liveness is not None and self.liveness.silent_ms >= SILENT_MS
        return State.SILENT if is_silent and self.state is State.RUNNING else self.state

    @property
    def is_peer(self) -> bool:
        """Whether other children can reach it."""
        return self.has_said_hello and bool(self.endpoint)


def describe(
    tree: SupervisorSpec, children: dict[str, Child], *, state: State, started_wall_ms: int
) -> dict[str, Any]:
    """The tree as `perdure ps --json` prints it."""
    own = psutil.Process()

    def is_shown(spec: SupervisorSpec | ChildSpec) -> bool:
        if isinstance(spec, SupervisorSpec) or not spec.on_demand:
            return True
        return children[spec.id].state is not State.STOPPED

    def row(spec: SupervisorSpec | ChildSpec) -> dict[str, Any]:
        if isinstance(spec, SupervisorSpec):
            return {
                "name": spec.id,
                "kind": str(Kind.SUPERVISOR),
                "pid": os.getpid(),
                "state": str(state),
                "restarts": 0,
                "started_ms": started_wall_ms,
                "rss_bytes": int(own.memory_info().rss),
                "children": [row(child) for child in spec.children if is_shown(child)],
            }
        child = children[spec.id]
        handle = child.handle
        return {
            "name": spec.id,
            "kind": str(spec.kind),
            "pid": None if handle is None else handle.pid,
            "state": str(child.shown),
            "restarts": child.restarts,
            "started_ms": None if handle is None else child.started_wall_ms,
            "rss_bytes": None if handle is None else handle.rss_bytes(),
            **({"build": child.build} if child.build else {}),
            "children": [
                {**_remote("outbox", where, []), "state": state, "reason": why or None}
                for where, state, why in child.outboxes
            ],
        }

    shown = row(tree)
    remote = [name for child in children.values() for name in child.remote_workers]
    if remote:
        shown["children"].append(_remote(Kind.SUPERVISOR, "remote", [*map(_remote_worker, remote)]))
    return shown


def _remote_worker(name: str) -> dict[str, Any]:
    return _remote(Kind.WORKER, name, [])


def _remote(kind: str, name: str, below: list[dict[str, Any]]) -> dict[str, Any]:
    """What no supervisor of this node has started: it is there, and that is all that is known."""
    return {
        "name": name,
        "kind": str(kind),
        "pid": None,
        "state": str(State.RUNNING),
        "restarts": 0,
        "started_ms": None,
        "rss_bytes": None,
        "children": below,
    }
