"""The main loop of a worker: two sockets, an inbox, what is due, and workflows between the turns.

One thread at a time leads it; which one may change while a workflow runs (see Relay).

Level-triggered: at every hello, when it begins to drain, and every second it says all that it
holds; the node works out what got lost on the way. Nothing is waited for except in `_wait`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import zmq

from perdure import logs
from perdure.clock import boottime_ms
from perdure.core import limits, links
from perdure.core.stalls import Stalls
from perdure.crash_points import ARMED, CrashPoint, reached
from perdure.log_names import LogName
from perdure.worker.activities import Activities
from perdure.worker.asks import TO_BOTH, TO_GATEWAY, TO_HISTORY, Asks
from perdure.worker.attempts import Runner
from perdure.worker.direct import DirectLinks
from perdure.worker.locator import Locator
from perdure.worker.queries import Queries
from perdure.worker.relay import Parting, Relay
from perdure.worker.session_config import Config as Config
from perdure.worker.sockets import ControlLink, GatewayLink, Inbox
from perdure.worker.workflows import Workflows

HELLO_AGAIN_MS = 1_000
SEEK_AGAIN_MS = 2_000
# They run one after the other; the more there are, the seldomer one goes to a worker that does
# not have it cached.
WORKFLOW_SLOTS = 500
# The supervisor allows a worker its grace and 500 ms more.
GOODBYE_MS = 250
WORN_OUT_GRACE_MS = 5_000


class Waiting(Protocol):
    """What the loop waits with: zmq.Poller, or what stands for it."""

    def register(self, source: Any, flags: int) -> Any:
        """Look at this source too."""
        ...

    def unregister(self, source: Any) -> Any:
        """No longer."""
        ...

    def poll(self, timeout_ms: int) -> list[tuple[Any, int]]:
        """The sources that have something, after at most so long; -1: for ever."""
        ...


class Worker:
    """A worker session with the node behind `gateway`.

    A local worker has `control`, its line to the root; one elsewhere has a `locator`. Whoever gives
    a `relay` calls `turn` itself; then nothing here starts a thread, waits, or reads a clock but
    `clock`.
    """

    def __init__(
        self,
        config: Config,
        gateway: GatewayLink,
        inbox: Inbox,
        *,
        control: ControlLink | None = None,
        locator: Locator | None = None,
        clock: Callable[[], int] = boottime_ms,
        runner: Runner | None = None,
        relay: Relay | None = None,
        poller: Waiting | None = None,
    ) -> None:
        self._config = config
        self._gateway = gateway
        self._control = control
        self._inbox = inbox
        self._locator = locator
        self._clock = clock
        self._seek_at_ms = None if locator is None else clock() + SEEK_AGAIN_MS
        self._asks = Asks()
        self._runner = runner or Runner(config.activities, inbox, config.apps)
        self._relay = relay or Relay(self._lead)
        self.workflows = Workflows(
            config.workflows, self._relay, inbox, self._asks, gateway, clock=clock
        )
        self._queries = Queries(
            config.workflows, self.workflows.replays.submit, self._asks, gateway
        )
        self._stalls = Stalls()
        self.refusal = ""  # Why the node will not have it.
        self.is_worn_out = False  # It ends because too many of its threads are stuck.
        self.on_restart: Callable[[], None] = lambda: None  # The node wants it to begin anew.
        self._trouble = ""  # Why it did not.
        self.activities = Activities(
            self._runner,
            config.slots,
            self._asks,
            gateway,
            self.workflows,
            is_local=config.session is not None,
        )
        hiring = self.workflows.hiring
        hiring.worker_id = config.worker_id
        hiring.queues, hiring.types = config.queues, config.activities
        self._newest = 0
        self._ready = False
        self._heard_peers = 0  # The number of what the root said last.
        self._history = ""
        self._hello_at_ms: int | None = None
        self._sync_at_ms: int | None = None
        self._stop_at_ms: int | None = None
        self._gone_at_ms: int | None = None
        self._ripe: dict[Any, int] = {}
        self._poller: Waiting = poller or zmq.Poller()
        for source in (gateway.socket, gateway.monitor, control and control.socket, inbox.fd):
            if source is not None:
                self._poller.register(source, zmq.POLLIN)
        self._direct: DirectLinks | None = None

    def connect_directly(self, context: zmq.Context[zmq.Socket[bytes]], incarnation: str) -> None:
        """Speak to history and scheduler of this node without a detour, as the root says where."""
        session = self._config.session
        assert session is not None
        poller = self._poller
        self._direct = self._gateway.direct = DirectLinks(
            context,
            incarnation,
            session,
            lambda socket: poller.register(socket, zmq.POLLIN),
            poller.unregister,
            self._first_words,
        )

    def run(self) -> bool:
        """Serve until stopped; True when nothing of a user's code is left running."""
        self._relay.run()
        self._gateway.send(TO_GATEWAY, links.WorkerBye())
        self._gateway.flush()
        logs.logger().info(LogName.WORKER_STOPPED, worker=self._config.worker_id)
        return self._runner.is_quiet and not self.workflows.running

    def close(self) -> None:
        """Close the sockets; what was said last still leaves, for a moment."""
        self._runner.close()
        self._gateway.close()
        if self._direct is not None:
            self._direct.close()
        if self._control is not None:
            self._control.close()
        self._inbox.close()

    def stop(self, grace_ms: int, now_ms: int) -> None:
        """Begin the end: take nothing more, go when all is done or `grace_ms` is over."""
        stop_at_ms = now_ms + grace_ms
        if self._stop_at_ms is not None:
            self._stop_at_ms = min(self._stop_at_ms, stop_at_ms)
            return
        self._stop_at_ms = stop_at_ms
        logs.logger().info(LogName.WORKER_STOPPING, worker=self._config.worker_id)
        self._say_sync(now_ms)
        self.activities.drain(now_ms)
        self.workflows.drain(now_ms)

    # --- the loop ---------------------------------------------------------------------
    def _lead(self, *, overtakes: bool) -> Parting:
        now_ms = self._clock()
        if overtakes:
            self.workflows.replays.overtaken(now_ms)
            self._gateway.flush()
        while not self.is_over(now_ms):
            self._wait()
            now_ms = self._clock()
            if self._stalls.wakes(now_ms):
                self.stood_still(now_ms)
            parting = self.turn(now_ms)
            if parting is not None:
                return parting
        return Parting.OVER

    def turn(self, now_ms: int) -> Parting | None:
        """Do what was posted, came in, fell due, or is to be replayed, and say what follows.

        Not None: the lead was lost in that, and nothing may be touched any more.
        """
        self._inbox.drain(now_ms)
        self._receive(now_ms)
        self._do_due(now_ms)
        lost = self.workflows.replays.run(now_ms)
        if lost is not None:
            return Parting.DROPPED if lost.left else Parting.LOST
        self._gateway.flush()
        return None

    def _wait(self) -> None:
        timeout_ms = 0
        if not self.workflows.replays.is_ready and self._inbox.arm():
            next_ms = self.next_ms()
            timeout_ms = -1 if next_ms is None else max(0, next_ms - self._clock())
        self._stalls.waits(self._clock(), None if timeout_ms < 0 else timeout_ms)
        self.look(timeout_ms)

    def stood_still(self, now_ms: int) -> None:
        """This process was stopped until now, or kept from its turn: ask what is still ours."""
        self.activities.stood_still(now_ms)
        self._sync_at_ms = now_ms

    def look(self, timeout_ms: int) -> None:
        """Wait at most so long (-1: for ever) for something that `turn` can receive."""
        self._ripe = dict(self._poller.poll(timeout_ms))
        if self._inbox.fd in self._ripe:
            self._inbox.clear()

    def next_ms(self) -> int | None:
        """When `turn` has something to do, apart from what comes in; None: not at all."""
        times = (
            self._hello_at_ms,
            self._sync_at_ms,
            self._stop_at_ms,
            self._gone_at_ms,
            self._seek_at_ms,
            self._asks.next_ms() if self._gateway.welcomed else None,
            self.activities.next_ms(),
            self.workflows.replays.next_ms(),
        )
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def _receive(self, now_ms: int) -> None:
        if self._control is not None and self._control.socket in self._ripe:
            for order in self._control.receive():
                self._obey(order, now_ms)
        if self._gateway.monitor in self._ripe:
            self._connection_changed(now_ms)
        if self._gateway.socket in self._ripe:
            for message in self._gateway.receive():
                self._take(message, now_ms)
        if self._direct is not None:
            for socket in self._direct.sockets.values():
                if socket in self._ripe:
                    for message in self._direct.receive(socket):
                        self._take(message, now_ms)

    def _connection_changed(self, now_ms: int) -> None:
        change = self._gateway.change()
        if change is None:
            return
        self._hello_at_ms = None
        if change:
            self._say_hello(now_ms)
        elif self._locator is not None:
            self._seek_at_ms = now_ms + SEEK_AGAIN_MS

    def _do_due(self, now_ms: int) -> None:
        if self._hello_at_ms is not None and now_ms >= self._hello_at_ms:
            self._say_hello(now_ms)
        if self._sync_at_ms is not None and now_ms >= self._sync_at_ms:
            self._say_sync(now_ms)
        if self._seek_at_ms is not None and now_ms >= self._seek_at_ms:
            self._seek(now_ms)
        if self._gateway.welcomed:
            for entry in self._asks.due(now_ms):
                self._gateway.send(entry.dest, entry.message)
        self.activities.due(now_ms)
        if self._runner.stuck > limits.STUCK_THREADS_MAX and not self.is_worn_out:
            # They can't be ended but with the process; whoever runs it starts it anew.
            logs.logger().error(LogName.WORKER_WORN_OUT, threads=self._runner.stuck)
            self.is_worn_out = True
            self.stop(WORN_OUT_GRACE_MS, now_ms)
        replays_ms = self.workflows.replays.next_ms()
        if replays_ms is not None and now_ms >= replays_ms:
            self.workflows.replays.watch(now_ms)
        if self._stop_at_ms is not None and now_ms >= self._stop_at_ms:
            self._end_grace(now_ms)

    # --- messages ---------------------------------------------------------------------
    def _obey(self, order: links.FromRoot, now_ms: int) -> None:
        assert self._control is not None
        match order:
            case links.Ping():
                if not order.is_greeted:
                    self._control.hello()
                if self._ready and not order.is_ready:
                    self._control.ready(self._config.build)
                self._control.say(links.Pong(order.n, self._heard_peers))
            case links.Stop(grace_ms):
                self.stop(grace_ms, now_ms)
            case links.Peers(peers, n):
                if n >= self._heard_peers:
                    self._heard_peers = n
                    if self._direct is not None:
                        self._direct.follow(peers)
            case links.SessionDead() | links.Sessions():
                pass  # Said to every child.

    def _take(self, message: links.ToWorker, now_ms: int) -> None:
        match message:  # The most frequent first.
            case links.Answer():
                if ARMED:
                    reached(CrashPoint.WORKER_ANSWERED)
                self._saw(message.commit)
                self.activities.answered(message.n, message.answer, now_ms)
                self.workflows.answered(message.n, message.answer, now_ms)
            case links.WorkflowTask():
                self._saw(message.n)
                self.workflows.take(message, now_ms)
            case links.ActivityTask():
                self._saw(message.n)
                self.activities.take(message, now_ms)
            case links.Page() | links.Query():
                self._take_for_queries(message, now_ms)
            case links.CancelTask():
                self.activities.cancel(message.token, message.reason)
            case links.LeaseTerms():
                self.activities.terms(message)
            case links.DropWorkflow():
                self.workflows.drop(message.workflow_id)
            case links.Backlog(waits):
                self.workflows.hiring.backlog = waits
            case links.WorkerWelcome() | links.WorkerRefused() | links.RestartWorker():
                self._told(message, now_ms)
            case links.HistoryChanged():
                self.activities.base_ms = message.base_ms
                self._history_is(message.history)
                self._say_again(TO_HISTORY)

    def _take_for_queries(self, message: links.Page | links.Query, now_ms: int) -> None:
        if isinstance(message, links.Query):
            self._queries.ask(message, now_ms)
        elif not self._queries.page(message, now_ms):
            self.workflows.page(message, now_ms)

    def _saw(self, commit: int) -> None:
        if commit > self._newest:
            self._newest = commit

    def _say_hello(self, now_ms: int) -> None:
        self._gateway.hello(self._config.hello(self._trouble))
        self._hello_at_ms = now_ms + HELLO_AGAIN_MS

    def stays(self, trouble: str, now_ms: int) -> None:
        """It does not begin anew, as it was told to: say why."""
        self._trouble = trouble
        self._say_hello(now_ms)

    def _told(
        self,
        message: links.WorkerWelcome | links.WorkerRefused | links.RestartWorker,
        now_ms: int,
    ) -> None:
        if isinstance(message, links.WorkerWelcome):
            self._welcome(message, now_ms)
            return
        if isinstance(message, links.RestartWorker):
            self._trouble = ""  # What there was is looked at anew.
            self.on_restart()
            return
        self.refusal = message.message  # There is nothing to do here, and there will not be.
        logs.logger().error(LogName.PEER_REFUSED, version=message.version, message=message.message)
        self.stop(0, now_ms)

    def _welcome(self, message: links.WorkerWelcome, now_ms: int) -> None:
        self._hello_at_ms = None
        self._seek_at_ms = None
        self._gateway.welcomed = True
        if not self._config.quarantine:  # There one task is enough.
            self.workflows.hiring.session = message.session
        self.activities.base_ms = message.base_ms
        self._history_is(message.history)
        self._say_sync(now_ms)
        # Of what was said before nobody knows how far it came.
        self._say_again(None)
        if not self._ready:
            reached(CrashPoint.WORKER_WELCOMED_NOT_READY)
            self._ready = True
            logs.logger().info(LogName.WORKER_READY, worker=self._config.worker_id)
            if self._control is not None:
                self._control.ready(self._config.build)

    def _seek(self, now_ms: int) -> None:
        assert self._locator is not None
        self._seek_at_ms = now_ms + SEEK_AGAIN_MS
        self._locator.seek(self._found)

    def _found(self, endpoint: str, now_ms: int) -> None:
        if not self._gateway.welcomed:
            self._gateway.move(endpoint)

    def _history_is(self, incarnation: str) -> None:
        if incarnation != self._history:
            self._history = incarnation
            self.workflows.history_changed()

    def _say_again(self, dest: bytes | None) -> None:
        for entry in self._asks.all(dest):
            self._gateway.send(entry.dest, entry.message)

    def _say_sync(self, now_ms: int) -> None:
        self._sync_at_ms = now_ms + limits.SYNC_MS
        if self._gateway.welcomed:
            self._gateway.send(TO_BOTH, self._sync(now_ms))

    def _sync(self, now_ms: int) -> links.Sync:
        config = self._config
        return links.Sync(
            config.worker_id,
            config.queues,
            tuple(config.activities),
            tuple(config.workflows),
            config.slots,
            1 if config.quarantine else WORKFLOW_SLOTS,
            self.activities.tokens(),
            self.workflows.held(),
            self._newest,
            self._stop_at_ms is not None,
            config.quarantine,
            now_ms,
            self.workflows.hiring.backlog,
        )

    def _first_words(self) -> links.Direct:
        """To a scheduler that we have just connected to."""
        return links.Direct(self._sync(self._clock()) if self._gateway.welcomed else None)

    # --- the end ------------------------------------------------------------------------
    def is_over(self, now_ms: int) -> bool:
        """Whether it was told to stop, and has come to its end."""
        if self._stop_at_ms is None:
            return False
        if self._gone_at_ms is not None and now_ms >= self._gone_at_ms:
            return True
        busy = self.activities.running or self.workflows.running or self._runner.coroutines
        return not busy and len(self._asks) == 0

    def _end_grace(self, now_ms: int) -> None:
        self._stop_at_ms = now_ms + limits.RESEND_MAX_MS  # It has passed; never again.
        if self._gone_at_ms is None:
            self.activities.hand_back(now_ms)
            self.workflows.hand_back(now_ms)
            self._gone_at_ms = now_ms + GOODBYE_MS
