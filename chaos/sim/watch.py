"""What a world sees that no log tells: who was declared dead and lives, what stays undone though
somebody could do it, and whether workflows can be run again to the same end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from chaos.sim import app
from chaos.sim.client import ClientProcess
from chaos.sim.host import ActorProcess
from chaos.sim.worker import WorkerProcess
from perdure.core.commands import (
    AnyCommand,
    CancelWorkflowStep,
    CompleteActivity,
    CompleteWorkflow,
    ContinueAsNew,
    DetachLease,
    FailActivity,
    FailWorkflow,
    RecordHeartbeat,
)
from perdure.core.ids import Address, Session, unseal
from perdure.core.limits import DEATHS_SHARED_MAX, GRACE_MS
from perdure.core.links import CORE_ROLES, HISTORY, SCHEDULER
from perdure.core.records import (
    ActivityTaskCompleted,
    CommitBody,
    Event,
    HeartbeatRecorded,
    LeaseDetached,
    LeaseGranted,
    Record,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowContinuedAsNew,
    WorkflowFailed,
    WorkflowStarted,
    WorkflowTaskFailed,
    decode_event,
)
from perdure.core.reset_points import counting
from perdure.core.state import Activity, moved_deadlines
from perdure.failures import WORKER_DIED, WORKFLOW_TIMEOUT
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
        self._core: set[str] = set()
        self._reported: set[Address | None] = set()
        self._changed_ms = 0

    # --- commits ------------------------------------------------------------------------
    def judged(self, commands: Sequence[AnyCommand]) -> None:
        """History has judged these; what follows from them is the next commit."""
        key = self._world.disk.key
        self._reported = {
            unseal(command.token, key) for command in commands if isinstance(command, _REPORTS)
        }

    def committed(self, body: CommitBody) -> None:
        """The next commit."""
        for group in body.groups:
            for record in group.records:
                if isinstance(record, LeaseGranted):
                    name = (group.workflow_id, record.activity_id, record.grant)
                    self._sessions[name] = record.session
                elif isinstance(record, WorkflowTaskFailed):
                    if record.reason == "mismatch":
                        self._world.violated(35, f"{group.workflow_id}: {record.failure}")
                else:
                    self._ended(group.workflow_id, record)

    def _ended(self, workflow_id: str, record: Any) -> None:
        kind = getattr(getattr(record, "failure", None), "type", "")
        if kind == WORKER_DIED:
            self._died(workflow_id, record)
        is_result = isinstance(record, ActivityTaskCompleted) and record.started_ms is not None
        is_failure = kind.startswith("Sim") and getattr(record, "started_ms", 0) is not None
        if is_result or is_failure or isinstance(record, HeartbeatRecorded | LeaseDetached):
            address = Address(workflow_id, record.activity_id, record.generation, record.grant)
            if address not in self._reported:
                kind = type(record).__name__
                self._world.violated(17, f"nobody who holds {address} has sent this {kind}")

    def _died(self, workflow_id: str, record: Record) -> None:
        grant = getattr(record, "grant", None)
        activity_id = getattr(record, "activity_id", "")
        session = self._sessions.get((workflow_id, activity_id, grant or 0))
        for worker in self._workers():
            if session is not None and worker.session_now() == session:
                what = (
                    f"{worker.role} lives, and {workflow_id}, {activity_id} ended as if it did not"
                )
                self._world.violated(21, what)

    # --- looks --------------------------------------------------------------------------
    def look(self) -> None:
        """Once faults are over: what has been so for too long."""
        if not self._is_calm():
            self._since_ms.clear()
            return
        seen = {*self._activities(), *self._unknown()}
        now_ms = self._world.loop.now_us // 1_000
        self._since_ms = {key: self._since_ms.get(key, now_ms) for key in seen}
        for (what, name), since_ms in self._since_ms.items():
            if now_ms - since_ms > PATIENCE_MS:
                number = 37 if what.startswith("waits") else 22
                self._world.violated(number, f"{name} {what} for {now_ms - since_ms} ms")
                return

    def _activities(self) -> Iterator[tuple[str, Any]]:
        """(what is wrong, name) of each open activity that stands where it should not stay."""
        executions = self._world.disk.reader().open_state()[1]
        opened = [(one.workflow_id, it) for one in executions for it in one.activities.values()]
        held = Counter(it.lease.session for _, it in opened if it.lease is not None)
        workers = self._workers()
        living = {worker.session_now() for worker in workers}
        knobs = self._world.plan.knobs
        # What a limit holds back waits for its turn, however much room there is.
        is_room = not knobs.rules and any(
            it.is_shared and held[it.session_now()] < knobs.slots for it in workers
        )
        for workflow_id, activity in opened:
            what = self._undone(activity, living, is_room=is_room)
            if what:
                yield what, (workflow_id, activity.activity_id, activity.grant)

    def _unknown(self) -> Iterator[tuple[str, Any]]:
        """Workers that nobody gives anything to."""
        scheduler: Any = self._world.find(SCHEDULER)
        for worker in self._workers():
            session = worker.session_now()
            is_there = session is not None and not worker.is_paused
            if is_there and session not in scheduler.actor._mind.seats:
                yield "waits for work, unknown to the scheduler,", worker.name

    def _is_calm(self) -> bool:
        """Whether the core has been there, and moved, for as long as silence is forgiven."""
        now_ms = self._world.loop.now_us // 1_000
        core = [one for one in self._world.processes if isinstance(one, ActorProcess)]
        names = {one.name for one in core}
        is_moving = len(core) == len(CORE_ROLES) and all(map(_moves, core))
        if names != self._core or not is_moving:
            self._core, self._changed_ms = names, now_ms
        return now_ms - self._changed_ms > GRACE_MS

    def _stall_ms(self) -> int:
        history: Any = self._world.find(HISTORY)
        return int(history.actor.stalls.sum_ms)

    def _undone(self, activity: Activity, living: set[Session | None], *, is_room: bool) -> str:
        lease = activity.lease
        now_ms = self._world.history_ms()
        if lease is not None:
            if lease.session is not None and lease.session.is_local and lease.session not in living:
                return "is held by a worker that is dead"
            deadline_ms, _ = moved_deadlines(lease, activity, self._stall_ms())
            return "is held beyond its time" if now_ms > deadline_ms else ""
        is_taken = activity.options.task_queue in ("default", "other")
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
        """Every execution that ended by itself comes to the very same end when it is run again."""
        reader = self._world.disk.reader()
        for execution_id in sorted(self._world.disk.closed):
            raw = reader.events(execution_id, 0, 1_000_000, 1 << 40)
            execution = reader.execution(execution_id)
            assert execution is not None
            events = [decode_event(one) for one in raw]
            problem = replayed(execution_id, events, execution.consumed)
            if problem:
                self._world.violated(35, f"{execution_id!r}: run again, {problem}")

    def _workers(self) -> list[WorkerProcess]:
        return [one for one in self._world.processes if isinstance(one, WorkerProcess)]


_REPORTS = (CompleteActivity, FailActivity, RecordHeartbeat, DetachLease)
_ENDS: dict[type[Record], type[Any]] = {
    WorkflowCompleted: CompleteWorkflow,
    WorkflowFailed: FailWorkflow,
    WorkflowCancelled: CancelWorkflowStep,
    WorkflowContinuedAsNew: ContinueAsNew,
}


def replayed(execution_id: str, events: list[Event], consumed: int) -> str:
    """What is wrong when these events are fed to the workflow's code anew; empty: nothing.

    `consumed`: what the last of its workflow tasks had read. An end from outside comes behind it.
    """
    first = events[0]
    assert isinstance(first, WorkflowStarted)
    counts = {event.event_id for event in counting(events)}
    ends = (
        n for n, event in enumerate(events) if type(event) in _ENDS and event.event_id in counts
    )
    at = next(ends, len(events))
    end = events[at] if at < len(events) else None
    if isinstance(end, WorkflowFailed) and end.failure.type == WORKFLOW_TIMEOUT:
        end = None  # Its code was not asked.
    if end is None:
        at = next((n for n, event in enumerate(events) if event.event_id > consumed), len(events))
    replayer = Replayer(app.REGISTRY.workflows[first.workflow_type], execution_id)
    try:
        replayer.learn(events, consumed)
        replayer.feed(events[:at])
        steps = replayer.take_steps()
    except NonDeterminism as problem:
        return str(problem)
    finally:
        replayer.close()
    if end is None:
        return ""
    step = steps[0] if steps else None
    is_same = type(step) is _ENDS[type(end)] and all(
        getattr(step, field, None) == getattr(end, field, None) for field in ("result", "input")
    )
    return "" if is_same else f"it ends otherwise: {step}"


def _moves(process: ActorProcess) -> bool:
    """Whether it runs, and knows what it must know to do its work."""
    actor: Any = process.actor
    knows = actor._epoch if process.role == HISTORY else getattr(actor, "is_loaded", True)
    return bool(knows) and not process.is_paused
