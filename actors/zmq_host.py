"""The host of a process of a node: ZeroMQ sockets, the kernel's clocks, SQLite."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import zmq
import zmq.backend

from actors import gateway_sockets
from actors.gateway_unread import Unread
from actors.host import Door, Take
from actors.inbox import LAST, MORE, Inbox, configure
from perdure import clock
from perdure.births import birth_of
from perdure.core.boot import Boot
from perdure.core.links import ROOT
from perdure.store import vfs_hook
from perdure.store.protocol import Reader, Writer
from perdure.store.sqlite import SqliteReader, SqliteWriter

ROOT_ID = ROOT.encode("ascii")
# The compiled method: what pyzmq wraps around it costs more than the sending.
_send = zmq.backend.Socket.send


class ZmqHost:
    """See actors.host.Host."""

    boottime_ms = staticmethod(clock.boottime_ms)
    wall_ms = staticmethod(clock.wall_ms)
    boot_id = staticmethod(clock.boot_id)
    pid = staticmethod(os.getpid)

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self.socket = self.context.socket(zmq.ROUTER)

    # --- chance and the store -----------------------------------------------------
    def draws(self, seed: int | None) -> Callable[[], float]:
        """A source of numbers in [0, 1)."""
        return random.Random(seed).random

    def writer(self, data_dir: str) -> Writer:
        """A writer of the store. Raises StoreError."""
        directory = Path(data_dir)
        return SqliteWriter(directory, vfs=vfs_hook.asked_for(directory))

    def reader(self, data_dir: str) -> Reader:
        """A reader of the store. Raises StoreError."""
        return SqliteReader(Path(data_dir))

    # --- the actor's own socket -----------------------------------------------------
    def open(self, boot: Boot, inbox: Inbox, take: Take) -> None:
        """Bind the actor's own socket, connect it to the root, have `inbox` drain it."""
        socket = self.socket
        configure(socket)
        socket.setsockopt(zmq.ROUTING_ID, boot.incarnation.encode("ascii"))
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.bind(boot.inbox_endpoint)
        socket.setsockopt(zmq.CONNECT_ROUTING_ID, ROOT_ID)
        socket.connect(boot.root_endpoint)
        inbox.add_socket(socket, take)

    def connect(self, incarnation: str, endpoint: str) -> None:
        """Connect to the inbox of another actor."""
        self.socket.setsockopt(zmq.CONNECT_ROUTING_ID, incarnation.encode("ascii"))
        self.socket.connect(endpoint)

    def disconnect(self, endpoint: str) -> None:
        """No longer: the other end may have gone already."""
        with contextlib.suppress(zmq.ZMQError):
            self.socket.disconnect(endpoint)

    def transmit(self, address: bytes, head: bytes, body: bytes) -> bool:
        """Send one frame; False where the receiver is gone or full. Never waits."""
        try:
            socket = self.socket
            _send(socket, address, MORE)
            _send(socket, head, MORE)
            _send(socket, body, LAST)
        except zmq.ZMQError as error:
            if error.errno not in (errno.EAGAIN, errno.EHOSTUNREACH):
                raise
            return False
        return True

    # --- doors ------------------------------------------------------------------------
    def public_door(self, endpoint: str, inbox: Inbox, take: Take) -> Door:
        """Listen for clients there. Raises gateway_sockets.CannotBind."""
        socket = gateway_sockets.public(self.context, endpoint)
        inbox.add_socket(socket, take)
        return gateway_sockets.ZmqDoor(socket, Unread())

    def workers_door(self, endpoint: str, inbox: Inbox, take: Take) -> Door:
        """Listen for workers there. Raises gateway_sockets.CannotBind."""
        socket = gateway_sockets.workers(self.context, endpoint)
        inbox.add_socket(socket, take)
        return gateway_sockets.ZmqDoor(socket)

    # --- processes ----------------------------------------------------------------------
    def watch(
        self, pid: int, started: float, inbox: Inbox, died: Callable[[], None]
    ) -> Callable[[], None] | None:
        """Call `died` when that process of this machine ends; what is returned ends the watch.

        None where there is no such process whose birth (perdure.births) is `started`.
        """
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return None
        if birth_of(pid) != started:
            os.close(pidfd)
            return None
        inbox.add_fd(pidfd, died)

        def unwatch() -> None:
            inbox.remove_fd(pidfd)
            os.close(pidfd)

        return unwatch

    def close(self, linger_ms: int) -> None:
        """Let what was sent last leave, for at most so long, and close all sockets."""
        self.socket.close(linger=linger_ms)
        self.context.term()

    def exit(self, code: int) -> NoReturn:
        """End this process at once."""
        sys.stderr.flush()
        os._exit(code)
