"""A node as far as a client can tell."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from perdure import errors, wire
from perdure.client import Client

Handler = Callable[[str, dict[str, Any]], Any]


def echo(op: str, args: dict[str, Any]) -> Any:
    if op == "StartWorkflow":
        return {"workflow_id": args["workflow_id"], "run": 1}
    if op == "GetResult":
        return {"status": "Completed", "result": args["workflow_id"]}
    return {"op": op, **args}


class Node:
    """A node as far as a client can tell: a ROUTER on a thread that answers by `handler`."""

    def __init__(self, path: Path, handler: Handler = echo) -> None:
        self.endpoint = f"ipc://{path}"
        self.handler = handler
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self._heard = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        context: zmq.Context[Any] = zmq.Context()
        socket = context.socket(zmq.ROUTER)
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = 0
        socket.bind(self.endpoint)
        while not self._stop.is_set():
            if not socket.poll(20):
                continue
            identity, body = socket.recv_multipart()
            request = msgspec.msgpack.decode(body)
            op, args = request["op"], request.get("args", {})
            self.heard.append((op, args))
            self._heard.set()
            answer: dict[str, Any] = {"id": request["id"]}
            try:
                answer["ok"] = self.handler(op, args)
            except TimeoutError:  # So a handler says that it does not answer.
                continue
            except errors.PerdureError as problem:
                answer["error"] = wire.error_view(problem)
            socket.send_multipart([identity, msgspec.msgpack.encode(answer)])
        context.destroy(linger=0)

    def until_heard(self) -> None:
        """Wait for the first request."""
        assert self._heard.wait(30)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cl") as name:
        yield Path(name)


@pytest.fixture
def node(path: Path) -> Iterator[Node]:
    it = Node(path / "s")
    yield it
    it.close()


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    with Client(node.endpoint) as it:
        yield it


@pytest.fixture
def echoes() -> Handler:
    """The handler that every node begins with."""
    return echo


@pytest.fixture
def silent() -> Handler:
    """A handler that never answers."""

    def handler(op: str, args: dict[str, Any]) -> Any:
        raise TimeoutError

    return handler


@pytest.fixture
def make_node(path: Path) -> Callable[..., Node]:
    """Starts further nodes: name of the socket, handler."""

    def make(name: str, handler: Handler = echo) -> Node:
        return Node(path / name, handler)

    return make
