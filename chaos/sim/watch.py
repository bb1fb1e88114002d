"""What a world sees that no log tells: who was declared dead and lives, what stays undone though
somebody could do it, and whether workflows can be run again to the same end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chaos.sim import app
from chaos.sim.client import ClientProcess
from chaos.sim.worker import WorkerProcess
from perdure.core.commands import CompleteWorkflow
from perdure.core.ids import Session
from perdure.core.limits import DEATHS_SHARED_MAX
from perdure.core.records import (
    CommitBody,
    LeaseGranted,
    Record,
    WorkflowCompleted,
    decode_event,
)
from perdure.core.state import Activity
from perdure.failures import WORKER_DIED
from perdure.worker.replay import Replayer
from perdure.workflow import NonDeterminism

if TYPE_CHECKING:
    from chaos.sim.world import World

# After the last fault, how long something may stay as it is though it should not.
PATIENCE_MS = 15_000

Grant = tuple[str, str, int]


class Watch:
    """Fed with commits; looks around now and then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sessions: dict[Grant, Session | None] = {}
        self._since_ms: dict[tuple[str, Any], int] = {}

    # --- commits ------------------------------------------------------------------------
    def committed(self, body: CommitBody) -> None:
        """The next commit."""
        for group in body.groups:
            for record in group.records:
                if isinstance(record, LeaseGranted):
                    name = (group.workflow_id, record.activity_id, record.grant)
                    self._sessions[name] = record.session
                elif getattr(getattr(record, "failure", None), "type", "") == WORKER_DIED:
                    self._died(group.workflow_id, record)

    def _died(self, workflow_id: str, record: Record) -> None:
        grant = getattr(record, "grant", None)
        activity_id = getattr(record, "activity_id", "")
        session = self._sessions.get((workflow_id, activity_id, grant or 0))
        for worker in self._workers():
            if session is not None and worker.sessions_now() == session:
                what = f"{worker.role} lives, and {workflow_id}, {activity_id} ended as if it did not"
                self._world.violated(21, what)

    # --- looks --------------------------------------------------------------------------
    def look(self) -> None:
        """Once faults are over: what has been so for too long."""
        if not self._world.disk.newest:
            return  # There is no store yet.
        seen: set[tuple[str, Any]] = set()
        room = [worker for worker in self._workers() if worker.is_shared]
        living = {worker.sessions_now() for worker in self._workers()}
        executions = self._world.disk.reader().open_state()[1]
        held: dict[Session | None, int] = {}
        for execution in executions:
            for activity in execution.activities.values():
                if activity.lease is not None:
                    session = activity.lease.session
                    held[session] = held.get(session, 0) + 1
        slots = self._world.plan.knobs.slots
        is_room = any(held.get(worker.sessions_now(), 0) < slots for worker in room)
        for execution in executions:
            for activity in execution.activities.values():
                name = (execution.workflow_id, activity.activity_id, activity.grant)
                what = self._undone(activity, living, is_room=is_room)
                if what:
                    seen.add((what, name))
        now_ms = self._world.loop.now_us // 1_000
        self._since_ms = {key: self._since_ms.get(key, now_ms) for key in seen}
        for (what, name), since_ms in self._since_ms.items():
            if now_ms - since_ms > PATIENCE_MS:
                number = 37 if what.startswith("waits") else 22
                self._world.violated(number, f"{name} {what} for {now_ms - since_ms} ms")
                return

    def _undone(
        self, activity: Activity, living: set[Session | None], *, is_room: bool
    ) -> str:
        lease = activity.lease
        now_ms = self._world.history_ms()
        if lease is not None:
            if lease.session is not None and lease.session.is_local and lease.session not in living:
                return "is held by a worker that is dead"
            return "is held beyond its time" if now_ms > lease.deadline_ms else ""
        is_taken = activity.options.task_queue != "hand"
        is_shared = activity.deaths_in_a_row < DEATHS_SHARED_MAX
        is_due = activity.dead_ms is None and now_ms >= activity.due_ms
        return "waits though there is room" if is_due and is_taken and is_shared and is_room else ""

    # --- the end ------------------------------------------------------------------------
    def is_quiet(self) -> bool:
        """Whether nobody waits for an answer to what it said."""
        return not any(worker.unanswered() for worker in self._workers())

    def people(self) -> None:
        """Whoever asked was told in its time."""
        for person in self._world.people:
            if isinstance(person, ClientProcess):
                person.overdue()

    def replays(self) -> None:
        """Every workflow that has completed comes to the very same result when it is run again."""
        reader = self._world.disk.reader()
        for flow in self._world.plan.flows:
            raw = reader.events(flow.id, 0, 1_000_000, 1 << 40)
            events = [decode_event(one) for one in raw]
            last = events[-1] if events else None
            if not isinstance(last, WorkflowCompleted):
                continue
            replayer = Replayer(app.REGISTRY.workflows["flow"], flow.id)
            try:
                replayer.feed(events[:-1])
                steps = replayer.take_steps()
            except NonDeterminism as problem:
                self._world.violated(35, f"{flow.id}: {problem}")
                continue
            finally:
                replayer.close()
            first = steps[0] if steps else None
            if not isinstance(first, CompleteWorkflow) or first.result != last.result:
                self._world.violated(35, f"{flow.id}: run again, it ends otherwise: {first}")

    def _workers(self) -> list[WorkerProcess]:
        return [one for one in self._world.processes if isinstance(one, WorkerProcess)]


