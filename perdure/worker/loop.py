"""The deterministic event loop that workflow functions run on.

It knows no clock and no I/O: a delay becomes a durable timer, and what is ready runs in the order
in which it became so. Tasks and futures hash by the order of their creation, never by address.
One loop belongs to one workflow; `run_until_idle` runs it, on any thread, one at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import math
import sys
import warnings
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, NoReturn, Protocol, TypeVar, TypeVarTuple, Unpack

from perdure.errors import InvalidArgument
from perdure.worker import guard, interrupts, ordered, suspects
from perdure.worker.conditions import Conditions
from perdure.worker.lines import author_line
from perdure.worker.loop_parts import LoopFuture, LoopHandle, LoopTask, LoopTimer, awaited, end
from perdure.worker.no_world import NoWorld
from perdure.workflow import NonDeterminism

DURATION_MS_MAX = 2**53 - 1

Args = TypeVarTuple("Args")
Result = TypeVar("Result")
_log = logging.getLogger("perdure.workflow")

ordered.install(lambda: guard.current() is not None)


class Evicted(BaseException):
    """Stops code of a workflow that leaves memory, at whatever it tries to begin."""


class Timers(Protocol):
    """Who keeps the durable timers."""

    def start_timer(self, timer_id: int, duration_ms: int) -> None:
        """The workflow waits for `duration_ms` from now."""

    def cancel_timer(self, timer_id: int) -> None:
        """The workflow no longer waits for this timer."""


class Loop(NoWorld):
    """One workflow's event loop. `perdure_runtime` is what perdure.workflow talks to."""

    def __init__(self, timers: Timers, workflow_id: str) -> None:
        self.perdure_runtime: Any = timers
        self.now_ms = 0
        self.violation: NonDeterminism | None = None
        # What was raised into the code from outside, and is not the code's own.
        self.escaped: BaseException | None = None
        self.is_closing = False
        self.watched = False  # Whether every call is looked at: see perdure.worker.suspects.
        self.read_only = ""  # Whose code runs, where it may schedule nothing.
        self.conditions = Conditions()
        self._timers_kept: Any = timers
        self._ready: deque[LoopHandle | LoopTimer] = deque()
        self._timers: dict[int, LoopTimer] = {}
        self._timer_count = 0
        self._tasks: dict[LoopTask[Any], None] = {}
        self._task_count = 0
        self._finished_count = 0
        self._halted = False
        self._quiet = False
        # Its low bits order a workflow's own sets; the others keep the tasks of all workflows,
        # which asyncio has in one set, from colliding.
        self._rank = zlib.crc32(workflow_id.encode()) << 16

    # --- what the replay does with it -----------------------------------------
    def run_until_idle(self) -> None:
        """Run what is ready until nothing is, or until `halt`.

        A KeyboardInterrupt, or what is raised into this thread from outside, comes out of here or
        stands in `escaped`; the loop is then good for `evict` only.
        """
        ready = self._ready
        outer_loop = asyncio._get_running_loop()
        outer_hooks = sys.get_asyncgen_hooks()
        outer_guard = guard.enter(self)
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._finalize)
        outer_profile = sys.getprofile()
        if self.watched:
            interrupts.settle()
            sys.setprofile(suspects.watch)
        try:
            while ready and not self._halted:
                self._run_ready(ready)
                if self.conditions and not self._halted:
                    with self.reading("the predicate of wait_condition"):
                        self.conditions.look()
        finally:
            if self.watched:
                sys.setprofile(outer_profile)
            sys.set_asyncgen_hooks(*outer_hooks)
            asyncio._set_running_loop(outer_loop)
            guard.leave(outer_guard)

    def _run_ready(self, ready: deque[LoopHandle | LoopTimer]) -> None:
        while ready and not self._halted:
            handle = ready.popleft()
            if handle._cancelled:
                continue
            try:
                handle._context.run(handle._callback, *handle._args)
            # A task that asks to exit keeps that for whoever awaits it; the worker goes on.
            except SystemExit:
                continue
            except Exception as problem:  # noqa: BLE001 - as asyncio does: reported
                self.call_exception_handler(
                    {"message": "a callback of the workflow raised", "exception": problem}
                )

    @contextlib.contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """While this lasts the code that runs, of `what`, may schedule nothing."""
        before, self.read_only = self.read_only, what
        try:
            yield
        finally:
            self.read_only = before

    @contextlib.contextmanager
    def entered(self, runtime: Any) -> Iterator[None]:
        """Run code of the workflow, here and now; after its end too."""
        outer_loop = asyncio._get_running_loop()
        outer_guard = guard.enter(self)
        before, self.perdure_runtime = self.perdure_runtime, runtime
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            self.perdure_runtime = before
            asyncio._set_running_loop(outer_loop)
            guard.leave(outer_guard)

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """While this lasts the code that runs is not the workflow's: clocks and files are free."""
        guard.leave(None)
        asyncio._set_running_loop(None)
        try:
            yield
        finally:
            asyncio._set_running_loop(self)
            guard.enter(self)

    @property
    def has_ready(self) -> bool:
        """Whether something would run."""
        return bool(self._ready)

    def halt(self) -> None:
        """Stop running: the workflow has ended."""
        self._halted = True

    @property
    def has_timers(self) -> bool:
        """Whether a durable timer runs."""
        return bool(self._timers)

    def fire(self, timer_id: int) -> bool:
        """Make the timer's callback ready. False if there never was such a timer."""
        timer = self._timers.pop(timer_id, None)
        if timer is not None:
            timer._scheduled = False
            self._ready.append(timer)
        return timer_id <= self._timer_count

    def next_rank(self) -> int:
        """The hash of the next task or future."""
        self._rank += 1
        return self._rank

    def next_finished(self) -> int:
        """The next place in the order of completion."""
        self._finished_count += 1
        return self._finished_count

    def violate(self, message: str) -> NoReturn:
        """Stop code that can't be replayed, naming its line; remembered if the code swallows it."""
        where = author_line(sys._getframe(1))
        violation = NonDeterminism(f"{message}, at {where}" if where else message, where=where)
        if self.violation is None and not self.is_closing:
            self.violation = violation
        raise violation

    def evict(self, *, ended: bool = False) -> None:
        """End every coroutine that is left, and let go of everything. No warning is left behind.

        Python runs their `finally` blocks; whatever these try to begin is stopped by Evicted. Of a
        workflow that has not `ended`, errors that nobody has waited for yet are no news either.
        """
        self._quiet = self._quiet or not (ended or self.is_closing)
        self.is_closing = self._halted = True
        if not (self._tasks or self._ready or self._timers or self._timers_kept):
            return  # It was done before.
        self._ready.clear()
        self._timers.clear()
        tasks, self._tasks = [task for task in self._tasks if not task.done()], {}
        if tasks:
            outer_loop = asyncio._get_running_loop()
            outer_guard = guard.enter(self)
            asyncio._set_running_loop(self)
            try:
                # Coroutines that were made and not yet awaited go with the frames that hold them.
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)
                    while tasks:
                        end(tasks.pop(0))
            finally:
                asyncio._set_running_loop(outer_loop)
                guard.leave(outer_guard)
        self._ready.clear()
        self.conditions.clear()
        # No circle is left that only the garbage collector would find.
        self.perdure_runtime = self._timers_kept = None

    def _forget(self, task: asyncio.Task[Any]) -> None:
        assert isinstance(task, LoopTask)
        task.finished = self.next_finished()
        self._tasks.pop(task, None)
        problem = task._exception
        if problem is not None and not isinstance(problem, (Exception, SystemExit)):
            self.escaped = problem

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        """An async generator was dropped before its end: it ends in a task, as in asyncio."""
        if guard.current() is self and not self.is_closing:
            self.create_task(generator.aclose())

    # --- what asyncio does with it ----------------------------------------------
    def call_soon(
        self,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run `callback` after all that is ready now."""
        handle = LoopHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` when a durable timer of `delay` seconds, rounded up to ms, has fired."""
        if self.is_closing:
            raise Evicted
        duration_ms = _duration_ms(delay)
        when = (self.now_ms + duration_ms) / 1000
        timer = LoopTimer(when, callback, args, self, context)
        if duration_ms == 0:
            timer.timer_id = 0
            self._ready.append(timer)
            return timer
        self._timer_count += 1
        timer.timer_id = self._timer_count
        self._timers[timer.timer_id] = timer
        timer._scheduled = True
        self._timers_kept.start_timer(timer.timer_id, duration_ms)
        return timer

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """As `call_later`, for an instant of `time()`."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        assert isinstance(handle, LoopTimer)
        if handle._scheduled and not self.is_closing:
            handle._scheduled = False
            del self._timers[handle.timer_id]
            self._timers_kept.cancel_timer(handle.timer_id)

    def time(self) -> float:
        """Seconds since the Unix epoch, by the event that is being worked off."""
        return self.now_ms / 1000

    def create_future(self) -> asyncio.Future[Any]:
        """A future with a place in the order of creation."""
        return LoopFuture(loop=self, rank=self.next_rank())

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Have `coroutine`, which raises nothing that is of interest, run as the first task.

        In a context of its own: nothing of the worker's is seen in there.
        """
        context = contextvars.Context()
        self._task_count += 1
        task = LoopTask(coroutine, loop=self, name=name, context=context, rank=self.next_rank())
        self._tasks[task] = None
        return task

    def create_task(  # type: ignore[override]
        self,
        coro: Awaitable[Result],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **_: Any,
    ) -> asyncio.Task[Result]:
        """A task that runs `coro`; an activity's handle is taken too."""
        if isinstance(coro, asyncio.Future):
            coro = awaited(coro)
        elif not asyncio.iscoroutine(coro):
            raise TypeError(f"a coroutine was expected, got {coro!r}")
        if self.is_closing:
            coro.close()
            raise Evicted
        self._task_count += 1
        label = f"Task-{self._task_count}" if name is None else str(name)
        task = LoopTask(coro, loop=self, name=label, context=context, rank=self.next_rank())
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def get_debug(self) -> bool:
        """False: asyncio's debugging measures time."""
        return False

    def is_running(self) -> bool:
        """Whether it runs right now, on this thread."""
        return guard.current() is self

    def is_closed(self) -> bool:
        """Whether the workflow has left memory."""
        return self.is_closing

    def get_task_factory(self) -> None:
        """None: there is no other factory."""

    def get_exception_handler(self) -> None:
        """None: there is no other handler."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log what went wrong where nobody waits for it."""
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log what went wrong where nobody waited for it."""
        if not self._quiet:
            _log.error("%s", context.get("message", "error"), exc_info=context.get("exception"))


def _duration_ms(delay: float) -> int:
    """Whole milliseconds, rounded up; what only the floats of `time()` add is not counted."""
    if delay <= 0:
        return 0
    if not delay * 1000 <= DURATION_MS_MAX:  # NaN and infinity too.
        most = DURATION_MS_MAX // 1000
        raise InvalidArgument(f"delay: {delay} s is no time to wait: 0 to {most} s", field="delay")
    return math.ceil(round(delay * 1000, 2))
