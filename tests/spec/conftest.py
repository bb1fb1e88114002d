"""What the tests of spec/activities.md are written with: one workflow that awaits one activity."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import RetryPolicy, activity, workflow
from perdure.answers import Answer
from perdure.errors import PerdureError
from perdure.failures import Failure
from perdure.testing import LocalEngine, ManualClock

# The worked example's policy.
WORKED = RetryPolicy(initial_ms=1_000, backoff=2.0, max_interval_ms=10_000, max_attempts=4)
BOOM = Failure("Boom", "it broke")


def no_jitter(delay_ms: float, u: float) -> float:
    return delay_ms


class Scene:
    """An engine with workflow "w", which awaits activity "a" of type "step" and returns its result.

    A failure of the activity that the workflow sees is returned as [type, message].
    """

    def __init__(
        self,
        *,
        jitter: Any = no_jitter,
        seed: int = 0,
        dlq: int = 5,
        recovery_grace_ms: int = 10_000,
        **options: Any,
    ):
        @activity.define(name="step", **options)
        def step(what: Any = None) -> Any:
            raise AssertionError("polled by hand")

        @workflow.define(name="one")
        async def one(what: Any = None) -> Any:
            try:
                return await workflow.execute_activity(step, what, activity_id="a")
            except workflow.ActivityFailed as error:
                return [error.failure.type, error.failure.message]

        self.clock = ManualClock(0)
        self.engine = LocalEngine(
            [one],
            [],
            self.clock,
            jitter=jitter,
            seed=seed,
            dlq_after_attempts=dlq,
            recovery_grace_ms=recovery_grace_ms,
        )
        self.client = self.engine.client

    def start(self, workflow_id: str = "w", what: Any = None) -> None:
        self.client.start_workflow("one", what, workflow_id=workflow_id)
        self.engine.run_workflow_tasks()

    def poll(self, **options: Any) -> Answer | None:
        return self.engine.poll_activity_task(**options)

    def take(self, **options: Any) -> Answer:
        task = self.poll(**options)
        assert task is not None, f"nothing to poll at {self.clock.now_ms}"
        return task

    def fail(self, failure: Failure = BOOM) -> str:
        """Poll the attempt that is ready, and fail it."""
        return self.engine.fail_activity_task(self.take().token, failure)

    def exhaust(self, failure: Failure = BOOM) -> None:
        """Fail attempt after attempt, each as soon as it is due, until there is a dead letter."""
        while self.fail(failure) == "Retrying":
            due_ms = self.pending().due_ms
            self.clock.advance_ms(due_ms - self.clock.now_ms)

    def pending(self, workflow_id: str = "w") -> Answer:
        (found,) = self.engine.describe_workflow(workflow_id).pending_activities
        return found

    def is_pending(self, workflow_id: str = "w") -> bool:
        return bool(self.engine.describe_workflow(workflow_id).pending_activities)

    def kinds(self, workflow_id: str = "w") -> list[str]:
        return [event.kind for event in self.engine.history(workflow_id)]

    def last(self, kind: str, workflow_id: str = "w") -> Answer:
        """The newest event of this kind."""
        return [event for event in self.engine.history(workflow_id) if event.kind == kind][-1]

    def dead(self) -> Answer:
        """The only dead letter, whole."""
        (entry,) = self.engine.list_dead_letters()
        (whole,) = self.engine.list_dead_letters(
            workflow_id=entry.workflow_id, activity_id=entry.activity_id
        )
        return whole

    def result(self, workflow_id: str = "w") -> Any:
        self.engine.run_workflow_tasks()
        return self.client.result(workflow_id)

    def at(self, now_ms: int) -> None:
        """Let time pass until `now_ms`."""
        self.clock.advance_ms(now_ms - self.clock.now_ms)


def begun(**options: Any) -> Scene:
    """A scene in which workflow "w" is started and its activity scheduled, at 0."""
    scene = Scene(**options)
    scene.start()
    return scene


def code_of(call: Any, *args: Any, **kwargs: Any) -> str:
    """The code of the error that this call raises."""
    with pytest.raises(PerdureError) as caught:
        call(*args, **kwargs)
    return caught.value.code
