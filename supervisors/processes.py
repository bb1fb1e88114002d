"""Starting, watching and killing processes. Used by the root's main thread only.

A forkserver makes the children: it has loaded what workers need, and never the application, so a
start takes milliseconds. Deaths are seen through a PID descriptor and not through the forkserver,
whose own death must hurt nobody.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any

import psutil

from perdure import process

PRELOAD = ["perdure.worker.main", "perdure.process", "perdure.logs", "zmq", "msgspec"]
HASH_SEED = "PYTHONHASHSEED"
EXIT_CODE_MS = 50
# What multiprocessing says when its forkserver is gone and nobody knows.
EXIT_UNKNOWN = 255

_context = multiprocessing.get_context("forkserver")


class StartFailed(Exception):
    """The process could not be started; the reason is the message."""


@contextmanager
def _clean_start() -> Iterator[None]:
    """Children must not import the root's main module again, nor anything from its working
    directory.

    Sets of strings have one order in all workers: the forkserver, which is started when it is
    needed, fixes it.
    """
    names = {HASH_SEED: "0", process.SAFE_PATH: "1"}
    if process.SAFE_PATH not in os.environ:
        names[process.SAFE_PATH_MARK] = "1"
    before = {name: os.environ.get(name) for name in names}
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    os.environ.update(names)
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Handle:
    """One process that was started. `fd` becomes readable when it has ended."""

    def __init__(self, started: ForkServerProcess) -> None:
        self._process = started
        self.pid: int = started.pid or 0
        self._pidfd: int | None = None
        if hasattr(os, "pidfd_open"):
            # Where it is gone already, its sentinel tells.
            with suppress(ProcessLookupError):
                self._pidfd = os.pidfd_open(self.pid)
        self.fd: int = started.sentinel if self._pidfd is None else self._pidfd
        try:
            self._seen: psutil.Process | None = psutil.Process(self.pid)
        except psutil.Error:
            self._seen = None

    def kill(self) -> None:
        """SIGKILL, to this process and to none that has its PID later."""
        with suppress(ProcessLookupError):
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            else:
                self._process.kill()

    def rss_bytes(self) -> int | None:
        """Its resident memory; None when it is gone."""
        try:
            if self._seen is None or not self._seen.is_running():
                return None
            return int(self._seen.memory_info().rss)
        except psutil.Error:
            return None

    def is_in_disk_sleep(self) -> bool:
        """Whether it waits for a device right now."""
        try:
            return self._seen is not None and self._seen.status() == psutil.STATUS_DISK_SLEEP
        except psutil.Error:
            return False

    def finish(self) -> int | None:
        """After `fd` said so: its exit status, minus the signal's number where one ended it; None:
        unknown.
        """
        if not wait([self._process.sentinel], EXIT_CODE_MS / 1_000):
            code = None
        else:
            code = self._process.exitcode
            self._process.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        return None if code == EXIT_UNKNOWN else code


class Launcher:
    """Starts children that cannot outlive this process."""

    def __init__(self) -> None:
        self._death, self._held = multiprocessing.Pipe(duplex=False)

    def warm_up(self, temp_dir: str) -> None:
        """Start the forkserver, whose own socket lies in `temp_dir`, while others do their work."""
        config: dict[str, Any] = getattr(multiprocessing.current_process(), "_config")  # noqa: B009
        config["tempdir"] = temp_dir
        forkserver.set_forkserver_preload(PRELOAD)
        with _clean_start():
            forkserver.ensure_running()

    def start(self, name: str, boot: bytes, target: str) -> Handle:
        """A new process that runs `target` ("module:function") with this packed Boot.

        Raises StartFailed.
        """
        return self._start(name, process.run_child, (boot, target, self._death))

    def start_check(
        self, target: str, apps: tuple[str, ...], cwd: str
    ) -> tuple[Handle, Connection]:
        """A process that checks the applications, and where its Checked will come from."""
        reader, writer = multiprocessing.Pipe(duplex=False)
        try:
            arguments = (target, apps, cwd, writer, self._death)
            return self._start("check", process.run_check, arguments), reader
        finally:
            writer.close()

    def _start(self, name: str, target: Any, arguments: tuple[Any, ...]) -> Handle:
        started = _context.Process(target=target, args=arguments, name=name, daemon=False)
        try:
            with _clean_start():
                started.start()
        except (OSError, EOFError) as error:
            # The forkserver ended just now; the next start makes a new one.
            raise StartFailed(f"{type(error).__name__}: {error}") from error
        return Handle(started)

    def close(self) -> None:
        """Let go of the pipe: whoever is still there is killed by it."""
        self._held.close()
        self._death.close()
