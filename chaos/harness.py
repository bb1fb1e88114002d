"""A real node to hurt: `perdure up` as a process of its own on a scratch directory, with what it
takes to kill it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

from perdure import node_client
from perdure.errors import PerdureError

READY_S = 60.0
STOP_S = 20.0
GONE_S = 10.0
PS_MS = 2_000
LOG_TAIL_LINES = 20
_PR_SET_PDEATHSIG = 1


class NodeTrouble(Exception):
    """The node did not come up, or did not stop; the message ends as its log does."""


class NodeProcess:
    """One node that can be started again and again on the same data. Use it as a context manager:
    nothing stays.
    """

    def __init__(
        self,
        directory: Path,
        *,
        apps: tuple[str, ...],
        workers: int,
        slots: int,
        environment: Mapping[str, str] | None = None,
        python_path: str | None = None,
        seed: int | None = None,
    ) -> None:
        self.directory = directory
        self.data = directory / ".perdure"
        self.log_path = directory / "node.log"
        self.starts = 0
        self.ready_ms: list[int] = []
        self._command = [sys.executable, "-P", "-m", "supervisors"]
        for app in apps:
            self._command += ["--app", app]
        self._command += [
            "--workers",
            str(workers),
            "--slots",
            str(slots),
            "--data",
            str(self.data),
        ]
        if seed is not None:
            self._command += ["--seed", str(seed)]
        self._environment = {**os.environ, **(environment or {})}
        if python_path is not None:
            # In front of what the caller has: the same perdure runs there as here.
            rest = os.environ.get("PYTHONPATH")
            paths = [python_path, rest] if rest else [python_path]
            self._environment["PYTHONPATH"] = os.pathsep.join(paths)
        self._process: subprocess.Popen[bytes] | None = None
        self._launched = 0.0

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The root's."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the root lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> str:
        """Starts the node and waits until it serves; its first endpoint. Raises NodeTrouble."""
        self.launch()
        return self.await_ready()

    def launch(self) -> None:
        """Starts the node, and does not wait for it."""
        self._launched = time.monotonic()
        self.starts += 1
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                # A Ctrl-C at our terminal is ours; that the node ends with us, however we end, is
                # the kernel's.
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )

    def await_ready(self) -> str:
        """Waits until the node that was launched serves; its first endpoint. Raises NodeTrouble."""
        line = self._ready_line(self._launched + READY_S)
        self.ready_ms.append(int((time.monotonic() - self._launched) * 1_000))
        return line.split()[1]

    def _ready_line(self, deadline: float) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        out, text = self._process.stdout.fileno(), b""
        while time.monotonic() < deadline:
            if select.select([out], [], [], 0.2)[0]:
                read = os.read(out, 4_096)
                text += read
                if b"\n" in text:
                    line = text.split(b"\n")[0].decode()
                    if line.startswith("ready "):
                        return line
                    raise NodeTrouble(f"the node said {line!r}, not that it is ready{self._tail()}")
                if not read:
                    break
        raise NodeTrouble(f"the node did not become ready{self._tail()}")

    def tree(self) -> dict[str, Any]:
        """The supervisor tree, or an empty one where the root does not answer just now."""
        try:
            return node_client.ps(self.data, PS_MS)
        except PerdureError:
            return {}

    def worker_pids(self) -> list[int]:
        """The PIDs of the workers that run just now."""
        return [int(each["pid"]) for each in flat(self.tree()) if _is_worker(each)]

    def processes(self) -> list[psutil.Process]:
        """The root and every descendant."""
        try:
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill_worker(self, pid: int) -> bool:
        """SIGKILLs one worker and waits until it is gone; False where it is no process of this node
        any more.
        """
        for process in self.processes():
            if process.pid == pid:
                return self._kill([process])
        return False

    def kill_all(self) -> None:
        """SIGKILLs the root and every descendant, and waits until they are gone. Nothing where none
        was started.
        """
        if self._process is None:
            return
        self._kill(self.processes())
        self._process.wait(GONE_S)
        self._close_pipe()

    def kill_root(self) -> list[psutil.Process]:
        """SIGKILLs the root alone; those of the others that are still there after 10 s."""
        others = self.processes()[1:]
        self._kill(self.processes()[:1])
        self._close_pipe()
        return _wait_gone(others, GONE_S)

    def end(self, processes: Iterable[psutil.Process]) -> None:
        """SIGKILLs these, and waits until they are gone."""
        self._kill(list(processes))

    def _kill(self, processes: list[psutil.Process]) -> bool:
        hit = False
        for process in processes:
            try:
                process.kill()
                hit = True
            except psutil.NoSuchProcess:
                continue
        if processes and processes[0].pid == self.pid:
            assert self._process is not None
            self._process.wait(GONE_S)
        alive = _wait_gone(processes, GONE_S)
        if alive:
            raise NodeTrouble(f"SIGKILL did not end {[each.pid for each in alive]}")
        return hit

    def stop(self) -> None:
        """Stops the node in order, by force where that does not do, and makes sure that no process
        is left.
        """
        if self._process is None:
            return
        known = self.processes()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait(GONE_S)
        for process in _wait_gone(known, GONE_S / 5):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        _wait_gone(known, GONE_S)
        self._close_pipe()
        self._process = None

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def _tail(self) -> str:
        try:
            lines = self.log_path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        except OSError:
            return ""
        return "; its log ends:\n" + "\n".join(lines) if lines else "; its log is empty"


def flat(tree: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A tree's nodes, each before its children."""
    if not tree:
        return []
    return [tree, *(node for child in tree.get("children") or [] for node in flat(child))]


def _is_worker(node: Mapping[str, Any]) -> bool:
    return node.get("kind") == "worker" and bool(node.get("pid"))


def _wait_gone(processes: Iterable[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Waits until these have ended; those that have not. One that nobody has reaped yet has ended
    too.
    """
    deadline = time.monotonic() + timeout_s
    alive = list(processes)
    while True:
        alive = [process for process in alive if _lives(process)]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.002)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def die_with_parent() -> Callable[[], None] | None:
    """What makes the kernel kill a child when its parent is gone; None where there is no such
    thing.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return ask
