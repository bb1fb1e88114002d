"""Client: what a program asks of a node, over the public protocol."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from perdure import wire
from perdure.answers import Answer
from perdure.errors import PerdureError, Unavailable
from perdure.handles import AsyncWorkflowHandle, WorkflowHandle
from perdure.link import Link
from perdure.operations import Operations
from perdure.outstanding import Round
from perdure.wire_checks import check_length

__all__ = ["AsyncWorkflowHandle", "Client", "WorkflowHandle"]

TIMEOUT_MS = 5_000
WINDOW = 2_000

decode = msgspec.msgpack.Decoder().decode


class Client(Operations):
    """A connection to a node, made at the first call.

    Where no `endpoint` is given: PERDURE_ENDPOINT, else the node of `data_dir`, found again when it
    restarts. A call raises Unavailable after `timeout_ms` without an answer (a call that waits for
    something: `timeout_ms` more than its wait). Threads may share a client; after a fork the child
    gets a connection of its own. `close()` or a with block lets go of the socket.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
        data_dir: str | Path = ".perdure",
    ) -> None:
        check_length("timeout_ms", timeout_ms, optional=False)
        self.timeout_ms = timeout_ms
        self._given = endpoint or os.environ.get("PERDURE_ENDPOINT") or None
        # Absolute: a program may change its working directory.
        self._node_file = Path(data_dir).absolute() / "node.json"
        self._link = Link(self._resolve)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the socket; calls under way raise Unavailable. Idempotent."""
        self._link.close()

    def ping(self) -> Answer:
        """The node's version, node and now_ms. Unavailable if no node answers."""
        return Answer(self._call(wire.Ping()))

    def worker_endpoint(self) -> str:
        """Where workers of this node connect."""
        endpoint: str = self._call(wire.WorkerEndpoint())["endpoint"]
        return endpoint

    def call_many(
        self, calls: Sequence[wire.Args], timeout_ms: int | None = None
    ) -> list[Any | PerdureError]:
        """The `ok` (plain data) or the error of each call, in order, 2 000 under way at a time.

        For programs that start or watch thousands at once. `timeout_ms` is for each 2 000.
        """
        results: list[Any | PerdureError] = []
        for start in range(0, len(calls), WINDOW):
            results += self._window(calls[start : start + WINDOW], timeout_ms or self.timeout_ms)
        return results

    # --- within ------------------------------------------------------------------
    def _call(self, args: wire.Args, wait_ms: int = 0) -> Any:
        [outcome] = self._window([args], self.timeout_ms + wait_ms)
        if isinstance(outcome, PerdureError):
            raise outcome
        return outcome

    def _clock_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def _window(self, calls: Sequence[wire.Args], timeout_ms: int) -> list[Any | PerdureError]:
        """Carry these out together, again where the outcome is unknown, until the time is up."""
        link = self._own_link()
        deadline = time.monotonic() + timeout_ms / 1000
        round_ = Round(calls, random.random)
        while True:
            answers = link.exchange(round_.requests(link.next_id), deadline)
            pause_s = round_.take(answers, lambda: self._nothing_came(link, timeout_ms), decode)
            if pause_s is None or time.monotonic() + pause_s >= deadline:
                return round_.outcomes
            time.sleep(pause_s)

    def _nothing_came(self, link: Link, timeout_ms: int) -> PerdureError:
        where = link.endpoint or self._given or f"any endpoint: there is no {self._node_file}"
        if link.connected:
            return Unavailable(
                f"the node at {where} did not answer within {timeout_ms} ms; whether it carried "
                "the request out is not known"
            )
        return Unavailable(f"no node answers at {where} (waited {timeout_ms} ms)")

    def _own_link(self) -> Link:
        """The link of this process: a forked child must not touch its parent's."""
        link = self._link
        if link.pid != os.getpid():
            link.abandon()
            link = self._link = Link(self._resolve)
        return link

    def _resolve(self) -> str | None:
        """The endpoint to connect to now, or None where no node is known."""
        if self._given is not None:
            return self._given
        try:
            node = msgspec.json.decode(self._node_file.read_bytes())
            return str(node["endpoint"])
        except (OSError, msgspec.DecodeError, LookupError, TypeError):
            return None  # No node, or one that is just starting: asked again.
