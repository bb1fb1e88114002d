"""The engine in one process: history's ledger on a memory store and its projections, one thread.

What LocalEngine (perdure.testing) and crash-point checks are made of. The rules are those of a
node, in the same code; what stands here is only the order in which they are called.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from perdure import activity, explaining, reads, workflow
from perdure.core.admission import Admission
from perdure.core.commands import (
    AnyAnswer,
    AnyCommand,
    CompleteActivity,
    CompleteWorkflowTask,
    Deadline,
    DetachLease,
    FailActivity,
    FailWorkflowTask,
    FireTimer,
    GrantLease,
    RecordHeartbeat,
    Refusal,
    TimeOutActivity,
    TimeOutWorkflow,
    Updated,
)
from perdure.core.dead_letters import DeadLetter, DeadLetterFilter, DeadLetters
from perdure.core.facts import Jitter
from perdure.core.ids import Session, seal
from perdure.core.lease_table import LeaseTable
from perdure.core.ledger import Ledger
from perdure.core.limits import FRAME_BYTES, GRACE_MS, PAGE_MAX
from perdure.core.open_work import Entry, Work
from perdure.core.records import Event, Payload, WorkflowReset, decode_body, decode_event
from perdure.core.rules import NO_RULES, Rules
from perdure.core.schedule_clock import ScheduleClock
from perdure.core.schedule_commands import FireSchedule
from perdure.core.schedule_state import is_schedule
from perdure.core.state import Activity, Execution
from perdure.core.task_queues import TaskQueues
from perdure.core.update_answers import Places, answer_or_place
from perdure.errors import FailedPrecondition, Internal, InvalidArgument
from perdure.failures import Failure, failure_from_exception
from perdure.store.memory import MemoryStore
from perdure.store.retention import Retention
from perdure.waiting import Offer
from perdure.worker import guard
from perdure.worker.calls import acall, call
from perdure.worker.context import activity_context
from perdure.worker.queries import ask_fresh
from perdure.worker.replay import Replayer

WORKER_ID = "local"
# A workflow that sleeps in a loop for ever would keep run_until_idle for ever.
ROUNDS_MAX = 100_000
KEEP = Retention()  # For ever: a test looks at what has been.
# What run_until_idle jumps over. The deadlines of callers and of leases are left to the test.
_SKIPPED = frozenset({"timer", "retry", "delay"})


class Core:
    """A store with everything that moves it on. Time is asked for, never waited for.

    A `store` that another one has filled is gone on with, as after a restart.
    """

    # Of the worker that `run_activities` stands for. None: its leases end by report or deadline.
    session: Session | None = None

    def __init__(
        self,
        workflows: Sequence[Callable[..., Any]],
        activities: Sequence[Callable[..., Any]],
        *,
        now_ms: Callable[[], int],
        jitter: Jitter | None,
        draw: Callable[[], float],
        dlq_after_attempts: int,
        retention: Retention = KEEP,
        rules: Rules = NO_RULES,
        recovery_grace_ms: int = GRACE_MS,
        store: MemoryStore | None = None,
    ) -> None:
        guard.install()  # Acts on workflow code only.
        self.workflows = _by_name([workflow.definition_of(one) for one in workflows], "workflow")
        self.activities = _by_name([activity.definition_of(one) for one in activities], "activity")
        self._clock = now_ms
        self._jitter = jitter
        self._draw = draw
        self._dlq_after_attempts = dlq_after_attempts
        self._rules = rules
        self.recovery_grace_ms = recovery_grace_ms
        self._retention = retention
        self.store = store or MemoryStore()
        self._replayers: dict[str, Replayer] = {}
        # Coroutines that nobody closed complain when they are collected.
        weakref.finalize(self, _close_all, self._replayers)
        self._reached_ms = 0
        self._starts = 0
        self.restart()

    def restart(self) -> None:
        """Forget all but the store. What fell due since the last call is done late, by the next."""
        self._starts += 1
        for workflow_id in list(self._replayers):
            self._evict(workflow_id)
        now_ms = self._reached_ms = self.now_ms()
        writer = self._writer = self.store.writer()
        name = f"history.local{self._starts}"
        opened = writer.open_epoch(name, now_ms, "local", now_ms, self.recovery_grace_ms)
        writer.retain(self._retention)
        self.reader = self.store.reader()
        self._ledger = Ledger(
            writer,
            epoch=opened.epoch,
            n=opened.n,
            last_hash=opened.last_hash,
            key=opened.key,
            draw=self._draw,
            jitter=self._jitter,
            dlq_after_attempts=self._dlq_after_attempts,
            rules=self._rules,
            ready=writer.ready_count(),
            began_ms=now_ms,
            recovery_grace_ms=self.recovery_grace_ms,
        )
        self._proposals: list[AnyCommand] = []
        self._runs_due: list[FireSchedule] = []
        self._leases = LeaseTable(
            opened.key, self._propose, lambda *_: None, grace_ms=self.recovery_grace_ms
        )
        self._queues = TaskQueues()
        self._admission = Admission(self._queues, self._rules)
        self._letters = DeadLetters()
        # Each its own copy: a projection folds its executions itself.
        self._schedules = ScheduleClock(self._schedule_due)
        self._schedules.load(self.reader.schedules("", -1))
        self._leases.load(self.reader.open_state()[1], now_ms)
        opened_with = self.reader.open_state()[1]
        self._admission.begin(opened_with, self.reader.gates(), now_ms)
        self._queues.load(opened_with, now_ms)
        self._letters.load(self.reader.open_state()[1])

    # --- commands -----------------------------------------------------------
    def ask(self, command: AnyCommand) -> AnyAnswer:
        """The answer to a command at this moment; what fell due before is done first."""
        self.settle()
        return self._commit(command, self.now_ms())

    def settle(self) -> None:
        """Do all that fell due by the clock, in order, each at its own due time."""
        now_ms = self._clock()
        while True:
            dues = (
                self._queues.next_due_ms(),
                self._leases.next_due_ms(),
                self._schedules.next_ms(),
            )
            due_ms = min((due for due in dues if due is not None), default=None)
            if due_ms is None or due_ms > now_ms:
                break
            at_ms = max(due_ms, self._reached_ms)
            self._leases.check(at_ms)
            expiries, self._proposals = self._proposals, []
            self._schedules.step(at_ms)
            runs, self._runs_due = self._runs_due, []
            for command in [*self._queues.due(at_ms), *runs, *expiries]:
                answer = self._commit(command, at_ms)
                if isinstance(command, FireSchedule):
                    if isinstance(answer, Refusal):
                        self._schedules.refused(command, answer.at_ms, at_ms)
                elif isinstance(command, FireTimer | TimeOutActivity | TimeOutWorkflow):
                    if isinstance(answer, Refusal) and answer.at_ms:
                        self._queues.refused(command, answer.at_ms)
                else:
                    self._leases.answered(command, None, answer, 0, at_ms)
        while self._writer.tidy(now_ms):
            pass

    def _propose(self, command: AnyCommand, _: Any) -> None:
        self._proposals.append(command)

    def _schedule_due(self, command: FireSchedule) -> None:
        self._runs_due.append(command)

    def _commit(self, command: AnyCommand, now_ms: int) -> AnyAnswer:
        self._reached_ms = now_ms
        batch = self._ledger.judge([command], now_ms)
        if batch.aside:
            raise Internal(f"the engine failed on {command}: {batch.aside[0].error}")
        if batch.change is not None:
            self._writer.commit(batch.change)
        self._ledger.committed(batch)
        if batch.change is not None:
            for group in decode_body(batch.change.body).groups:
                if is_schedule(group.workflow_id):
                    self._schedules.apply(group.workflow_id, group.records, batch.n)
                    continue
                if any(type(record) is WorkflowReset for record in group.records):
                    self._evict(group.workflow_id)
                for record in group.records:
                    self._leases.apply(group.workflow_id, now_ms, record)
                self._admission.follow(group.workflow_id, group.records, now_ms)
                self._queues.apply(group.workflow_id, now_ms, group.records, batch.n)
                if self._letters.concerns(group.workflow_id, group.records):
                    execution = self.reader.execution(group.workflow_id)
                    self._letters.refresh(group.workflow_id, execution)
        return batch.answers[0]

    def now_ms(self) -> int:
        """The engine's clock: the one given, never going back. To look at it moves nothing on."""
        return max(self._reached_ms, self._clock())

    # --- looking ------------------------------------------------------------
    def next_skip_ms(self) -> int | None:
        """When the next timer or backoff is over, or a limit lets something go."""
        self.settle()
        dues = (due_ms for due_ms, kind, _, _ in self._queues.deadlines() if kind in _SKIPPED)
        now_ms = self.now_ms()
        holds = (self._admission.hold(key, now_ms) for key in self._queues.activities)
        held = [hold.at_ms for hold in holds if hold is not None and hold.at_ms is not None]
        return min((*held, *itertools.islice(dues, 1)), default=None)

    def dead_letters(
        self, where: DeadLetterFilter, limit: int, page: str | None
    ) -> tuple[list[DeadLetter], str | None]:
        """One page of the dead letters, oldest first."""
        self.settle()
        return self._letters.list(where, self.now_ms(), limit, page)

    # --- workflow tasks -----------------------------------------------------
    def run_workflow_tasks(self) -> int:
        """Run every workflow task that is ready until none is; how many."""
        ran = 0
        while True:
            self.settle()
            ready = [
                work
                for work in self._queues.ready_workflows(self.now_ms())
                if work.execution.workflow_type in self.workflows
                and self._admission.gates.of_queue(work.key[0]) is None
            ]
            if not ready:
                return ran
            for work in ready:
                self._run_workflow_task(work)
                ran += 1

    def _run_workflow_task(self, work: Work) -> None:
        execution = work.execution
        workflow_id = execution.workflow_id
        cursor = (execution.consumed, execution.commands)
        replayer = self._replayers.get(workflow_id)
        if replayer is None:
            definition = self.workflows[execution.workflow_type]
            replayer = self._replayers[workflow_id] = Replayer(definition, workflow_id)
        try:
            events = self._events_after(workflow_id, replayer.consumed)
            if not replayer.consumed:
                replayer.learn(events, cursor[0])
            replayer.feed(events)
            steps = replayer.take_steps()
        except workflow.NonDeterminism as problem:
            self._evict(workflow_id)
            failure = failure_from_exception(problem)
            self.ask(FailWorkflowTask(workflow_id, *cursor, "mismatch", failure))
            return
        notes = replayer.take_notes()
        answer = self.ask(
            CompleteWorkflowTask(workflow_id, *cursor, replayer.consumed, steps, None, notes)
        )
        if isinstance(answer, Refusal) or workflow_id not in self._queues.works:
            self._evict(workflow_id)

    def _events_after(self, workflow_id: str, after: int) -> list[Event]:
        events: list[Event] = []
        while True:
            page = self.reader.events(workflow_id, after, PAGE_MAX, FRAME_BYTES)
            if not page:
                return events
            events += map(decode_event, page)
            after = events[-1].event_id

    def _evict(self, workflow_id: str) -> None:
        replayer = self._replayers.pop(workflow_id, None)
        if replayer is not None:
            replayer.close()

    # --- queries and updates ------------------------------------------------
    def query(self, execution: Execution, name: str, payload: Payload | None) -> Payload:
        """What a query of this execution returns, of a copy made for it.

        Raises as perdure.worker.queries.asked.
        """
        definition = self.workflows.get(execution.workflow_type)
        if definition is None:
            text = f"nobody can answer: the engine has no workflow {execution.workflow_type!r}"
            raise FailedPrecondition(text)
        events = self._events_after(execution.workflow_id, 0)
        return ask_fresh(definition, execution, events, name, payload)

    def update_ended(self, workflow_id: str, update_id: str) -> Updated | None:
        """The answer to an update; None while there is none."""
        ledger = self._ledger
        places = Places(ledger.newest, ledger.execution, self._writer.requested_event)
        found = answer_or_place(places, workflow_id, update_id)
        return found if isinstance(found, Updated) else None

    # --- activities ---------------------------------------------------------
    def grant(
        self,
        task_queue: str,
        worker_id: str,
        types: Sequence[str] | None,
        poll_id: str | None = None,
    ) -> Entry | None:
        """Lease the first activity that is ready there to a holder without a session.

        The same poll id has the same one while that lease lives.
        """
        self.settle()
        if poll_id is not None:
            entry = self._queues.polled.get((worker_id, poll_id))
            if entry is not None:
                return entry
        for entry in self._queues.ready_activities(task_queue, self.now_ms()):
            is_wanted = not types or entry.activity.activity_type in types
            if is_wanted and self._grant(entry, worker_id, poll_id):
                return entry
        return None

    def _grant(
        self, entry: Entry, worker_id: str, poll_id: str | None, session: Session | None = None
    ) -> bool:
        """Lease it, where neither limits nor pauses hold it back; whether it was."""
        held, now_ms = entry.activity, self.now_ms()
        if self._admission.hold(entry.key, now_ms) is not None:
            return False
        command = GrantLease(
            entry.work.workflow_id,
            held.activity_id,
            held.generation,
            held.grant + 1,
            held.attempt,
            worker_id,
            session,
            poll_id,
        )
        self._admission.take(entry, now_ms)
        self._queues.turns.take(entry)
        if isinstance(self.ask(command), Refusal):
            self._admission.refused(entry, now_ms)
            return False
        self._admission.granted(entry)
        return True

    def explain(self, workflow_id: str, activity_id: str | None = None) -> dict[str, Any]:
        """Why it, or an open activity of it, is not running: see perdure.explaining."""
        self.settle()
        execution = reads.execution(self.reader, workflow_id)
        # One that serves every queue; what it has not may still be polled for.
        offer = Offer(None, tuple(self.activities), tuple(self.workflows))
        look = explaining.Look(self._queues, self._admission, [offer], self.now_ms())
        view = explaining.explain(look, execution.workflow_id, activity_id)
        if view is not None:
            return view
        return explaining.closed(execution, reads.closed(self.reader, execution))

    def token(self, entry: Entry) -> str:
        """The token of the activity's newest grant."""
        return seal(entry.address(), self._ledger.key)

    def run_activities(self) -> int:
        """Run every registered activity that is ready now, once each; how many."""
        self.settle()
        ran = 0
        for entry in self._queues.ready_activities(None, self.now_ms()):
            if entry.activity.activity_type in self.activities:
                granted = self._grant(entry, WORKER_ID, None, self.session)
                ran += granted and self._run_activity(entry)
        return ran

    def _run_activity(self, entry: Entry) -> bool:
        held, workflow_id = entry.activity, entry.work.workflow_id
        token = self.token(entry)

        def heartbeat(details: Payload | None) -> None:
            command = RecordHeartbeat(token, 0, details, details is not None)
            answer = self.ask(command)
            if isinstance(answer, Refusal):
                context.cancel("stale")
            elif isinstance(answer, Deadline) and answer.cancel_requested:
                context.cancel("cancelled")

        context = activity_context(
            workflow_id=workflow_id,
            workflow_type=entry.work.execution.workflow_type,
            activity_id=held.activity_id,
            activity_type=held.activity_type,
            generation=held.generation,
            grant=held.grant,
            attempt=held.attempt,
            token=token,
            details=reads.details_of(self.reader, workflow_id, held),
            heartbeat=heartbeat,
        )
        definition = self.activities[held.activity_type]
        asked = definition, context, self.input_of(workflow_id, held)
        outcome = asyncio.run(acall(*asked)) if definition.is_async else call(*asked)
        if isinstance(outcome, Failure):
            self.ask(FailActivity(token, outcome))
        elif outcome is not None:
            self.ask(CompleteActivity(token, outcome))
        elif self.session is not None:
            self.ask(DetachLease(token))
        return True

    def input_of(self, workflow_id: str, held: Activity) -> Payload | None:
        """The activity's input, wherever it is kept."""
        return reads.input_of(self.reader, workflow_id, held)


def _close_all(replayers: dict[str, Replayer]) -> None:
    while replayers:
        replayers.popitem()[1].close()


def _by_name(definitions: Sequence[Any], what: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for definition in definitions:
        if found.setdefault(definition.name, definition) is not definition:
            raise InvalidArgument(f"two {what} functions are named {definition.name!r}")
    return found
