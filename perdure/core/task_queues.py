"""What waits to be done: ready tasks of both kinds, and every deadline that is not a lease's.

A projection of history's records: fed with all of them, or begun from the open executions, it holds
the same. It decides nothing; `due` names the proposals that time has brought. No clock: every call
says what time it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from perdure.core import caller_deadlines, resetting
from perdure.core.caller_deadlines import SCHEDULE_TO_START
from perdure.core.commands import AnyCommand, FireTimer, TimeOutActivity, TimeOutWorkflow
from perdure.core.execution import begin, evolve
from perdure.core.interaction_records import RetriedNow, WorkflowPaused
from perdure.core.lease_index import LeaseIndex
from perdure.core.open_work import RETRY, Entry, Key, Work, activity_key, hired, workflow_key
from perdure.core.ranked import Ranked, all_in_order
from perdure.core.records import (
    CLOSING_TYPES,
    EVENT_TYPES,
    ActivityDeadLettered,
    ActivityRedriven,
    ActivityTaskCancelled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskScheduled,
    LeaseDetached,
    LeaseGranted,
    LeaseReleased,
    Record,
    RetryScheduled,
    TimerCancelled,
    TimerFired,
    TimerStarted,
    WorkflowCancelRequested,
    WorkflowStarted,
    WorkflowTaskCompleted,
    WorkflowTaskFailed,
)
from perdure.core.state import Activity, ActivityState, Execution, Status
from perdure.core.turns import QUEUE_SPAN, Turns

_TIMER = "timer"
_RETRY = "retry"
_PARKED = "parked"
_DELAY = "delay"  # What a parked task is called that waits for the workflow's start.
_LIFETIME = "lifetime"

Due = tuple[str, Work | Entry, int]


class TaskQueues:
    """Ready tasks, higher priority first, workflows in turn; and what falls due when."""

    def __init__(self) -> None:
        self.works: dict[str, Work] = {}
        # Ready and not taken, by key; a key without tasks is absent.
        self.workflows: dict[Key, Ranked[Work]] = {}
        self.activities: dict[Key, Ranked[Entry]] = {}
        self.index = LeaseIndex()
        self.leases, self.polled, self.freed = self.index.parts
        self.turns = Turns()
        # What rules say: the types whose retries wait apart, and which queues go first.
        self.retries_apart: frozenset[str] = frozenset()
        self.queue_priority: Mapping[str, int] = {}
        self._deadlines: Ranked[Due] = Ranked()
        self._proposals: list[AnyCommand] = []
        self._arrival = 0

    # --- records --------------------------------------------------------------
    def load(self, executions: Iterable[Execution], now_ms: int = 0) -> None:
        """Begin with these open executions, which belong to this object from now on."""
        for execution in executions:
            if not execution.is_open:
                continue
            known = self.works.get(execution.workflow_id)
            if known is not None:
                self._forget(known)
            work = self.works[execution.workflow_id] = Work(execution, None)
            if execution.consumed >= execution.last_event_id:
                work.events = []
            for activity in sorted(execution.activities.values(), key=lambda it: it.due_ms):
                self._refresh(work, activity.activity_id, now_ms)
            for timer_id, due_ms in execution.timers.items():
                self._start_timer(work, timer_id, due_ms)
            self._arm_lifetime(work)
            self._settle(work, now_ms)

    def apply(self, workflow_id: str, at_ms: int, records: Sequence[Record], n: int = 0) -> None:
        """Take in what commit `n` states about one workflow, in the order of the log."""
        work = self.works.get(workflow_id)
        if type(records[-1]) in CLOSING_TYPES:
            # What else the commit states about it is no concern of anybody here.
            if work is not None:
                self._forget(work)
            return
        at = resetting.newest(records)
        if at >= 0:  # It says what is open from then on, whatever was before.
            self.load([resetting.restored(records[at])], at_ms)
            if records[at + 1 :]:
                self.apply(workflow_id, at_ms, records[at + 1 :], n)
            return
        skipped = hired(records) if len(records) > 1 else ()
        for record in records:
            if work is None:
                if not isinstance(record, WorkflowStarted):
                    return  # Of an execution that is closed.
                work = self.works[workflow_id] = Work(begin(workflow_id, record), [])
                self._arm_lifetime(work)
            else:
                evolve(work.execution, record, n)
            kind = type(record)
            if kind in EVENT_TYPES:
                work.keep_event(record)
            fold = _FOLDS.get(kind)
            if fold is not None and record not in skipped:
                fold(self, work, record, at_ms)
        assert work is not None
        if work.execution.status is not Status.RUNNING:
            self._forget(work)
        elif work.given is None and not work.is_ready:
            self._settle(work, at_ms)

    def _forget(self, work: Work) -> None:
        del self.works[work.workflow_id]
        self.withdraw_workflow(work)
        for entry in work.entries.values():
            self._forget_activity(entry)
        work.entries.clear()
        for timer_id in work.timers:
            self._deadlines.remove((_TIMER, work, timer_id))
        work.timers.clear()
        more = work.execution.more
        if more is not None and more.timeout_at_ms:
            self._deadlines.remove((_LIFETIME, work, 0))

    def _arm_lifetime(self, work: Work) -> None:
        more = work.execution.more
        if more is not None and more.timeout_at_ms:
            self._deadlines.put((_LIFETIME, work, 0), more.timeout_at_ms)

    # --- timers ---------------------------------------------------------------
    def _timer_started(self, work: Work, record: TimerStarted, at_ms: int) -> None:
        self._start_timer(work, record.timer_id, record.due_ms)

    def _timer_gone(self, work: Work, record: TimerFired | TimerCancelled, at_ms: int) -> None:
        work.timers.discard(record.timer_id)
        self._deadlines.remove((_TIMER, work, record.timer_id))

    def _start_timer(self, work: Work, timer_id: int, due_ms: int) -> None:
        work.timers.add(timer_id)
        self._deadlines.put((_TIMER, work, timer_id), due_ms)

    # --- workflow tasks -------------------------------------------------------
    def _task_completed(self, work: Work, record: WorkflowTaskCompleted, at_ms: int) -> None:
        self.withdraw_workflow(work)
        work.given = None
        work.consume(record.consumed)

    def _task_failed(self, work: Work, record: WorkflowTaskFailed, at_ms: int) -> None:
        self.withdraw_workflow(work)
        work.given = None

    def _cancel_requested(self, work: Work, record: WorkflowCancelRequested, at_ms: int) -> None:
        """A parked task need not wait any more."""
        if work.is_parked:
            self.withdraw_workflow(work)

    def _settle(self, work: Work, at_ms: int) -> None:
        """Put the workflow task where it belongs: among the ready, the parked, or nowhere."""
        execution = work.execution
        if work.given is not None or work.is_ready or not execution.task_ready:
            return
        if execution.task_due_ms > at_ms:
            work.is_parked = True
            self._deadlines.put((_PARKED, work, 0), execution.task_due_ms)
            return
        self._arrival += 1
        work.key = workflow_key(execution)
        work.rank = (execution.task_due_ms or at_ms, self._arrival)
        self._queue_workflow(work)

    def _queue_workflow(self, work: Work) -> None:
        if work.execution.is_paused:
            return
        ready = self.workflows.get(work.key)
        if ready is None:
            ready = self.workflows[work.key] = Ranked()
        ready.put(work, work.rank)
        work.is_ready = True

    def withdraw_workflow(self, work: Work) -> bool:
        """Take the task from the ready ones; False when it was not among them."""
        if work.is_parked:
            work.is_parked = False
            self._deadlines.remove((_PARKED, work, 0))
        if not work.is_ready:
            return False
        work.is_ready = False
        ready = self.workflows[work.key]
        ready.remove(work)
        if not ready:
            del self.workflows[work.key]
        return True

    def give_workflow(self, work: Work, given: Any) -> None:
        """Note that the task is out: not ready before a record or `take_back_workflow` says so."""
        self.withdraw_workflow(work)
        work.given = given

    def take_back_workflow(self, work: Work, now_ms: int) -> None:
        """The task is no longer out: it stands where it stood, uncounted."""
        work.given = None
        if self.works.get(work.workflow_id) is not work or not work.execution.task_ready:
            return
        if work.rank == (0, 0) or work.execution.task_due_ms > now_ms:
            self._settle(work, now_ms)
        else:
            self._queue_workflow(work)

    def _paused(self, work: Work, record: WorkflowPaused, at_ms: int) -> None:
        """Nothing of it is ready while it is held back."""
        if record.paused and work.is_ready:
            self.withdraw_workflow(work)
        for entry in work.entries.values():
            if not record.paused:
                self.requeue_activity(entry, at_ms)
            elif entry.is_ready:
                self.withdraw_activity(entry)

    def _retried(self, work: Work, record: RetriedNow, at_ms: int) -> None:
        if record.activity_id:
            self._refresh(work, record.activity_id, at_ms)
        elif work.given is None:
            self.withdraw_workflow(work)

    # --- activities -----------------------------------------------------------
    def _activity_changed(self, work: Work, record: Any, at_ms: int) -> None:
        self._refresh(work, record.activity_id, at_ms)

    def _refresh(self, work: Work, activity_id: str, at_ms: int) -> None:
        """Put an activity where its state says: ready, waiting for its time, leased, or gone."""
        activity = work.execution.activities.get(activity_id)
        entry = work.entries.get(activity_id)
        if entry is not None and entry.activity is not activity:
            self._forget_activity(entry)
            del work.entries[activity_id]
            entry = None
        if activity is None:
            return
        if entry is None:
            entry = work.entries[activity_id] = Entry(work, activity)
        elif self.withdraw_activity(entry) and activity.lease is not None:
            self.turns.skip(entry)
        if entry.is_leased or activity.lease is not None:
            self.index.put(entry, activity.lease)
        if activity.lease is None and activity.state is not ActivityState.DEAD_LETTERED:
            self._arrival += 1
            entry.key = activity_key(activity)
            if activity.attempt > 1 and activity.activity_type in self.retries_apart:
                entry.key = (*entry.key, RETRY)
            level = self.level(activity.options.task_queue) if self.queue_priority else 0
            rank = (level - activity.options.priority, 0, activity.due_ms, self._arrival)
            entry.rank = rank  # Its turn comes with becoming ready.
            self._queue_activity(entry, activity.due_ms, at_ms)
        if activity.options.schedule_to_start_ms or activity.options.schedule_to_close_ms:
            self._arm(entry, activity)

    def _arm(self, entry: Entry, activity: Activity) -> None:
        """Set or take off the caller's deadlines."""
        for kind, due_ms in caller_deadlines.of_activity(activity):
            key: Due = (kind, entry, activity.generation)
            if due_ms is None:
                self._deadlines.remove(key)
            else:
                self._deadlines.put(key, due_ms)

    def _forget_activity(self, entry: Entry) -> None:
        self.withdraw_activity(entry)
        if entry.is_leased:
            self.index.put(entry, None)
        options = entry.activity.options
        if options.schedule_to_start_ms or options.schedule_to_close_ms:
            for kind, _ in caller_deadlines.of_activity(entry.activity):
                self._deadlines.remove((kind, entry, entry.activity.generation))

    def is_waiting(self, entry: Entry) -> bool:
        """True while the activity is open, not leased and no dead letter."""
        activity = entry.activity
        if entry.work.entries.get(activity.activity_id) is not entry:
            return False
        return activity.lease is None and activity.state is not ActivityState.DEAD_LETTERED

    def requeue_activity(self, entry: Entry, at_ms: int, not_before_ms: int = 0) -> None:
        """Put a waiting activity (back) at its place among the ready, or let it wait till due."""
        if self.is_waiting(entry):
            self._queue_activity(entry, max(entry.activity.due_ms, not_before_ms), at_ms)

    def _queue_activity(self, entry: Entry, due_ms: int, at_ms: int) -> None:
        if due_ms > at_ms:
            entry.is_parked = True
            self._deadlines.put((_RETRY, entry, 0), due_ms)
            return
        more = entry.work.execution.more
        if more is not None and more.paused:
            return
        rank = entry.rank
        if not rank[1]:
            entry.rank = (rank[0], self.turns.next(entry.work, rank[0]), rank[2], rank[3])
        ready = self.activities.get(entry.key)
        if ready is None:
            ready = self.activities[entry.key] = Ranked()
        ready.put(entry, entry.rank)
        entry.is_ready = True

    def withdraw_activity(self, entry: Entry) -> bool:
        """Take it from the ready ones; False when it was not among them."""
        if entry.is_parked:
            entry.is_parked = False
            self._deadlines.remove((_RETRY, entry, 0))
        if not entry.is_ready:
            return False
        entry.is_ready = False
        ready = self.activities[entry.key]
        ready.remove(entry)
        if not ready:
            del self.activities[entry.key]
        return True

    # --- time -----------------------------------------------------------------
    def next_due_ms(self) -> int | None:
        """When `due` will next have something to do, or None: never, as things are."""
        if self._proposals:
            return 0
        lowest_ms: int | None = self._deadlines.lowest()
        return lowest_ms

    def due(self, now_ms: int) -> list[AnyCommand]:
        """Make ready what waited for its time; proposals for the rest, in the order they fell due.

        Each is made once; `refused` makes it possible again.
        """
        self._advance(now_ms)
        proposals, self._proposals = self._proposals, []
        return proposals

    def _advance(self, now_ms: int) -> None:
        while (found := self._deadlines.pop_up_to(now_ms)) is not None:
            kind, what, number = found
            if isinstance(what, Entry):
                if kind == _RETRY:
                    what.is_parked = False
                    self.requeue_activity(what, now_ms)
                else:
                    activity_id, workflow_id = what.activity.activity_id, what.work.workflow_id
                    self._proposals.append(TimeOutActivity(workflow_id, activity_id, number, kind))
            elif kind == _PARKED:
                what.is_parked = False
                self._settle(what, now_ms)
            elif kind == _LIFETIME:
                self._proposals.append(TimeOutWorkflow(what.workflow_id))
            else:
                self._proposals.append(FireTimer(what.workflow_id, number))

    def refused(
        self, command: FireTimer | TimeOutActivity | TimeOutWorkflow, again_ms: int
    ) -> None:
        """The proposal did not work out: make it again at `again_ms`, if its cause stays."""
        work = self.works.get(command.workflow_id)
        if work is None:
            return
        if isinstance(command, FireTimer):
            if command.timer_id in work.timers:
                self._deadlines.put((_TIMER, work, command.timer_id), again_ms)
            return
        if isinstance(command, TimeOutWorkflow):
            self._deadlines.put((_LIFETIME, work, 0), again_ms)
            return
        entry = work.entries.get(command.activity_id)
        if entry is None or entry.activity.generation != command.generation:
            return
        activity = entry.activity
        started = activity.leased_in_generation and command.kind == SCHEDULE_TO_START
        if not started and activity.state is not ActivityState.DEAD_LETTERED:
            self._deadlines.put((command.kind, entry, command.generation), again_ms)

    # --- looking ----------------------------------------------------------------
    def level(self, task_queue: str) -> int:
        """Where the tasks of a queue stand by its priority alone, the lowest first."""
        return -QUEUE_SPAN * self.queue_priority.get(task_queue, 0)

    @property
    def ready_count(self) -> int:
        """How many tasks of either kind are ready and not taken."""
        workflows = sum(len(ready) for ready in self.workflows.values())
        return workflows + sum(len(ready) for ready in self.activities.values())

    def ready_workflows(self, now_ms: int) -> list[Work]:
        """Workflows whose task is ready at `now_ms`, longest ready first. They stay ready."""
        self._advance(now_ms)
        return all_in_order(self.workflows.values())

    def ready_activities(self, task_queue: str | None, now_ms: int) -> list[Entry]:
        """Activities of one queue (None: of all) that may be leased at `now_ms`, in fair order.

        They stay ready.
        """
        self._advance(now_ms)
        matching = (ready for key, ready in self.activities.items() if task_queue in (None, key[0]))
        return all_in_order(matching)

    def entry(self, workflow_id: str, activity_id: str) -> Entry | None:
        """The open activity of that name, or None."""
        work = self.works.get(workflow_id)
        return None if work is None else work.entries.get(activity_id)

    def deadlines(self) -> Iterator[tuple[int, str, str, str | int]]:
        """(due_ms, kind, workflow_id, activity or timer id) of all that will fall due, in order."""
        for due_ms, (kind, what, number) in self._deadlines.in_order():
            if isinstance(what, Entry):
                yield due_ms, kind, what.work.workflow_id, what.activity.activity_id
            elif kind == _PARKED and not what.execution.task_reason:
                yield due_ms, _DELAY, what.workflow_id, number
            else:
                yield due_ms, kind, what.workflow_id, number


_FOLDS: dict[type[Record], Callable[[TaskQueues, Work, Any, int], None]] = {
    WorkflowTaskCompleted: TaskQueues._task_completed,
    WorkflowTaskFailed: TaskQueues._task_failed,
    TimerStarted: TaskQueues._timer_started,
    TimerFired: TaskQueues._timer_gone,
    TimerCancelled: TaskQueues._timer_gone,
    ActivityTaskScheduled: TaskQueues._activity_changed,
    ActivityTaskCompleted: TaskQueues._activity_changed,
    ActivityTaskFailed: TaskQueues._activity_changed,
    ActivityTaskCancelled: TaskQueues._activity_changed,
    ActivityDeadLettered: TaskQueues._activity_changed,
    ActivityRedriven: TaskQueues._activity_changed,
    LeaseGranted: TaskQueues._activity_changed,
    LeaseReleased: TaskQueues._activity_changed,
    RetryScheduled: TaskQueues._activity_changed,
    LeaseDetached: TaskQueues._activity_changed,
    WorkflowCancelRequested: TaskQueues._cancel_requested,
    WorkflowPaused: TaskQueues._paused,
    RetriedNow: TaskQueues._retried,
}
