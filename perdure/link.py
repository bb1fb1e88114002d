"""A client's connection: many threads, one ZeroMQ socket, no thread of its own.

The first thread that waits is the leader: it alone touches the socket, sends what the others left
in the outbox and hands them their answers. When it has its own it passes the lead on. A lone caller
sends and receives in its own thread, without any hand-over.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from perdure.crash_points import ARMED, CrashPoint, reached
from perdure.errors import InvalidArgument, Unavailable
from perdure.outstanding import Exchange, Outstanding
from perdure.wire import AnswerBody, read_answer

SCAN_S = 0.2
ANSWER_BYTES_MAX = 64 * 1024 * 1024
HIGH_WATER_MARK = 20_000
RECEIVE_MAX = 1_000
IPC_PATH_BYTES_MAX = 107
NOW = int(zmq.NOBLOCK)
_READ, _READ_AND_WRITE = int(zmq.POLLIN), int(zmq.POLLIN | zmq.POLLOUT)

# Links that a fork left in this process: never used, never closed, they are the parent's.
_inherited: list[Link] = []


class _Waiter:
    """A thread in `exchange`, until all that it asked is answered."""

    __slots__ = ("event", "remaining")

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining
        self.event: threading.Event | None = None  # Of one who does not lead.

    def wake(self) -> None:
        """All is answered, or it leads now, or it is over."""
        if self.event is not None:
            self.event.set()


class Asked(_Waiter):
    """Requests whose answers nobody waits for in a thread: `told` is called once all are there, or
    the link was closed. From another thread, which it must not keep.
    """

    __slots__ = ("exchanges", "told")

    def __init__(self, requests: Sequence[tuple[int, bytes]], told: Callable[[], None]) -> None:
        super().__init__(len(requests))
        self.told = told
        self.exchanges = {number: Exchange[_Waiter](body, self) for number, body in requests}

    def wake(self) -> None:
        """All is answered, or it is over."""
        self.told()

    def answers(self) -> list[AnswerBody | None]:
        """The answers, in order; None where none has come."""
        return [exchange.answer for exchange in self.exchanges.values()]


class Link:
    """A connection to the endpoint that `resolve` names, made when it is first needed.

    `resolve` is asked again while there is no connection, so that a node that comes back elsewhere
    is found. It returns None where no node is known.
    """

    def __init__(self, resolve: Callable[[], str | None]) -> None:
        self.pid = os.getpid()
        self.endpoint: str | None = None
        self.connected = False
        self._resolve = resolve
        self._numbers = itertools.count(1)
        # Of one thread more than once: the garbage collector may close a forgotten client anywhere.
        self._lock = threading.RLock()
        self._open: Outstanding[_Waiter] = Outstanding()
        self._followers: dict[_Waiter, None] = {}
        self._leader: _Waiter | None = None
        self._asked: set[Asked] = set()
        self._is_asked = threading.Event()  # For the thread of `serve`, which sleeps meanwhile.
        self._closed = False
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._poller = zmq.Poller()
        self._handshakes = 0
        self._scan_at = 0.0

    @property
    def is_closed(self) -> bool:
        """True once `close` was called, by whichever thread."""
        return self._closed

    def next_id(self) -> int:
        """A number for the next request, used once in the life of this link."""
        return next(self._numbers)

    def exchange(
        self, requests: Sequence[tuple[int, bytes]], deadline: float
    ) -> list[AnswerBody | None]:
        """The answers to these (id, body), in order; None where none came by `deadline`.

        `deadline` is of time.monotonic. Requests are sent again on a new connection and after
        doubling waits. Raises Unavailable when the link is closed meanwhile.
        """
        waiter = _Waiter(len(requests))
        mine = {number: Exchange(body, waiter) for number, body in requests}
        reached(CrashPoint.CLIENT_REQUEST_MADE_NOT_SENT)
        try:
            with self._lock:
                if self._closed:
                    raise Unavailable("the client is closed")
                self._open.add(mine)
                if self._leader is None:
                    self._leader = waiter
                else:
                    waiter.event = threading.Event()
                    self._followers[waiter] = None
                    self._ring()
            while waiter.remaining and time.monotonic() < deadline and not self.is_closed:
                if self._leader is waiter:
                    self._turn(deadline)
                elif waiter.event is not None:
                    waiter.event.wait(max(0.0, deadline - time.monotonic()))
                    waiter.event.clear()
        finally:
            self._leave_for_good(waiter, mine)
        if self.is_closed and waiter.remaining:
            raise Unavailable("the client was closed during the call")
        return [exchange.answer for exchange in mine.values()]

    # --- without a thread for each call ------------------------------------------
    def ask(self, requests: Sequence[tuple[int, bytes]], told: Callable[[], None]) -> Asked:
        """Have these sent; `told` hears of it once all are answered. A thread must `serve`.

        Raises Unavailable where the link is closed.
        """
        asked = Asked(requests, told)
        with self._lock:
            if self._closed:
                raise Unavailable("the client is closed")
            self._open.add(asked.exchanges)
            self._asked.add(asked)
            self._is_asked.set()
            if self._leader is not None:
                self._ring()
        return asked

    def forget(self, asked: Asked) -> None:
        """Nobody waits for these any more, answered or not."""
        with self._lock:
            self._asked.discard(asked)
            if asked.remaining:
                self._open.forget(asked.exchanges)

    def serve(self) -> None:
        """Send what is asked and hear the answers, until the link is closed: a thread's whole life.

        While nothing is asked it sleeps.
        """
        while not self._closed:
            self._is_asked.wait()
            waiter = _Waiter(1)
            with self._lock:
                if self._leader is None:
                    self._leader = waiter
                else:
                    waiter.event = threading.Event()
                    self._followers[waiter] = None
            try:
                while self._asked and not self.is_closed:
                    if self._leader is waiter:
                        self._turn(time.monotonic() + SCAN_S)
                    elif waiter.event is not None:
                        waiter.event.wait()
                        waiter.event.clear()
            finally:
                self._leave_for_good(waiter, {})
            with self._lock:
                if not self._asked and not self._closed:
                    self._is_asked.clear()

    def close(self) -> None:
        """Let go of the socket at once; calls under way raise Unavailable. Idempotent."""
        if self.pid != os.getpid():
            return
        with self._lock:
            self._closed = True
            self._is_asked.set()
            for waiter in (*self._followers, *self._asked):
                waiter.wake()
            if self._leader is None:
                self._shut()
            else:
                self._ring()

    def abandon(self) -> None:
        """Keep this link from being touched in a child of a fork."""
        _inherited.append(self)

    def __del__(self) -> None:
        if getattr(self, "_bell", -1) >= 0 and self.pid == os.getpid():
            self._shut()

    # --- between threads -------------------------------------------------------
    def _ring(self) -> None:
        os.eventfd_write(self._bell, 1)

    def _leave_for_good(self, waiter: _Waiter, mine: dict[int, Exchange[_Waiter]]) -> None:
        """Pass the lead on, if it is ours, also where a Ctrl-C comes just then."""
        try:
            self._leave(waiter, mine)
        except BaseException:
            self._leave(waiter, mine)
            raise

    def _leave(self, waiter: _Waiter, mine: dict[int, Exchange[_Waiter]]) -> None:
        """Begun again after an interruption, it does what is left to do."""
        with self._lock:
            if waiter.remaining:
                self._open.forget(mine)
            self._followers.pop(waiter, None)
            if self._leader is waiter:
                self._leader = next(iter(self._followers), None)
            leader = self._leader
            if leader in self._followers:  # It has not been told yet.
                leader.wake()
                del self._followers[leader]
            elif leader is None and self._closed:
                self._shut()

    # --- the leader's part -----------------------------------------------------
    def _turn(self, deadline: float) -> None:
        """Send, wait, receive: once."""
        try:
            self._do_turn(deadline)
        except BaseException:
            # Of what was being read or written just then nobody knows how far it came.
            self._scan_at = 0.0
            self._drop_socket()
            raise

    def _do_turn(self, deadline: float) -> None:
        now = time.monotonic()
        if now >= self._scan_at:
            self._scan_at = now + SCAN_S
            self._scan(now)
        socket = self._socket
        if socket is None:
            time.sleep(max(0.0, min(deadline - now, SCAN_S / 4)))
            self._scan_at = 0.0
            return
        is_waiting = self._flush(socket, now)
        self._poller.register(socket, _READ_AND_WRITE if is_waiting else _READ)
        until = min(deadline, self._scan_at)
        for ready, _ in self._poller.poll(max(0, int((until - now) * 1000) + 1)):
            if ready is socket:
                self._receive(socket)
            elif ready is self._monitor:
                self._note_connection()
            else:
                os.eventfd_read(self._bell)

    def _scan(self, now: float) -> None:
        """What time alone brings: another endpoint, requests to send again."""
        if not self.connected:
            endpoint = self._resolve()
            if endpoint is not None and endpoint != self.endpoint:
                self._connect(endpoint)
        with self._lock:
            self._open.look(now)

    def _flush(self, socket: zmq.Socket[bytes], now: float) -> bool:
        """Send what is to be sent; True when something had to stay."""

        def send(body: bytes) -> bool:
            try:
                socket.send(body, NOW)
            except zmq.Again:
                return False
            if ARMED:
                reached(CrashPoint.CLIENT_SENT_NOT_ANSWERED)
            return True

        return self._open.flush(send, now)

    def _receive(self, socket: zmq.Socket[bytes]) -> None:
        for _ in range(RECEIVE_MAX):
            try:
                parts = socket.recv_multipart(NOW)
            except zmq.Again:
                return
            try:
                answer = read_answer(parts[-1])
            except (msgspec.MsgspecError, RecursionError, ValueError):
                continue  # No answer to any request of ours; ours are sent again.
            if ARMED:
                reached(CrashPoint.CLIENT_ANSWERED_NOT_TOLD)
            self._deliver(answer)
            leader = self._leader
            if leader is not None and not leader.remaining:
                return  # What else lies there is the next one's, who looks before it waits.

    def _deliver(self, answer: AnswerBody) -> None:
        with self._lock:
            waiter = self._open.deliver(answer)
            if waiter is None:
                return  # A second answer to a request that was sent twice, or nobody waits.
            if not waiter.remaining and waiter is not self._leader:
                waiter.wake()

    def _note_connection(self) -> None:
        assert self._monitor is not None
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            self.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if not self.connected:
                self._scan_at = 0.0
                continue
            self._handshakes += 1
            if self._handshakes > 1:
                self._send_all_again()

    def _send_all_again(self) -> None:
        with self._lock:
            self._open.send_all_again()

    # --- the socket ------------------------------------------------------------
    def _connect(self, endpoint: str) -> None:
        self._drop_socket()
        if self._context is None:
            self._context = zmq.Context()
        socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._socket = socket
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = HIGH_WATER_MARK
        socket.set(zmq.MAXMSGSIZE, ANSWER_BYTES_MAX)
        socket.set(zmq.IMMEDIATE, 1)
        socket.set(zmq.RECONNECT_IVL, 20)
        socket.set(zmq.RECONNECT_IVL_MAX, 500)
        socket.set(zmq.HANDSHAKE_IVL, 5_000)
        if endpoint.startswith("tcp:"):
            socket.set(zmq.HEARTBEAT_IVL, 5_000)
            socket.set(zmq.HEARTBEAT_TIMEOUT, 15_000)
        self._monitor = socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        )
        self._handshakes = 0
        self._poller.register(self._monitor, zmq.POLLIN)
        self._poller.register(self._bell, zmq.POLLIN)
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as problem:
            self._drop_socket()
            raise _bad_endpoint(endpoint, problem) from problem
        self.endpoint = endpoint
        self._send_all_again()

    def _drop_socket(self) -> None:
        """Begun again after an interruption, it does what is left to do."""
        self.endpoint, self.connected = None, False
        self._poller = zmq.Poller()
        socket, monitor = self._socket, self._monitor
        # In this order: to an end that nobody has libzmq would wait to tell what happens.
        if socket is not None and not socket.closed:
            socket.disable_monitor()
        if monitor is not None:
            monitor.close(linger=0)
        if socket is not None:
            socket.close(linger=0)
        self._socket = self._monitor = None

    def _shut(self) -> None:
        self._drop_socket()
        bell, self._bell = self._bell, -1
        if bell >= 0:
            os.close(bell)
        if self._context is not None:
            # Not term(), which waits for ever for a socket that a Ctrl-C kept us from closing.
            self._context.destroy(linger=0)
            self._context = None


def _bad_endpoint(endpoint: str, problem: zmq.ZMQError) -> InvalidArgument:
    path = endpoint.removeprefix("ipc://")
    size = len(os.fsencode(path))
    if path != endpoint and size > IPC_PATH_BYTES_MAX:
        text = f"the socket path {path} is {size} bytes; the limit is {IPC_PATH_BYTES_MAX}"
    else:
        text = f"no endpoint that can be connected to: {endpoint!r} ({problem.strerror})"
    return InvalidArgument(text, field="endpoint")
