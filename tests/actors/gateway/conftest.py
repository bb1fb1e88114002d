"""Everything around a gateway, played by the test: root, history, scheduler, lease keeper, dlq."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from actors.gateway import Gateway
from actors.mailbox import run
from perdure.core.boot import Boot
from perdure.core.links import (
    ROOT,
    Hello,
    ListDead,
    Message,
    Peers,
    Stop,
    ToHistory,
    ToLeaseKeeper,
    ToRoot,
    ToScheduler,
    Welcome,
    pack,
)
from perdure.store.sqlite import SqliteWriter
from tests.actors.clocks import StoppableHost

DEADLINE_MS = 20_000
BASE_MS = 1_700_000_000_000
ROLES = ("history", "scheduler", "lease_keeper", "dlq")
_decoders = {
    "root": msgspec.msgpack.Decoder(list[ToRoot]),
    "history": msgspec.msgpack.Decoder(list[ToHistory]),
    "scheduler": msgspec.msgpack.Decoder(list[ToScheduler]),
    "lease_keeper": msgspec.msgpack.Decoder(list[ToLeaseKeeper]),
    "dlq": msgspec.msgpack.Decoder(list[ListDead]),
}


class Peer:
    """One actor that the test plays: what it heard, in order, and a way to speak."""

    def __init__(self, context: zmq.Context[Any], role: str, endpoint: str, identity: str) -> None:
        self.role, self.endpoint, self.identity = role, endpoint, identity
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.setsockopt(zmq.ROUTING_ID, identity.encode())
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.bind(endpoint)
        self.heard: list[tuple[bytes, Any]] = []

    def hear(self, kind: type | tuple[type, ...] = object, timeout_ms: int = DEADLINE_MS) -> Any:
        """The next message of this kind; others are left. AssertionError if none comes."""
        return self.hear_with_head(kind, timeout_ms)[1]

    def hear_with_head(
        self, kind: type | tuple[type, ...] = object, timeout_ms: int = DEADLINE_MS
    ) -> tuple[bytes, Any]:
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            for at, (_, message) in enumerate(self.heard):
                if isinstance(message, kind):
                    return self.heard.pop(at)
            left = deadline - time.monotonic()
            is_ready = left > 0 and self.socket.poll(int(left * 1000) + 1)
            assert is_ready, f"{self.role}: no {kind}"
            self._receive()

    def hears_nothing(self, kind: type, timeout_ms: int = 50) -> bool:
        """True when no such message comes for a moment."""
        while self.socket.poll(timeout_ms):
            self._receive()
        return not any(isinstance(message, kind) for _, message in self.heard)

    def _receive(self) -> None:
        _, head, body = self.socket.recv_multipart()
        self.heard += [(head, message) for message in _decoders[self.role].decode(body)]

    def say(self, gateway: str, *messages: Message, head: bytes = b"") -> None:
        self.socket.send_multipart([gateway.encode(), head, pack(messages)])


class GatewayNode:
    """A gateway on a thread, and the peers around it."""

    def __init__(self, tmp: Path, *, public: tuple[str, ...] = ()) -> None:
        writer = SqliteWriter(tmp)
        writer.open_epoch("history.first", BASE_MS, "boot", 0)
        writer.close()
        self.tmp = tmp
        self.context = zmq.Context()
        self.name = "gateway.aa"
        self.public = f"ipc://{tmp}/public"
        self.workers = f"ipc://{tmp}/workers"
        self.root = Peer(self.context, "root", f"ipc://{tmp}/root", ROOT)
        self.peers: dict[str, Peer] = {}
        self._count = 0
        self._kept: list[object] = []  # Open until the end: who forgets a socket is warned.
        boot = Boot(
            role="gateway",
            incarnation=self.name,
            node="node.test",
            data_dir=str(tmp),
            run_dir=str(tmp),
            root_endpoint=self.root.endpoint,
            inbox_endpoint=f"ipc://{tmp}/g",
            public_endpoints=(self.public, *public),
            workers_endpoint=self.workers,
        )
        self.gateways: list[Gateway] = []
        made, host = self.gateways, StoppableHost()
        self.host = host
        host.stop_clock()

        class Kept(Gateway):
            """A process would let go of its sockets by ending; a thread has to be told."""

            def __init__(self, boot: Boot) -> None:
                super().__init__(boot, host)
                made.append(self)

        self.thread = threading.Thread(target=run, args=(Kept, boot), daemon=True)
        self.thread.start()
        self.root.hear()

    def begin(self) -> None:
        """All peers there, history has said Welcome; and nothing was said twice meanwhile."""
        for role in ROLES:
            self.put(role)
        self.tell_peers()
        self.welcome()
        self.root.hear()
        self.host.start_clock()

    def put(self, role: str) -> Peer:
        """A new incarnation of `role`, in the place of the old one."""
        old = self.peers.pop(role, None)
        if old is not None:
            old.socket.close(linger=0)
        self._count += 1
        identity = f"{role}.{self._count:02x}"
        endpoint = f"ipc://{self.tmp}/{role[0]}{self._count:02x}"
        self.peers[role] = Peer(self.context, role, endpoint, identity)
        return self.peers[role]

    def remove(self, role: str) -> None:
        self.peers.pop(role).socket.close(linger=0)
        self.tell_peers()

    def tell_peers(self) -> None:
        self.root.say(
            self.name,
            Peers(tuple((p.role, p.identity, p.endpoint) for p in self.peers.values())),
        )

    def welcome(self) -> None:
        history = self.peers["history"]
        history.hear(Hello)
        history.say(self.name, Welcome(history.identity, 1, 1, BASE_MS))

    def __getattr__(self, role: str) -> Peer:
        try:
            return self.peers[role]
        except KeyError:
            raise AttributeError(role) from None

    def client(self, kind: int = zmq.DEALER, endpoint: str = "") -> Raw:
        self._kept.append(made := Raw(self.context, kind, endpoint or self.public))
        return made

    def worker(self) -> Worker:
        self._kept.append(made := Worker(self.context, self.workers))
        return made

    def close(self) -> None:
        self.root.say(self.name, Stop(1_000))
        self.thread.join(DEADLINE_MS / 1000)
        assert not self.thread.is_alive()
        for gateway in self.gateways:
            gateway.host.context.destroy(linger=0)
            if gateway._reader is not None:
                gateway._reader.close()
        self.context.destroy(linger=0)


class Raw:
    """A bare client: JSON over a socket."""

    def __init__(self, context: zmq.Context[Any], kind: int, endpoint: str) -> None:
        self.socket = context.socket(kind)
        self.socket.linger = 0
        self.socket.connect(endpoint)
        self._id = 0

    def ask(self, op: str, /, **args: Any) -> int:
        self._id += 1
        self.socket.send(msgspec.json.encode({"id": self._id, "op": op, "args": args}))
        return self._id

    def send(self, body: bytes) -> None:
        self.socket.send(body)

    def answer(self, timeout_ms: int = DEADLINE_MS) -> Any:
        assert self.socket.poll(timeout_ms), "no answer"
        body = self.socket.recv()
        return msgspec.json.decode(body) if body[:1] == b"{" else msgspec.msgpack.decode(body)

    def call(self, op: str, /, **args: Any) -> Any:
        self.ask(op, **args)
        return self.answer()

    def is_silent(self, timeout_ms: int = 50) -> bool:
        return not self.socket.poll(timeout_ms)


class Worker:
    """A worker's socket."""

    def __init__(self, context: zmq.Context[Any], endpoint: str) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(endpoint)

    def say(self, destination: bytes, *messages: Message) -> None:
        self.socket.send_multipart([destination, pack(messages)])

    def hear(self, decoder: msgspec.msgpack.Decoder[Any], timeout_ms: int = DEADLINE_MS) -> Any:
        assert self.socket.poll(timeout_ms), "nothing came"
        return decoder.decode(self.socket.recv())


@pytest.fixture
def node() -> Iterator[GatewayNode]:
    """A gateway that serves, with every peer around it."""
    # Of its own: the path of a socket has 107 bytes, and tests have long names.
    with tempfile.TemporaryDirectory(prefix="gw") as path:
        it = GatewayNode(Path(path))
        try:
            it.begin()
            yield it
        finally:
            it.close()
