"""A history in a few lines: it answers a workflow's commands with events, in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from perdure import values, workflow
from perdure.core import commands, records
from perdure.core.start import StartTerms
from perdure.failures import Failure
from perdure.worker.replay import Replayer

START_MS = 1_000


def _answer(step: commands.Step) -> tuple[int, Any]:
    return (10, getattr(step, "activity_id", None))


class History:
    """Runs a workflow function to its end, or until nothing more can happen.

    `answers(step)` gives (duration_ms, result or Failure) of an activity or a child, or None:
    never. `late` records the commands of a task only after one more event that woke the workflow
    meanwhile. `outside` are events that come by themselves: (at_ms after the start, kind, …), kind
    "signal" with name and arguments, "update" with name, id and arguments, "cancel", "terminate".
    `leased`: every activity has an attempt that is told of a cancellation, and then takes 5 ms.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *args: Any,
        answers: Callable[[commands.ScheduleActivity], tuple[int, Any] | None] | None = None,
        workflow_id: str = "w",
        late: bool = False,
        outside: Sequence[tuple[Any, ...]] = (),
        leased: bool = True,
        terms: StartTerms | None = None,
        refused: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        self.definition = workflow.Definition(name="flow", function=function)
        self.workflow_id = workflow_id
        self.answers = answers or _answer
        self.late = late
        self.refused = refused or {}  # Which workflows take nothing, with (why, code).
        self.now_ms = START_MS
        self.events: list[records.Event] = []
        self.steps: list[commands.Step] = []
        self._wakes: list[tuple[int, int, Any]] = []
        self._count = 0
        self.consumed = 0
        self.points: list[tuple[int, int]] = []
        payload = values.encode_input(None, args, {})
        self.leased = leased
        self._add(records.WorkflowStarted, START_MS, "flow", "default", payload, None, b"", terms)
        for delay_ms, *event in outside:
            self._later(delay_ms, "outside", *event)
        self.replayer = self.new_replayer()

    def new_replayer(self, function: Callable[..., Any] | None = None) -> Replayer:
        definition = self.definition
        if function is not None:
            definition = workflow.Definition(name="flow", function=function)
        return Replayer(definition, self.workflow_id)

    def replay(
        self, function: Callable[..., Any] | None = None, point: tuple[int, int] | None = None
    ) -> Replayer:
        """A fresh replay as a worker makes it that knows nothing but the history, at its end or at
        one of `points`: (how many events there were, the cursor).
        """
        count, cursor = point or (len(self.events), self.consumed)
        replayer = self.new_replayer(function)
        replayer.learn(self.events[:count], cursor)
        try:
            replayer.feed(self.events[:count])
        except BaseException:
            replayer.close()
            raise
        return replayer

    def _add(self, kind: Callable[..., Any], *rest: Any, ids: int = 1) -> None:
        last = self.last_event_id + ids
        self.events.append(kind(last, *rest))

    @property
    def last_event_id(self) -> int:
        return self.events[-1].event_id if self.events else 0

    def _later(self, delay_ms: int, *event: Any) -> None:
        self._count += 1
        heapq.heappush(self._wakes, (self.now_ms + delay_ms, self._count, event))

    def run(self) -> History:
        try:
            while True:
                self.replayer.feed(self.events)
                steps = self.replayer.take_steps()
                self.steps.extend(steps)
                self.consumed = self.replayer.consumed
                if self.late and self._wakes:
                    self.wake()
                for step in steps:
                    self.record(step)
                self.points.append((len(self.events), self.consumed))
                if self.ended:
                    return self
                if self._wakes:
                    self.wake()
                elif self.consumed == self.last_event_id:
                    return self
        finally:
            self.replayer.close()

    @property
    def ended(self) -> bool:
        return type(self.events[-1]) in records.CLOSING_TYPES

    @property
    def result(self) -> Any:
        event = self.events[-1]
        assert isinstance(event, records.WorkflowCompleted)
        return values.to_builtins(event.result)

    @property
    def failure(self) -> Failure:
        event = self.events[-1]
        assert isinstance(event, records.WorkflowFailed)
        return event.failure

    def wake(self) -> None:
        at_ms, _, (kind, *rest) = heapq.heappop(self._wakes)
        self.now_ms = at_ms
        if kind == "timer":
            self._add(records.TimerFired, at_ms, rest[0])
            return
        if kind == "outside":
            self._come(at_ms, *rest)
            return
        if kind == "child":
            self._end_child(at_ms, *rest)
            return
        activity_id, outcome = rest
        head = (at_ms, activity_id, 1, 1, 1)
        if isinstance(outcome, Failure):
            self._add(records.ActivityTaskFailed, *head, outcome, at_ms, "w1", ids=2)
        else:
            payload = values.encode(outcome)
            self._add(records.ActivityTaskCompleted, *head, payload, at_ms, "w1", ids=2)

    def _come(self, at_ms: int, kind: str, *rest: Any) -> None:
        if kind == "signal":
            name, *args = rest
            payload = values.encode_input(None, tuple(args), {})
            self._add(records.SignalReceived, at_ms, name, payload, None)
        elif kind == "update":
            name, update_id, *args = rest
            payload = values.encode_input(None, tuple(args), {})
            self._add(records.UpdateReceived, at_ms, name, payload, update_id)
        elif kind == "cancel":
            self._add(records.WorkflowCancelRequested, at_ms, "enough", None)
        else:
            self._add(records.WorkflowTerminated, at_ms, "enough", None)

    def _end_child(self, at_ms: int, child_id: str, outcome: Any) -> None:
        if isinstance(outcome, Failure):
            status = "Cancelled" if outcome.type == "Cancelled" else "Failed"
            self._add(records.ChildWorkflowFailed, at_ms, child_id, status, outcome)
        else:
            self._add(records.ChildWorkflowCompleted, at_ms, child_id, values.encode(outcome))

    def _given_up(self, step: commands.CancelActivity) -> None:
        now = self.now_ms
        if step.mode == "try":
            noop = self._drop("activity", step.activity_id)
            self._add(records.ActivityTaskCancelled, now, step.activity_id, noop)
            return
        noop = not any(wake[2][:2] == ("activity", step.activity_id) for wake in self._wakes)
        self._add(records.ActivityCancelRequested, now, step.activity_id, step.mode, noop)
        if step.mode == "wait" and not noop and not self.leased:
            self._drop("activity", step.activity_id)
            self._later(0, "activity", step.activity_id, Failure("Cancelled", "given up"))

    def _drop(self, kind: str, number: Any) -> bool:
        kept = [wake for wake in self._wakes if wake[2][:2] != (kind, number)]
        dropped = len(kept) < len(self._wakes)
        self._wakes = kept
        heapq.heapify(self._wakes)
        return not dropped

    def record(self, step: commands.Step) -> None:
        now = self.now_ms
        match step:
            case commands.ScheduleActivity():
                self._add(
                    records.ActivityTaskScheduled,
                    now,
                    step.activity_id,
                    step.activity_type,
                    step.input,
                    step.options,
                )
                answer = self.answers(step)
                if answer is not None:
                    self._later(answer[0], "activity", step.activity_id, answer[1])
            case commands.StartTimer():
                due_ms = now + step.duration_ms
                self._add(records.TimerStarted, now, step.timer_id, due_ms)
                self._later(step.duration_ms, "timer", step.timer_id)
            case commands.CancelTimer():
                noop = self._drop("timer", step.timer_id)
                self._add(records.TimerCancelled, now, step.timer_id, noop)
            case commands.CancelActivity():
                self._given_up(step)
            case commands.CompleteWorkflow():
                self._add(records.WorkflowCompleted, now, step.result)
            case commands.FailWorkflow():
                self._add(records.WorkflowFailed, now, step.failure)
            case _:
                self._record_more(step)

    def _record_more(self, step: commands.Step) -> None:
        now = self.now_ms
        match step:
            case commands.StartChild():
                head = (step.child_id, step.workflow_type, step.task_queue, step.input)
                self._add(records.ChildWorkflowStarted, now, *head, step.parent_close, step.terms)
                answer = self.answers(step)
                if answer is not None:
                    self._later(answer[0], "child", step.child_id, answer[1])
            case commands.CancelChild():
                noop = not any(wake[2][:2] == ("child", step.child_id) for wake in self._wakes)
                self._add(records.ChildCancelRequested, now, step.child_id, noop)
                answer = self.answers(step)
                if answer is not None:
                    self._drop("child", step.child_id)
                    self._later(answer[0], "child", step.child_id, answer[1])
            case commands.SendSignal():
                refused = self.refused.get(step.workflow_id, ("", ""))
                head = (step.workflow_id, step.name, step.input)
                self._add(records.SignalSent, now, *head, *refused, step.answered)
            case commands.CancelExternal():
                refused = self.refused.get(step.workflow_id, ("", ""))
                self._add(
                    records.ExternalCancelRequested, now, step.workflow_id, step.reason, *refused
                )
            case commands.RecordMarker():
                self._add(records.MarkerRecorded, now, step.marker, step.name, step.result)
            case commands.EndUpdate():
                ended = (step.update_id, step.result, step.failure, step.rejected)
                self._add(records.UpdateEnded, now, *ended)
            case commands.SetSearchAttributes():
                self._add(records.SearchAttributesSet, now, step.attributes)
            case commands.CancelWorkflowStep():
                self._add(records.WorkflowCancelled, now, step.reason)
            case commands.ContinueAsNew():
                head = (step.workflow_type, step.task_queue, step.input)
                self._add(records.WorkflowContinuedAsNew, now, 2, *head)


@pytest.fixture(scope="session")
def history() -> type[History]:
    return History
