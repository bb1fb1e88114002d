"""A rolling restart: one child after the other is stopped in order and replaced.

The next is not touched before the one before serves, so that all but one always do. Where a
replacement does not come to serve, those that were not touched yet go on as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

import msgspec

from perdure.log_names import LogName
from supervisors.boots import Boots
from supervisors.child_spec import Kind
from supervisors.children import Child, State
from supervisors.control import Control, ReloadRequest

WORKERS = "workers"


class ReloadOrder(msgspec.Struct, frozen=True):
    """What is asked for: `what` is "workers", "look" or the name of a child.

    `apps` and `build` hold for workers from then on; None: as before.
    """

    what: str
    apps: tuple[str, ...] | None = None
    build: str | None = None


class _Phase(Enum):
    STOPPING = auto()
    STARTING = auto()


_decode = msgspec.json.Decoder(ReloadOrder).decode


class Reload:
    """At most one at a time. `stop` and `start` do that to a child; all is the main thread's.

    Whoever asked is told each step as an object with an `event`: "stopping", "ready", and as the
    last one "done" or "failed" with a `message`.
    """

    def __init__(
        self,
        children: dict[str, Child],
        control: Control,
        boots: Boots,
        log: Any,
        stop: Callable[[Child], None],
        start: Callable[[Child], None],
    ) -> None:
        self._children = children
        self._control = control
        self._boots = boots
        self._log = log
        self._stop = stop
        self._start = start
        self._request: ReloadRequest | None = None
        self._before = boots.application
        self._left: list[str] = []
        self._done: list[str] = []
        self._name = ""
        self._phase = _Phase.STOPPING
        self._said = ""  # Why the replacement can't begin, in its own words.

    # --- what is asked ----------------------------------------------------------
    def asked(self, request: ReloadRequest, *, is_running: bool) -> None:
        """Begin, or say why not."""
        try:
            order = _decode(request.order)
        except msgspec.MsgspecError as problem:
            self._refuse(request, f"no order to reload: {problem}")
            return
        if order.what == "look":
            self._control.answer_reload(request, self._look())
            return
        names = self._names(order.what)
        if not is_running:
            self._refuse(request, "the node is starting or stopping")
        elif self._request is not None:
            self._refuse(request, f"{self._name} is being replaced at present: one at a time")
        elif not names:
            known = ", ".join(name for name, it in self._children.items() if not it.spec.on_demand)
            self._refuse(request, f"there is no {order.what!r:.80} here; there are: {known}")
        else:
            self._begin(request, order, names)

    def _look(self) -> dict[str, Any]:
        apps, build = self._boots.application
        return {
            "event": "look",
            "apps": apps,
            "build": build,
            "cwd": self._boots.cwd,
            "workers": self._names(WORKERS),
        }

    def _names(self, what: str) -> list[str]:
        if what == WORKERS:
            of_workers = [it for it in self._children.values() if it.spec.kind is Kind.WORKER]
            return [it.spec.id for it in of_workers if not it.spec.on_demand]
        child = self._children.get(what)
        return [] if child is None or child.spec.on_demand else [what]

    def _begin(self, request: ReloadRequest, order: ReloadOrder, names: Sequence[str]) -> None:
        self._request = request
        self._before = self._boots.application
        apps, build = self._before
        self._boots.application = (
            apps if order.apps is None else order.apps,
            build if order.build is None else order.build,
        )
        self._left, self._done = list(names), []
        self._log.info(LogName.RELOAD_BEGUN, children=names, apps=self._boots.application[0])
        self._next()

    # --- step by step -----------------------------------------------------------
    def _next(self) -> None:
        if not self._left:
            self._retire_others()
            self._finish({"event": "done", "replaced": self._done})
            return
        self._name, self._said = self._left.pop(0), ""
        child = self._children[self._name]
        self._tell({"event": "stopping", "child": self._name})
        if child.handle is None:
            # It waits for its restart, after crashes: that need not be waited for.
            self._phase = _Phase.STARTING
            child.starts += 1
            self._start(child)
        else:
            self._phase = _Phase.STOPPING
            self._stop(child)

    def _retire_others(self) -> None:
        """What is there on demand has the old code: it comes again when it is wanted."""
        for child in self._children.values():
            if child.spec.on_demand and child.state is State.RUNNING and self._was_of_workers():
                self._stop(child)

    def _was_of_workers(self) -> bool:
        return any(self._children[name].spec.kind is Kind.WORKER for name in self._done)

    def ended(self, child: Child) -> bool:
        """A child has ended; whether that was asked for by us."""
        if self._request is None or child.spec.id != self._name:
            return False
        if self._phase is _Phase.STOPPING:
            self._phase = _Phase.STARTING
            return True
        if child.ready_at_ms is None:
            left = f"; not touched: {', '.join(self._left)}" if self._left else ""
            why = self._said or "it ended before it served: see the node's log"
            self._fail(f"{self._name} can't begin: {why}{left}")
        return False

    def said(self, name: str, message: str) -> None:
        """A child says why it can't begin; its end follows."""
        if name == self._name:
            self._said = message

    def ready(self, child: Child) -> None:
        """A child serves."""
        if self._request is None or child.spec.id != self._name:
            return
        if self._phase is _Phase.STARTING:
            self._done.append(self._name)
            pid = None if child.handle is None else child.handle.pid
            build = child.build or None
            self._tell({"event": "ready", "child": self._name, "pid": pid, "build": build})
            self._next()

    def given_up(self, why: str) -> None:
        """It will not be finished."""
        if self._request is not None:
            self._fail(why)

    # --- the end ----------------------------------------------------------------
    def _fail(self, message: str) -> None:
        # Whoever is started from now on is of the application that has served before.
        self._boots.application = self._before
        self._log.error(LogName.RELOAD_FAILED, message=message)
        self._finish({"event": "failed", "message": message, "replaced": self._done})

    def _finish(self, last: dict[str, Any]) -> None:
        self._tell(last)
        if last["event"] == "done":
            self._log.info(LogName.RELOAD_DONE, children=self._done)
        self._request, self._name = None, ""

    def _refuse(self, request: ReloadRequest, message: str) -> None:
        self._control.answer_reload(
            request, {"event": "failed", "message": message, "replaced": []}
        )

    def _tell(self, step: dict[str, Any]) -> None:
        assert self._request is not None
        self._control.answer_reload(self._request, step)
