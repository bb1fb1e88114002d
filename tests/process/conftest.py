"""A real node for tests: started with `perdure up`'s own code, stopped whatever happens."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

from chaos.harness import NodeProcess, flat
from perdure.client import Client

APPS = Path(__file__).parent / "apps"
WAIT_S = 20.0


def until(probe: Callable[[], Any], what: str = "it") -> Any:
    """What `probe` gives as soon as it is true; AssertionError after 20 s."""
    deadline, pause = time.monotonic() + WAIT_S, threading.Event()
    while not (found := probe()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        pause.wait(0.01)
    return found


class RealNode(NodeProcess):
    """A node with its roles by name."""

    endpoint = ""

    def start(self) -> str:
        self.endpoint = super().start()
        return self.endpoint

    def pid_of(self, role: str) -> int:
        """The process of a role ("history", "worker-1", …), waited for while it restarts."""

        def look() -> int | None:
            for entry in flat(self.tree()):
                if entry["name"] == role and entry.get("pid"):
                    return int(entry["pid"])
            return None

        return int(until(look, f"a process of {role}"))

    def kill(self, role: str, sig: int = signal.SIGKILL) -> int:
        """Send `sig` to a role's process. SIGKILL: waits until it is gone. Its pid."""
        pid = self.pid_of(role)
        process = psutil.Process(pid)
        os.kill(pid, sig)
        if sig == signal.SIGKILL:
            until(lambda: not _runs(process), f"the end of {role}")
        return pid

    def client(self, **options: Any) -> Client:
        """A client that finds this node by its data directory, also after a restart."""
        return Client(data_dir=self.data, **options)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    """A node with one worker that serves tests/process/apps/wire_app.py."""
    with RealNode(
        tmp_path_factory.mktemp("n"),
        apps=("wire_app",),
        workers=1,
        slots=4,
        python_path=str(APPS),
    ) as process:
        process.start()
        yield process


@pytest.fixture
def sockets() -> Iterator[Callable[[int, str], zmq.Socket[bytes]]]:
    """Makes plain ZeroMQ sockets, as any other language would: kind, endpoint."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made = []  # Held until the end: a socket that is forgotten open is warned of.

    def make(kind: int, endpoint: str) -> zmq.Socket[bytes]:
        socket = context.socket(kind)
        made.append(socket)
        socket.linger = 0
        socket.connect(endpoint)
        return socket

    yield make
    context.destroy(linger=0)
