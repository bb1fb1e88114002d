"""The supervisors: pykka actors that decide, and ask the root's main thread to do.

Only the main thread starts processes (what a thread starts may die with that thread), so `ask_root`
hands it a request; it answers with Exited, never with a return value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pykka

from perdure.log_names import LogName
from perdure.logs import logger
from supervisors.child_spec import SupervisorSpec
from supervisors.supervision import Action, Done, Exit, GiveUp, Start, Stop, Supervision


# --- messages ---------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Begin:
    """Start the children."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop the children in reverse order, then yourself."""


@dataclass(frozen=True, slots=True)
class Demand:
    """These of the children on demand are wanted now, and no others: from the root, to all."""

    wanted: frozenset[str]


@dataclass(frozen=True, slots=True)
class Exited:
    """A child has ended: root to the child's supervisor."""

    exit: Exit


@dataclass(frozen=True, slots=True)
class SupervisorStopped:
    """A supervisor has stopped, and all below it: to its parent, or to the root."""

    id: str


@dataclass(frozen=True, slots=True)
class GaveUp:
    """A supervisor can't go on: to its parent, or to the root."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class StartProcess:
    """To the root: start this child in `delay_ms`; its end goes to `supervisor`."""

    id: str
    delay_ms: int
    is_restart: bool
    supervisor: Any  # pykka.ActorRef


@dataclass(frozen=True, slots=True)
class StopProcess:
    """To the root: stop this child in order, kill it when its time is over."""

    id: str


Request = StartProcess | StopProcess | SupervisorStopped | GaveUp


# --- handle -----------------------------------------------------------------
class Supervisor(pykka.ThreadingActor):
    """Keeps the children of one SupervisorSpec.

    `parent` None: it is the top one and reports to the root.
    """

    def __init__(
        self,
        spec: SupervisorSpec,
        ask_root: Callable[[Request], None],
        parent: pykka.ActorRef[Supervisor] | None = None,
    ) -> None:
        super().__init__()
        self._spec = spec
        self._ask_root = ask_root
        self._parent = parent
        self._supervision = Supervision(spec)
        self._nested = {
            child.id: child for child in spec.children if isinstance(child, SupervisorSpec)
        }
        self._refs: dict[str, pykka.ActorRef[Supervisor]] = {}

    def on_receive(self, message: Any) -> None:
        """One message; see the dataclasses above."""
        match message:
            case Begin():
                self._perform(self._supervision.start())
            case Demand(wanted=wanted):
                self._perform(self._supervision.demand(wanted))
                for ref in self._refs.values():
                    ref.tell(message)
            case Exited(exit=exit_):
                self._perform(self._supervision.exited(exit_))
            case Shutdown():
                self._perform(self._supervision.shutdown())
            case SupervisorStopped(id=name):
                # It stops only when told to: its end is never a crash.
                self._refs.pop(name, None)
                self._perform(
                    self._supervision.exited(Exit(id=name, exit_code=0, ready_at_ms=None, at_ms=0))
                )
            case GaveUp(reason=reason):
                self._report(GaveUp(self._spec.id, reason))
            case _:
                raise TypeError(f"no message for a supervisor: {message!r}")

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """A supervisor that raised can't be trusted: the node ends."""
        logger(supervisor=self._spec.id).error(
            LogName.SUPERVISOR_CRASHED, exc_info=(exception_type, exception_value, traceback)
        )
        self._ask_root(GaveUp(self._spec.id, f"{self._spec.id} crashed: {exception_value!r}"))

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Start(id=name, delay_ms=delay_ms, is_restart=is_restart):
                    if name in self._nested:
                        self._start_nested(self._nested[name])
                    else:
                        self._ask_root(StartProcess(name, delay_ms, is_restart, self.actor_ref))
                case Stop(id=name):
                    if name in self._refs:
                        self._refs[name].tell(Shutdown())
                    else:
                        self._ask_root(StopProcess(name))
                case GiveUp(reason=reason):
                    self._report(GaveUp(self._spec.id, reason))
                case Done():
                    self._report(SupervisorStopped(self._spec.id))
                    self.stop()

    def _start_nested(self, spec: SupervisorSpec) -> None:
        ref = Supervisor.start(spec, self._ask_root, self.actor_ref)
        self._refs[spec.id] = ref
        ref.tell(Begin())

    def _report(self, message: SupervisorStopped | GaveUp) -> None:
        if self._parent is None:
            self._ask_root(message)
        else:
            self._parent.tell(message)
