"""The replay of one workflow: events go in, commands come out.

Pure: no socket, no thread, no clock. Events are fed one at a time and the workflow's loop runs
until it is idle after each one that wakes it, so that the commands do not depend on how events
were chunked. Recorded commands are matched with those that the code issues, by their order alone.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import msgspec

from perdure import values, workflow
from perdure.core import commands, records
from perdure.core.ids import of_execution
from perdure.core.schedule_state import SCHEDULE_MARK
from perdure.core.start import StartTerms
from perdure.errors import FailedPrecondition, Internal, InvalidArgument
from perdure.failures import (
    CANCELLED,
    HEARTBEAT_TIMEOUT,
    SCHEDULE_TO_CLOSE_TIMEOUT,
    START_TO_CLOSE_TIMEOUT,
    WORKER_DIED,
    WORKFLOW_TIMEOUT,
    Failure,
    engine_failure,
)
from perdure.worker import endings, mismatch
from perdure.worker.notes import PATCH
from perdure.worker.workflow_side import WorkflowSide, size_of
from perdure.workflow.failing import Continue

# What an event takes beside its payload, about.
EVENT_BYTES = 100


class Replayer(WorkflowSide):
    """One workflow in memory. Whatever `feed` raises, this one is done for: `close` it.

    It holds the workflow's coroutines, so it has to be closed when it is let go. `is_finished` once
    the last command has been issued. `consumed` is the last event taken, `commands` how many
    commands the code issued in all, and `matched` how many of them history has.
    """

    def __init__(self, definition: workflow.Definition, workflow_id: str) -> None:
        super().__init__(definition, workflow_id)
        self.matched = 0
        self.is_finished = False
        self._taken = 0
        self._broken: BaseException | None = None
        self._cancel_reason: str | None = None
        # What the workflow waited for when it was cancelled, and may end well all the same.
        self._absorbed: asyncio.Future[Any] | None = None

    # --- for the worker ---------------------------------------------------------
    def learn(self, events: Iterable[records.Event], cursor: int) -> None:
        """Look through events that are going to be fed, before a replay: `cursor` is the last that
        a workflow task of this workflow has worked off.

        Without this everything counts as happening for the first time.
        """
        self.known.learn(events, cursor)

    def feed(self, events: Iterable[records.Event]) -> None:
        """Take events in the order of history; those that were taken before are skipped.

        Raises NonDeterminism where the code does not agree with history or did what can't be
        replayed; Internal where an event is missing; and what is raised into this thread from
        outside, by a watchdog for instance. Nothing of it fails the workflow.
        """
        if self._broken is not None:
            raise Internal("this replay has failed and can't go on") from self._broken
        try:
            for event in events:
                self._feed(event)
        except BaseException as problem:
            self._broken = problem
            raise

    def knows(self, commands: int) -> None:
        """History has so many commands, whatever it was that they came behind: what the code issues
        beyond them is new.

        Not for a replay of a history with patches: such a command may have come without the code.
        """
        self._recorded = self._taken = commands
        self.fresh_bytes = 0

    def take_steps(self) -> tuple[commands.Step, ...]:
        """The commands that history does not have and that were not taken before, in order."""
        fresh = islice(self._issued, self._taken - self.matched, None)
        self._taken = self.commands
        self.fresh_bytes = 0
        return tuple([issued[0] for issued in fresh])

    def take_notes(self) -> records.SignalNotes | None:
        """What the code makes of signals, to be reported with the steps; None: nothing."""
        messages = self._messages
        return None if messages is None else messages.take_notes(is_over=self.is_finished)

    @property
    def awaits(self) -> str | None:
        """The activity that is all that the workflow waits for; None if it is not so."""
        if len(self._handles) != 1 or self.loop.has_timers or self.is_finished:
            return None
        if self._children is not None and (self._children.handles or self._children.is_speaking):
            return None
        return next(iter(self._handles))

    def query(self, name: str, payload: records.Payload | None) -> records.Payload:
        """What the workflow's code answers to this query, as far as it was fed.

        NotFound where it has no such query; InvalidArgument where the input does not fit, or the
        answer is none that can be sent; FailedPrecondition where the handler fails. One that would
        schedule something leaves this replay good for `close` only (`is_broken`).
        """
        if self._broken is not None:
            raise Internal("this replay has failed and can't be asked") from self._broken
        loop = self.loop
        with loop.entered(self), loop.reading("a query"):
            try:
                answer = self.messages.query(name, payload)
            finally:
                self._broken = loop.violation
            if loop.has_ready:
                self._broken = FailedPrecondition(f"query {name!r}: a query may schedule nothing")
                raise self._broken
        return answer

    @property
    def is_broken(self) -> bool:
        """Whether this replay can't go on."""
        return self._broken is not None

    def recorded(self) -> None:
        """History has all commands issued so far, each as one event, and nothing after them."""
        fresh = self.commands - self.matched
        for step, _, _ in self._issued:
            self._bytes += EVENT_BYTES + size_of(step)
        self._issued.clear()
        self.matched = self._taken = self.commands
        self.consumed += fresh

    def close(self) -> None:
        """Let go of the workflow: its coroutines end, and nothing they still do has an effect."""
        if self._broken is None and not self.is_finished:
            self._broken = Internal("it was closed")
        self.loop.evict()
        self._handles.clear()
        self._messages = self._children = self._notes = self._main_task = None

    # --- events -----------------------------------------------------------------
    def _feed(self, event: records.Event) -> None:
        last = event.event_id
        if last <= self.consumed:
            return
        first = last
        if type(event) in _TWO_EVENTS and event.started_ms is not None:  # type: ignore[union-attr]
            first -= 1
        if first != self.consumed + 1:
            raise Internal(f"event {self.consumed + 1} is missing before event {first}")
        self.consumed = last
        self._bytes += EVENT_BYTES + size_of(event)
        take = _TAKE.get(type(event))
        if take is not None and not (self.known.dropped and self.known.is_dropped(last)):
            take(self, event)

    def _wake(self, at_ms: int) -> None:
        loop = self.loop
        loop.now_ms = at_ms
        if self._absorbed is not None and self._absorbed.done():
            self._cancel_again()
        loop.run_until_idle()
        if loop.escaped is not None:
            raise loop.escaped
        if loop.violation is not None:
            raise loop.violation
        if self._ending is not None:
            ending, self._ending = self._ending, None
            step = endings.step_of(ending, self._cancel_reason, self._going_on)
            self.is_finished = True
            self.issue(step)
            loop.evict(ended=True)
            self._handles.clear()

    def _going_on(self, problem: Continue) -> commands.Step:
        signals = () if self._messages is None else self._messages.waiting()
        name = self.definition.name
        return commands.ContinueAsNew(name, self.task_queue, problem.payload, signals)

    def _on_started(self, event: records.WorkflowStarted) -> None:
        self.task_queue = event.task_queue
        self._started_ms = event.at_ms
        if event.terms is not None:
            self._begin_with(event.terms)
            for name, payload in event.terms.signals:
                self.messages.signalled(name, payload)
            if event.terms.children:
                self.children.inherit(child_id for child_id, _ in event.terms.children)
        self._main_task = self.loop.start(self._main(event.input), self.definition.name)
        if event.terms is None or not event.terms.signalled:
            self._wake(event.at_ms)

    def _begin_with(self, terms: StartTerms) -> None:
        self.attributes = dict(terms.attributes)
        parent = terms.parent
        if parent is not None and not parent.workflow_id.startswith(SCHEDULE_MARK):
            self.parent = workflow.ParentInfo(*of_execution(parent.workflow_id))

    async def _main(self, payload: records.Payload | None) -> None:
        try:
            args, kwargs = values.bind_input(self.definition.function, payload)
            self._ending = endings.Ending(result=await self.definition.function(*args, **kwargs))
        except BaseException as problem:
            if self.loop.is_closing:
                raise  # The workflow leaves memory.
            self.left(problem)
        self.loop.halt()

    def _on_timer_fired(self, event: records.TimerFired) -> None:
        if self.is_finished:
            return
        if not self.loop.fire(event.timer_id):
            raise mismatch.unknown(event)
        self._wake(event.at_ms)

    def _on_completed(self, event: records.ActivityTaskCompleted) -> None:
        handle, function = self._closed(event)
        if handle is None:
            return
        try:
            result = values.decode_result(function, event.result)
        except InvalidArgument as problem:
            failure = engine_failure("BadResult", problem.message)
            handle.set_exception(_failed(handle, failure))
        else:
            handle.set_result(result)
        self._wake(event.at_ms)

    def _on_failed(self, event: records.ActivityTaskFailed) -> None:
        handle, _ = self._closed(event)
        if handle is None:
            return
        if handle.cancel_requested and event.failure.type in _ENDED_UNHEARD:
            handle.give_up()
        else:
            handle.set_exception(_failed(handle, event.failure))
        self._wake(event.at_ms)

    def _on_child_completed(self, event: records.ChildWorkflowCompleted) -> None:
        if self.is_finished:
            self._hand_on(child_id=event.child_id)
        elif self.children.completed(event):
            self._wake(event.at_ms)

    def _on_child_failed(self, event: records.ChildWorkflowFailed) -> None:
        if self.is_finished:
            self._hand_on(child_id=event.child_id)
        elif self.children.failed(event):
            self._wake(event.at_ms)

    def _on_signal(self, event: records.SignalReceived) -> None:
        if self.is_finished:
            self._hand_on(signal=(event.name, event.input))
            return
        self.messages.signalled(event.name, event.input)
        self._wake(event.at_ms)

    def _hand_on(
        self,
        signal: tuple[str, records.Payload | None] | None = None,
        cancel_reason: str | None = None,
        update: tuple[str, str, records.Payload | None] | None = None,
        child_id: str | None = None,
    ) -> None:
        """Something came after the code had ended this run: where another follows, it is for it."""
        if not self._issued:
            return
        step, code, instruction = self._issued[-1]
        if not isinstance(step, commands.ContinueAsNew):
            return
        if signal is not None:
            step = msgspec.structs.replace(step, signals=(*step.signals, signal))
        elif update is not None:
            step = msgspec.structs.replace(step, updates=(*step.updates, update))
        elif child_id is not None:
            step = msgspec.structs.replace(step, unheard=(*step.unheard, child_id))
        elif step.cancel_reason is None and self._cancel_reason is None:
            step = msgspec.structs.replace(step, cancel_reason=cancel_reason)
        self._issued[-1] = (step, code, instruction)

    def _on_update(self, event: records.UpdateReceived) -> None:
        if self.is_finished:
            self._hand_on(update=(event.update_id, event.name, event.input))
            return
        self.messages.updated(event)
        self._wake(event.at_ms)

    def _on_cancel_requested(self, event: records.WorkflowCancelRequested) -> None:
        """The workflow function is told once, where it waits; what it makes of it is its own."""
        task = self._main_task
        if self.is_finished:
            self._hand_on(cancel_reason=event.reason)
        if self.is_finished or task is None or self._cancel_reason is not None:
            return
        self._cancel_reason = event.reason
        # In the loop's turn: what is given up by it was issued by no line of the worker's.
        self.loop.call_soon(self._cancel, task, context=contextvars.Context())
        self._wake(event.at_ms)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        task.cancel(self._cancel_reason or None)
        waits_for = getattr(task, "_fut_waiter", None)
        if getattr(waits_for, "cancel_requested", False):
            self._absorbed = waits_for

    def _cancel_again(self) -> None:
        """What it waited for when it was cancelled has ended. Where that was well, the code is told
        where it waits next, behind the turn in which it takes that result; else it has an exception
        already, and a second one would cut off what tidies up.
        """
        absorbed, self._absorbed = self._absorbed, None
        if absorbed is None or absorbed.cancelled() or absorbed.exception() is not None:
            return
        if self._main_task is not None:
            self.loop.call_soon(self._cancel, self._main_task, context=contextvars.Context())

    def _on_ended(self, event: records.Event) -> None:
        """It was ended from outside; what its code had not said yet will never be said."""
        self.is_finished = True
        self._issued.clear()
        self.commands = self._taken = self.matched
        self.loop.evict()
        self._handles.clear()

    def _on_workflow_failed(self, event: records.WorkflowFailed) -> None:
        if event.failure.type == WORKFLOW_TIMEOUT and not self._has_next(event):
            self._on_ended(event)
        else:
            self._on_command(event)

    def _on_update_ended(self, event: records.UpdateEnded) -> None:
        # The end of a workflow answers what is open, without a command.
        if not self.is_finished or self._has_next(event):
            self._on_command(event)

    def _on_said(self, event: records.SignalSent | records.ExternalCancelRequested) -> None:
        """What became of a word to another workflow: the code is told, where it waits for that."""
        self._on_command(event)
        if self.children.said(event) and not self.is_finished:
            self._wake(event.at_ms)

    def _on_marker(self, event: records.MarkerRecorded) -> None:
        """A patch's marker says what the code is told, and nothing about where it asks: of one that
        was known before it did, no command was issued, and the code may be without it by now.
        """
        if event.marker == PATCH and not self._has_next(event):
            self.commands += 1
            self.matched += 1
            self._taken += 1
        else:
            self._on_command(event)

    def _closed(
        self, event: records.ActivityTaskCompleted | records.ActivityTaskFailed
    ) -> tuple[workflow.ActivityHandle[Any] | None, Callable[..., Any] | None]:
        """The handle that the event is for; None if nobody waits for it any more."""
        found = self._handles.pop(event.activity_id, None)
        if found is None:
            if event.activity_id not in self._ids:
                raise mismatch.unknown(event)
            return None, None
        found[0].finished = self.loop.next_finished()
        return found

    def _has_next(self, event: records.Event) -> bool:
        return bool(self._issued) and mismatch.fits(self._issued[0][0], event)

    def _on_command(self, event: records.Event) -> None:
        """A recorded command: it has to be the next one that the code issued."""
        issued = self._issued[0] if self._issued else None
        if issued is None or not mismatch.fits(issued[0], event):
            # The end of a workflow cancels what is open, without a command.
            if self.is_finished and isinstance(event, _CANCELLED):
                return
            raise mismatch.between(event, issued)
        self._issued.popleft()
        self.matched += 1
        self._taken = max(self._taken, self.matched)


def _failed(handle: workflow.ActivityHandle[Any], failure: Failure) -> workflow.ActivityFailed:
    return workflow.ActivityFailed(
        f"activity {handle.activity_id!r} failed: {failure.type}: {failure.message}",
        failure,
        activity_id=handle.activity_id,
        activity_type=handle.activity_type,
    )


_TWO_EVENTS = (records.ActivityTaskCompleted, records.ActivityTaskFailed)
# Of an attempt that was to end: it has, and its function has nothing to say to that.
_ENDED_UNHEARD = frozenset(
    {
        CANCELLED,
        WORKER_DIED,
        HEARTBEAT_TIMEOUT,
        START_TO_CLOSE_TIMEOUT,
        SCHEDULE_TO_CLOSE_TIMEOUT,
    }
)
_CANCELLED = (records.ActivityTaskCancelled, records.TimerCancelled)
# What is not named here is informational: a replay has no use for it.
_TAKE: dict[type[records.Record], Callable[[Replayer, Any], None]] = {
    records.WorkflowStarted: Replayer._on_started,
    records.TimerFired: Replayer._on_timer_fired,
    records.ActivityTaskCompleted: Replayer._on_completed,
    records.ActivityTaskFailed: Replayer._on_failed,
    records.WorkflowCompleted: Replayer._on_command,
    records.WorkflowFailed: Replayer._on_workflow_failed,
    records.WorkflowCancelled: Replayer._on_command,
    records.WorkflowTerminated: Replayer._on_ended,
    records.WorkflowContinuedAsNew: Replayer._on_command,
    records.WorkflowCancelRequested: Replayer._on_cancel_requested,
    records.SignalReceived: Replayer._on_signal,
    records.SignalSent: Replayer._on_said,
    records.ExternalCancelRequested: Replayer._on_said,
    records.UpdateReceived: Replayer._on_update,
    records.UpdateEnded: Replayer._on_update_ended,
    records.ChildWorkflowStarted: Replayer._on_command,
    records.ChildWorkflowCompleted: Replayer._on_child_completed,
    records.ChildWorkflowFailed: Replayer._on_child_failed,
    records.ChildCancelRequested: Replayer._on_command,
    records.MarkerRecorded: Replayer._on_marker,
    records.SearchAttributesSet: Replayer._on_command,
    records.ActivityCancelRequested: Replayer._on_command,
    records.TimerStarted: Replayer._on_command,
    records.TimerCancelled: Replayer._on_command,
    records.ActivityTaskScheduled: Replayer._on_command,
    records.ActivityTaskCancelled: Replayer._on_command,
}
