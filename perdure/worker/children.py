"""A worker's pool of children for isolated activities: taken warm where there is one.

Each is started fresh, never forked from the worker's threads, and runs under a guardian. One that
was told to end, or that its activity left untidy, runs nothing more.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Sequence

from perdure import exits
from perdure.activity import ActivityContext
from perdure.core import links
from perdure.failures import CANCELLED, Cancelled, Failure
from perdure.guarded import Forked, Guarded, NotStarted
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
    from_child,
    receive,
)
from perdure.worker.outcome import Outcome

IDLE_MAX = 4
_CODE = """\
import sys
sys.path[:] = {path!r}
from perdure.worker.isolated import {role}
{role}({fd}, {apps!r})
"""


def _started(role: str, apps: Sequence[str]) -> tuple[socket.socket, Guarded]:
    """A fresh process in this role ("main" or "template"), and the line to it."""
    ours, theirs = socket.socketpair()
    try:
        code = _CODE.format(path=sys.path, role=role, fd=theirs.fileno(), apps=list(apps))
        argv = [os.fsencode(part) for part in (sys.executable, "-P", "-c", code)]
        return ours, Guarded(argv, dict(os.environb), fds=(theirs.fileno(),))
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()


class _Template:
    """A process that forks children: in milliseconds, once it has imported the application.

    Whether it can is known only then; before, and where it can't, children are started fresh.
    """

    def __init__(self, apps: Sequence[str]) -> None:
        self._line, self._guarded = _started("template", apps)
        self._line.setblocking(False)
        self._lock = threading.Lock()
        self._is_ready: bool | None = None  # None: not known yet.

    def fork(self) -> tuple[socket.socket, Forked] | None:
        """The line to a child that it forks, and its guardian; None: not by this one."""
        with self._lock:
            if not self._can():
                return None
            ours, theirs = socket.socketpair()
            try:
                forked = Forked(
                    lambda *fds: self._hand((*fds, theirs.fileno())),
                )
            except OSError:  # It has ended.
                ours.close()
                self._is_ready = False
                return None
            finally:
                theirs.close()
            return ours, forked

    def _hand(self, fds: Sequence[int]) -> None:
        socket.send_fds(self._line, [b"F"], list(fds))

    def _can(self) -> bool:
        if self._is_ready is None:
            try:
                self._is_ready = self._line.recv(1) == TEMPLATE_READY
            except BlockingIOError:
                return False
            except ConnectionError:
                self._is_ready = False
        return self._is_ready

    def close(self) -> None:
        """End it, with all the children that it has forked."""
        self._guarded.close()
        self._line.close()


class _Child:
    """One child process and the line to it."""

    def __init__(self, connection: socket.socket, guarded: Guarded | Forked) -> None:
        self.connection = connection
        self._guarded = guarded
        self.status = guarded.status
        self._frames = Frames()
        self.hear = guarded.hear
        self.terminate = guarded.terminate
        self.ended = guarded.ended

    def send(self, message: Run | Cancel) -> None:
        try:
            self.connection.sendall(frame(message))
        except ConnectionError:
            return  # It is gone, which its guardian says next.

    def receive(self) -> list[FromChild] | None:
        """What it said; None at the end."""
        whole = receive(self.connection, self._frames)
        return None if whole is None else [from_child.decode(data) for data in whole]

    def close(self) -> None:
        """End it, and all that it has started, now."""
        self._guarded.close()
        self.connection.close()


class Children:
    """Runs isolated activities of `apps`, each call in a child of its own."""

    def __init__(self, apps: Sequence[str]) -> None:
        self._apps = tuple(apps)
        self._idle: list[_Child] = []
        self._lock = threading.Lock()
        self._template: _Template | None = None
        self._closed = False
        self._ending = 0

    @property
    def ending(self) -> int:
        """How many calls wait for the end of their child, which can't be later than its grace."""
        return self._ending

    def run(self, task: links.ActivityTask, context: ActivityContext) -> Outcome:
        """What came of the attempt. From any thread, which it blocks.

        A child that ends without a word is a failure `Signal<NAME>` or `ExitCode<n>`. When the
        attempt is cancelled its process group gets SIGTERM, and after the activity's `grace_ms`
        all that is left SIGKILL.
        """
        if context.is_cancelled:
            return _cancelled()
        try:
            child = self._take()
        except OSError as problem:
            return _not_there(f"no process could be started: {problem}")
        said: Ended | Broken | None = None
        try:
            said, doomed = self._watch(child, task, context)
            if isinstance(said, Ended):
                return said.result if said.failure is None else said.failure
            if isinstance(said, Broken):
                return _not_there(said.message)
            return _cancelled() if doomed else _unheard(child)
        finally:
            reusable = isinstance(said, Ended) and said.clean and not context.is_cancelled
            if not (reusable and self._give_back(child)):
                child.close()

    def close(self) -> None:
        """End the children that wait for work; those that run something end with it."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            template, self._template = self._template, None
        for child in idle:
            child.close()
        if template is not None:
            template.close()

    def _take(self) -> _Child:
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is None:
                return self._new()
            if not select.select([child.status, child.connection.fileno()], [], [], 0)[0]:
                return child
            child.close()  # It has ended since, or said what nobody had asked.

    def _new(self) -> _Child:
        with self._lock:
            if self._template is None and not self._closed:
                self._template = _Template(self._apps)
            template = self._template
        forked = None if template is None else template.fork()
        return _Child(*(forked or _started("main", self._apps)))

    def _give_back(self, child: _Child) -> bool:
        with self._lock:
            if self._closed or len(self._idle) >= IDLE_MAX:
                return False
            self._idle.append(child)
            return True

    def warm(self) -> None:
        """Have one more child wait for work, which imports the application meanwhile."""
        with self._lock:
            if self._closed or len(self._idle) >= IDLE_MAX:
                return
        try:
            child = self._new()
        except OSError:
            return  # Whoever needs one tries again, and says what it comes to.
        if not self._give_back(child):
            child.close()

    def _watch(
        self, child: _Child, task: links.ActivityTask, context: ActivityContext
    ) -> tuple[Ended | Broken | None, bool]:
        """What it said last, and whether it was told to end."""
        wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        lock = threading.Lock()
        over = doomed = False

        def cancel(_: str) -> None:
            with lock:
                if not over:
                    os.eventfd_write(wake, 1)

        context.on_cancel(cancel)
        child.send(Run(task))
        poll = select.poll()
        for fd in (wake, child.connection.fileno(), child.status):
            poll.register(fd, select.POLLIN)
        said: Ended | Broken | None = None
        try:
            while said is None:
                ripe = {fd for fd, _ in poll.poll()}
                if child.connection.fileno() in ripe:
                    heard = child.receive()
                    if heard is None:
                        poll.unregister(child.connection)
                    said = self._heard(heard or [], context) or said
                elif child.status in ripe and not child.hear():
                    break
                if wake in ripe:
                    poll.unregister(wake)
                    if said is None:
                        doomed = True
                        self._count(1)
                        child.send(Cancel(context.cancel_reason))
                        child.terminate(task.options.grace_ms)
                        self.warm()
        finally:
            with lock:
                over = True
                os.close(wake)
            if doomed:
                self._count(-1)
        return said, doomed

    def _count(self, more: int) -> None:
        with self._lock:
            self._ending += more

    @staticmethod
    def _heard(heard: Sequence[FromChild], context: ActivityContext) -> Ended | Broken | None:
        for message in heard:
            if not isinstance(message, Beat):
                return message
            try:
                context.heartbeat(message.details)
            except Cancelled:
                continue  # The child is told in another way.
        return None


def _cancelled() -> Failure:
    return Failure(CANCELLED, "the attempt no longer counts; its process was ended")


def _not_there(message: str) -> Failure:
    return Failure("IsolationFailed", f"the activity's process: {message}")


def _unheard(child: _Child) -> Failure:
    """The failure of a child that ended without a word."""
    try:
        returncode = child.ended()
    except NotStarted as problem:
        return _not_there(str(problem))
    if returncode is None:
        return _not_there("its guardian was killed")
    return Failure(
        exits.failure_type(returncode), f"the activity's process {exits.describe(returncode)}"
    )
