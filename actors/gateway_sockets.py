"""The gateway's sockets, with every bound set, and a refusal where one can't be had."""

from __future__ import annotations

import errno
import os
import resource
import socket as sockets
import stat
from collections.abc import Iterator

import zmq
import zmq.backend

from actors.gateway_unread import Unread
from actors.inbox import Frames, configure
from perdure.core import limits

IPC = "ipc://"
# As plain integers: combining ZeroMQ's own flags costs more than a send.
NOW = int(zmq.NOBLOCK)
MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
# The compiled method: what pyzmq wraps around it costs more than the sending.
_send = zmq.backend.Socket.send
IPC_PATH_BYTES_MAX = 107
CLIENT_ANSWERS_MAX = 20_000  # Waiting for one client that does not read; more are dropped.
# Who finds it full tries again, later and later: a thousand may come back at one instant.
BACKLOG = 1_000
DESCRIPTORS_MAX = 65_536
TCP_HEARTBEAT_MS = 5_000
TCP_SILENCE_MS = 15_000


def allow_descriptors() -> None:
    """Each client is a descriptor: have as many as the system lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Not without end: whoever closes all that might be open would never be done.
        wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class CannotBind(Exception):
    """An endpoint can't be had; the message says why and which. Who acts: an operator."""


def public(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """Where clients connect."""
    socket = context.socket(zmq.ROUTER)
    configure(socket)
    socket.setsockopt(zmq.SNDHWM, CLIENT_ANSWERS_MAX)
    socket.setsockopt(zmq.RCVHWM, limits.CLIENT_REQUESTS_MAX)
    socket.setsockopt(zmq.MAXMSGSIZE, limits.REQUEST_BYTES_MAX)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    # What is sent without a copy is marked, whatever its size: see Unread.
    socket.copy_threshold = 0
    return _bound(socket, endpoint)


def workers(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """Where workers connect."""
    socket = context.socket(zmq.ROUTER)
    configure(socket)
    return _bound(socket, endpoint)


class ZmqDoor:
    """See actors.host.Door. `unread` bounds the bytes that wait for those who do not read."""

    __slots__ = ("_socket", "_unread")

    def __init__(self, socket: zmq.Socket[bytes], unread: Unread | None = None) -> None:
        self._socket = socket
        self._unread = unread

    def has_room(self, identity: bytes, size: int) -> bool:
        """Whether an answer of that size may go there now."""
        return self._unread is None or self._unread.has_room(identity, size)

    def send(self, identity: bytes, body: bytes, *, is_delimited: bool = False) -> bool:
        """Send to `identity`; False where that one is gone or full. Never waits."""
        socket, unread = self._socket, self._unread
        size = len(body)
        if unread is not None and not unread.has_room(identity, size):
            return False
        try:
            # Only the first part can fail: it is what claims the place in the receiver's queue.
            _send(socket, identity, MORE)
            if is_delimited:
                _send(socket, b"", MORE)
            if unread is not None and unread.sends(identity, size):
                mark = socket.send(body, NOW, copy=False, track=True)
                unread.mark(identity, lambda: mark.done)
            else:
                _send(socket, body, NOW)
        except zmq.ZMQError as error:
            if error.errno not in (errno.EAGAIN, errno.EHOSTUNREACH):
                raise
            if unread is not None and error.errno == errno.EHOSTUNREACH:
                unread.forget(identity)
            return False
        return True

    def waiting(self) -> Iterator[Frames]:
        """What lies in the socket now, taken from it one by one."""
        while True:
            try:
                frames = self._socket.recv_multipart(NOW)
            except zmq.Again:
                return
            yield frames


def _bound(socket: zmq.Socket[bytes], endpoint: str) -> zmq.Socket[bytes]:
    # A send that has no receiver, or a full one, is said so at once: it never waits.
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    if endpoint.startswith("tcp:"):
        socket.setsockopt(zmq.HEARTBEAT_IVL, TCP_HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, TCP_SILENCE_MS)
    try:
        if endpoint.startswith(IPC):
            _check_path(endpoint.removeprefix(IPC))
        socket.bind(endpoint)
    except zmq.ZMQError as problem:
        socket.close(linger=0)
        raise CannotBind(f"can't listen at {endpoint}: {problem.strerror}") from problem
    except CannotBind:
        socket.close(linger=0)
        raise
    return socket


def _check_path(path: str) -> None:
    """ZeroMQ would delete whatever is there: only a socket that nobody listens at may go."""
    size = len(os.fsencode(path))
    if size > IPC_PATH_BYTES_MAX:
        raise CannotBind(
            f"the socket path {path} is {size} bytes; the limit is {IPC_PATH_BYTES_MAX}"
        )
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise CannotBind(f"{path} is there and is no socket; remove it or bind elsewhere")
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return  # Left by a process that was killed.
    raise CannotBind(f"another process listens at {path}")
