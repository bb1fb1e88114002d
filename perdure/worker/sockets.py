"""The worker's two sockets and its inbox. All is the main thread's own, save `Inbox.post`.

Nothing here survives a fork: a child of a user's activity inherits the descriptors, and must not
speak through them.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from perdure import logs
from perdure.core import limits, links
from perdure.core.boot import Boot
from perdure.crash_points import ARMED, CrashPoint, reached
from perdure.log_names import LogName
from perdure.worker.asks import TO_GATEWAY, TO_HISTORY

HWM = 100_000
RECONNECT_MS, RECONNECT_MAX_MS = 10, 200
HANDSHAKE_MS = 2_000
BYE_LINGER_MS = 100
# Plain numbers: pyzmq's own are enums, whose arithmetic costs more than the sending.
_NOBLOCK, _SNDMORE = int(zmq.NOBLOCK), int(zmq.SNDMORE)
_EVENTS, _READABLE = int(zmq.EVENTS), int(zmq.POLLIN)
_WATCHED = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED

Job = tuple[Callable[..., None], tuple[Any, ...]]


class Inbox:
    """What other threads of this process hand to the main loop, which they wake if it waits."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._jobs: deque[Job] = deque()
        self._waits = False
        self._pid = os.getpid()

    def post(self, function: Callable[..., None], *args: Any) -> None:
        """Have the main loop call `function(*args, now_ms)`.

        From any thread; never blocks; does nothing in a fork.
        """
        self.put(function, *args)
        self.nudge()

    def put(self, function: Callable[..., None], *args: Any) -> None:
        """As `post`, but a main loop that waits goes on waiting until somebody nudges it."""
        if os.getpid() == self._pid:
            self._jobs.append((function, args))

    def nudge(self) -> None:
        """Wake the main loop if it waits and something was put here. From any thread."""
        if self._waits and self._jobs:
            self.wake()

    def wake(self) -> None:
        """End the main loop's wait. Also from a signal handler."""
        self._waits = False
        os.eventfd_write(self.fd, 1)

    def arm(self) -> bool:
        """Say that the main loop is about to wait. False: don't, something is there."""
        self._waits = True  # Before the look: what is posted in between wakes.
        return not self._jobs

    def drain(self, now_ms: int) -> None:
        """Do what was posted until now."""
        self._waits = False
        for _ in range(len(self._jobs)):
            function, args = self._jobs.popleft()
            function(*args, now_ms)

    def clear(self) -> None:
        """Take the wake-up off the descriptor."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def close(self) -> None:
        """Nothing that is posted from now on is done."""
        self._pid = -1

    def __del__(self) -> None:
        # Not before: a thread that posts just now must not write to whatever gets this number.
        os.close(self.fd)


class Direct(Protocol):
    """See perdure.worker.direct."""

    def send(self, dest: bytes, body: bytes) -> bool:
        """Send a frame; False where there is no way there from here."""
        ...


def has_more(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message lies there: asked behind the first one, which mostly was the only one, it
    costs half of what the exception does.
    """
    return bool(int(socket.getsockopt(_EVENTS)) & _READABLE)


class GatewayLink:
    """The connection to the gateway's socket for workers: `send` queues, `flush` sends frames.

    Until the gateway's welcome only the hello leaves. What can't be sent is dropped: all that
    matters is in `Asks`, and said again.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self.welcomed = False
        self.direct: Direct | None = None  # A way to history past the gateway.
        self._queued: dict[bytes, list[links.Message]] = {}
        self.socket = context.socket(zmq.DEALER)
        for option, value in (
            (zmq.ROUTING_ID, b"w" + os.urandom(12).hex().encode()),
            (zmq.IMMEDIATE, 1),
            (zmq.LINGER, 0),
            (zmq.SNDHWM, HWM),
            (zmq.RCVHWM, HWM),
            (zmq.MAXMSGSIZE, limits.WORKER_FRAME_BYTES_MAX),
            (zmq.RECONNECT_IVL, RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS),
            (zmq.HANDSHAKE_IVL, HANDSHAKE_MS),
            (zmq.HEARTBEAT_IVL, 1_000),
            (zmq.HEARTBEAT_TIMEOUT, 10_000),
            (zmq.HEARTBEAT_TTL, 10_000),
        ):
            self.socket.setsockopt(option, value)
        self.monitor = self.socket.get_monitor_socket(int(_WATCHED))
        self._endpoint = endpoint
        self.socket.connect(endpoint)
        self._decoder = msgspec.msgpack.Decoder(list[links.ToWorker])

    def change(self) -> bool | None:
        """True: a new connection was made, time to say hello; False: it was lost; None: neither."""
        change: bool | None = None
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)["event"]
            self.welcomed = False
            change = event == zmq.Event.HANDSHAKE_SUCCEEDED
        return change

    def move(self, endpoint: str) -> None:
        """Connect there instead."""
        if endpoint != self._endpoint:
            self.socket.disconnect(self._endpoint)
            self._endpoint = endpoint
            self.socket.connect(endpoint)

    def receive(self) -> Iterator[links.ToWorker]:
        """All messages that lie in the socket (of at most DRAIN_MAX frames)."""
        for number in range(limits.DRAIN_MAX):
            try:
                body = self.socket.recv(_NOBLOCK)
            except zmq.Again:
                return
            while self.socket.getsockopt(zmq.RCVMORE):
                body = self.socket.recv(_NOBLOCK)
            yield from decode_batch(self._decoder, body, links.ToWorker, "gateway")
            if not number and not has_more(self.socket):
                return

    def send(self, dest: bytes, message: links.Message) -> None:
        """Queue `message`; it leaves with `flush`."""
        queued = self._queued.get(dest)
        if queued is None:
            self._queued[dest] = [message]
        else:
            queued.append(message)

    def hello(self, message: links.WorkerHello) -> None:
        """Say hello, at once and before all else of this connection."""
        self._send(TO_GATEWAY, [message])

    def flush(self) -> None:
        """Send what is queued, one frame per destination unless that would pass FRAME_BYTES."""
        if not self._queued:
            return
        queued, self._queued = self._queued, {}
        for dest, batch in queued.items():
            if self.direct is not None and dest == TO_HISTORY:
                self._send_directly(batch)
            elif self.welcomed:
                self._send(dest, batch)
                if ARMED:
                    reached(CrashPoint.WORKER_SENT_IN_PART)

    def _send_directly(self, batch: Sequence[links.Message]) -> None:
        """To history, past the gateway; where there is no such way, through it."""
        body = links.pack(batch)
        assert self.direct is not None
        has_left = len(body) <= limits.FRAME_BYTES and self.direct.send(TO_HISTORY, body)
        if not has_left and self.welcomed:
            self._send(TO_HISTORY, batch)

    def _send(self, dest: bytes, batch: Sequence[links.Message]) -> None:
        body = links.pack(batch)
        if len(body) > limits.FRAME_BYTES and len(batch) > 1:
            middle = len(batch) // 2
            self._send(dest, batch[:middle])
            self._send(dest, batch[middle:])
            return
        if len(body) > limits.WORKER_FRAME_BYTES_MAX:
            # Bounded where they are made; one that passes would end the connection again and again.
            logs.logger().error(
                LogName.WORKER_TOO_LARGE, bytes=len(body), kind=type(batch[0]).__name__
            )
            return
        try:
            self.socket.send(dest, _NOBLOCK | _SNDMORE)
            self.socket.send(body, _NOBLOCK)
        except zmq.Again:
            logs.logger().warning(LogName.WORKER_UNSENT, messages=len(batch))

    def close(self) -> None:
        """Let what was sent last leave, for a moment, and close."""
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close(linger=BYE_LINGER_MS)


class ControlLink:
    """A local worker's connection to the root of its node."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], boot: Boot) -> None:
        self._boot = boot
        self.socket = context.socket(zmq.DEALER)
        for option, value in (
            (zmq.ROUTING_ID, boot.incarnation.encode()),
            (zmq.LINGER, BYE_LINGER_MS),
            (zmq.SNDHWM, 1_000),
            (zmq.RCVHWM, 10_000),
            (zmq.MAXMSGSIZE, limits.REQUEST_BYTES_MAX),
            (zmq.RECONNECT_IVL, RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS),
        ):
            self.socket.setsockopt(option, value)
        self.socket.connect(boot.root_endpoint)
        self._decoder = msgspec.msgpack.Decoder(list[links.FromRoot])

    def hello(self) -> None:
        """This child exists."""
        self.say(links.ChildHello(self._boot.role, self._boot.incarnation, os.getpid(), ""))

    def ready(self, build: str = "") -> None:
        """This child serves, an application of that build."""
        self.say(links.ChildReady(self._boot.role, self._boot.incarnation, build))

    def failed(self, exit_code: int, message: str) -> None:
        """This child can't begin, and would not the next time."""
        boot = self._boot
        self.say(links.ChildFailed(boot.role, boot.incarnation, exit_code, message))

    def say(self, message: links.Message) -> None:
        """Send `message` to the root; dropped where the root does not read."""
        with contextlib.suppress(zmq.Again):
            self.socket.send_multipart([b"", links.pack([message])], zmq.NOBLOCK)

    def receive(self) -> Iterator[links.FromRoot]:
        """All messages that lie in the socket."""
        while True:
            try:
                parts = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield from decode_batch(self._decoder, parts[-1], links.FromRoot, "root")

    def close(self) -> None:
        """Close; what was said last still leaves, for a moment."""
        self.socket.close()


def decode_batch(
    decoder: msgspec.msgpack.Decoder[Any], body: bytes, kinds: Any, sender: str
) -> list[Any]:
    """The messages of a frame; those that can't be read are reported and left out."""
    try:
        batch: list[Any] = decoder.decode(body)
    except msgspec.MsgspecError as problem:
        logs.logger().error(
            LogName.WORKER_UNREADABLE, sender=sender, bytes=len(body), problem=str(problem)
        )
        return _one_by_one(body, kinds)
    return batch


def _one_by_one(body: bytes, kinds: Any) -> list[Any]:
    readable: list[Any] = []
    try:
        items = msgspec.msgpack.decode(body, type=list[msgspec.Raw])
    except msgspec.MsgspecError:
        return readable  # Reported by the caller: no list at all.
    for item in items:
        with contextlib.suppress(msgspec.MsgspecError):  # Reported by the caller.
            readable.append(msgspec.msgpack.decode(item, type=kinds))
    return readable
