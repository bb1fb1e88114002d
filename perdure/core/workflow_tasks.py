"""Give workflow tasks to worker sessions, and know which are out.

A workflow task has no lease: its result is accepted if its cursor is still the present one, so
giving it out twice is harmless. It is given again when it did not come back.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace

from perdure.core.commands import AnyCommand, TimeOutWorkflowTask
from perdure.core.gates import Gates
from perdure.core.limits import WORKFLOW_TASK_MS
from perdure.core.links import Message, Sync
from perdure.core.open_work import Key, Work, workflow_task
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
# First tasks wait for slots while one comes free at least this often, and at most so long.
PERMIT_WAIT_MS = 300
PERMITS_WAIT_MS = 2_000
# A refused proposal speaks of something that the feed will tell; if it does not by then, look.
LOOK_AGAIN_MS = 1_000


class WorkflowTasks:
    """The workflow tasks that are out, and the giving out of those that are ready."""

    def __init__(
        self,
        queues: TaskQueues,
        gates: Gates,
        serving: Serving,
        propose: Callable[[AnyCommand], None],
        tell: Callable[[bytes, Message], None],
        slots: Callable[[Seat], int],
    ) -> None:
        self._slots = slots
        self._queues = queues
        self._gates = gates
        self._serving = serving
        self._propose = propose
        self._tell = tell
        self._out: Ranked[Given] = Ranked()  # By when to look at it.
        self._held_until_ms: int | None = None
        self._loners: set[Key] = set()  # Kinds of workflow whose first task hired nobody, lately.

    def next_ms(self) -> int | None:
        """When `look` or `match` has something to do."""
        first_ms: int | None = self._out.lowest()
        held_ms = self._held_until_ms
        if held_ms is not None and self._queues.workflows:
            return held_ms if first_ms is None else min(first_ms, held_ms)
        return first_ms

    # --- giving out -------------------------------------------------------------
    def match(self, reached: int, now_ms: int) -> None:
        """Give every ready task for which somebody has room, longest ready first."""
        self._held_until_ms = None
        heads = []
        gates, level_of = self._gates, self._queues.level
        has_levels = bool(self._queues.queue_priority)
        for key, ready in self._queues.workflows.items():
            found = ready.first()
            if found is None or (gates and gates.of_queue(key[0]) is not None):
                continue
            heads.append((level_of(key[0]) if has_levels else 0, found[0], key, found[1]))
        heapify(heads)
        while heads:
            level, _, key, work = heads[0]
            ready = self._queues.workflows[key]
            seat = self._seat_for(work, now_ms)
            if seat is None or self._waits_for_permit(work, seat, now_ms):
                heappop(heads)  # Nobody has room for this kind now: the others may go on.
                continue
            given = self._give(work, seat, reached, now_ms, self._permits(seat))
            self._send(given, reached)
            following = ready.first()
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (level, following[0], key, following[1]))

    def _seat_for(self, work: Work, now_ms: int) -> Seat | None:
        """The worker that has it cached, if it has room; else the one with the most room."""
        sticky = None if work.sticky is None else self._serving.seat(work.sticky)
        if (
            sticky is not None
            and self.room(sticky) > 0
            and now_ms - sticky.sync_ms <= LATE_MS
            and sticky.serves(work.key, workflows=True)
        ):
            return sticky
        seat = self._serving.freest(work.key, now_ms, self._both_rooms, workflows=True)
        return seat or self._serving.freest(work.key, now_ms, self.room, workflows=True)

    def _both_rooms(self, seat: Seat) -> int:
        """Room for a workflow task, and for an activity that it schedules."""
        return min(self.room(seat), self._slots(seat))

    def _permits(self, seat: Seat) -> int:
        """One slot for what the task will schedule, unless somebody waits for a slot already."""
        return int(not (seat.backlog or seat.quarantine) and self._slots(seat) > 0)

    def _waits_for_permit(self, work: Work, seat: Seat, now_ms: int) -> bool:
        """Whether a first task is better held back while slots come free one after the other: with
        a permit its activity needs no way over us, and would have to wait for a slot otherwise.
        """
        if work.execution.consumed or work.key in self._loners:
            return False
        if seat.backlog or seat.quarantine or self._slots(seat) > 0:
            return False
        until_ms = min(seat.freed_ms + PERMIT_WAIT_MS, work.rank[0] + PERMITS_WAIT_MS)
        if now_ms >= until_ms:
            return False
        if self._held_until_ms is None or until_ms < self._held_until_ms:
            self._held_until_ms = until_ms
        return True

    def _give(self, work: Work, seat: Seat, reached: int, now_ms: int, permits: int = 0) -> Given:
        given = Given(work, seat, now_ms, reached, permits)
        self._queues.give_workflow(work, given)
        seat.given[work.workflow_id] = given
        if permits:
            seat.permits += permits
            seat.freed_ms = now_ms
        self._out.put(given, now_ms + SILENT_MOVE_MS)
        return given

    def _send(self, given: Given, reached: int) -> None:
        given.n = reached
        cached = given.work.sticky == given.seat.session
        task = workflow_task(given.work, cached=cached, n=reached, permits=given.permits)
        self._tell(given.seat.head, task)

    def sent(self, workflow_id: str, seat: Seat, n: int, now_ms: int) -> None:
        """History has sent this first task itself, with a permit. Where we had given it out as
        well, that stands: it does no harm.
        """
        work = self._queues.works.get(workflow_id)
        if work is None or work.given is not None or not work.is_ready or work.execution.consumed:
            return
        self._give(work, seat, n, now_ms, permits=1)

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
            given.seat.permits -= given.permits
            given.permits = 0
            given.seat = seat
            seat.given[work.workflow_id] = given

    def _is_seated(self, given: Given) -> bool:
        return self._serving.seat(given.seat.session) is given.seat

    # --- ends -------------------------------------------------------------------
    def ended(
        self,
        given: Given,
        record: WorkflowTaskCompleted | WorkflowTaskFailed,
        at_ms: int,
        *,
        hired: bool,
    ) -> None:
        """History has committed the end of this task. `hired`: its permit was used."""
        if given.permits:
            given.seat.freed_ms = at_ms
            if hired:
                self._loners.discard(given.work.key)
            elif given.first:
                self._loners.add(given.work.key)
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
        given.seat.permits -= given.permits
        given.permits = 0
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

    def room(self, seat: Seat) -> int:
        """How many more workflow tasks this session may be given."""
        if seat.quarantine:
            return int(is_free(seat, len(self._queues.leases.get(seat.session, ()))))
        return seat.capacity[1] - len(seat.given) - seat.lent
