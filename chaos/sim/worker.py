"""A simulated worker: the real session, replays and reports; activities run by their scripts.

A script says how long an attempt lasts, when it beats, when its effect is applied, and how it ends.
What a thread of a real worker does behind the main loop's back is done by events of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chaos.sim import app
from chaos.sim.host import ROOT_ADDRESS, SPIN_US
from chaos.sim.loop import MS_US
from chaos.sim.plan import Step
from chaos.sim.process import SIGKILLED, Frames, Process, ProcessExit
from chaos.sim.sockets import (
    DirectContext,
    DirectSocket,
    NoRelay,
    SimControlLink,
    SimGatewayLink,
    SimPoller,
    WorkerInbox,
)
from perdure import values
from perdure.core import links
from perdure.core.boot import Boot
from perdure.core.ids import Session
from perdure.failures import CANCELLED, Failure
from perdure.worker.asks import TO_GATEWAY
from perdure.worker.attempts import Attempt, Done, Runner
from perdure.worker.outcome import Outcome
from perdure.worker.session import Config, Worker

if TYPE_CHECKING:
    from chaos.sim.world import World

HANG_MS = 10**9
LEFT_MS = 60  # So long lives a worker that is killed behind an attempt that it left open.


class ScriptRunner(Runner):
    """Starts attempts as events of the simulation."""

    def __init__(self, process: WorkerProcess, inbox: Any) -> None:
        super().__init__(app.REGISTRY.activities, inbox)
        self._process = process
        self._given_up: set[str] = set()
        self._running: set[str] = set()
        self._receipts: dict[str, str] = {}
        self._done: dict[str, Done] = {}

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
        world.attempt_began(task, self._running)
        self._running.add(task.token)
        self._done[task.token] = done
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
                key=attempt.context.info.idempotency_key,
            )

    def _end(self, attempt: Attempt, step: Step, how: str, done: Done) -> None:
        self._running.discard(attempt.task.token)
        self._done.pop(attempt.task.token, None)
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
        elif how.startswith("leave"):
            outcome = None
            if how == "leave_kill":
                self._process.later(LEFT_MS, self._process.end, SIGKILLED)
            self._process.world.left_open(attempt.task, self._receipts[attempt.task.token])
        else:
            outcome = values.encode(self._receipts[attempt.task.token])
        self._inbox.post(done, attempt.task.token, outcome)

    def ended(self, attempt: Attempt) -> None:
        """Nothing is counted."""

    def give_up(self, attempt: Attempt) -> None:
        """Its outcome does not count."""
        self._given_up.add(attempt.task.token)
        self._running.discard(attempt.task.token)

    def interrupt(self, attempt: Attempt) -> None:
        """Its context is cancelled: an async function ends, and that is its outcome."""
        token = attempt.task.token
        done = self._done.pop(token, None)
        if attempt.is_async and done is not None:
            self._given_up.add(token)
            self._running.discard(token)
            self._process.world.goal("an activity ended because it was asked to")
            self._inbox.post(done, token, Failure(CANCELLED, "it was asked to end"))


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
        self.gateway = SimGatewayLink(self, boot.workers_endpoint)
        self.control = SimControlLink(self, boot) if is_local else None
        self.direct: dict[bytes, DirectSocket] = {}  # By whom it leads to.
        self._boot = boot
        self._booted_ms = world.booted_ms  # Its own machine's, where the node's starts anew.
        self._session = session
        self._is_quarantine = is_quarantine
        self._has_begun = False
        self._worker: Worker | None = None
        self._inbox: Any = WorkerInbox(self)
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
            world.root.routes[self.address] = self
            self.control.hello()
        self._worker = Worker(
            config,
            self.gateway,
            self._inbox,
            control=self.control,
            clock=self._clock,
            runner=ScriptRunner(self, self._inbox),
            relay=NoRelay(),  # type: ignore[arg-type]
            poller=SimPoller(self),
        )
        if self.control is not None and not self._is_quarantine:
            context: Any = DirectContext(self)
            self._worker.connect_directly(context, self.name)
        world.dial(self.gateway.dealer)

    def _clock(self) -> int:
        return self.here_us() // MS_US - self._booted_ms

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
        return max((next_ms + self._booted_ms) * MS_US, self.loop.now_us + SPIN_US)

    @property
    def is_shared(self) -> bool:
        """Whether it takes everything, in its turn."""
        return not self._is_quarantine and not self.is_paused

    def session_now(self) -> Session | None:
        """The session that its leases bear; None before it was told."""
        if self._session is not None:
            return self._session
        return None if self._worker is None else self._worker.workflows.hiring.session

    def unanswered(self) -> int:
        """How much of what it said has no answer."""
        return 0 if self._worker is None else len(self._worker._asks)

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
