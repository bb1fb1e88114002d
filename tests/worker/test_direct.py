"""A local worker that speaks to history and scheduler without a detour over the gateway."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
import zmq

from perdure.core import commands, links
from perdure.core.ids import Session
from perdure.worker.asks import TO_HISTORY
from perdure.worker.direct import DirectLinks

SESSION = Session("node.test", 1)
HEAD = links.pack_session(SESSION)
NAME = b"worker-1.aa"
ANSWER = links.Answer(1, 5, commands.Done())
PATIENCE_MS = 30_000


class Around:
    """The worker's side, and actors that are only sockets."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.actors: dict[str, zmq.Socket[bytes]] = {}
        self.watched: list[zmq.Socket[bytes]] = []
        self.links = DirectLinks(
            self.context, NAME.decode(), SESSION, self.watched.append, self.watched.remove
        )

    def peers(self, *names: str) -> None:
        """There are these actors now, and no others."""
        for name in names:
            if name not in self.actors:
                socket = self.actors[name] = self.context.socket(zmq.ROUTER)
                socket.linger = 0
                socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
                socket.bind(f"ipc://{self.directory}/{name}")
        self.links.follow(
            [(name.split(".")[0], name, f"ipc://{self.directory}/{name}") for name in names]
        )

    def heard(self, name: str) -> tuple[bytes, bytes, bytes]:
        socket = self.actors[name]
        assert socket.poll(PATIENCE_MS), f"{name} heard nothing"
        identity, head, body = socket.recv_multipart()
        return identity, head, body

    def close(self) -> None:
        self.links.close()
        for socket in self.actors.values():
            socket.close(0)
        self.context.destroy(0)


@pytest.fixture
def around(tmp_path) -> Iterator[Around]:
    around = Around(str(tmp_path))
    yield around
    around.close()


def test_a_frame_reaches_history_under_the_workers_session(around):
    around.peers("history.1", "scheduler.1")
    assert around.links.send(TO_HISTORY, b"body")
    assert around.heard("history.1") == (NAME, HEAD, b"body")


def test_the_scheduler_is_told_that_it_may_answer_directly(around):
    around.peers("scheduler.1")
    identity, head, body = around.heard("scheduler.1")
    assert (identity, head) == (NAME, HEAD)
    assert msgspec.msgpack.decode(body, type=list[links.Direct]) == [links.Direct()]


def test_what_comes_back_is_received(around):
    around.peers("history.1")
    around.links.send(TO_HISTORY, b"body")
    around.heard("history.1")
    around.actors["history.1"].send_multipart([NAME, HEAD, links.pack([ANSWER])])
    [socket] = around.watched
    assert socket.poll(PATIENCE_MS)
    assert list(around.links.receive(socket)) == [ANSWER]


def test_without_a_history_there_is_no_way(around):
    assert not around.links.send(TO_HISTORY, b"body")
    around.peers("history.1")
    around.peers("scheduler.1")
    assert not around.links.send(TO_HISTORY, b"body")
    assert len(around.watched) == 1


def test_a_new_incarnation_is_followed_and_the_old_one_let_go(around):
    around.peers("history.1")
    [old] = around.watched
    around.peers("history.2")
    assert around.links.send(TO_HISTORY, b"second")
    assert around.heard("history.2")[2] == b"second"
    assert old.closed
    assert around.watched == list(around.links.sockets.values())


def test_the_same_peers_again_change_nothing(around):
    around.peers("history.1", "scheduler.1")
    before = dict(around.links.sockets)
    around.peers("history.1", "scheduler.1")
    assert around.links.sockets == before
