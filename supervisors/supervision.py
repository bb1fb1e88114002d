"""What a supervisor decides, without doing it. Pure: time comes in, actions come out.

A child is *up* from the moment its start was decided until it is heard to have ended, even while
its start waits.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from supervisors.child_spec import ChildSpec, Restart, SupervisorSpec
from supervisors.intensity import (
    KILLED_DELAY_MAX_MS,
    delay_ms,
    is_crash_loop,
    is_kill_loop,
)
from supervisors.strategy import Strategy, restarted_with


@dataclass(frozen=True, slots=True)
class Start:
    """Start this child after a wait."""

    id: str
    delay_ms: int = 0
    is_restart: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop this child in order; it is heard as an exit when it has ended."""

    id: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Too many crashes: whoever is above decides, and the reason goes with it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """All children have ended after a shutdown."""


Action = Start | Stop | GiveUp | Done


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """A child has ended. `exit_code` None: unknown; `ready_at_ms` None: it never was ready.

    `was_late`: it was killed because it did not become ready in its time. `was_asked`: it was to
    end, so that another takes its place; that is no crash.
    """

    id: str
    exit_code: int | None
    ready_at_ms: int | None
    at_ms: int
    was_late: bool = False
    was_asked: bool = False


class Supervision:
    """The judgement of one supervisor over its children."""

    def __init__(self, spec: SupervisorSpec) -> None:
        self._spec = spec
        self._ids = tuple(child.id for child in spec.children)
        self._children = {child.id: child for child in spec.children}
        self._up: set[str] = set()
        self._crashes = dict.fromkeys(self._ids, 0)
        self._never_ready: set[str] = set()  # Whose last life ended before it was ready.
        self._deaths: tuple[int, ...] = ()
        self._group: set[str] = set()  # Those to be started again once all of them are down.
        self._group_delay_ms = 0
        self._stopping: set[str] = set()  # Those that were asked to stop and still run.
        self._is_shutting_down = False
        self._on_demand = frozenset(child.id for child in spec.children if _is_on_demand(child))
        self._wanted: frozenset[str] = frozenset()  # Of those on demand.

    def start(self) -> list[Action]:
        """The first start of all children, in order, but of those that are there on demand."""
        first = [name for name in self._ids if name not in self._on_demand]
        self._up.update(first)
        return [Start(name) for name in first]

    def demand(self, wanted: frozenset[str]) -> list[Action]:
        """Of the children on demand these are wanted now, and no others."""
        if self._is_shutting_down:
            return []
        self._wanted = wanted & self._on_demand
        missing = [name for name in self._ids if name in self._wanted - self._up]
        spare = [
            name
            for name in self._ids
            if name in (self._on_demand & self._up) - self._wanted - self._stopping
        ]
        self._up.update(missing)
        self._stopping.update(spare)
        return [*map(Start, missing), *map(Stop, spare)]

    def shutdown(self) -> list[Action]:
        """Stop all children in reverse order; Done follows when the last has ended."""
        if self._is_shutting_down:
            return []
        self._is_shutting_down = True
        return self._stop_next()

    def _stop_next(self) -> list[Action]:
        running = [name for name in reversed(self._ids) if name in self._up]
        if not running:
            return [Done()]
        due = running if self._spec.stops_together else running[:1]
        asked = [name for name in due if name not in self._stopping]
        self._stopping.update(asked)
        return [Stop(name) for name in asked]

    def exited(self, exit: Exit) -> list[Action]:  # noqa: A002 - OTP's word
        """What follows from the end of a child."""
        if exit.id not in self._up:
            return []
        self._up.discard(exit.id)
        self._stopping.discard(exit.id)
        if self._is_shutting_down:
            return self._stop_next()
        if exit.id in self._group:
            return self._advance_group()
        spec = self._children[exit.id]
        if not _restart_of(spec).wants(exit.exit_code):
            return []
        if exit.id in self._on_demand - self._wanted:
            return []
        if exit.was_asked:
            self._crashes[exit.id] = 0
            self._up.add(exit.id)
            return [Start(exit.id, is_restart=True)]
        again_unready = exit.id in self._never_ready
        if exit.ready_at_ms is None:
            self._never_ready.add(exit.id)
        else:
            self._never_ready.discard(exit.id)
        if exit.exit_code == -signal.SIGKILL and not exit.was_late:
            is_loop = is_kill_loop(ready_at_ms=exit.ready_at_ms, again_unready=again_unready)
            self._crashes[exit.id] = self._crashes[exit.id] + 1 if is_loop else 0
            wait_ms = delay_ms(self._crashes[exit.id], KILLED_DELAY_MAX_MS)
        elif is_crash_loop(ready_at_ms=exit.ready_at_ms, died_at_ms=exit.at_ms):
            self._crashes[exit.id] += 1
            window, too_many = self._spec.intensity.record(self._deaths, exit.at_ms)
            self._deaths = window
            if too_many and self._spec.escalates:
                return [GiveUp(self._reason(exit))]
            wait_ms = delay_ms(self._crashes[exit.id])
        else:
            self._crashes[exit.id] = wait_ms = 0
        return self._restart(exit.id, wait_ms)

    def _restart(self, dead: str, wait_ms: int) -> list[Action]:
        if self._spec.strategy is Strategy.ONE_FOR_ONE:
            self._up.add(dead)
            return [Start(dead, wait_ms, is_restart=True)]
        # Temporary siblings are stopped with the others, and not started again.
        self._group.update(restarted_with(self._spec.strategy, self._ids, dead))
        self._group_delay_ms = max(self._group_delay_ms, wait_ms)
        return self._advance_group()

    def _advance_group(self) -> list[Action]:
        """Stop the last of the group that still runs; when none does, start them all in order."""
        for name in reversed(self._ids):
            if name in self._group and name in self._up:
                if name in self._stopping:
                    return []
                self._stopping.add(name)
                return [Stop(name)]
        again = [
            name
            for name in self._ids
            if name in self._group and _restart_of(self._children[name]) is not Restart.TEMPORARY
        ]
        wait_ms, self._group_delay_ms = self._group_delay_ms, 0
        self._group.clear()
        self._up.update(again)
        return [Start(name, wait_ms, is_restart=True) for name in again]

    def _reason(self, exit: Exit) -> str:  # noqa: A002 - OTP's word
        intensity = self._spec.intensity
        how = (
            "with an unknown status" if exit.exit_code is None else f"with status {exit.exit_code}"
        )
        return (
            f"{self._spec.id}: {len(self._deaths)} crashes within {intensity.period_ms} ms, "
            f"more than {intensity.restarts_max}; the last was {exit.id}, which ended {how}"
        )


def _is_on_demand(spec: ChildSpec | SupervisorSpec) -> bool:
    return isinstance(spec, ChildSpec) and spec.on_demand


def _restart_of(spec: ChildSpec | SupervisorSpec) -> Restart:
    return Restart.PERMANENT if isinstance(spec, SupervisorSpec) else spec.restart
