"""A node that is only sockets: the test says what it sends, and sees what the worker says."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import zmq

from perdure import values
from perdure.clock import boottime_ms
from perdure.core import commands, limits, links, records
from perdure.core.ids import Session
from perdure.policy import RetryPolicy
from perdure.registry import Registry
from perdure.worker import replays
from perdure.worker.replay import Replayer
from perdure.worker.session import Config, Worker
from perdure.worker.sockets import GatewayLink, Inbox

PATIENCE_MS = 30_000
SESSION = Session("node.test", 1)
HISTORY = "history.one"

_decoders = {
    b"H": msgspec.msgpack.Decoder(list[links.ToHistory]),
    b"A": msgspec.msgpack.Decoder(list[links.Sync]),
    b"L": msgspec.msgpack.Decoder(list[links.ToLeaseKeeper]),
    b"G": msgspec.msgpack.Decoder(list[links.FromWorkerToGateway]),
}


class Node:
    """The gateway's socket for workers, played by a test."""

    def __init__(self, directory: str) -> None:
        self.endpoint = f"ipc://{directory}/workers"
        self.context = zmq.Context()
        self.heard: deque[links.Message] = deque()
        self.all: list[links.Message] = []
        self.answered: set[int] = set()
        self.history = HISTORY
        self.welcomes = True
        self.base_ms = 0  # Not known: nothing is run ahead of history.
        self.identity = b""
        self._workers: list[tuple[Worker, threading.Thread, Inbox]] = []
        self.open()

    # --- as a gateway ------------------------------------------------------------
    def open(self) -> None:
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.bind(self.endpoint)

    def end(self) -> None:
        """As when the gateway dies."""
        self.socket.close(0)

    def stop_all(self) -> None:
        while self._workers:
            thread = self.stop(0)
            thread.join(PATIENCE_MS / 1000)
            assert not thread.is_alive()

    def close(self) -> None:
        try:
            self.stop_all()
        finally:
            self.socket.close(0)
            self.context.destroy(0)

    def say(self, *messages: links.Message) -> None:
        self.socket.send_multipart([self.identity, links.pack(messages)])

    def poll(self, timeout_ms: int) -> bool:
        """Take one frame of the worker, if one comes in time."""
        if not self.socket.poll(timeout_ms):
            return False
        identity, dest, body = self.socket.recv_multipart()
        for message in _decoders[dest].decode(body):
            self.all.append(message)
            if isinstance(message, links.WorkerHello):
                self.identity = identity
                if self.welcomes:
                    welcome = (SESSION, "gateway.one", self.history, 1, self.base_ms)
                    self.say(links.WorkerWelcome(*welcome))
            self.heard.append(message)
        return True

    def next(self, kind: type, matches=lambda message: True, timeout_ms: int = PATIENCE_MS):
        """The next message of that kind that matches; what comes before it is passed over."""
        until_ms = boottime_ms() + timeout_ms
        while True:
            while self.heard:
                message = self.heard.popleft()
                if isinstance(message, kind) and matches(message):
                    return message
            left_ms = until_ms - boottime_ms()
            assert self.poll(max(left_ms, 0)), f"no {kind.__name__} came"

    def command(self, kind: type, answer: commands.AnyAnswer | None = None):
        """The next report of that kind; answered, if an answer is given."""
        ask = self.next(
            links.Ask, lambda m: isinstance(m.command, kind) and m.n not in self.answered
        )
        if answer is not None:
            self.answered.add(ask.n)
            self.say(links.Answer(ask.n, 50, answer))
        return ask.command

    def sync(self, matches=lambda message: True) -> links.Sync:
        return self.next(links.Sync, matches)

    def commands(self, kind: type) -> list:
        """All reports of that kind; one that was sent again counts once."""
        asks = {m.n: m.command for m in self.all if isinstance(m, links.Ask)}
        return [command for command in asks.values() if isinstance(command, kind)]

    # --- workers -------------------------------------------------------------------
    def worker(self, *, activities=(), workflows=(), slots: int = 4, apps=()) -> Worker:
        found = Registry(workflows, activities)
        config = Config(
            worker_id="w1",
            node="node.test",
            pid=1,
            pid_started=1.0,
            session=SESSION,
            slots=slots,
            queues=("default",),
            activities=found.activities,
            workflows=found.workflows,
            apps=tuple(apps),
        )
        inbox = Inbox()
        worker = Worker(config, GatewayLink(self.context, self.endpoint), inbox)

        def serve() -> None:
            worker.run()
            worker.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self._workers.append((worker, thread, inbox))
        self.sync()
        return worker

    def stop(self, grace_ms: int) -> threading.Thread:
        worker, thread, inbox = self._workers.pop()
        inbox.post(worker.stop, grace_ms)
        return thread


@pytest.fixture(autouse=True)
def _no_workflow_is_left_in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Coroutines that nobody closed would complain in whatever test they are collected in."""
    made: list[weakref.ref[Replayer]] = []
    begin = Replayer.__init__

    def noted(self: Replayer, *args: Any) -> None:
        begin(self, *args)
        made.append(weakref.ref(self))

    monkeypatch.setattr(Replayer, "__init__", noted)
    yield
    for each in made:
        replayer = each()
        if replayer is not None:
            replayer.close()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(limits, "SYNC_MS", 100)
    monkeypatch.setattr(limits, "RESEND_FIRST_MS", 200)
    # A slow machine blocks nobody's loop; where one is to be blocked a test says for how long.
    monkeypatch.setattr(replays, "BLOCKED_MS", 60_000)
    monkeypatch.setattr(replays, "GIVEN_UP_MS", 60_000)
    directory = tempfile.mkdtemp(dir="/tmp")
    node = Node(directory)
    yield node
    node.close()
    shutil.rmtree(directory)


def task_of(
    token: str,
    activity_type: str,
    *args: object,
    heartbeat_ms: int = 0,
    lease_ms: int = 600_000,
    attempt_ms: int = 600_000,
    details: object = None,
    beat: int = 0,
    **options: object,
) -> links.ActivityTask:
    now_ms = time.time_ns() // 1_000_000
    return links.ActivityTask(
        token=token,
        workflow_id="order/1",
        workflow_type="checkout",
        activity_id="charge",
        activity_type=activity_type,
        generation=1,
        grant=3,
        attempt=2,
        input=values.encode(list(args)) if args else None,
        details=None if details is None else values.encode(details),
        beat=beat,
        options=records.ActivityOptions(RetryPolicy(), heartbeat_ms=heartbeat_ms, **options),
        scheduled_event_id=2,
        scheduled_ms=now_ms,
        deadline_ms=now_ms + lease_ms,
        lease_ms=lease_ms,
        attempt_ms=attempt_ms,
        n=40,
    )


def workflow_task_of(
    workflow_id: str,
    workflow_type: str,
    *events: records.Event,
    consumed: int = 0,
    commands: int = 0,
    last_event_id: int | None = None,
    fetch: bool = False,
) -> links.WorkflowTask:
    return links.WorkflowTask(
        workflow_id=workflow_id,
        workflow_type=workflow_type,
        consumed=consumed,
        commands=commands,
        last_event_id=last_event_id or events[-1].event_id,
        events=None if fetch else raw(*events),
        n=40,
    )


def raw(*events: records.Event) -> tuple[msgspec.Raw, ...]:
    return tuple(msgspec.Raw(records.encode_event(event)) for event in events)


@pytest.fixture
def workflow_task():
    """Makes a workflow task."""
    return workflow_task_of


@pytest.fixture
def page():
    """Makes a page of events."""

    def make(n: int, *events: records.Event, complete: bool) -> links.Page:
        return links.Page(n, raw(*events), complete)

    return make


@pytest.fixture
def task():
    """Makes an activity task."""
    return task_of
