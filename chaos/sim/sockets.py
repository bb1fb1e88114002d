"""A simulated worker's inbox, sockets and poller: the real links speak through them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from chaos.sim.host import Dealer
from chaos.sim.process import Frames, Process
from perdure.core import links
from perdure.core.boot import Boot
from perdure.worker.sockets import ControlLink, GatewayLink

if TYPE_CHECKING:
    from chaos.sim.worker import WorkerProcess


class WorkerInbox:
    """perdure.worker.sockets.Inbox without a descriptor."""

    def __init__(self, process: Process) -> None:
        self.fd = -1
        self._process = process
        self._jobs: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def post(self, function: Callable[..., None], *args: Any) -> None:
        """Have the main loop call it."""
        self._jobs.append((function, args))
        self._process.wake()

    put = post

    def nudge(self) -> None:
        """Whoever posts wakes."""

    def arm(self) -> bool:
        """Whether nothing is there."""
        return not self._jobs

    def drain(self, now_ms: int) -> None:
        """Do what was posted until now."""
        for _ in range(len(self._jobs)):
            function, args = self._jobs.popleft()
            function(*args, now_ms)

    def clear(self) -> None:
        """There is no descriptor."""


class NoRelay:
    """Nobody else leads."""

    def enter(self) -> int:
        """Work begins."""
        return 1

    def leave(self, work: int) -> bool:
        """The lead was not lost."""
        return True

    def appoint(self) -> None:
        """There is nobody."""


class PartSocket:
    """What GatewayLink and ControlLink speak through: parts out, bodies in."""

    def __init__(self, send: Callable[[Frames], object]) -> None:
        self._send = send
        self._parts: Frames = []
        self.bodies: deque[bytes] = deque()

    def send(self, part: bytes, flags: int = 0) -> None:
        """One part; the last one sends them all."""
        self._parts.append(part)
        if not flags & int(zmq.SNDMORE):
            parts, self._parts = self._parts, []
            self._send(parts)

    def send_multipart(self, parts: Frames, flags: int = 0) -> None:
        """All parts."""
        self._send(parts)

    def recv(self, flags: int = 0) -> bytes:
        """The next body; zmq.Again where there is none."""
        if not self.bodies:
            raise zmq.Again
        return self.bodies.popleft()

    def recv_multipart(self, flags: int = 0) -> Frames:
        """Likewise."""
        return [self.recv(flags)]

    def getsockopt(self, option: int) -> int:
        """Whether a body is there; there is never a further part."""
        return int(option == zmq.EVENTS and bool(self.bodies))


class DirectSocket(PartSocket):
    """A worker's own connection to an actor."""

    def __init__(self, process: WorkerProcess) -> None:
        super().__init__(self._leave)
        self._process = process
        self._target: Process | None = None

    def setsockopt(self, option: int, value: Any) -> None:
        """Its name is that of its process."""

    def connect(self, endpoint: str) -> None:
        """Connect to who listens there."""
        process = self._process
        self._target = process.world.bound.get(endpoint)
        if self._target is not None:
            process.direct[self._target.address] = self

    def _leave(self, parts: Frames) -> None:
        process, target = self._process, self._target
        if target is not None:
            process.world.count("send", process.role)
            process.world.net.send(process, target, target.take_frame, [process.address, *parts])

    def close(self, linger: int = 0) -> None:
        """What is on its way back finds nobody."""
        if self._target is not None:
            self._process.direct.pop(self._target.address, None)
            self._target.routes.pop(self._process.address, None)


class DirectContext:
    """What DirectLinks makes its sockets with."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process

    def socket(self, kind: int) -> DirectSocket:
        """One more."""
        return DirectSocket(self._process)


class SimGatewayLink(GatewayLink):
    """The real one, on a simulated connection."""

    def __init__(self, process: WorkerProcess, endpoint: str) -> None:
        self.welcomed = False
        self.direct = None
        self._queued = {}
        self._decoder = msgspec.msgpack.Decoder(list[links.ToWorker])
        self._endpoint = endpoint
        identity = b"w" + process.world.chance.hex("names", 24).encode()
        self.dealer = Dealer(process, identity, endpoint, self._take, self._changed)
        self.socket: Any = PartSocket(self.dealer.send)
        self.monitor: Any = object()
        self.changes: list[bool] = []

    def _take(self, frames: Frames) -> None:
        self.socket.bodies.append(frames[-1])

    def _changed(self, is_there: bool) -> None:
        self.changes.append(is_there)

    def change(self) -> bool | None:
        """True: a new connection; False: it was lost; None: neither."""
        if not self.changes:
            return None
        self.welcomed = False
        change = self.changes[-1]
        self.changes.clear()
        return change


class SimControlLink(ControlLink):
    """The real one, on a simulated connection."""

    def __init__(self, process: WorkerProcess, boot: Boot) -> None:
        self._boot = boot
        self._decoder = msgspec.msgpack.Decoder(list[links.FromRoot])
        self.socket: Any = PartSocket(process.tell_root)

    def hello(self) -> None:
        """This child exists."""
        self.say(links.ChildHello(self._boot.role, self._boot.incarnation, 0, ""))


class SimPoller:
    """Says which of the simulated sockets have something."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process

    def register(self, source: Any, flags: int) -> None:
        """All are known."""

    def unregister(self, source: Any) -> None:
        """All are known."""

    def poll(self, timeout_ms: int) -> list[tuple[Any, int]]:
        """Never waits."""
        process = self._process
        gateway, control = process.gateway, process.control
        found: list[tuple[Any, int]] = []
        if gateway.changes:
            found.append((gateway.monitor, 1))
        if gateway.socket.bodies:
            found.append((gateway.socket, 1))
        if control is not None and control.socket.bodies:
            found.append((control.socket, 1))
        found += [(socket, 1) for socket in process.direct.values() if socket.bodies]
        return found
