"""A process under a guardian (perdure.guardian), from the side of whoever has it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import IO

from perdure import guardian, logs
from perdure.log_names import LogName

SAID_BYTES = 4_096


class NotStarted(Exception):
    """The program could not be started: at `stage` ("cwd" or "program"), with that `errno`."""

    def __init__(self, stage: str, errno: int) -> None:
        super().__init__(f"{stage}: {os.strerror(errno)}")
        self.stage = stage
        self.errno = errno


class Line:
    """The line to a guardian: `status` becomes readable when there is news; `hear` it, until it
    gives False.
    """

    def __init__(self) -> None:
        self._said = b""
        self.status, self._their_status = os.pipe()

    def terminate(self, grace_ms: int) -> None:
        """SIGTERM to its process group now, and after `grace_ms` SIGKILL to all that is left."""
        with contextlib.suppress(BrokenPipeError):  # It has just ended: its news say so.
            self._tell(guardian.terminate(grace_ms))

    def _tell(self, order: bytes) -> None:
        raise NotImplementedError

    def hear(self) -> bool:
        """Take what the guardian said. False: it is gone, and all that it guarded with it."""
        said = os.read(self.status, SAID_BYTES)
        self._said += said
        return bool(said)

    def ended(self) -> int | None:
        """How the process ended (-n is signal n), once `hear` gave False; None: not known, since
        its guardian was killed. NotStarted where it never began.
        """
        said = dict(line.split(b" ", 1) for line in self._said.splitlines())
        if b"failed" in said:
            stage, errno = said[b"failed"].split()
            raise NotStarted(stage.decode(), int(errno))
        left = int(said.get(b"left", 0))
        if left:
            logs.logger().error(LogName.PROCESS_LEFT, left=left)
        if b"ended" in said:
            return int(said[b"ended"])
        if b"started" in said:
            # It died with its guardian; what it has started itself may be there.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(said[b"started"]), signal.SIGKILL)
        return None


class Guarded(Line):
    """The process `argv`, started now; nothing of it outlives this one, or the end of `close`.

    `fds` are descriptors that it inherits. With `captures` its output is there to be read from
    `stdout` and `stderr`; else it goes to the standard error of this process.
    """

    def __init__(
        self,
        argv: Sequence[bytes],
        env: dict[bytes, bytes],
        cwd: bytes | None = None,
        *,
        fds: Sequence[int] = (),
        captures: bool = False,
    ) -> None:
        super().__init__()
        status = self._their_status
        # Isolated and without site: what the environment or the application bring is not for it.
        command = [sys.executable, "-I", "-S", guardian.__file__, str(status), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                [*command, *map(str, fds)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if captures else 2,
                stderr=subprocess.PIPE if captures else 2,
                pass_fds=(status, *fds),
                # Ctrl-C at a terminal is for the node, which ends us in order.
                start_new_session=True,
            )
        except BaseException:
            os.close(self.status)
            raise
        finally:
            os.close(status)
        with contextlib.suppress(BrokenPipeError):  # As above.
            self._tell(guardian.order_of((list(argv), env, cwd)))

    @property
    def stdout(self) -> IO[bytes]:
        """What the process writes, with `captures`."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def stderr(self) -> IO[bytes]:
        """What the process writes to its standard error, with `captures`."""
        assert self._process.stderr is not None
        return self._process.stderr

    def _tell(self, order: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order)

    def close(self) -> None:
        """Have all that is left ended at once, and wait for that."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        os.close(self.status)
        self._process.wait()


class Forked(Line):
    """A process under a guardian that somebody else forks: `handed` is called with the descriptors
    that are for that guardian, its control and its status, which are closed here afterwards.
    """

    def __init__(self, handed: Callable[[int, int], None]) -> None:
        super().__init__()
        control, self._control = os.pipe()
        try:
            handed(control, self._their_status)
        except BaseException:
            os.close(self._control)
            os.close(self.status)
            raise
        finally:
            os.close(control)
            os.close(self._their_status)

    def _tell(self, order: bytes) -> None:
        os.write(self._control, order)

    def close(self) -> None:
        """Have all that is left ended at once, and wait for that."""
        os.close(self._control)
        while self.hear():
            pass
        os.close(self.status)
