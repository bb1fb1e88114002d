"""Bugs of those around the writer: projections, gateway, workers, clients."""

from __future__ import annotations

from typing import Any

import msgspec

from actors import history_asked
from actors.gateway_workers import Workers
from chaos.sim.bugs.patches import Patches
from chaos.sim.client import _Call
from perdure import outstanding, wire, wire_args, wire_checks
from perdure.core import commands
from perdure.core.activity_tasks import ActivityTasks
from perdure.core.dead_letters import DeadLetters
from perdure.core.ids import Session
from perdure.core.lease_keeping import LeaseKeeping
from perdure.core.lease_table import LeaseTable
from perdure.core.links import Ask
from perdure.core.task_queues import TaskQueues
from perdure.wire import AnswerBody
from perdure.worker.activities import Activities
from perdure.worker.asks import Asks
from supervisors.news import News

replace = msgspec.structs.replace


# --- scheduler --------------------------------------------------------------
def timers_not_rebuilt(patches: Patches) -> None:
    """Durable timers live in the scheduler's memory only."""

    def wrap(load: Any) -> Any:
        def without(self: TaskQueues, executions: Any, now_ms: int = 0) -> None:
            found = [replace(execution, timers={}) for execution in executions]
            load(self, found, now_ms)

        return without

    patches.around(TaskQueues, "load", wrap)


def tasks_not_rebuilt(patches: Patches) -> None:
    """Activities that waited are not found again when the scheduler starts anew."""

    def wrap(load: Any) -> Any:
        def without(self: TaskQueues, executions: Any, now_ms: int = 0) -> None:
            refresh = self._refresh
            self._refresh = lambda *args: None  # type: ignore[method-assign]
            load(self, executions, now_ms)
            self._refresh = refresh  # type: ignore[method-assign]

        return without

    patches.around(TaskQueues, "load", wrap)


def ready_batch_starved(patches: Patches) -> None:
    """Only the tasks at the head of all queues are looked at: what none can take hides the rest."""

    def match(self: ActivityTasks, now_ms: int) -> None:
        while True:
            heads = [
                (found[0], key, found[1])
                for key, ready in self._queues.activities.items()
                if (found := ready.first()) is not None
            ]
            if not heads:
                return
            entry = min(heads, key=lambda head: (head[0], head[1]))[2]
            taker = self._taker(entry, now_ms)
            if taker is None:
                return
            self._propose_lease(entry, taker)

    patches.set(ActivityTasks, "match", match)


def hired_for_another(patches: Patches) -> None:
    """The lease that a worker asks for in its report is written down for another session."""

    def wrap(checked: Any) -> Any:
        def other(ask: Ask, head: bytes) -> Ask:
            found = checked(ask, head)
            command = found.command
            task = command.following if isinstance(command, commands.CompleteActivity) else command
            if not isinstance(task, commands.CompleteWorkflowTask) or task.hire is None:
                return found  # type: ignore[no-any-return]
            session = task.hire.session
            wrong = Session(session.source, session.ordinal % 2 + 1)
            task = replace(task, hire=replace(task.hire, session=wrong))
            if isinstance(command, commands.CompleteActivity):
                task = replace(command, following=task)
            return Ask(found.n, task)

        return other

    patches.around(history_asked, "checked", wrap)


# --- lease keeper -----------------------------------------------------------
def leases_not_rebuilt(patches: Patches) -> None:
    """Leases of before the lease keeper's start are watched by nobody."""

    def load(self: LeaseKeeping, executions: Any, now_ms: int) -> None:
        self.table.load([], now_ms)

    patches.set(LeaseKeeping, "load", load)


def sweep_starved(patches: Patches) -> None:
    """Expired leases are looked for among the oldest only, and those may live for long."""

    def wrap(check: Any) -> Any:
        def oldest(self: LeaseTable, now_ms: int) -> None:
            first = next(iter(self._live.values()), None)
            if first is not None and first.deadline_ms > now_ms and not first.ending:
                return
            check(self, now_ms)

        return oldest

    patches.around(LeaseTable, "check", wrap)


def deaths_unheard(patches: Patches) -> None:
    """A lease outlives its worker until its own time is over."""
    patches.nothing(LeaseKeeping, "sessions")
    patches.nothing(LeaseKeeping, "gateway")


# --- dead letters -----------------------------------------------------------
def dead_letters_lost(patches: Patches) -> None:
    """The index of dead letters begins empty."""
    patches.nothing(DeadLetters, "load")


def dead_letters_stay(patches: Patches) -> None:
    """What was redriven is still listed."""

    def wrap(refresh: Any) -> Any:
        def kept(self: DeadLetters, workflow_id: str, execution: Any) -> None:
            before = dict(self._workflows.get(workflow_id, {}))
            refresh(self, workflow_id, execution)
            now = self._workflows.get(workflow_id, {})
            if before and not now:
                self._workflows[workflow_id] = before
                for activity_id, entry in before.items():
                    self._order.append((entry.activity.dead_ms or 0, workflow_id, activity_id))
                self._order.sort()

        return kept

    patches.around(DeadLetters, "refresh", wrap)


# --- gateway ----------------------------------------------------------------
def empty_id_accepted(patches: Patches) -> None:
    """An id that is empty is an id."""

    def wrap(check: Any) -> Any:
        def lenient(field: str, value: Any) -> None:
            if value != "":
                check(field, value)

        return lenient

    patches.around(wire_checks, "check_id", wrap)
    patches.set(wire_args, "check_id", wire_checks.check_id)


def sessions_forgotten(patches: Patches) -> None:
    """The gateway's set of live sessions lacks those that it did not see come."""

    def wrap(tell: Any) -> Any:
        def without(self: Workers, role: str | None = None) -> None:
            by_head, newest = self._by_head, self._ordinal
            self._by_head = {
                head: worker
                for head, worker in by_head.items()
                if worker.session.is_local or worker.session.ordinal == newest
            }
            try:
                tell(self, role)
            finally:
                self._by_head = by_head

        return without

    patches.around(Workers, "tell_sessions", wrap)


# --- clients ----------------------------------------------------------------
def new_request_id(patches: Patches) -> None:
    """A request that is made again is another request."""

    def wrap(requests: Any) -> Any:
        def renewed(self: outstanding.Round, next_id: Any) -> Any:
            if self._pause_s > outstanding.RETRY_FIRST_S:
                self._calls = [
                    replace(call, request_id=f"{call.request_id}+")
                    if isinstance(call, wire.StartWorkflow)
                    else call
                    for call in self._calls
                ]
            return requests(self, next_id)

        return renewed

    patches.around(outstanding.Round, "requests", wrap)


def never_gives_up(patches: Patches) -> None:
    """A client tries again for ever, and its caller never hears of it."""

    def endless(init: Any) -> Any:
        def without_deadline(self: _Call, client: Any, args: Any, wait_ms: int, done: Any) -> None:
            init(self, client, args, wait_ms + 10**9, done)

        return without_deadline

    patches.around(_Call, "__init__", endless)


def answers_mixed_up(patches: Patches) -> None:
    """An answer goes to whoever has waited longest on the connection."""

    def deliver(self: outstanding.Outstanding[Any], answer: AnswerBody) -> Any:
        first = next(iter(self.pending), None)
        if first is None:
            return None
        exchange = self.pending.pop(first)
        exchange.answer = answer
        exchange.waiter.remaining -= 1
        return exchange.waiter

    patches.set(outstanding.Outstanding, "deliver", deliver)


# --- root -------------------------------------------------------------------
def root_speaks_once(patches: Patches) -> None:
    """Who is there, the root tells its children when it changes, and never again."""
    patches.nothing(News, "answered")


# --- workers ----------------------------------------------------------------
def report_said_once(patches: Patches) -> None:
    """A report is sent, and never again."""

    def due(self: Asks, now_ms: int) -> list[Any]:
        self._first.clear()
        self._again.clear()
        return []

    patches.set(Asks, "due", due)
    patches.set(Asks, "all", lambda self, dest=None: iter(()))


def task_run_twice(patches: Patches) -> None:
    """A worker runs whatever task arrives, also one that it has."""

    def wrap(take: Any) -> Any:
        def again(self: Activities, task: Any, now_ms: int) -> None:
            known = self._held.get(task.token)
            if known is None:
                take(self, task, now_ms)
            elif known.state.name == "RUNNING":
                self._runner.start(known.attempt, self.finished)

        return again

    patches.around(Activities, "take", wrap)


def followed_at_another_time(patches: Patches) -> None:
    """A workflow ran on from a result at one time, and history is told another."""

    def wrap(report: Any) -> Any:
        def later(self: Activities, held: Any, command: Any, now_ms: int) -> None:
            if isinstance(command, commands.CompleteActivity) and command.following is not None:
                command = replace(command, at_ms=command.at_ms - 1)
            report(self, held, command, now_ms)

        return later

    patches.around(Activities, "_report", wrap)
