"""A projection's surroundings on one thread: root, gateway, and a history with a real store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from actors.mailbox import Mailbox
from perdure.clock import boottime_ms
from perdure.core import commands as c
from perdure.core import links
from perdure.core.boot import Boot
from perdure.core.ledger import Ledger
from perdure.core.records import ActivityOptions
from perdure.policy import RetryPolicy
from perdure.store.sqlite import SqliteWriter
from tests.actors.clocks import StoppableHost

WAIT_MS = 20_000
GATEWAY = "gateway.1"
_to_history = msgspec.msgpack.Decoder(list[links.ToHistory])
_to_root = msgspec.msgpack.Decoder(list[links.ToRoot])
_from_actor = msgspec.msgpack.Decoder(
    list[
        links.WorkflowTask
        | links.ActivityTask
        | links.CancelTask
        | links.Polled
        | links.DeadListed
        | links.Answer
    ]
)


class Surroundings:
    """The actor takes its turns only when the test lets it."""

    def __init__(self, tmp: Path, kind: type[Mailbox]) -> None:
        self.tmp = tmp
        self.context: zmq.Context[Any] = zmq.Context()
        self.sockets: dict[str, zmq.Socket[bytes]] = {}
        self.name = f"{kind.role}.aa"
        self.host = StoppableHost()
        self.writer = SqliteWriter(tmp)
        opened = self.writer.open_epoch(
            "history.1", 1_700_000_000_000, "boot", self.host.boottime_ms()
        )
        self.base_ms = opened.base_ms
        self.key = opened.key
        self.ledger = Ledger(
            self.writer,
            epoch=opened.epoch,
            n=opened.n,
            last_hash=opened.last_hash,
            key=opened.key,
            draw=lambda: 0.5,
        )
        self.feeds: list[links.Feed] = []
        self.concerns: list[bool] = []  # Whether each of them may change what is dead.
        self.listen("root", links.ROOT)
        boot = Boot(
            role=kind.role,
            incarnation=self.name,
            node="node.1",
            data_dir=str(tmp),
            run_dir=str(tmp),
            root_endpoint=f"ipc://{tmp}/root",
            inbox_endpoint=f"ipc://{tmp}/inbox",
        )
        self.actor = kind(boot, self.host)
        self.actor.on_start()
        self.actor.inbox.timeout_ms = lambda: 20
        [hello] = self.hear("root", _to_root)
        assert isinstance(hello, links.ChildHello)

    # --- sockets ------------------------------------------------------------------
    def listen(self, name: str, identity: str) -> zmq.Socket[bytes]:
        socket = self.context.socket(zmq.ROUTER)
        socket.linger = 0
        socket.setsockopt(zmq.ROUTING_ID, identity.encode())
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.bind(f"ipc://{self.tmp}/{name}")
        self.sockets[name] = socket
        return socket

    def connect_gateway(self, identity: str = GATEWAY) -> None:
        socket = self.listen(identity, identity)
        socket.setsockopt(zmq.CONNECT_ROUTING_ID, self.name.encode())
        socket.connect(f"ipc://{self.tmp}/inbox")

    def say(self, name: str, *messages: links.Message, head: bytes = b"") -> None:
        self.sockets[name].send_multipart([self.name.encode(), head, links.pack(messages)])

    def turn(self) -> None:
        self.actor.inbox.get()
        self.actor.on_receive(None)

    def pass_ms(self, ms: int) -> None:
        """Put the clock, which stands, forward; the actor takes turns meanwhile."""
        for _ in range(ms // 100):
            self.host.pass_ms(100)
            self.turn()

    def hear(self, name: str, decoder: Any, head: bytes = b"") -> list[Any]:
        """The next frame's messages; the actor takes turns meanwhile."""
        until_ms = boottime_ms() + WAIT_MS
        while boottime_ms() < until_ms:
            if self.sockets[name].poll(0):
                _, got, body = self.sockets[name].recv_multipart()
                assert got == head
                return decoder.decode(body)
            self.turn()
        raise AssertionError(f"{name} heard nothing")

    def from_actor(self, head: bytes = b"", gateway: str = GATEWAY) -> list[Any]:
        return self.hear(gateway, _from_actor, head)

    def hears_nothing(self, name: str) -> bool:
        for _ in range(3):
            self.turn()
        return not self.sockets[name].poll(0)

    # --- history --------------------------------------------------------------------
    def meet(self, name: str = "history.1") -> None:
        """Let the actor greet this history, which does not answer."""
        self.listen(name, name)
        peers = ((links.HISTORY, name, f"ipc://{self.tmp}/{name}"),)
        self.say("root", links.Peers(peers))
        [hello] = self.hear(name, _to_history)
        assert hello.follow

    def begin(self, name: str = "history.1") -> None:
        """Let the actor meet this history, and be ready."""
        self.meet(name)
        self.feeds.clear()
        self.concerns.clear()
        self.say(name, links.Welcome(name, 1, self.ledger.n, self.base_ms))
        while self.actor.reached < self.ledger.n:
            self.turn()

    def commit(self, command: c.AnyCommand) -> c.AnyAnswer:
        """Judge and make durable; what followers are to hear is kept for `publish`."""
        batch = self.ledger.judge([command], self.base_ms + self.host.boottime_ms())
        if batch.change is not None:
            self.writer.commit(batch.change)
            feed = links.Feed(batch.n - 1, batch.n, batch.change.body)
            self.feeds.append(feed)
            self.concerns.append(batch.dead_letters)
        self.ledger.committed(batch)
        return batch.answers[0]

    def publish(self, name: str = "history.1") -> None:
        self.say(name, *self.feeds)
        self.feeds.clear()
        self.concerns.clear()

    def asked(self, name: str = "history.1") -> list[links.Ask]:
        """The commands of the next frame that has any; what is lent is none."""
        while True:
            found = [one for one in self.hear(name, _to_history) if isinstance(one, links.Ask)]
            if found:
                return found

    def answer(self, *asks: links.Ask, name: str = "history.1") -> None:
        """As history does: commit, answer, publish."""
        answers = [links.Answer(ask.n, self.ledger.n, self.commit(ask.command)) for ask in asks]
        self.publish(name)
        self.say(name, *answers)

    def schedule(self, workflow_id: str = "w", **options: Any) -> None:
        """A workflow whose first task scheduled activity "a"."""
        retry = options.pop("retry", RetryPolicy())
        self.commit(c.StartWorkflow(workflow_id, "T", "default", None, None, b""))
        step = c.ScheduleActivity("a", "t", b"mx", ActivityOptions(retry, **options))
        self.commit(c.CompleteWorkflowTask(workflow_id, 0, 0, 1, (step,)))

    def close(self) -> None:
        self.actor.host.socket.close(linger=0)
        reader = getattr(self.actor, "reader", None)
        if reader is not None:
            reader.close()
        self.actor.host.context.term()
        for socket in self.sockets.values():
            socket.close(linger=0)
        self.context.term()
        self.writer.close()


@pytest.fixture
def surround() -> Iterator[Any]:
    """Makes the surroundings of an actor class."""
    made: list[Surroundings] = []
    with tempfile.TemporaryDirectory(prefix="pd", dir="/tmp") as tmp:

        def make(kind: type[Mailbox]) -> Surroundings:
            made.append(Surroundings(Path(tmp), kind))
            return made[-1]

        yield make
        for one in made:
            one.close()
