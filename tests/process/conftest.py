"""A real node for tests: started with `perdure up`'s own code, stopped whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
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
WAIT_S = 40.0  # A busy machine may take ten times what it takes here.
CALL_MS = 30_000


def until(probe: Callable[[], Any], what: str = "it") -> Any:
    """What `probe` gives as soon as it is true; AssertionError after WAIT_S."""
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
        return Client(data_dir=self.data, **{"timeout_ms": CALL_MS, **options})


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


class HurtNode(RealNode):
    """A node that serves tests/process/apps/hurt_app.py, with the ledger that it writes."""

    def __init__(self, directory: Path, *, app: str = "hurt_app", **options: Any) -> None:
        self.ledger = sqlite3.connect(directory / "ledger.db", isolation_level=None)
        self.ledger.execute("PRAGMA journal_mode=WAL")
        self.ledger.execute("CREATE TABLE calls (key, attempt, pid)")
        self.ledger.execute("CREATE TABLE effects (key PRIMARY KEY)")
        settings: dict[str, Any] = {"workers": 2, "slots": 6, **options}
        ledger = {"HURT_LEDGER": str(directory / "ledger.db")}
        settings["environment"] = {**ledger, **options.get("environment", {})}
        super().__init__(directory, apps=(app,), python_path=str(APPS), **settings)

    def stop(self) -> None:
        super().stop()
        self.ledger.close()

    @property
    def environment(self) -> dict[str, str]:
        """What the node's processes run with, for a process beside it."""
        return self._environment

    def end_by(self, number: int) -> int:
        """Send the root a signal that ends it, and wait; its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        status = self._process.wait(WAIT_S)
        self._close_pipe()
        return status

    def await_end(self) -> int:
        """Wait until the root has ended by itself; its exit status."""
        assert self._process is not None
        status = self._process.wait(WAIT_S)
        self._close_pipe()
        return status

    def restart(self) -> str:
        """SIGKILL the whole tree, and start again on what is left."""
        self.kill_all()
        return self.start()

    def effects(self) -> int:
        """How many keys have had their effect."""
        return int(self.ledger.execute("SELECT count(*) FROM effects").fetchone()[0])

    def calls(self, key: str = "%") -> list[tuple[str, int, int]]:
        """Every delivery: key, attempt, process."""
        where = "SELECT key, attempt, pid FROM calls WHERE key LIKE ?"
        return list(self.ledger.execute(where, (key,)))


@pytest.fixture
def hurt(tmp_path: Path) -> Iterator[Callable[..., HurtNode]]:
    """Makes and starts a HurtNode: workers, slots, app."""
    with contextlib.ExitStack() as stack:

        def make(**options: Any) -> HurtNode:
            node = stack.enter_context(HurtNode(tmp_path, **options))
            node.start()
            return node

        yield make
