"""The process between a worker and a program that an activity runs: nothing of it outlives either.

Run as a script of its own, with the standard library only (see perdure.subprocess, which starts it
and reads what it says):

    python -I -S guardian.py STATUS_FD PARENT_PID [FD …]

It is the program's parent and, where the system can do that, the one to whom every orphan below it
falls: a grandchild that leaves its process group or session stays in reach. It ends them all when
the program ends, when it is told so, and when its own parent is gone, however that died.

Standard input brings one order (4 bytes of length, then a marshalled tuple: argv, environment,
directory), later perhaps the word to terminate it, with the grace that it has. Its end means that
the worker is gone. To the status descriptor go lines: `started PID`, or `failed STAGE ERRNO`; then
`ended RETURNCODE` (as subprocess has it: -n is signal n) and `left N`, how many processes could not
be ended. The other descriptors are the program's to inherit.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import select
import signal
import sys
import time

# Not at run time: each guardian would wait for the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TERMINATE = b"T"
TERMINATE_BYTES = 9
STAGE_DIRECTORY, STAGE_PROGRAM = "cwd", "program"
GRACE_MS_DEFAULT = 5_000  # Of a guardian that is itself told to terminate.
LOOK_MS = 20
PARENT_LOOK_MS = 250
# Processes that can't be ended (another user's, or stuck in the kernel) are not waited for longer.
ENDING_MS_MAX = 5_000
EXIT_NO_ORDER = 1
EXIT_CALL_OVER = 1


Order = tuple[list[bytes], dict[bytes, bytes], bytes | None]


def order_of(order: Order) -> bytes:
    """What the guardian reads first."""
    data = marshal.dumps(order)
    return len(data).to_bytes(4, "big") + data


def terminate(grace_ms: int) -> bytes:
    """SIGTERM now, SIGKILL after that time."""
    return TERMINATE + grace_ms.to_bytes(8, "big")


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):  # Not Linux.
        return False


def _read_order() -> Order:
    head = _read_exactly(4)
    order: Order = marshal.loads(_read_exactly(int.from_bytes(head, "big")))
    return order


def _read_exactly(count: int) -> bytes:
    read = b""
    while len(read) < count:
        chunk = os.read(0, count - len(read))
        if not chunk:
            sys.exit(EXIT_NO_ORDER)
        read += chunk
    return read


def _begin(parent: int) -> None:
    """In the child: a process group of its own, and nothing on its standard input."""
    os.setpgid(0, 0)
    # Should this guardian be killed, the program at least goes with it.
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_NO_ORDER)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _become(order: Order, failed: int, parent: int) -> NoReturn:
    """In the child: the program itself."""
    argv, env, cwd = order
    stage = STAGE_DIRECTORY
    try:
        _begin(parent)
        if cwd is not None:
            os.chdir(cwd)
        # Python ignores these; what it executes would go on ignoring them.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        stage = STAGE_PROGRAM
        os.execvpe(argv[0], argv, env)
    except OSError as problem:
        os.write(failed, f"{stage} {problem.errno}".encode())
    finally:
        os._exit(127)


class _Guardian:
    def __init__(self, status: int, parent: int) -> None:
        self._status = status
        self._parent = parent
        self._reaps = _prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._program = 0
        self._returncode: int | None = None
        self._told = False
        self._grace_ms = GRACE_MS_DEFAULT
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._wake, wake = os.pipe()
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        self._poll.register(self._wake, select.POLLIN)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signalled)

    def _signalled(self, *_: object) -> None:
        self._told = True

    def _say(self, line: str) -> None:
        try:
            os.write(self._status, line.encode() + b"\n")
        except OSError:
            self._told = True  # Nobody reads: the worker is gone, and its end comes next.

    def start(self, become: Callable[[int, int], NoReturn], fds: Sequence[int]) -> bool:
        """Start the program; False, and said, where it can't be."""
        heard, failed = os.pipe()
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            become(failed, me)
        for fd in (failed, *fds):
            os.close(fd)
        # What the program writes is the worker's to read, until the last writer is gone.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        said = os.read(heard, 100)
        os.close(heard)
        if said:
            os.waitpid(pid, 0)
            self._say(f"failed {said.decode()}")
            return False
        self._program = pid
        self._say(f"started {pid}")
        return True

    def watch(self) -> None:
        """Until nothing of the program is left."""
        kill_at: float | None = None
        while self._reap():
            if self._returncode is not None and kill_at is None:
                break  # It ended by itself: what it left behind goes at once.
            if self._returncode is not None and not self._reaps:
                break
            wait_ms = PARENT_LOOK_MS
            if kill_at is not None:
                left_ms = (kill_at - time.monotonic()) * 1000
                if left_ms <= 0:
                    break
                wait_ms = min(wait_ms, int(left_ms) + 1)
            ripe = {fd for fd, _ in self._poll.poll(wait_ms)}
            if self._wake in ripe:
                os.read(self._wake, 512)
            if os.getppid() != self._parent:
                break
            if 0 in ripe:
                word = os.read(0, TERMINATE_BYTES)
                if word[:1] != TERMINATE:
                    break
                self._told = True
                self._grace_ms = int.from_bytes(word[1:], "big")
            if self._told and kill_at is None:
                self._signal_group(signal.SIGTERM)
                kill_at = time.monotonic() + self._grace_ms / 1000
        left = self._end_all()
        self._say(f"ended {-signal.SIGKILL if self._returncode is None else self._returncode}")
        self._say(f"left {left}")

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._program, number)
        except (ProcessLookupError, PermissionError):
            return  # Nobody is in it any more, or nobody whom we may signal.

    def _reap(self) -> bool:
        """Take note of who has ended; whether there is anybody left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._program:
                self._returncode = os.waitstatus_to_exitcode(status)

    def _end_all(self) -> int:
        """End whoever is left; how many that did not work for."""
        until = time.monotonic() + ENDING_MS_MAX / 1000
        self._poll.unregister(0)  # At its end it would always be ripe.
        if self._returncode is None or not self._reaps:
            # Once the program is reaped its number may be another's, unless there is no other way.
            self._signal_group(signal.SIGKILL)
        while self._reap() and time.monotonic() < until:
            if not self._reaps and self._returncode is not None:
                return 0
            for pid in _descendants(os.getpid()):
                try:
                    os.kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue  # Gone meanwhile; or not ours to end, which `left` says.
            # Those of them that had children leave them to us: look again.
            self._poll.poll(LOOK_MS)
            try:
                os.read(self._wake, 512)
            except BlockingIOError:
                continue
        return len(_descendants(os.getpid())) if self._reap() else 0


def _descendants(root: int) -> list[int]:
    """Every process below `root`, the nearest first; empty where the system does not say."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name in parentheses may itself hold anything.
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            continue  # It has ended meanwhile.
        children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def guard_call(
    call: Callable[[], object], status: int, control: int, fds: Sequence[int]
) -> NoReturn:
    """Be the guardian of a process that makes this call, in a process that was forked for it.

    `control` stands for the standard input of a guardian of its own; `fds` are for the call only.
    Whoever forked must have had one thread.
    """
    try:
        os.setsid()
        os.dup2(control, 0)
        os.close(control)
        guardian = _Guardian(status, os.getppid())

        def become(failed: int, me: int) -> NoReturn:
            try:
                _begin(me)
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                os.close(status)
                os.close(failed)
                call()
            finally:
                os._exit(EXIT_CALL_OVER)

        if guardian.start(become, fds):
            guardian.watch()
    finally:
        os._exit(0)


def main() -> None:
    """Guard one program."""
    status, parent, *fds = map(int, sys.argv[1:])
    os.set_inheritable(status, False)
    guardian = _Guardian(status, parent)
    order = _read_order()
    if guardian.start(lambda failed, me: _become(order, failed, me), fds):
        guardian.watch()


if __name__ == "__main__":
    main()
