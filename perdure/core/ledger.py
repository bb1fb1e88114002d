"""Judge a batch of commands and make of it one commit: what the history actor and LocalEngine both
run.

The ledger holds the executions that were touched lately, asks the store for others, and produces a
`Batch`: what to write, and what to answer once that is durable. It does no input or output itself
but through the `Source` that it is given.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from functools import partial

from perdure.core.batch import Aside, Batch, Source, Unfit
from perdure.core.bounds import DEFAULT, Bounds
from perdure.core.change import StoredEvent
from perdure.core.commands import (
    STEP_DROPPED,
    AnyAnswer,
    Command,
    CompleteActivity,
    DetachLease,
    Done,
    FailActivity,
    RecordHeartbeat,
    Refusal,
    ReleaseActivity,
    StartWorkflow,
)
from perdure.core.decide import decide
from perdure.core.decide_activity import WAITING, became, foresees, waits
from perdure.core.decide_interactions import BY_ID
from perdure.core.decide_start import MESSAGES, with_start
from perdure.core.draft import Draft
from perdure.core.execution import begin, evolve
from perdure.core.facts import Decision, Facts, Jitter, Standing
from perdure.core.gates import Gates
from perdure.core.ids import Address, execution_id, of_execution, unseal
from perdure.core.interactions import SetGate
from perdure.core.limits import GRACE_MS, READY_MAX
from perdure.core.past import Reading, StoredPast
from perdure.core.records import Record, WorkflowReset, WorkflowStarted
from perdure.core.rules import NO_RULES, Rules
from perdure.core.schedule_book import ScheduleBook
from perdure.core.schedule_state import SCHEDULE_MARK
from perdure.core.state import Execution, Status
from perdure.core.traits import TRAITS, stored_events

EXECUTIONS_KEPT = 20_000
_REPORTS: frozenset[type[Command]] = frozenset(
    {CompleteActivity, FailActivity, ReleaseActivity, RecordHeartbeat, DetachLease}
)
# Of the first run, where there may be another.
_RAN_ON = (Status.CONTINUED_AS_NEW, Status.REMOVED)


class Ledger:
    """The judge of one store.

    Use: `batch = judge(...)`, write `batch.change`, then `committed(batch)`.

    If the write fails, throw the ledger away: memory is never rolled back.
    """

    def __init__(
        self,
        source: Source,
        *,
        epoch: int,
        n: int,
        last_hash: bytes,
        key: bytes,
        draw: Callable[[], float],
        jitter: Jitter | None = None,
        dlq_after_attempts: int = 5,
        ready: int = 0,
        ready_max: int = READY_MAX,
        bounds: Bounds = DEFAULT,
        began_ms: int = 0,
        recovery_grace_ms: int = GRACE_MS,
        stall_ms: int = 0,
        rules: Rules = NO_RULES,
    ) -> None:
        self.n = n
        self.key = key
        # Tasks that wait for a worker, nearly: what the limit on new work looks at.
        self.ready = ready
        self.full = ""  # Why new work is refused, where its disk is nearly full.
        self._ready_max = ready_max
        # Sum of all stalls until now: whoever has a clock that can stall keeps it up to date.
        self.stall_ms = stall_ms
        self._source = source
        self._epoch = epoch
        self._last_hash = last_hash
        self._gates = Gates(source.gates())
        self._standing = Standing(
            draw=draw,
            jitter=jitter,
            dlq_after_attempts=dlq_after_attempts,
            began_ms=began_ms,
            recovery_grace_ms=recovery_grace_ms,
            bounds=bounds,
            rules=rules,
            is_paused=self._is_paused,
        )
        self._executions: dict[str, Execution] = {}
        self._sizes: dict[str, int] = {}  # Bytes of the histories of those.
        self._read = Reading(source)
        self._schedules = ScheduleBook(lambda one: self._read(source.schedule, one))

    def execution(self, workflow_id: str) -> Execution | None:
        """The execution as of the last commit, or None. Not to be changed."""
        found = self._executions.get(workflow_id)
        if found is None:
            found = self._read(self._source.load, workflow_id)
            # What has ended is not kept: it only goes on by being removed, by the store.
            if found is not None and found.is_open:
                self._executions[workflow_id] = found
                self._sizes[workflow_id] = self._read(self._source.history_bytes, workflow_id)
        return found

    def is_held(self, execution: Execution) -> bool:
        """Whether an operator holds the tasks of this workflow back."""
        return self._gates.hold(execution)

    def judge(self, commands: Iterable[Command], now_ms: int) -> Batch:
        """All that follows from `commands`, in this order, at `now_ms`.

        Memory has moved on when it returns. Raises Unfit, and what the source raises.
        """
        draft = Draft()
        answers = []
        for command in commands:
            answers.append(self._judge_one(draft, command, now_ms))
            if draft.then:
                self._follow(draft, now_ms)
        try:
            end = (self.n, self._epoch, self._last_hash, self.stall_ms)
            change = draft.change(self._executions, *end, now_ms) if draft.groups else None
        except Exception as cause:
            raise Unfit(f"a batch of {len(answers)} commands: {cause}") from cause
        n = self.n if change is None else change.n
        return Batch(
            n,
            change,
            answers,
            draft.closings,
            draft.aside,
            draft.dead_letters,
            draft.groups,
            draft.long,
        )

    def forget(self, ready: int) -> None:
        """A batch came to nothing: begin again with what the source has, where `ready` tasks wait
        for a worker.
        """
        self._executions.clear()
        self._gates = Gates(self._source.gates())
        self._sizes.clear()
        self._schedules.forget()
        self.ready = ready

    def set_aside(self, command: Command) -> Batch:
        """While an error is being handled that this command alone has brought: what to answer."""
        draft = Draft()
        answer = self._set_aside(draft, command)
        return Batch(self.n, None, [answer], {}, draft.aside)

    def committed(self, batch: Batch) -> None:
        """`batch.change` is durable."""
        if batch.change is not None:
            self.n = batch.change.n
            self._last_hash = batch.change.hash
        self._schedules.committed()
        for workflow_id in batch.closings:
            self._executions.pop(workflow_id, None)
            self._sizes.pop(workflow_id, None)
        while len(self._executions) > EXECUTIONS_KEPT:
            oldest = next(iter(self._executions))
            del self._executions[oldest]
            self._sizes.pop(oldest, None)

    # --- one command --------------------------------------------------------
    def _judge_one(self, draft: Draft, command: Command, now_ms: int) -> AnyAnswer:
        address: Address | None = None
        kind = type(command)
        if kind is SetGate:
            return self._gates.judge(command, now_ms, draft.groups, draft.gates)  # type: ignore[arg-type]
        if kind in _REPORTS:
            address = unseal(command.token, self.key)  # type: ignore[attr-defined]
            if address is None:
                return Refusal("FAILED_PRECONDITION", "the token is none of this store's")
            workflow_id = address.workflow_id
        else:
            address = getattr(command, "address", None)
            workflow_id = command.workflow_id if address is None else address.workflow_id  # type: ignore[attr-defined]
        if workflow_id.startswith(SCHEDULE_MARK):
            return self._judge_schedule(draft, workflow_id, command, now_ms)
        if kind in BY_ID:
            try:
                workflow_id = self.newest(workflow_id)
            except Exception as problem:
                if problem is self._read.failed:
                    raise
                return self._set_aside(draft, command)
        if isinstance(command, MESSAGES) and command.start is not None:
            judge = partial(self._judge_as, draft, address=None, now_ms=now_ms)
            return with_start(judge, self.execution, workflow_id, command)
        if type(command) is CompleteActivity and command.following is not None:
            return self._judge_both(draft, workflow_id, command, address, now_ms)
        return self._judge_as(draft, workflow_id, command, address, now_ms)

    def _judge_schedule(self, draft: Draft, group: str, command: Command, now_ms: int) -> AnyAnswer:
        try:
            return self._schedules.judge(draft, group, command, now_ms, self.n + 1)
        except Exception as problem:
            if problem is self._read.failed:
                raise
            return self._set_aside(draft, command)

    def _judge_both(
        self,
        draft: Draft,
        workflow_id: str,
        command: CompleteActivity,
        address: Address | None,
        now_ms: int,
    ) -> AnyAnswer:
        """A completion with what its workflow does then: the second part counts only where the
        first became the event that it was made from, or did so before (a repeat).
        """
        following = command.following
        assert following is not None
        try:
            execution = self.execution(workflow_id)
            facts = Facts(now_ms, self._standing, address)
            is_held = execution is not None and self.is_held(execution)
            fits = not is_held and execution is not None and foresees(execution, command, facts)
            past = StoredPast(self._read, draft, workflow_id)
            is_repeat = not fits and became(command, address, past)
        except Exception as problem:
            if problem is self._read.failed:
                raise
            return self._set_aside(draft, command)
        alone = CompleteActivity(command.token, command.result, command.at_ms if fits else 0)
        answer = self._judge_as(draft, workflow_id, alone, address, now_ms)
        if isinstance(answer, Refusal) or execution is None:
            return answer
        # While it is held back nothing new runs; a repeat of what had run is answered as such.
        if fits or (is_repeat and (not is_held or execution.consumed >= following.consumed)):
            second = self._judge_as(draft, workflow_id, following, None, now_ms)
            if isinstance(second, Done):
                return second
        return Done(STEP_DROPPED)

    def _judge_as(
        self,
        draft: Draft,
        workflow_id: str,
        command: Command,
        address: Address | None,
        now_ms: int,
    ) -> AnyAnswer:
        try:
            decision = self._decide(draft, workflow_id, command, address, now_ms)
        except Exception as problem:
            if problem is self._read.failed:
                raise
            return self._set_aside(draft, command)
        if decision.records:
            # A start that was accepted before has no records, and is answered as it was.
            is_new = type(command) is StartWorkflow and not draft.is_following
            if is_new and (self.ready > self._ready_max or self.full):
                text = f"more than {self._ready_max} tasks wait for a worker; try again later"
                return Refusal("RESOURCE_EXHAUSTED", self.full or text)
            try:
                self._apply(draft, workflow_id, decision.records)
            except Exception:  # noqa: BLE001 - likewise
                self._rebuild(draft, workflow_id)
                return self._set_aside(draft, command)
            draft.then += decision.then
        return decision.answer

    def _follow(self, draft: Draft, now_ms: int) -> None:
        """Judge what follows from a decision for others, and what follows from that."""
        draft.is_following = True
        while draft.then:
            follow_on = draft.then.popleft()
            answer = self._judge_one(draft, follow_on.command, now_ms)
            if isinstance(answer, Refusal):
                for workflow_id, grown in draft.refused(follow_on, answer):
                    self._sizes[workflow_id] = self._sizes.get(workflow_id, 0) + grown
        draft.is_following = False

    def newest(self, workflow_id: str) -> str:
        """The execution that is the newest run of the workflow that people know by this id, or of
        which this is an earlier run.
        """
        execution = self.execution(workflow_id)
        if execution is None or execution.status not in _RAN_ON:
            return workflow_id
        name = of_execution(workflow_id)[0]
        run = max(1, self._read(self._source.newest_run, name))
        while execution_id(name, run + 1) in self._executions:
            run += 1  # It began in the batch at hand.
        return execution_id(name, run)

    def _decide(
        self,
        draft: Draft,
        workflow_id: str,
        command: Command,
        address: Address | None,
        now_ms: int,
    ) -> Decision:
        facts = Facts(
            now_ms,
            self._standing,
            address,
            self.stall_ms,
            self._sizes.get(workflow_id, 0),
            StoredPast(self._read, draft, workflow_id),
        )
        return decide(self.execution(workflow_id), command, facts)

    def _is_paused(self, queue: str, activity_type: str) -> bool:
        return self._gates.hold_activity(queue, activity_type)

    def _set_aside(self, draft: Draft, command: Command) -> Refusal:
        address = getattr(command, "address", None)
        if type(command) in _REPORTS:
            address = unseal(command.token, self.key)  # type: ignore[attr-defined]
        workflow_id = getattr(command if address is None else address, "workflow_id", "")
        draft.aside.append(Aside(command, traceback.format_exc(), workflow_id))
        return Refusal("INTERNAL", "the command made the engine fail; it changed nothing")

    # --- records ------------------------------------------------------------
    def _apply(self, draft: Draft, workflow_id: str, records: tuple[Record, ...]) -> None:
        """Fold `records` into the execution, then note them. A raise leaves the draft as it was."""
        n = self.n + 1
        execution = self._executions.get(workflow_id)
        if execution is None and any(type(record) is WorkflowReset for record in records):
            execution = self.execution(workflow_id)  # It had ended.
            self._sizes[workflow_id] = self._read(self._source.history_bytes, workflow_id)
        open_before: list[tuple[str, str]] = []
        timers_before: list[tuple[str, int]] = []
        started = execution is None
        was_waiting = execution is not None and execution.is_waiting
        waiting = 0
        for record in records:
            traits = TRAITS[type(record)]
            if execution is None:
                assert isinstance(record, WorkflowStarted)
                execution = begin(workflow_id, record)
                continue
            if traits.tells:
                activity_id: str = record.activity_id  # type: ignore[attr-defined]
                waiting -= waits(execution, activity_id)
                evolve(execution, record, n)
                waiting += waits(execution, activity_id)
                continue
            if traits.ends or type(record) is WorkflowReset:
                open_before = _open_activities(execution)
                timers_before = [(workflow_id, timer_id) for timer_id in execution.timers]
                waiting -= _count_waiting(execution)
            evolve(execution, record, n)
            if type(record) is WorkflowReset:
                open_before += _open_activities(execution)
                waiting += _count_waiting(execution)
                draft.reset(workflow_id, record, timers_before, execution.timers)
                timers_before = []
        events = stored_events(workflow_id, records)
        assert execution is not None
        self.ready += waiting + execution.is_waiting - was_waiting
        self._executions[workflow_id] = execution
        if started:
            draft.started[workflow_id] = execution
        if open_before or timers_before:
            draft.touch(open_before, timers_before)
        if events:
            draft.events += events
            self._has_grown(draft, execution, events)
        group = draft.groups.get(workflow_id)
        if group is None:
            draft.groups[workflow_id] = group = []
        group += records
        draft.note(workflow_id, records)

    def _has_grown(self, draft: Draft, execution: Execution, events: list[StoredEvent]) -> None:
        """Count the bytes of its history; note where it has grown past the bound."""
        workflow_id = execution.workflow_id
        size = self._sizes.get(workflow_id, 0)
        for event in events:
            size += len(event.body)
        self._sizes[workflow_id] = size
        warn = self._standing.bounds.history_events_warn
        if execution.last_event_id >= warn > events[0].event_id - 1:
            draft.long.append(workflow_id)

    def _rebuild(self, draft: Draft, workflow_id: str) -> None:
        """Bring back the execution that a raising fold left half done: from the store and this
        batch so far.
        """
        self._executions.pop(workflow_id, None)
        execution = self._source.load(workflow_id)
        for record in draft.groups.get(workflow_id, ()):
            if execution is None:
                assert isinstance(record, WorkflowStarted)
                execution = begin(workflow_id, record)
            else:
                evolve(execution, record, self.n + 1)
        if execution is not None:
            self._executions[workflow_id] = execution
            if workflow_id in draft.started:
                draft.started[workflow_id] = execution


def _open_activities(execution: Execution) -> list[tuple[str, str]]:
    return [(execution.workflow_id, activity_id) for activity_id in execution.activities]


def _count_waiting(execution: Execution) -> int:
    return sum(activity.state in WAITING for activity in execution.activities.values())
