"""One attempt of an activity: its context, the call of the user's function, and what came of it.

Whatever leaves a user's function is an outcome, SystemExit and KeyboardInterrupt included: only the
end of the process ends a worker.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from perdure.activity import ActivityContext, Definition
from perdure.core import links
from perdure.core.records import Payload
from perdure.crash_points import ARMED, CrashPoint, reached
from perdure.worker.calls import acall, call
from perdure.worker.children import Children
from perdure.worker.context import task_context
from perdure.worker.heartbeats import Beats
from perdure.worker.outcome import Outcome
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
    def is_isolated(self) -> bool:
        """Whether it runs in a child process, which a thread here looks after."""
        return self.task.options.isolation == "process"

    @property
    def is_async(self) -> bool:
        """Whether it runs on the loop."""
        return self.definition is not None and self.definition.is_async and not self.is_isolated


class Runner:
    """Starts attempts, and hands what became of them to the main loop."""

    def __init__(
        self, definitions: Mapping[str, Definition], inbox: Inbox, apps: Sequence[str] = ()
    ) -> None:
        self._definitions = definitions
        self._children = Children(apps)
        if apps and any(one.options.isolation == "process" for one in definitions.values()):
            self._children.warm()
        self._inbox = inbox
        self._threads = Threads(inbox.nudge)
        self._loop = LoopThread()

    @property
    def coroutines(self) -> int:
        """How many coroutines have not ended, cancelled ones included."""
        return self._loop.running

    @property
    def stuck(self) -> int:
        """How many threads are in code that was given up and does not return.

        One that waits for the end of a child is not stuck: that is ended for sure.
        """
        return max(0, self._threads.stuck - self._children.ending)

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

        context = task_context(task, heartbeat)
        return Attempt(task, self._definitions.get(task.activity_type), beats, context)

    def start(self, attempt: Attempt, done: Done) -> None:
        """Run it; `done` is posted with the outcome."""
        definition = attempt.definition
        assert definition is not None
        if attempt.is_async:

            async def run() -> None:
                outcome = await acall(definition, attempt.context, attempt.task.input)
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

    def close(self) -> None:
        """End the children that wait for work."""
        self._children.close()

    # --- in a thread ----------------------------------------------------------------
    def _run(self, attempt: Attempt, definition: Definition, done: Done) -> None:
        if ARMED:
            reached(CrashPoint.WORKER_ACTIVITY_BEGUN)
        if attempt.is_isolated:
            outcome = self._children.run(attempt.task, attempt.context)
        else:
            outcome = contextvars.Context().run(
                call, definition, attempt.context, attempt.task.input
            )
        self._inbox.put(done, attempt.task.token, outcome)  # The thread will nudge.
