"""Programs as activities: started, watched and ended with the attempt that runs them.

A small guardian process stands between the worker and the program (perdure.guardian), so that no
process of it survives: not when the attempt is cancelled, not when the program ends and leaves
children behind, and not when the worker is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import os
import select
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure import activity, exits, guardian, values
from perdure.crash_points import CrashPoint, reached
from perdure.errors import FailedPrecondition, InvalidArgument
from perdure.failures import BAD_INPUT, Cancelled, Error, NonRetryable
from perdure.guarded import Guarded, NotStarted
from perdure.newest_line import NewestLine
from perdure.policy import DURATION_MS_MAX

OUTPUT_BYTES_MAX = 1024 * 1024
"""How much of the program's output is returned: of more, the beginning and the end."""

ERROR_BYTES_MAX = 32 * 1024
# One text of a process's environment, on Linux, its name included.
VARIABLE_BYTES_MAX = 128 * 1024
GRACE_MS_DEFAULT = 5_000
LOOK_MS = 200
CHUNK = 64 * 1024

Argument = str | bytes | os.PathLike[str]


def run(
    argv: Sequence[Argument],
    *,
    heartbeat_file: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    grace_ms: int = GRACE_MS_DEFAULT,
) -> str:
    """What the program wrote to its standard output, as text, when it ended with 0.

    In an activity; async code awaits `arun`. The program is started without a shell, in a process
    group of its own, with nothing on its standard input. Its environment is `env` (this process's
    by default) with PERDURE_IDEMPOTENCY_KEY, PERDURE_ATTEMPT and PERDURE_HEARTBEAT_DETAILS: the
    details that an earlier attempt left, a text as it is, anything else as JSON, empty if none.

    While it lives heartbeats are recorded, with the newest line that it wrote to `heartbeat_file`
    as details: once its line break is there, or the program has exited. When the attempt is
    cancelled or times out, its process group gets SIGTERM, and after `grace_ms` whatever is left
    SIGKILL; then Cancelled is raised. What it leaves behind when it ends is ended too.

    Raises Error of type `ExitCode<n>` or `Signal<NAME>` (its details: exit_code, stdout and stderr,
    cut), NonRetryable `ProgramNotFound` or `ProgramNotExecutable`; InvalidArgument naming the
    argument; FailedPrecondition outside an activity or on an event loop. Output of more than
    OUTPUT_BYTES_MAX is cut in the middle, and marked.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _Program(argv, heartbeat_file, env, cwd, grace_ms).run()
    raise FailedPrecondition(
        "perdure.subprocess.run would stop the event loop: await perdure.subprocess.arun(…)"
    )


async def arun(
    argv: Sequence[Argument],
    *,
    heartbeat_file: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    grace_ms: int = GRACE_MS_DEFAULT,
) -> str:
    """`run` for async activities. Cancelling what awaits it ends the program before it raises."""
    program = _Program(argv, heartbeat_file, env, cwd, grace_ms)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str] = loop.create_future()

    def work() -> None:
        try:
            output = program.run()
        except BaseException as problem:  # noqa: BLE001 - raised again by whoever awaits
            loop.call_soon_threadsafe(done.set_exception, problem)
        else:
            loop.call_soon_threadsafe(done.set_result, output)

    copied = contextvars.copy_context()
    threading.Thread(target=copied.run, args=(work,), name="subprocess", daemon=True).start()
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError as problem:
            cancelled = problem
            program.cancel()
    if cancelled is not None:
        done.exception()  # Looked at: it is not lost, but superseded.
        raise cancelled
    return done.result()


class BadArgument(InvalidArgument):
    """What no attempt could run: the activity is not tried again."""

    failure_type = BAD_INPUT


class _Kept:
    """The beginning and the end of what is written to a pipe."""

    def __init__(self, bytes_max: int) -> None:
        self._half = bytes_max // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._count = 0

    def add(self, chunk: bytes) -> None:
        self._count += len(chunk)
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        head, tail = bytes(self._head), bytes(self._tail[-self._half :])
        lost = self._count - len(head) - len(tail)
        mark = f"\n[... cut, {lost} of {self._count} bytes left out ...]\n" if lost else ""
        if not mark:
            return (head + tail).decode(errors="replace")
        return head.decode(errors="replace") + mark + tail.decode(errors="replace")


class _Program:
    """One run of one program."""

    def __init__(
        self,
        argv: Sequence[Argument],
        heartbeat_file: str | os.PathLike[str] | None,
        env: Mapping[str, str] | None,
        cwd: str | os.PathLike[str] | None,
        grace_ms: int,
    ) -> None:
        self._argv = _checked_argv(argv)
        self._grace_ms = _checked_grace(grace_ms)
        self._env = _environment(os.environ if env is None else env)
        self._cwd = None if cwd is None else os.fsencode(cwd)
        self._lines = None if heartbeat_file is None else NewestLine(Path(heartbeat_file))
        self._stdout = _Kept(OUTPUT_BYTES_MAX)
        self._stderr = _Kept(ERROR_BYTES_MAX)
        self._woken, self._wake = os.pipe()
        self._ended = False
        self._lock = threading.Lock()  # The pipe must not be closed under who writes to it.
        self._cancelled = False

    def cancel(self, _: str = "") -> None:
        """End the program. From any thread."""
        with self._lock:
            self._cancelled = True
            if not self._ended:
                os.write(self._wake, b"\0")

    def run(self) -> str:
        """Start it, look on until nothing of it is left, and say what came of it."""
        with contextlib.ExitStack() as closing:
            closing.callback(self._close)
            activity.on_cancel(self.cancel)
            if self._cancelled:
                raise Cancelled("the attempt was cancelled before the program began")
            guarded = Guarded(self._argv, self._env, self._cwd, captures=True)
            closing.callback(guarded.close)
            reached(CrashPoint.WORKER_PROGRAM_ORDERED_NOT_HEARD)
            self._look_on(guarded)
            try:
                returncode = guarded.ended()
            except NotStarted as problem:
                raise self._not_started(problem) from None
            # The newest line goes with the report of a failure.
            self._beat(is_over=returncode is not None and returncode >= 0)
        return self._outcome(returncode)

    def _close(self) -> None:
        with self._lock:
            self._ended = True
            os.close(self._woken)
            os.close(self._wake)

    def _look_on(self, guarded: Guarded) -> None:
        """Read and beat until the guardian and all pipes are at their end."""
        sinks = {guarded.stdout.fileno(): self._stdout, guarded.stderr.fileno(): self._stderr}
        poll = select.poll()
        for fd in (*sinks, guarded.status, self._woken):
            poll.register(fd, select.POLLIN)
        guards = True
        while guards or sinks:
            # When the guardian is gone, so is all of the program: nothing more will be written.
            ripe = [fd for fd, _ in poll.poll(LOOK_MS if guards else 0)]
            if not ripe and not guards:
                break
            for fd in ripe:
                if fd == self._woken:
                    poll.unregister(fd)
                    guarded.terminate(self._grace_ms)
                elif fd == guarded.status:
                    guards = guarded.hear()
                    if not guards:
                        poll.unregister(fd)
                elif chunk := os.read(fd, CHUNK):
                    sinks[fd].add(chunk)
                else:
                    poll.unregister(fd)
                    del sinks[fd]
            self._beat()

    def _beat(self, *, is_over: bool = False) -> None:
        if self._cancelled:
            return
        line = None if self._lines is None else self._lines.take(is_over=is_over)
        try:
            if line is None:
                activity.record_heartbeat()
            else:
                activity.record_heartbeat(line)
        except Cancelled:
            return  # `cancel` is called for that.

    def _outcome(self, returncode: int | None) -> str:
        if returncode == 0:
            return self._stdout.text()
        if self._cancelled:
            raise Cancelled(f"the attempt was cancelled; {self._shown} was ended")
        if returncode is None:
            raise Error("GuardianDied", f"the process that watches {self._shown} was killed")
        raise self._failed(returncode)

    @property
    def _shown(self) -> str:
        return os.fsdecode(self._argv[0])

    def _failed(self, returncode: int) -> Error:
        stderr = self._stderr.text()
        last = stderr.rstrip().rpartition("\n")[2][:500]
        message = f"{self._shown} {exits.describe(returncode)}" + (f": {last}" if last else "")
        tail = self._stdout.text()[-ERROR_BYTES_MAX // 4 :]
        details = {"exit_code": returncode, "stdout": tail, "stderr": stderr}
        return Error(exits.failure_type(returncode), message, details=details)

    def _not_started(self, problem: NotStarted) -> Exception:
        number = problem.errno
        reason = os.strerror(number)
        if problem.stage == guardian.STAGE_DIRECTORY:
            where = "" if self._cwd is None else os.fsdecode(self._cwd)
            return InvalidArgument(f"cwd: {where}: {reason}", field="cwd")
        if number in (errno.ENOENT, errno.ENOTDIR):
            text = f"there is no program {self._shown} (or the interpreter that it names)"
            return NonRetryable("ProgramNotFound", text)
        if number in (errno.EACCES, errno.ENOEXEC, errno.EPERM):
            return NonRetryable("ProgramNotExecutable", f"{self._shown}: {reason}")
        return Error("ProgramNotStarted", f"{self._shown}: {reason}")


# --- what the program is given --------------------------------------------------------
def _checked_argv(argv: object) -> list[bytes]:
    if isinstance(argv, (str, bytes)) or not isinstance(argv, Sequence):
        raise BadArgument(
            "argv must be a list of the program and its arguments (there is no shell)", field="argv"
        )
    if not argv:
        raise BadArgument("argv must name a program", field="argv")
    encoded: list[bytes] = []
    for i, argument in enumerate(argv):
        if not isinstance(argument, (str, bytes, os.PathLike)):
            raise BadArgument(f"argv[{i}] must be a text, not {argument!r:.80}", field="argv")
        encoded.append(os.fsencode(argument))
        if b"\0" in encoded[i]:
            raise BadArgument(f"argv[{i}] has a NUL in it", field="argv")
    return encoded


def _checked_grace(grace_ms: object) -> int:
    if type(grace_ms) is not int or not 0 <= grace_ms <= DURATION_MS_MAX:
        raise BadArgument(
            f"grace_ms must be whole milliseconds from 0 to {DURATION_MS_MAX}, "
            f"not {grace_ms!r:.80}",
            field="grace_ms",
        )
    return grace_ms


def _environment(env: Mapping[Any, Any]) -> dict[bytes, bytes]:
    details = activity.heartbeat_details()
    if details is not None and not isinstance(details, str):
        details = values.to_json(values.encode(details)).decode()
    ours = {
        "PERDURE_IDEMPOTENCY_KEY": activity.idempotency_key(),
        "PERDURE_ATTEMPT": str(activity.attempt()),
        "PERDURE_HEARTBEAT_DETAILS": details or "",
    }
    encoded: dict[bytes, bytes] = {}
    for name, value in {**env, **ours}.items():
        where = name if name in ours else f"env[{name!r}]"
        if not isinstance(name, (str, bytes)) or not isinstance(value, (str, bytes)):
            raise BadArgument(f"{where} must be a text, not {value!r:.80}", field="env")
        key, text = os.fsencode(name), os.fsencode(value)
        if b"\0" in key + text or b"=" in key or not key:
            raise BadArgument(f"{where}: no environment can hold that", field="env")
        if len(key) + len(text) + 2 > VARIABLE_BYTES_MAX:
            raise BadArgument(
                f"{where} is longer than {VARIABLE_BYTES_MAX} bytes, the most that an environment "
                "can hold",
                field="env",
            )
        encoded[key] = text
    return encoded
