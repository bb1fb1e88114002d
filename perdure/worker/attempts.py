"""One attempt of an activity: its context, the call of the user's function, and what came of it.

Whatever leaves a user's function is an outcome, SystemExit and KeyboardInterrupt included: only the
end of the process ends a worker.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial

from perdure import values
from perdure.activity import ActivityContext, Definition, bound
from perdure.core import links
from perdure.core.records import Payload
from perdure.crash_points import ARMED, CrashPoint, reached
from perdure.worker.context import activity_context
from perdure.worker.heartbeats import Beats
from perdure.worker.outcome import Outcome, outcome_of, outcome_of_result
from perdure.worker.pool import Job, LoopJob, LoopThread, Threads
from perdure.worker.sockets import Inbox

Done = Callable[[str, Outcome, int], None]
Recorded = Callable[[str, int], None]


class Attempt:
    """One attempt and where it runs."""

    __slots__ = ("beats", "context", "definition", "job", "task")

    def __init__(
        self,
        task: links.ActivityTask,
        definition: Definition | None,
        beats: Beats,
        context: ActivityContext,
    ) -> None:
        self.task = task
        self.definition = definition
        self.beats = beats
        self.context = context
        self.job: Job | LoopJob | None = None

    @property
    def is_async(self) -> bool:
        """Whether it runs on the loop."""
        return self.definition is not None and self.definition.is_async


class Runner:
    """Starts attempts, and hands what became of them to the main loop."""

    def __init__(self, definitions: Mapping[str, Definition], inbox: Inbox) -> None:
        self._definitions = definitions
        self._inbox = inbox
        self._threads = Threads(inbox.nudge)
        self._loop = LoopThread()
        self._pid = os.getpid()

    @property
    def coroutines(self) -> int:
        """How many coroutines have not ended, cancelled ones included."""
        return self._loop.running

    @property
    def stuck(self) -> int:
        """How many threads are in code that was given up and does not return."""
        return self._threads.stuck

    @property
    def is_quiet(self) -> bool:
        """Whether nothing of a user's code runs that was given up."""
        return not (self._threads.stuck or self._loop.running)

    def attempt(self, task: links.ActivityTask, recorded: Recorded) -> Attempt:
        """An attempt of `task`, not started. `recorded` is posted when a heartbeat is to leave."""
        beats = Beats(task.options.heartbeat_ms, task.beat)

        def heartbeat(details: Payload | None) -> None:
            if beats.record(details):
                self._inbox.post(recorded, task.token)

        context = activity_context(
            workflow_id=task.workflow_id,
            workflow_type=task.workflow_type,
            activity_id=task.activity_id,
            activity_type=task.activity_type,
            generation=task.generation,
            grant=task.grant,
            attempt=task.attempt,
            token=task.token,
            details=task.details,
            heartbeat=heartbeat,
        )
        return Attempt(task, self._definitions.get(task.activity_type), beats, context)

    def start(self, attempt: Attempt, done: Done) -> None:
        """Run it; `done` is posted with the outcome."""
        definition = attempt.definition
        assert definition is not None
        if definition.is_async:

            async def run() -> None:
                outcome = await self._await(attempt, definition)
                self._inbox.post(done, attempt.task.token, outcome)

            attempt.job = self._loop.start(run)
        else:
            attempt.job = self._threads.submit(partial(self._run, attempt, definition, done))

    def ended(self, attempt: Attempt) -> None:
        """The main loop has the outcome."""
        if not attempt.is_async:
            self._threads.ended()

    def give_up(self, attempt: Attempt) -> None:
        """Its outcome does not count: free its thread, or cancel its coroutine."""
        if isinstance(attempt.job, Job):
            self._threads.give_up(attempt.job)
        else:
            self.interrupt(attempt)

    def interrupt(self, attempt: Attempt) -> None:
        """Its context is cancelled while its outcome still counts: tell async code."""
        if isinstance(attempt.job, LoopJob):
            attempt.job.cancel()

    # --- in a thread, on the loop ---------------------------------------------------
    def _run(self, attempt: Attempt, definition: Definition, done: Done) -> None:
        outcome = contextvars.Context().run(self._call, attempt, definition)
        self._inbox.put(done, attempt.task.token, outcome)  # The thread will nudge.

    def _call(self, attempt: Attempt, definition: Definition) -> Outcome:
        if ARMED:
            reached(CrashPoint.WORKER_ACTIVITY_BEGUN)
        try:
            with bound(attempt.context):
                args, kwargs = values.bind_input(definition.function, attempt.task.input)
                result = definition.function(*args, **kwargs)
        except BaseException as problem:  # noqa: BLE001 - whatever it is, it becomes the report
            self._end_if_forked(problem)
            return outcome_of(problem)
        self._end_if_forked(None)
        return outcome_of_result(result)

    async def _await(self, attempt: Attempt, definition: Definition) -> Outcome:
        try:
            with bound(attempt.context):
                args, kwargs = values.bind_input(definition.function, attempt.task.input)
                result = await definition.function(*args, **kwargs)
        except BaseException as problem:  # noqa: BLE001 - whatever it is, it becomes the report
            self._end_if_forked(problem)
            return outcome_of(problem)
        self._end_if_forked(None)
        return outcome_of_result(result)

    def _end_if_forked(self, problem: BaseException | None) -> None:
        """A child that the function forked must not live on as us when it leaves the function."""
        if os.getpid() == self._pid:
            return
        code = 0
        if isinstance(problem, SystemExit):
            code = problem.code if isinstance(problem.code, int) else int(problem.code is not None)
        elif problem is not None:
            traceback.print_exception(problem)
            code = 1
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)
