"""A history in a few lines: it answers a workflow's commands with events, in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import pytest

from perdure import values, workflow
from perdure.core import commands, records
from perdure.failures import Failure
from perdure.worker.replay import Replayer

START_MS = 1_000


class History:
    """Runs a workflow function to its end, or until nothing more can happen.

    `answers(step)` gives (duration_ms, result or Failure) of an activity, or None: never. `late`
    records the commands of a task only after one more event that woke the workflow meanwhile.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *args: Any,
        answers: Callable[[commands.ScheduleActivity], tuple[int, Any] | None] | None = None,
        workflow_id: str = "w",
        late: bool = False,
    ) -> None:
        self.definition = workflow.Definition(name="flow", function=function)
        self.workflow_id = workflow_id
        self.answers = answers or (lambda step: (10, step.activity_id))
        self.late = late
        self.now_ms = START_MS
        self.events: list[records.Event] = []
        self.steps: list[commands.Step] = []
        self._wakes: list[tuple[int, int, Any]] = []
        self._count = 0
        payload = values.encode_input(None, args, {})
        self._add(records.WorkflowStarted, START_MS, "flow", "default", payload, None, b"")
        self.replayer = self.new_replayer()

    def new_replayer(self) -> Replayer:
        return Replayer(self.definition, self.workflow_id)

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
                if self.late and self._wakes:
                    self.wake()
                for step in steps:
                    self.record(step)
                if self.ended or not self._wakes:
                    return self
                self.wake()
        finally:
            self.replayer.close()

    @property
    def ended(self) -> bool:
        return isinstance(self.events[-1], (records.WorkflowCompleted, records.WorkflowFailed))

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
        activity_id, outcome = rest
        head = (at_ms, activity_id, 1, 1, 1)
        if isinstance(outcome, Failure):
            self._add(records.ActivityTaskFailed, *head, outcome, at_ms, "w1", ids=2)
        else:
            payload = values.encode(outcome)
            self._add(records.ActivityTaskCompleted, *head, payload, at_ms, "w1", ids=2)

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
                noop = self._drop("activity", step.activity_id)
                self._add(records.ActivityTaskCancelled, now, step.activity_id, noop)
            case commands.CompleteWorkflow():
                self._add(records.WorkflowCompleted, now, step.result)
            case commands.FailWorkflow():
                self._add(records.WorkflowFailed, now, step.failure)


@pytest.fixture(scope="session")
def history() -> type[History]:
    return History
