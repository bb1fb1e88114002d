"""The root of a simulated node: the real supervision, sessions and liveness, over simulated
processes.

What supervisors/node.py does with pipes and signals is done here with events; who is started, when,
and when a node gives up is decided by the same classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from actors.dlq import Dlq
from actors.gateway import Gateway
from actors.history import History
from actors.lease_keeper import LeaseKeeper
from actors.mailbox import Mailbox
from actors.scheduler import Scheduler
from chaos.sim.host import ROOT_ADDRESS, ActorProcess
from chaos.sim.loop import MS_US
from chaos.sim.process import SIGKILLED, Frames, Process
from chaos.sim.worker import WorkerProcess
from perdure.core import links
from perdure.core.boot import Boot
from supervisors.child_spec import ChildSpec, Kind, SupervisorSpec, processes
from supervisors.children import Child, State
from supervisors.liveness import PING_MS, Liveness
from supervisors.news import News
from supervisors.quarantine import QuarantinePool
from supervisors.sessions import LocalSessions
from supervisors.storage import EXIT_COMMIT_FAILED, StorageFailures
from supervisors.supervision import Action, Done, Exit, GiveUp, Start, Stop, Supervision
from supervisors.tree import node_tree

if TYPE_CHECKING:
    from chaos.sim.world import World

SPAWN_US = 12_000  # From the decision to the first turn of a process.
DEATH_US = 300  # From the end of a process to the root's knowledge of it.
GRACE_MS = 500

_decoder = msgspec.msgpack.Decoder(list[links.ToRoot])
ACTORS: dict[str, type[Mailbox]] = {
    links.HISTORY: History,
    links.LEASE_KEEPER: LeaseKeeper,
    links.SCHEDULER: Scheduler,
    links.DLQ: Dlq,
    links.GATEWAY: Gateway,
}


class _Timers:
    """What News plans its calls with."""

    def __init__(self, root: RootProcess) -> None:
        self._root = root

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Plan a call."""
        root = self._root
        root.loop.after(delay_ms * MS_US, root.deliver, lambda frames: call(), [b"timer"])


class RootProcess(Process):
    """One start of a node."""

    def __init__(self, world: World, tree: SupervisorSpec | None = None) -> None:
        super().__init__(world, links.ROOT, links.ROOT)
        self.node = f"node.{world.chance.hex('names')}"
        knobs = world.plan.knobs
        self._tree = tree or node_tree(workers=knobs.workers, grace_ms=GRACE_MS)
        self._supervisions: dict[str, Supervision] = {}
        self._parents: dict[str, str] = {}
        self._note_supervisors(self._tree, "")
        self.children = {spec.id: Child(spec) for spec in processes(self._tree)}
        self._of = {spec.id: name for name, spec in self._leaves(self._tree)}
        self._living: dict[str, Process] = {}
        self._storage = StorageFailures()
        self._pool = QuarantinePool(
            [name for name, it in self.children.items() if it.spec.on_demand]
        )
        timers: Any = _Timers(self)
        control: Any = self
        self._news = News(
            self.children, control, LocalSessions(self.node), timers, clock=self._now_ms
        )
        self.is_stopping = False
        self.gave_up = ""

    def _note_supervisors(self, spec: SupervisorSpec, parent: str) -> None:
        self._supervisions[spec.id] = Supervision(spec)
        self._parents[spec.id] = parent
        for child in spec.children:
            if isinstance(child, SupervisorSpec):
                self._note_supervisors(child, spec.id)

    def _leaves(self, spec: SupervisorSpec) -> list[tuple[str, ChildSpec]]:
        found: list[tuple[str, ChildSpec]] = []
        for child in spec.children:
            if isinstance(child, SupervisorSpec):
                found += self._leaves(child)
            else:
                found.append((spec.id, child))
        return found

    def _now_ms(self) -> int:
        return self.here_us() // MS_US - self.world.booted_ms

    # --- turns ------------------------------------------------------------------------
    def begin(self) -> None:
        """Start the tree."""
        self.deliver(lambda frames: self._begin(), [b"begin"])

    def _begin(self) -> None:
        self._perform(self._tree.id, self._supervisions[self._tree.id].start())
        self._plan_ping()

    def work(self) -> None:
        """Hear children, timers and deaths."""
        self.drain()

    def next_us(self) -> int | None:
        """Nothing by itself: timers come as frames."""
        return None

    def take_frame(self, frames: Frames) -> None:
        """A child says something."""
        sender = self.world.by_address.get(frames[0])
        if sender is None:
            return
        self.routes.setdefault(frames[0], sender)
        for message in _decoder.decode(frames[-1]):
            self._hear(sender.name, message)

    # --- supervision ------------------------------------------------------------------
    def _perform(self, supervisor: str, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Start(id=name, delay_ms=delay_ms, is_restart=is_restart):
                    if name in self._supervisions:
                        self._perform(name, self._supervisions[name].start())
                    else:
                        self._plan_start(self.children[name], delay_ms, is_restart)
                case Stop(id=name):
                    if name in self._supervisions:
                        self._perform(name, self._supervisions[name].shutdown())
                    else:
                        self._stop(self.children[name])
                case GiveUp(reason=reason):
                    self.gave_up = reason
                    self.shut_down()
                case Done():
                    parent = self._parents[supervisor]
                    if not parent:
                        self.end(1 if self.gave_up else 0)
                        return
                    exit_ = Exit(id=supervisor, exit_code=0, ready_at_ms=None, at_ms=0)
                    self._perform(parent, self._supervisions[parent].exited(exit_))

    def shut_down(self) -> None:
        """Stop everything in order."""
        if not self.is_stopping:
            self.is_stopping = True
            self._perform(self._tree.id, self._supervisions[self._tree.id].shutdown())

    def _plan_start(self, child: Child, delay_ms: int, is_restart: bool) -> None:
        child.restarts += is_restart
        child.starts += 1
        child.state = State.WAITING
        planned = child.starts
        if delay_ms:
            self.world.goal("a restart waited")

        def start(frames: Frames) -> None:
            if child.state is State.WAITING and child.starts == planned:
                self._start(child)

        self.loop.after(delay_ms * MS_US, self.deliver, start, [b"start"])

    def _start(self, child: Child) -> None:
        role = child.spec.id
        if child.spec.kind is Kind.WORKER:
            child.session = self._news.open_session()
        child.incarnation = f"{role}.{self.world.chance.hex('names')}"
        child.state = State.STARTING
        boot = self._boot(child)
        if child.spec.kind is Kind.WORKER:
            if child.spec.on_demand:
                self.world.goal("a worker in quarantine started")
            process: Process = WorkerProcess(
                self.world, boot, child.session, is_quarantine=child.spec.on_demand
            )
        else:
            process = ActorProcess(self.world, ACTORS[role], boot)
        self._living[role] = process
        process.on_end = self._process_ended
        process.wake(self.here_us() + self.world.spawn_us(SPAWN_US))

    def _boot(self, child: Child) -> Boot:
        role = child.spec.id
        return Boot(
            role=role,
            incarnation=child.incarnation,
            node=self.node,
            data_dir="sim",
            run_dir="sim",
            root_endpoint="root",
            inbox_endpoint="" if child.spec.kind is Kind.WORKER else f"sim/{child.incarnation}",
            public_endpoints=("public",),
            workers_endpoint="workers",
            options=self._options(role),
        )

    def _options(self, role: str) -> dict[str, Any]:
        if role == links.HISTORY:
            return {"dlq_after_attempts": 5, "rules": self.world.plan.knobs.rules}
        if role == links.SCHEDULER:
            knobs = self.world.plan.knobs
            return {"quarantine_max": knobs.workers, "rules": knobs.rules}
        return {}

    def _stop(self, child: Child) -> None:
        process = self._living.get(child.spec.id)
        if process is None:
            if child.state is State.WAITING:
                self._ended(child, None)
            return
        child.state = State.STOPPING
        grace_ms = min(child.spec.shutdown_ms, GRACE_MS)
        if not child.has_said_hello or not self.send(child.incarnation, [links.Stop(grace_ms)]):
            process.end(SIGKILLED)
            return
        child.stop_by_ms = self._now_ms() + grace_ms
        delay_us = child.spec.shutdown_ms * MS_US
        self.loop.after(delay_us, process.end, SIGKILLED)

    # --- deaths -------------------------------------------------------------------------
    def _process_ended(self, process: Process) -> None:
        code = process.exit_code
        self.loop.after(
            DEATH_US, self.deliver, lambda frames: self._on_exit(process), [b"%d" % (code or 0)]
        )

    def _on_exit(self, process: Process) -> None:
        child = self.children[process.role]
        if self._living.get(process.role) is not process:
            return
        del self._living[process.role]
        code = process.exit_code
        if child.spec.id == links.HISTORY:
            was_ready = child.ready_at_ms is not None
            if self._storage.is_final(exit_code=code, was_ready=was_ready):
                self.gave_up = "a second commit failed in a row"
                self.world.goal("a second I/O error stopped the node")
                self.shut_down()
            elif code == EXIT_COMMIT_FAILED:
                self.world.goal("history ended at an I/O error")
        self._ended(child, code)

    def _ended(self, child: Child, code: int | None) -> None:
        name, session, was_peer = child.spec.id, child.session, child.is_peer
        exit_ = Exit(id=name, exit_code=code, ready_at_ms=child.ready_at_ms, at_ms=self._now_ms())
        child.reset()
        child.state = State.STOPPED
        if child.spec.on_demand and self._pool.ended(name):
            self._demand()
        supervisor = self._of[name]
        self._perform(supervisor, self._supervisions[supervisor].exited(exit_))
        if was_peer:
            self._news.tell_peers()
        if session is not None:
            self._news.session_died(session)

    def ended(self) -> None:
        """Nothing of a node outlives its root."""
        for process in list(self._living.values()):
            process.on_end = None
            process.end(SIGKILLED)
        self._living.clear()

    # --- words ----------------------------------------------------------------------------
    def _hear(self, sender: str, message: links.ToRoot) -> None:
        match message:
            case links.SessionDone(session=session):
                self._news.session_done(session)
            case links.Pong():
                child = self._current(sender)
                if child is not None:
                    self._news.answered(child, message)
                    if child.liveness is not None:
                        child.awaits_pong = False
                        child.liveness.heard()
            case links.ChildHello():
                self._on_hello(message)
            case links.ChildReady(incarnation=incarnation):
                self._on_ready(incarnation)
            case links.ChildFailed():
                self.gave_up = message.message
                self.shut_down()
            case links.Quarantine():
                self._on_quarantine(sender, message)
            case links.RemoteWorkers() | links.Outboxes():
                pass

    def _on_quarantine(self, sender: str, message: links.Quarantine) -> None:
        if self._current(sender) is None:
            return
        there = {name: child.session for name, child in self.children.items() if child.session}
        self._pool.heard(message, {name: session.ordinal for name, session in there.items()})
        self._demand()

    def _demand(self) -> None:
        for name, supervision in self._supervisions.items():
            self._perform(name, supervision.demand(self._pool.wanted))

    def _current(self, incarnation: str) -> Child | None:
        child = self.children.get(incarnation.rpartition(".")[0])
        return child if child is not None and child.incarnation == incarnation else None

    def _on_hello(self, hello: links.ChildHello) -> None:
        child = self._current(hello.incarnation)
        if child is not None:
            child.has_said_hello = True
            child.endpoint = hello.endpoint
            self._news.greet(child)

    def _on_ready(self, incarnation: str) -> None:
        child = self._current(incarnation)
        if child is None or child.ready_at_ms is not None:
            return
        child.ready_at_ms = now_ms = self._now_ms()
        if child.state is State.STARTING:
            child.state = State.RUNNING
        if child.spec.silence_ms is not None:
            child.liveness = Liveness(limit_ms=child.spec.silence_ms, now_ms=now_ms)

    def send(self, peer: str, messages: Sequence[links.Message]) -> bool:
        """As supervisors.control.Control."""
        target = self.routes.get(peer.encode("ascii"))
        if target is None:
            return False
        self.world.net.send(
            self, target, target.take_frame, [ROOT_ADDRESS, b"", links.pack(messages)]
        )
        return True

    def _plan_ping(self) -> None:
        delay_us = PING_MS * MS_US
        self.loop.after(delay_us, self.deliver, lambda frames: self._ping(), [b"ping"])

    def _ping(self) -> None:
        self._plan_ping()
        now_ms = self._now_ms()
        for child in self.children.values():
            process = self._living.get(child.spec.id)
            if process is None:
                continue
            if child.liveness is not None and child.state is State.RUNNING:
                if child.liveness.look(now_ms=now_ms, in_disk_sleep=False):
                    self.world.goal("silence killed a child")
                    process.end(SIGKILLED)
                    continue
                child.awaits_pong = True
            self._news.ping(child)
