"""The replay of one workflow: events go in, commands come out.

Pure: no socket, no thread, no clock. Events are fed one at a time and the workflow's loop runs
until it is idle after each one that wakes it, so that the commands do not depend on how events
were chunked. Recorded commands are matched with those that the code issues, by their order alone.
"""

from __future__ import annotations

import asyncio
import random as _random
import sys
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from perdure import activity, values, workflow
from perdure.core import commands, records
from perdure.errors import Internal, InvalidArgument
from perdure.failures import Failure, engine_failure
from perdure.policy import RetryPolicy
from perdure.worker import endings, mismatch
from perdure.worker.loop import Evicted, Loop
from perdure.workflow import NonDeterminism

_DEFAULT_RETRY = RetryPolicy()
# Frames of these folders are not where a workflow's author issued a command.
_INTERNAL = tuple(
    (file or "").rpartition("/")[0] + "/"
    for file in (__file__, workflow.__file__, asyncio.__file__)
)
# What the loop itself runs, a timer for instance, has no line of the author's.
_EDGE = Loop.run_until_idle.__code__

Issued = tuple[commands.Step, CodeType | None, int]


class Replayer:
    """One workflow in memory. Whatever `feed` raises, this one is done for: `close` it.

    It holds the workflow's coroutines, so it has to be closed when it is let go. `is_finished` once
    the last command has been issued. `consumed` is the last event taken, `commands` how many
    commands the code issued in all, and `matched` how many of them history has.
    """

    def __init__(self, definition: workflow.Definition, workflow_id: str) -> None:
        self.definition = definition
        self.workflow_id = workflow_id
        self.consumed = 0
        self.commands = 0
        self.matched = 0
        self.is_finished = False
        self._taken = 0
        self._broken: BaseException | None = None
        self._issued: deque[Issued] = deque()
        self._handles: dict[str, tuple[workflow.ActivityHandle[Any], Callable[..., Any] | None]]
        self._handles = {}
        self._ids: set[str] = set()
        self._default_ids = 0
        self._ending: endings.Ending | None = None
        self._info: workflow.Info | None = None
        self._random: _random.Random | None = None
        self._random_ids: _random.Random | None = None
        # Abstract to the type checker only: what it refuses is set by name.
        self._loop = Loop(self, workflow_id)  # type: ignore[abstract]

    # --- for the worker ---------------------------------------------------------
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

    def take_steps(self) -> tuple[commands.Step, ...]:
        """The commands that history does not have and that were not taken before, in order."""
        fresh = islice(self._issued, self._taken - self.matched, None)
        self._taken = self.commands
        return tuple([issued[0] for issued in fresh])

    @property
    def awaits(self) -> str | None:
        """The activity that is all that the workflow waits for; None if it is not so."""
        if len(self._handles) != 1 or self._loop.has_timers or self.is_finished:
            return None
        return next(iter(self._handles))

    def recorded(self) -> None:
        """History has all commands issued so far, each as one event, and nothing after them."""
        fresh = self.commands - self.matched
        self._issued.clear()
        self.matched = self._taken = self.commands
        self.consumed += fresh

    def close(self) -> None:
        """Let go of the workflow: its coroutines end, and nothing they still do has an effect."""
        if self._broken is None and not self.is_finished:
            self._broken = Internal("it was closed")
        self._loop.evict()
        self._handles.clear()

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
        take = _TAKE.get(type(event))
        if take is not None:
            take(self, event)

    def _wake(self, at_ms: int) -> None:
        loop = self._loop
        loop.now_ms = at_ms
        loop.run_until_idle()
        if loop.escaped is not None:
            raise loop.escaped
        if loop.violation is not None:
            raise loop.violation
        if self._ending is not None:
            ending, self._ending = self._ending, None
            step = endings.step_of(ending)
            self.is_finished = True
            self._issue(step, None, 0)
            loop.evict(ended=True)
            self._handles.clear()

    def _on_started(self, event: records.WorkflowStarted) -> None:
        self._info = workflow.Info(
            workflow_id=self.workflow_id,
            workflow_type=event.workflow_type,
            task_queue=event.task_queue,
            started_ms=event.at_ms,
        )
        self._loop.start(self._main(event.input), self.definition.name)
        self._wake(event.at_ms)

    async def _main(self, payload: records.Payload | None) -> None:
        try:
            args, kwargs = values.bind_input(self.definition.function, payload)
            self._ending = endings.Ending(result=await self.definition.function(*args, **kwargs))
        except BaseException as problem:
            if self._loop.is_closing:
                raise  # The workflow leaves memory.
            if isinstance(problem, NonDeterminism):
                self._loop.violation = self._loop.violation or problem
            elif isinstance(problem, (Exception, asyncio.CancelledError, SystemExit)):
                self._ending = endings.Ending(problem=problem)
            else:
                self._loop.escaped = problem
        self._loop.halt()

    def _on_timer_fired(self, event: records.TimerFired) -> None:
        if self.is_finished:
            return
        if not self._loop.fire(event.timer_id):
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
        if handle is not None:
            handle.set_exception(_failed(handle, event.failure))
            self._wake(event.at_ms)

    def _closed(
        self, event: records.ActivityTaskCompleted | records.ActivityTaskFailed
    ) -> tuple[workflow.ActivityHandle[Any] | None, Callable[..., Any] | None]:
        """The handle that the event is for; None if nobody waits for it any more."""
        found = self._handles.pop(event.activity_id, None)
        if found is None:
            if event.activity_id not in self._ids:
                raise mismatch.unknown(event)
            return None, None
        found[0].finished = self._loop.next_finished()
        return found

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

    def _issue(self, step: commands.Step, code: CodeType | None, instruction: int) -> None:
        self._issued.append((step, code, instruction))
        self.commands += 1

    def _issue_here(self, step: commands.Step) -> None:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(_INTERNAL):
            frame = None if frame.f_code is _EDGE else frame.f_back
        if frame is None:
            self._issue(step, None, 0)
        else:
            self._issue(step, frame.f_code, frame.f_lasti)

    # --- for the workflow's code (workflow.Runtime, and the loop's timers) ----------
    @property
    def info(self) -> workflow.Info:
        """Who the workflow is."""
        assert self._info is not None
        return self._info

    @property
    def now_ms(self) -> int:
        """The time of the event that is being worked off."""
        return self._loop.now_ms

    @property
    def random(self) -> _random.Random:
        """The generator of workflow.random()."""
        if self._random is None:
            self._random = _random.Random(self.workflow_id)
        return self._random

    @property
    def random_ids(self) -> _random.Random:
        """The generator behind workflow.uuid4(): draws of the other do not move it."""
        if self._random_ids is None:
            self._random_ids = _random.Random(f"{self.workflow_id}\nids")
        return self._random_ids

    def start_activity(
        self,
        target: activity.Definition | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        activity_id: str | None,
        options: activity.Options | None,
    ) -> workflow.ActivityHandle[Any]:
        """Issue the command that schedules an activity."""
        if self._loop.is_closing:
            raise Evicted
        function = None if isinstance(target, str) else target.function
        payload = values.encode_input(function, args, kwargs)
        if activity_id is None:
            self._default_ids += 1
            activity_id = f"@{self._default_ids}"
        elif activity_id in self._ids:
            raise InvalidArgument(
                f"activity_id {activity_id!r} is used twice in this workflow: the two would share "
                "an idempotency key",
                field="activity_id",
            )
        self._ids.add(activity_id)
        if isinstance(target, str):
            name, said = target, options
        else:
            name = target.name
            said = target.options if options is None else target.options.under(options)
        step = commands.ScheduleActivity(activity_id, name, payload, self._options(said))
        handle = workflow.ActivityHandle[Any](
            self, activity_id, name, loop=self._loop, rank=self._loop.next_rank()
        )
        self._handles[activity_id] = (handle, function)
        self._issue_here(step)
        return handle

    def _options(self, said: activity.Options | None) -> records.ActivityOptions:
        """What was said, the rest left open: history knows the defaults."""
        if said is None:
            said = _NOTHING_SAID
        return records.ActivityOptions(
            said.retry or _DEFAULT_RETRY,
            said.task_queue or self.info.task_queue,
            said.start_to_close_ms or 0,
            said.heartbeat_ms or 0,
            said.schedule_to_start_ms or 0,
            said.schedule_to_close_ms or 0,
            said.priority or 0,
            said.on_exhausted or "park",
            said.cancellation or "try",
            said.isolation or "thread",
            _GRACE_MS if said.grace_ms is None else said.grace_ms,
        )

    def cancel_activity(self, handle: workflow.ActivityHandle[Any]) -> None:
        """Issue the command that ends an activity."""
        if self._handles.pop(handle.activity_id, None) is not None and not self._loop.is_closing:
            handle.finished = self._loop.next_finished()
            self._issue_here(commands.CancelActivity(handle.activity_id))

    def start_timer(self, timer_id: int, duration_ms: int) -> None:
        """Issue the command that starts a timer."""
        self._issue_here(commands.StartTimer(timer_id, duration_ms))

    def cancel_timer(self, timer_id: int) -> None:
        """Issue the command that cancels a timer."""
        self._issue_here(commands.CancelTimer(timer_id))


def _failed(handle: workflow.ActivityHandle[Any], failure: Failure) -> workflow.ActivityFailed:
    return workflow.ActivityFailed(
        f"activity {handle.activity_id!r} failed: {failure.type}: {failure.message}",
        failure,
        activity_id=handle.activity_id,
        activity_type=handle.activity_type,
    )


_NOTHING_SAID = activity.Options()
_GRACE_MS = records.ActivityOptions(_DEFAULT_RETRY).grace_ms
_TWO_EVENTS = (records.ActivityTaskCompleted, records.ActivityTaskFailed)
_CANCELLED = (records.ActivityTaskCancelled, records.TimerCancelled)
# What is not named here is informational: a replay has no use for it.
_TAKE: dict[type[records.Record], Callable[[Replayer, Any], None]] = {
    records.WorkflowStarted: Replayer._on_started,
    records.TimerFired: Replayer._on_timer_fired,
    records.ActivityTaskCompleted: Replayer._on_completed,
    records.ActivityTaskFailed: Replayer._on_failed,
    records.WorkflowCompleted: Replayer._on_command,
    records.WorkflowFailed: Replayer._on_command,
    records.TimerStarted: Replayer._on_command,
    records.TimerCancelled: Replayer._on_command,
    records.ActivityTaskScheduled: Replayer._on_command,
    records.ActivityTaskCancelled: Replayer._on_command,
}
