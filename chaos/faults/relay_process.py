"""A relay to be put before a node that is about to start: the process, and the orders it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import zmq

from chaos.faults.link_faults import Plan
from supervisors.relayed import VARIABLE

ANSWER_MS = 10_000
GONE_S = 5.0


class RelayTrouble(Exception):
    """The relay does not answer."""


class RelayProcess:
    """A relay in `directory`, which must be short for a socket's path. Use it as a context manager.

    Give `environment` to the node, and `endpoint` to its clients.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.environment = {VARIABLE: str(directory)}
        self.endpoint = f"ipc://{directory}/public"
        self._command = [
            sys.executable,
            "-P",
            "-m",
            "chaos.faults.relay",
            str(directory),
            str(seed),
        ]
        self._control_endpoint = f"ipc://{directory}/control"

    def __enter__(self) -> RelayProcess:
        self._process = subprocess.Popen(self._command)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._control = self._context.socket(zmq.REQ)
        self._control.linger = 0
        self._control.connect(self._control_endpoint)
        self._order({"do": "fired"})
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait(GONE_S)
        self._control.close()
        self._context.term()

    def plan(self, plan: Plan) -> None:
        """From now on this happens on the way."""
        self._order({"do": "plan", "plan": plan})

    def heal(self) -> None:
        """From now on everything passes."""
        self.plan(Plan())

    def fired(self) -> dict[str, int]:
        """How often what was done, by "route kind"; kind "passed" are messages left alone."""
        return self._order({"do": "fired"})

    def hold(self, count: int) -> None:
        """Keep the next `count` completions that workers report."""
        self._order({"do": "hold", "count": count})

    def held(self) -> tuple[list[str], list[str]]:
        """The tokens whose reports were ever held, and those of them that were refused."""
        answer = self._order({"do": "held"})
        return answer["tokens"], answer["refused"]

    def release(self) -> None:
        """Let go of all that is held."""
        self._order({"do": "release"})

    def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        self._control.send(msgspec.json.encode(order))
        if not self._control.poll(ANSWER_MS):
            raise RelayTrouble(f"the relay does not answer to {order['do']!r}")
        return dict(msgspec.json.decode(self._control.recv()))
