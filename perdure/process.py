"""The child's side of being started by a node: what a process does before it runs its role.

It never outlives the root, not even by holding the interpreter lock; it lets everybody see that it
is there; and it leaves signals that a terminal sends to the whole group to the root, which stops
its children in order.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

import msgspec

from perdure.core.boot import Boot
from perdure.crash_points import CrashPoint, act_as, reached
from perdure.streams import protect_streams

CHILDREN_LOCK = "children.lock"
SAFE_PATH = "PYTHONSAFEPATH"
# Set by the root when the environment of the user had no PYTHONSAFEPATH of its own.
SAFE_PATH_MARK = "_PERDURE_SAFE_PATH"
EXIT_ROOT_GONE = 3


class _DeathPipe:
    """The read end of a pipe whose write end only the root holds."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def arm(self) -> None:
        """From now on the end of the root ends this process, whatever it is doing."""
        # The owner that is signalled belongs to the open file description, which forks and
        # siblings share: each process needs one of its own.
        path = f"/proc/self/fd/{self.fd}"
        if not hasattr(fcntl, "F_SETSIG") or not os.path.exists(path):
            threading.Thread(target=self._watch, name="death-pipe", daemon=True).start()
            return
        own = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.close(self.fd)
        self.fd = own
        fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(own, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        # The root may have gone before we were armed: then no signal comes any more.
        poll = select.poll()
        poll.register(own, select.POLLIN)
        if poll.poll(0):
            os._exit(EXIT_ROOT_GONE)

    def _watch(self) -> None:
        os.set_blocking(self.fd, True)
        os.read(self.fd, 1)
        os.kill(os.getpid(), signal.SIGKILL)


def _leave_to_root(signum: int, frame: FrameType | None) -> None:
    """Nothing: the root hears the same signal and stops us in order."""


def _leave_signals_to_root() -> None:
    # Handlers, not SIG_IGN: what a user's code executes starts with the default action, and can be
    # terminated.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave_to_root)
        signal.siginterrupt(number, False)


def _restore_terminate() -> None:
    # A user's process pool ends its processes with SIGTERM.
    if signal.getsignal(signal.SIGTERM) is _leave_to_root:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def take_child_lock(path: str) -> int:
    """Show that this process is there, until it ends; the file descriptor, which must stay open.

    The lock is a shared one on the byte at our PID, so that the locks name their holders.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.lockf(fd, fcntl.LOCK_SH, 1, os.getpid())
    return fd


def _prepare(death: Connection) -> None:
    # What the forkserver had loaded stays in the memory that all its children share: a search for
    # garbage writes to each object that it looks at.
    gc.freeze()
    fd = os.dup(death.fileno())
    death.close()
    pipe = _DeathPipe(fd)
    pipe.arm()
    os.register_at_fork(after_in_child=pipe.arm)
    os.register_at_fork(after_in_child=_restore_terminate)
    _leave_signals_to_root()
    if os.environ.pop(SAFE_PATH_MARK, None):
        os.environ.pop(SAFE_PATH, None)
    # Standard output is the node's: it carries one line, `ready`.
    os.dup2(2, 1)
    # What the user's code prints goes there too, and must not fail it when nobody reads any more.
    protect_streams()


def load(target: str) -> Callable[..., Any]:
    """The function that "module:function" names. Raises ImportError or AttributeError."""
    module, _, function = target.partition(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return loaded


def run_child(boot: bytes, target: str, death: Connection) -> None:
    """The life of a child: arm, lock, then `target(Boot)`. Returns when that returns."""
    _prepare(death)
    told = msgspec.msgpack.decode(boot, type=Boot)
    act_as(told.role)
    take_child_lock(os.path.join(told.data_dir, CHILDREN_LOCK))
    reached(CrashPoint.CHILD_LOCKED_NOT_BEGUN)
    load(target)(told)
    sys.stderr.flush()


class Checked(msgspec.Struct, frozen=True):
    """What a check of the applications found; `message` is one line where `ok` is false."""

    ok: bool
    message: str
    workflow_types: tuple[str, ...] = ()
    activity_types: tuple[str, ...] = ()


def run_check(
    target: str, apps: tuple[str, ...], cwd: str, answer: Connection, death: Connection
) -> None:
    """Call `target(apps, cwd)`, which imports a user's applications, and send a Checked over
    `answer`.
    """
    _prepare(death)
    ok, message, workflows, activities = load(target)(apps, cwd)
    checked = Checked(ok, message, tuple(workflows), tuple(activities))
    answer.send_bytes(msgspec.msgpack.encode(checked))
    answer.close()
