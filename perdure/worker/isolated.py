"""A child process of a worker, in which isolated activities run, one at a time, until it is ended.

It is started fresh, imports the application itself, and runs under a guardian: whoever kills it, or
the worker, ends all that its activities have started as well.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import queue
import signal
import socket
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from perdure import registry
from perdure.activity import ActivityContext, Definition, inside
from perdure.core import links
from perdure.core.records import Payload
from perdure.errors import InvalidArgument
from perdure.failures import Cancelled, Failure, failure_from_exception
from perdure.guardian import guard_call
from perdure.worker.calls import acall, call
from perdure.worker.context import task_context
from perdure.worker.isolation_links import (
    TEMPLATE_READY,
    Beat,
    Broken,
    Cancel,
    Ended,
    Frames,
    FromChild,
    Run,
    frame,
    receive,
    to_child,
)
from perdure.worker.outcome import Outcome

BEAT_SECONDS = 0.05  # Between two heartbeats to the worker, which merges them once more.
SIGNAL_SECONDS = 0.05
EXIT_WORKER_GONE = 3


class _Beats:
    """Heartbeats on their way out: the newest counts, and who records one never waits.

    A signal may end `record` at any point: there is no lock in it that could be left locked.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._told = False
        self._newest: deque[Payload] = deque(maxlen=1)
        threading.Thread(target=self._serve, name="heartbeats", daemon=True).start()

    def record(self, details: Payload | None) -> None:
        if details is not None:
            self._newest.append(details)
        if not self._told:
            self._told = True
            self._wake.put(None)

    def send(self, message: FromChild) -> None:
        """Say this, behind the newest heartbeat that was recorded."""
        with self._sending:
            self._flush()
            self._say(message)

    def _flush(self) -> None:
        if self._told:
            self._told = False
            self._say(Beat(self._newest.pop() if self._newest else None))

    def _say(self, message: FromChild) -> None:
        try:
            self._connection.sendall(frame(message))
        except OSError:
            os._exit(EXIT_WORKER_GONE)

    def _serve(self) -> None:
        pause = threading.Event()
        while True:
            self._wake.get()
            with self._sending:
                self._flush()
            pause.wait(BEAT_SECONDS)


class _Child:
    def __init__(self, connection: socket.socket, definitions: dict[str, Definition]) -> None:
        self._connection = connection
        self._definitions = definitions
        self._beats = _Beats(connection)
        self._tasks: queue.SimpleQueue[links.ActivityTask] = queue.SimpleQueue()
        self._context: ActivityContext | None = None
        self._interrupted: ActivityContext | None = None
        self._doomed = ""
        self._job: asyncio.Task[Outcome] | None = None
        signal.signal(signal.SIGTERM, self._terminated)
        threading.Thread(target=self._receive, name="orders", daemon=True).start()
        self._threads = threading.active_count()

    def serve(self) -> NoReturn:
        while True:
            task = self._tasks.get()
            outcome = self._run(task)
            self._context = None
            self._beats.send(
                Ended(
                    outcome if isinstance(outcome, Failure) else None,
                    outcome if isinstance(outcome, bytes) else None,
                    threading.active_count() <= self._threads and not _has_children(),
                )
            )

    def _receive(self) -> None:
        frames = Frames()
        while (whole := receive(self._connection, frames)) is not None:
            for data in whole:
                match to_child.decode(data):
                    case Run(task):
                        self._tasks.put(task)
                    case Cancel(reason):
                        self._cancel(reason)
        os._exit(EXIT_WORKER_GONE)

    def _cancel(self, reason: str) -> None:
        """Have the function interrupted. A signal that comes just before the main thread begins to
        wait for something would wake it no more: it is sent again until the handler has run.
        """
        self._doomed = reason  # Also of one that has just been taken and not begun.
        context = self._context
        if context is None:
            return
        context.cancel(reason)
        main, pause = threading.main_thread().ident, threading.Event()
        assert main is not None
        while context is self._context and context is not self._interrupted:
            if signal.getsignal(signal.SIGTERM) != self._terminated:
                return  # The function has a handler of its own.
            signal.pthread_kill(main, signal.SIGTERM)
            pause.wait(SIGNAL_SECONDS)

    def _terminated(self, *_: object) -> None:
        """SIGTERM, in the main thread, wherever that is. Once the function is over, its outcome
        counts.
        """
        context = self._context
        if context is None:
            return
        if self._job is not None:
            self._interrupted = context
            context.cancel("cancelled")
            self._job.get_loop().call_soon_threadsafe(self._job.cancel)
        elif inside():
            self._interrupted = context
            context.cancel("cancelled")
            raise Cancelled(f"this attempt no longer counts: {context.cancel_reason}")

    def _run(self, task: links.ActivityTask) -> Outcome:
        def heartbeat(details: Payload | None) -> None:
            if self._context is context:  # No thread that an earlier one left behind.
                self._beats.record(details)

        context = self._context = task_context(task, heartbeat)
        if self._doomed:
            return failure_from_exception(Cancelled(self._doomed))
        definition = self._definitions.get(task.activity_type)
        if definition is None:
            return Failure("IsolationFailed", f"the child has no activity {task.activity_type!r}")
        if definition.is_async:
            return asyncio.run(self._run_async(definition, context, task.input))
        try:
            return contextvars.Context().run(call, definition, context, task.input)
        except Cancelled as problem:  # The signal came while the outcome was made.
            return failure_from_exception(problem)

    async def _run_async(
        self, definition: Definition, context: ActivityContext, payload: Payload | None
    ) -> Outcome:
        self._job = asyncio.ensure_future(acall(definition, context, payload))
        try:
            return await self._job
        except asyncio.CancelledError as problem:  # Before its first step.
            return failure_from_exception(problem)
        finally:
            self._job = None


def _has_children() -> bool:
    """Whether the function left processes behind that have not ended."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def main(fd: int, apps: Sequence[str]) -> None:
    """The life of a child that was started fresh, with its line to the worker at `fd`."""
    connection = socket.socket(fileno=fd)
    connection.set_inheritable(False)
    try:
        found = registry.load(apps)
    except InvalidArgument as problem:
        connection.sendall(frame(Broken(" ".join(problem.message.split()))))
        return
    _Child(connection, dict(found.activities)).serve()


def template(fd: int, apps: Sequence[str]) -> None:
    """The life of a process that has imported the application, and forks children when it is asked.

    Only where that is as good as a fresh start: the import left one thread, and nothing open that
    children would share. It says so first, and ends where it is not.
    """
    line = socket.socket(fileno=fd)
    line.set_inheritable(False)
    before = _open_fds()
    try:
        activities = dict(registry.load(apps).activities)
    except InvalidArgument:
        return  # A child that is started fresh will say what is wrong.
    if len(os.listdir("/proc/self/task")) != 1 or _open_fds() != before:
        return
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The system buries them.
    line.sendall(TEMPLATE_READY)
    while True:
        try:
            word, fds, _, _ = socket.recv_fds(line, 1, 3)
        except ConnectionError:
            return  # The worker was killed before it had read that this is ready.
        if not word:
            return
        control, status, connection = fds
        try:
            pid = os.fork()
        except OSError:
            pid = -1  # Who asked sees that nobody answers.
        if pid == 0:
            line.close()
            guard_call(partial(_serve, connection, activities), status, control, (connection,))
        for one in fds:
            os.close(one)


def _serve(fd: int, activities: dict[str, Definition]) -> None:
    connection = socket.socket(fileno=fd)
    connection.set_inheritable(False)
    _Child(connection, activities).serve()


def _open_fds() -> set[str]:
    directory = os.open("/proc/self/fd", os.O_RDONLY)
    try:
        return set(os.listdir(directory))
    finally:
        os.close(directory)
