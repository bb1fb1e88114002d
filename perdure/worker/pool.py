"""Where activities run: threads for plain functions, one asyncio loop for async ones.

No thread here is waited for at exit, and none is lost to a function that does not return: it is
given up, and the next job gets a fresh one.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from perdure import logs
from perdure.log_names import LogName


class Job:
    """One call for a thread. `run` must not raise."""

    __slots__ = ("run", "skipped", "thread")

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run
        self.thread: _Thread | None = None
        self.skipped = False


class _Thread:
    __slots__ = ("bell", "given_up")

    def __init__(self) -> None:
        self.bell = threading.Lock()
        self.bell.acquire()
        self.given_up = False


class Threads:
    """Threads, started as they are needed. The methods are the main loop's.

    One thread at a time is called to the queue, and whoever takes a job from it calls the next one
    if there are more. So a thread works off many short jobs in a row, while those behind one that
    blocks begin at once: the thread that was called takes them as soon as Python lets it.

    `nudge` is called where jobs have ended and no thread will soon go on to another.
    """

    def __init__(self, nudge: Callable[[], None]) -> None:
        self._nudge = nudge
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._idle: list[_Thread] = []
        self._called: _Thread | None = None
        self._wanted = 0
        self._alive = 0
        self._stuck = 0
        self._numbered = 0

    @property
    def alive(self) -> int:
        """How many threads there are that were not given up."""
        return self._alive

    @property
    def stuck(self) -> int:
        """How many were given up and have not ended."""
        return self._stuck

    def submit(self, run: Callable[[], None]) -> Job:
        """Have a thread call `run`. The caller bounds how many jobs are open at a time."""
        job = Job(run)
        self._wanted += 1
        with self._lock:
            self._jobs.append(job)
            if self._wanted <= self._alive:
                self._call_one()
                return job
            self._alive += 1
        self._numbered += 1
        name = f"activity-{self._numbered}"
        threading.Thread(target=self._loop, args=(_Thread(),), name=name, daemon=True).start()
        return job

    def ended(self) -> None:
        """A job that was submitted, and not given up, is over."""
        self._wanted -= 1

    def give_up(self, job: Job) -> None:
        """Count no more on the thread of `job`: it ends when the job does, if ever."""
        self._wanted -= 1
        with self._lock:
            if job.thread is None:
                job.skipped = True
            elif not job.thread.given_up:
                job.thread.given_up = True
                self._alive -= 1
                self._stuck += 1

    def _call_one(self) -> None:
        # Under the lock. With nobody idle, one of those that are between two jobs will look.
        if self._called is None and self._idle:
            self._called = self._idle.pop()
            self._called.bell.release()

    def _take(self, me: _Thread) -> Job | None:
        with self._lock:
            if self._called is me:
                self._called = None
            while self._jobs:
                job = self._jobs.popleft()
                if not job.skipped:
                    job.thread = me
                    if self._jobs:
                        self._call_one()
                    return job
            self._idle.append(me)
            return None

    def _loop(self, me: _Thread) -> None:
        while True:
            job = self._take(me)
            if job is None or self._called is None:
                self._nudge()
            if job is None:
                me.bell.acquire()
                self._nudge()
                continue
            job.run()
            with self._lock:
                job.thread = None
                job.skipped = True
                if me.given_up:
                    self._stuck -= 1
                    break
            del job  # What it holds must not live until the next one comes.
        self._nudge()


class LoopThread:
    """An asyncio loop in a thread of its own, started with the first coroutine."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """How many coroutines have not ended."""
        return len(self._tasks)

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> LoopJob:
        """Run the coroutine that `run` makes; it must not raise."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._forever, name="activity-loop", daemon=True).start()
        job = LoopJob(self._loop)
        self._loop.call_soon_threadsafe(self._start, job, run)
        return job

    def _start(self, job: LoopJob, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop = asyncio.get_running_loop()

        async def begin() -> None:
            job.started = True
            await run()

        job.task = loop.create_task(begin(), context=contextvars.Context())
        self._tasks.add(job.task)
        job.task.add_done_callback(self._tasks.discard)

    def _forever(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        while True:
            try:
                self._loop.run_forever()
            except BaseException as problem:  # noqa: BLE001 - SystemExit of a task that an activity made
                logs.logger().warning(LogName.WORKER_TASK_EXIT, problem=repr(problem))


class LoopJob:
    """A coroutine on the loop."""

    __slots__ = ("_loop", "started", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.started = False
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Throw CancelledError into it, from any thread."""
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        # Behind _start on the loop, so the task is there.
        assert self.task is not None
        if self.started:
            self.task.cancel()
        else:
            # A task that is cancelled before its first step would end without a word.
            self._loop.call_soon(self._cancel)
