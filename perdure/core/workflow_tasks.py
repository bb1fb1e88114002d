"""Give workflow tasks to worker sessions, and know which are out.

A workflow task has no lease: its result is accepted if its cursor is still the present one, so
giving it out twice is harmless. It is given again when it did not come back.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace

from perdure.core.commands import AnyCommand, TimeOutWorkflowTask
from perdure.core.limits import WORKFLOW_TASK_MS
from perdure.core.links import Message, Sync
from perdure.core.open_work import Work, workflow_task
from perdure.core.quarantine import is_free
from perdure.core.ranked import Ranked
from perdure.core.records import WorkflowTaskCompleted, WorkflowTaskFailed
from perdure.core.seats import LATE_MS, SILENT_MS, Given, Seat, Serving, is_lost
from perdure.core.task_queues import TaskQueues

# At a start, how long ready tasks wait for Syncs to say that a worker has them already.
START_HOLD_MS = 300
# After this long without a Sync from a worker, what it runs is given to another as well: half the
# time in which a hang would be charged, and longer than a busy machine delays a Sync.
SILENT_MOVE_MS = 2 * SILENT_MS
# A refused proposal speaks of something that the feed will tell; if it does not by then, look.
LOOK_AGAIN_MS = 1_000


class WorkflowTasks:
    """The workflow tasks that are out, and the giving out of those that are ready."""

    def __init__(
        self,
        queues: TaskQueues,
        serving: Serving,
        propose: Callable[[AnyCommand], None],
        tell: Callable[[bytes, Message], None],
    ) -> None:
        self._queues = queues
        self._serving = serving
        self._propose = propose
        self._tell = tell
        self._out: Ranked[Given] = Ranked()  # By when to look at it.

    def next_ms(self) -> int | None:
        """When `look` has something to do."""
        first = self._out.first()
        return None if first is None else first[0]

    # --- giving out -------------------------------------------------------------
    def match(self, reached: int, now_ms: int) -> None:
        """Give every ready task for which somebody has room, longest ready first."""
        heads = []
        for key, ready in self._queues.workflows.items():
            found = ready.first()
            if found is not None:
                heads.append((found[0], key, found[1]))
        heapify(heads)
        while heads:
            _, key, work = heads[0]
            ready = self._queues.workflows[key]
            seat = self._seat_for(work, now_ms)
            if seat is None:
                heappop(heads)  # Nobody has room for this kind now: the others may go on.
                continue
            self._send(self._give(work, seat, reached, now_ms), reached)
            following = ready.first()
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (following[0], key, following[1]))

    def _seat_for(self, work: Work, now_ms: int) -> Seat | None:
        """The worker that has it cached, if it has room; else the one with the most room."""
        sticky = None if work.sticky is None else self._serving.seat(work.sticky)
        if (
            sticky is not None
            and self._room(sticky) > 0
            and now_ms - sticky.sync_ms <= LATE_MS
            and sticky.serves(work.key, workflows=True)
        ):
            return sticky
        return self._serving.freest(work.key, now_ms, self._room, workflows=True)

    def _give(self, work: Work, seat: Seat, reached: int, now_ms: int) -> Given:
        given = Given(work, seat, now_ms, reached)
        self._queues.give_workflow(work, given)
        seat.given[work.workflow_id] = given
        self._out.put(given, now_ms + SILENT_MOVE_MS)
        return given

    def _send(self, given: Given, reached: int) -> None:
        given.n = reached
        cached = given.work.sticky == given.seat.session
        self._tell(given.seat.head, workflow_task(given.work, cached=cached, n=reached))

    # --- what workers say -------------------------------------------------------
    def judge(self, seat: Seat, sync: Sync, heard_ms: int, reached: int, now_ms: int) -> None:
        """Send again what this worker should hold and does not; note what it holds besides."""
        held = set(sync.workflows)
        for given in seat.given.values():
            execution = given.work.execution
            name = (given.work.workflow_id, execution.consumed, execution.commands)
            if name in held or given.proposed:
                continue
            if is_lost(sync.n, heard_ms, given.n, given.sent_ms):
                given.sent_ms = now_ms
                self._send(given, reached)
        for workflow_id, consumed, commands in held:
            work = self._queues.works.get(workflow_id)
            if work is None:
                continue
            execution = work.execution
            if (execution.consumed, execution.commands) == (consumed, commands):
                self._adopt(work, seat, reached, now_ms)

    def _adopt(self, work: Work, seat: Seat, reached: int, now_ms: int) -> None:
        """This worker holds the task: since before our start, or as an earlier session of its."""
        given: Given | None = work.given
        if given is None:
            if work.execution.task_ready and work.execution.task_due_ms <= now_ms:
                self._give(work, seat, reached, now_ms)
        elif given.seat is not seat and not given.proposed and not self._is_seated(given):
            given.seat.given.pop(work.workflow_id, None)
            given.seat = seat
            seat.given[work.workflow_id] = given

    def _is_seated(self, given: Given) -> bool:
        return self._serving.seat(given.seat.session) is given.seat

    # --- ends -------------------------------------------------------------------
    def ended(
        self, given: Given, record: WorkflowTaskCompleted | WorkflowTaskFailed, at_ms: int
    ) -> None:
        """History has committed the end of this task."""
        self.drop(given)
        if isinstance(record, WorkflowTaskCompleted):
            given.seat.progress_ms = at_ms
            given.work.sticky = given.seat.session
            return
        given.work.sticky = None  # It may have dropped what it had cached.
        if record.reason == "unknown_type":
            given.seat.refuse(given.work.execution.workflow_type, workflows=True)
            self._serving.changed()

    def drop(self, given: Given) -> None:
        """It is no longer out."""
        given.seat.given.pop(given.work.workflow_id, None)
        self._out.remove(given)

    def seat_ended(self, seat: Seat) -> None:
        """The session is dead, and with it what it was running: counted as failed."""
        for given in seat.given.values():
            self._time_out(given, "worker_died")

    def look(self, now_ms: int) -> None:
        """Judge the tasks that have been out for long."""
        while (given := self._out.pop_up_to(now_ms)) is not None:
            if given.work.given is not given:
                continue
            silent_ms = now_ms - max(given.seat.sync_ms, given.since_ms)
            # A worker runs them one after the other: while some come back, the others queue.
            left_ms = max(given.since_ms, given.seat.progress_ms) + WORKFLOW_TASK_MS - now_ms
            if given.reason:
                self._time_out(given, given.reason)  # History could not say, the last time.
            elif not self._is_seated(given) or silent_ms >= SILENT_MOVE_MS:
                # The worker, or the way to it, was silent all the time: nobody's fault. It moves.
                self.drop(given)
                self._queues.take_back_workflow(given.work, now_ms)
            elif silent_ms >= SILENT_MS:
                self._out.put(given, now_ms + SILENT_MOVE_MS - silent_ms)
            elif left_ms <= 0:
                self._time_out(given, "timeout")
            else:
                self._out.put(given, now_ms + min(left_ms, SILENT_MOVE_MS - silent_ms))

    def _time_out(self, given: Given, reason: str) -> None:
        given.proposed = True
        given.reason = reason
        self._out.remove(given)
        execution = given.work.execution
        self._propose(
            TimeOutWorkflowTask(
                given.work.workflow_id, execution.consumed, execution.commands, reason
            )
        )

    def refused(self, command: TimeOutWorkflowTask, *, unknown: bool, now_ms: int) -> None:
        """History did not count the task as failed, or (`unknown`) could not say."""
        work = self._queues.works.get(command.workflow_id)
        given: Given | None = None if work is None else work.given
        if work is None or given is None or not given.proposed:
            return
        execution = work.execution
        if (execution.consumed, execution.commands) != (command.consumed, command.commands):
            return
        if not unknown:
            given.proposed = False
            given.reason = ""
        self._out.put(given, now_ms + LOOK_AGAIN_MS)

    def _room(self, seat: Seat) -> int:
        if seat.quarantine:
            return int(is_free(seat, len(self._queues.leases.get(seat.session, ()))))
        return seat.capacity[1] - len(seat.given)
