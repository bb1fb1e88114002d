"""What the code of one workflow talks to while it is replayed: perdure.workflow.runtime.Runtime.

The other half of a Replayer: here the code issues commands, there history answers.
"""

from __future__ import annotations

import asyncio
import random as _random
import sys
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any, NoReturn

from perdure import activity, values, workflow
from perdure.core import commands, records
from perdure.core.bounds import DEFAULT
from perdure.core.ids import of_execution
from perdure.core.start import Attribute
from perdure.errors import FailedPrecondition, InvalidArgument
from perdure.policy import RetryPolicy
from perdure.worker import endings, suspects
from perdure.worker.lines import author_frame
from perdure.worker.loop import Evicted, Loop
from perdure.worker.messages import Messages
from perdure.worker.notes import Known, Notes
from perdure.worker.offspring import Offspring
from perdure.workflow import NonDeterminism
from perdure.workflow.failing import Continue

_DEFAULT_RETRY = RetryPolicy()
_GRACE_MS = records.ActivityOptions(_DEFAULT_RETRY).grace_ms
_NOTHING_SAID = activity.Options()
BYTES_SUGGEST = DEFAULT.history_bytes_max // 12
_ENDS = (Exception, asyncio.CancelledError, SystemExit, Continue)

Issued = tuple[commands.Step, CodeType | None, int]


class WorkflowSide:
    """Everything of one workflow in memory but how history is taken in; `loop` runs its code.

    `consumed` is the last event taken, `commands` how many commands the code issued in all, and
    `fresh_bytes` what those of them carry that history does not have, once it was said which.
    """

    def __init__(self, definition: workflow.Definition, workflow_id: str) -> None:
        self.definition = definition
        self.workflow_id = workflow_id
        self.known = Known()
        self.task_queue = ""
        self.consumed = 0
        self.commands = 0
        self.fresh_bytes = 0
        self._recorded = sys.maxsize
        self._issued: deque[Issued] = deque()
        self._handles: dict[str, tuple[workflow.ActivityHandle[Any], Callable[..., Any] | None]]
        self._handles = {}
        self._ids: set[str] = set()
        self._default_ids = 0
        self._ending: endings.Ending | None = None
        self._started_ms = 0
        self.parent: workflow.ParentInfo | None = None
        self.attributes: dict[str, Attribute] = {}
        self._bytes = 0
        self._main_task: asyncio.Task[None] | None = None
        self._messages: Messages | None = None
        self._children: Offspring | None = None
        self._notes: Notes | None = None
        self._random: _random.Random | None = None
        self._random_ids: _random.Random | None = None
        # Abstract to the type checker only: what it refuses is set by name.
        self.loop = Loop(self, workflow_id)  # type: ignore[abstract]
        self.loop.watched = suspects.is_suspect(definition.function)

    # --- commands ---------------------------------------------------------------
    def issue(self, step: commands.Step, code: CodeType | None = None, at: int = 0) -> None:
        """Add a command, of the instruction `at` of `code`."""
        if self.loop.read_only:
            self.violate(f"{self.loop.read_only} may schedule nothing")
        self._issued.append((step, code, at))
        self.commands += 1
        if self.commands > self._recorded:
            self.fresh_bytes += size_of(step)

    def issue_here(self, step: commands.Step) -> None:
        """Add a command of the line of the author's code that runs now."""
        frame = author_frame(sys._getframe(2))
        if frame is None:
            self.issue(step)
        else:
            self.issue(step, frame.f_code, frame.f_lasti)

    # --- its end ----------------------------------------------------------------
    def left(self, problem: BaseException) -> None:
        """An exception has left the workflow function, or a task that stands for it.

        Not for what is raised while the workflow leaves memory: its coroutines raise that again.
        """
        if isinstance(problem, NonDeterminism):
            self.loop.violation = self.loop.violation or problem
        elif isinstance(problem, _ENDS):
            self._ending = self._ending or endings.Ending(problem=problem)
        else:
            self.loop.escaped = problem
        self.loop.halt()

    # --- what it asks for ---------------------------------------------------------
    @property
    def info(self) -> workflow.Info:
        """Who the workflow is, and how long its history is at the event that is worked off."""
        workflow_id, run = of_execution(self.workflow_id)
        suggested = self.consumed >= DEFAULT.history_events_suggest or self._bytes >= BYTES_SUGGEST
        return workflow.Info(
            workflow_id=workflow_id,
            workflow_type=self.definition.name,
            task_queue=self.task_queue,
            started_ms=self._started_ms,
            run=run,
            history_length=self.consumed,
            history_bytes=self._bytes,
            continue_as_new_suggested=suggested,
            parent=self.parent,
            search_attributes=dict(self.attributes),
        )

    @property
    def is_replaying(self) -> bool:
        """Whether what is worked off was worked off before, by a task that history took."""
        known = self.known
        if self.consumed > known.cursor:
            return False
        return known.recorded is None or self.commands < known.recorded

    @property
    def is_silent(self) -> bool:
        """Whether this is a replay up to here, or a copy, or a check."""
        return self.is_replaying or self.known.is_copy or self.known.is_check

    @property
    def messages(self) -> Messages:
        """Signals, queries and updates."""
        if self._messages is None:
            self._messages = Messages(self)
        return self._messages

    @property
    def children(self) -> Offspring:
        """Child workflows."""
        if self._children is None:
            self._children = Offspring(self)
        return self._children

    @property
    def notes(self) -> Notes:
        """What is found out once."""
        if self._notes is None:
            self._notes = Notes(self)
        return self._notes

    def violate(self, message: str) -> NoReturn:
        """Stop code that can't be replayed."""
        self.loop.violate(message)

    def outside(self) -> AbstractContextManager[None]:
        """While this lasts what runs is not the workflow's."""
        return self.loop.outside()

    def condition(self, predicate: Callable[[], Any]) -> asyncio.Future[None]:
        """A future that is done as soon as the predicate is true."""
        future: asyncio.Future[None] = self.loop.create_future()
        with self.loop.reading("the predicate of wait_condition"):
            if predicate():
                future.set_result(None)
                return future
        self.loop.conditions.add(predicate, future)
        return future

    def continue_as_new(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        """Leave the workflow function, which has to be what calls this."""
        if asyncio.current_task(self.loop) is not self._main_task:
            raise FailedPrecondition(
                "workflow.continue_as_new() has to be called by the workflow function itself, and "
                "not by a task or a handler: have that tell the function to do it"
            )
        raise Continue(values.encode_input(self.definition.function, args, kwargs))

    @property
    def now_ms(self) -> int:
        """The time of the event that is being worked off."""
        return self.loop.now_ms

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
        if self.loop.is_closing:
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
            self,
            activity_id,
            name,
            loop=self.loop,
            rank=self.loop.next_rank(),
            cancellation=step.options.cancellation,
        )
        self._handles[activity_id] = (handle, function)
        self.issue_here(step)
        return handle

    def _options(self, said: activity.Options | None) -> records.ActivityOptions:
        """What was said, the rest left open: history knows the defaults."""
        if said is None:
            said = _NOTHING_SAID
        return records.ActivityOptions(
            said.retry or _DEFAULT_RETRY,
            said.task_queue or self.task_queue,
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

    def cancel_activity(self, handle: workflow.ActivityHandle[Any]) -> bool:
        """Issue the command that gives an activity up, once. True: there is no end to wait for."""
        activity_id = handle.activity_id
        if self.loop.is_closing or activity_id not in self._handles:
            return True
        mode = handle.cancellation
        if mode == "wait":
            if not handle.cancel_requested:
                handle.cancel_requested = True
                self.issue_here(commands.CancelActivity(activity_id, mode))
            return False
        del self._handles[activity_id]
        handle.finished = self.loop.next_finished()
        self.issue_here(commands.CancelActivity(activity_id, mode))
        return True

    def start_timer(self, timer_id: int, duration_ms: int) -> None:
        """Issue the command that starts a timer."""
        self.issue_here(commands.StartTimer(timer_id, duration_ms))

    def cancel_timer(self, timer_id: int) -> None:
        """Issue the command that cancels a timer."""
        self.issue_here(commands.CancelTimer(timer_id))


def size_of(it: records.Record | commands.Step) -> int:
    """The bytes of its payload: of an event as much as of the command that it comes from."""
    return len(getattr(it, "result", None) or getattr(it, "input", None) or b"")
