"""A simulated worker: the real session, replays and reports; activities run by their scripts.

A script says how long an attempt lasts, when it beats, when its effect is applied, and how it ends.
What a thread of a real worker does behind the main loop's back is done by events of the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from chaos.sim import app
from chaos.sim.host import ROOT_ADDRESS, SPIN_US, Dealer
from chaos.sim.loop import MS_US
from chaos.sim.plan import Step
from chaos.sim.process import SIGKILLED, Frames, Process, ProcessExit
from perdure import values
from perdure.core import links
from perdure.core.boot import Boot
from perdure.core.ids import Session
from perdure.failures import Failure
from perdure.worker.asks import TO_GATEWAY
from perdure.worker.attempts import Attempt, Done, Runner
from perdure.worker.outcome import Outcome
from perdure.worker.session import Config, Worker
from perdure.worker.sockets import ControlLink, GatewayLink

if TYPE_CHECKING:
    from chaos.sim.world import World

HANG_MS = 10**9


class _Inbox:
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


class _Relay:
    """Nobody else leads."""

    def enter(self) -> int:
        """Work begins."""
        return 1

    def leave(self, work: int) -> bool:
        """The lead was not lost."""
        return True

    def appoint(self) -> None:
        """There is nobody."""


class _Socket:
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
        """There is never a further part."""
        return 0


class _DirectSocket(_Socket):
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


class _Context:
    """What DirectLinks makes its sockets with."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process

    def socket(self, kind: int) -> _DirectSocket:
        """One more."""
        return _DirectSocket(self._process)


class _GatewayLink(GatewayLink):
    """The real one, on a simulated connection."""

    def __init__(self, process: WorkerProcess, endpoint: str) -> None:
        self.welcomed = False
        self.direct = None
        self._queued = {}
        self._decoder = msgspec.msgpack.Decoder(list[links.ToWorker])
        self._endpoint = endpoint
        identity = b"w" + process.world.chance.hex("names", 24).encode()
        self.dealer = Dealer(process, identity, endpoint, self._take, self._changed)
        self.socket: Any = _Socket(self.dealer.send)
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


class _ControlLink(ControlLink):
    """The real one, on a simulated connection."""

    def __init__(self, process: WorkerProcess, boot: Boot) -> None:
        self._boot = boot
        self._decoder = msgspec.msgpack.Decoder(list[links.FromRoot])
        self.socket: Any = _Socket(process.tell_root)

    def hello(self) -> None:
        """This child exists."""
        self.say(links.ChildHello(self._boot.role, self._boot.incarnation, 0, ""))


class _Poller:
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


class ScriptRunner(Runner):
    """Starts attempts as events of the simulation."""

    def __init__(self, process: WorkerProcess, inbox: Any) -> None:
        super().__init__(app.REGISTRY.activities, inbox)
        self._process = process
        self._given_up: set[str] = set()
        self._receipts: dict[str, str] = {}

    @property
    def coroutines(self) -> int:
        """None that anybody waits for."""
        return 0

    @property
    def stuck(self) -> int:
        """There are no threads."""
        return 0

    def start(self, attempt: Attempt, done: Done) -> None:
        """Run the script of this attempt."""
        task, process = attempt.task, self._process
        step = app.step_of(task.input)
        fails = task.generation == 1 and task.attempt <= step.fails
        how = step.how if fails else "ok"
        world = process.world
        world.attempt_began(task)
        length_ms = max(1, step.ms)
        if how == "hang":
            length_ms = HANG_MS
        elif how == "late":
            length_ms = 50 + 2 * (task.options.heartbeat_ms or task.options.start_to_close_ms)
        for number in range(step.beats):
            at_ms = length_ms * (number + 1) // (step.beats + 1)
            process.later(at_ms, self._beat, attempt, number)
        if how not in ("error", "nonretryable"):
            process.later(length_ms * 2 // 3, self._effect, attempt, step)
        process.later(length_ms, self._end, attempt, step, how, done)

    def _is_over(self, attempt: Attempt) -> bool:
        """An async function hears of its cancellation, a plain one goes on."""
        return attempt.is_async and attempt.task.token in self._given_up

    def _beat(self, attempt: Attempt, number: int) -> None:
        if not self._is_over(attempt) and not attempt.context.is_cancelled:
            attempt.context.heartbeat(values.encode(number) if number % 2 else None)

    def _effect(self, attempt: Attempt, step: Step) -> None:
        if not self._is_over(attempt):
            task = attempt.task
            self._receipts[task.token] = self._process.world.sink.apply(
                task.workflow_id,
                task.activity_id,
                task.token,
                task.attempt,
                fence=task.grant,
                payload=task.input,
                size=step.size,
            )

    def _end(self, attempt: Attempt, step: Step, how: str, done: Done) -> None:
        if self._is_over(attempt):
            return
        outcome: Outcome
        if how == "kill":
            self._process.world.goal("an activity killed its worker")
            self._process.end(SIGKILLED)
            return
        if how in ("error", "raise_after"):
            outcome = Failure("SimError", "as planned")
        elif how == "nonretryable":
            outcome = Failure("SimFatal", "as planned", non_retryable=True)
        else:
            outcome = values.encode(self._receipts.pop(attempt.task.token))
        self._inbox.post(done, attempt.task.token, outcome)

    def ended(self, attempt: Attempt) -> None:
        """Nothing is counted."""

    def give_up(self, attempt: Attempt) -> None:
        """Its outcome does not count."""
        self._given_up.add(attempt.task.token)

    def interrupt(self, attempt: Attempt) -> None:
        """Its context is cancelled: an async function ends."""
        if attempt.is_async:
            self._given_up.add(attempt.task.token)


class WorkerProcess(Process):
    """A worker of the node (with `boot` of its root), or one from elsewhere."""

    def __init__(
        self,
        world: World,
        boot: Boot,
        session: Session | None,
        *,
        is_local: bool = True,
        is_quarantine: bool = False,
    ) -> None:
        super().__init__(world, boot.role, boot.incarnation)
        self.gateway = _GatewayLink(self, boot.workers_endpoint)
        self.control = _ControlLink(self, boot) if is_local else None
        self.direct: dict[bytes, _DirectSocket] = {}  # By whom it leads to.
        self._boot = boot
        self._session = session
        self._is_quarantine = is_quarantine
        self._has_begun = False
        self._worker: Worker | None = None
        self._inbox: Any = _Inbox(self)
        self._stopped: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def _begin(self) -> None:
        world = self.world
        config = Config(
            worker_id=self._boot.role,
            node=self._boot.node,
            pid=world.pid_of(self),
            pid_started=float(world.pid_of(self)),
            session=self._session,
            slots=1 if self._is_quarantine else world.plan.knobs.slots,
            queues=("default", "other"),
            activities=app.REGISTRY.activities,
            workflows=app.REGISTRY.workflows,
            quarantine=self._is_quarantine,
        )
        if self.control is not None:
            self.routes[ROOT_ADDRESS] = world.root
            self.control.hello()
        self._worker = Worker(
            config,
            self.gateway,
            self._inbox,
            control=self.control,
            clock=self._clock,
            runner=ScriptRunner(self, self._inbox),
            relay=_Relay(),  # type: ignore[arg-type]
            poller=_Poller(self),
        )
        if self.control is not None and not self._is_quarantine:
            context: Any = _Context(self)
            self._worker.connect_directly(context, self.name)
        world.dial(self.gateway.dealer)

    def _clock(self) -> int:
        return self.here_us() // MS_US - self.world.booted_ms

    def tell_root(self, parts: Frames) -> None:
        """A frame of the control link."""
        root = self.routes[ROOT_ADDRESS]
        self.world.net.send(self, root, root.take_frame, [self.address, *parts])

    def take_frame(self, frames: Frames) -> None:
        """A frame of the root, or of an actor that speaks to it directly."""
        assert self.control is not None
        if frames[0] == ROOT_ADDRESS:
            self.control.socket.bodies.append(frames[-1])
        elif frames[0] in self.direct:
            self.direct[frames[0]].bodies.extend(frames[1:])

    def work(self) -> None:
        """One turn of the main loop."""
        if not self._has_begun:
            self._has_begun = True
            self.world.count("start", self.role)
            self._begin()
            return
        self.drain()
        worker = self._worker
        assert worker is not None
        worker.look(0)
        now_ms = self._clock()
        worker.turn(now_ms)
        if worker.is_over(now_ms):
            self.gateway.send(TO_GATEWAY, links.WorkerBye())
            self.gateway.flush()
            raise ProcessExit(0)

    def next_us(self) -> int | None:
        """When the session has something to do."""
        worker = self._worker
        if worker is None:
            return None
        if worker.workflows.replays.is_ready or not self._inbox.arm():
            return self.loop.now_us
        next_ms = worker.next_ms()
        if next_ms is None:
            return None
        return max((next_ms + self.world.booted_ms) * MS_US, self.loop.now_us + SPIN_US)

    def later(self, delay_ms: int, call: Callable[..., None], *args: Any) -> None:
        """Something that a thread of this process does in so much time, if it lives and moves."""
        self.loop.after(delay_ms * MS_US, self._act, call, args)

    def _act(self, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        if not self.is_alive:
            return
        if self.is_paused or self._stopped:
            if not self._stopped:
                self.loop.at(self.paused_until_us, self._continue)
            self._stopped.append((call, args))
            return
        call(*args)

    def _continue(self) -> None:
        """What its threads would have done meanwhile, in the order in which they would have."""
        if self.is_paused:
            self.loop.at(self.paused_until_us, self._continue)
            return
        stopped, self._stopped = self._stopped, []
        for call, args in stopped:
            if self.is_alive:
                call(*args)

    def ended(self) -> None:
        """Its connection is gone."""
        door = self.gateway.dealer.door
        if door is not None:
            door.peers.pop(self.gateway.dealer.identity, None)
        if self._worker is not None:
            # The memory of a real process is gone at once; here its coroutines must be ended.
            stage = self._worker.workflows.replays._stage
            for replayer in stage._cache.values():
                replayer.close()
            stage._cache.clear()
