"""The main thread of a node: one loop that does what supervisors decide, and tells everybody what
happens.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pykka
import zmq

from perdure.clock import boottime_ms, wall_ms
from perdure.core import links
from perdure.crash_points import CrashPoint, reached
from perdure.log_names import LogName
from perdure.logs import configure, logger
from supervisors.boots import Boots
from supervisors.child_spec import Kind, SupervisorSpec, processes
from supervisors.children import Child, State, describe
from supervisors.config import EXIT_ESCALATED, NodeConfig
from supervisors.control import Control, PsRequest, ReloadRequest
from supervisors.liveness import PING_MS, Liveness
from supervisors.news import News
from supervisors.node_files import NodeFiles
from supervisors.processes import Launcher, StartFailed
from supervisors.quarantine import QuarantinePool
from supervisors.reload import Reload
from supervisors.sessions import LocalSessions
from supervisors.signals import Signals
from supervisors.storage import EXIT_COMMIT_FAILED, FAILED_TWICE, StorageFailures, drop_cached_pages
from supervisors.supervision import Exit
from supervisors.supervisor import (
    Begin,
    Demand,
    Exited,
    GaveUp,
    Request,
    Shutdown,
    StartProcess,
    StopProcess,
    Supervisor,
    SupervisorStopped,
)
from supervisors.timers import Timers
from supervisors.watching import Watch

# A child that can't begin says why and exits; its exit may be seen before its words.
LAST_WORDS_MS = 20


class Node:
    """Everything of one node start that lives in the root process.

    `announce` is called once, when all are ready.
    """

    def __init__(
        self,
        *,
        config: NodeConfig,
        tree: SupervisorSpec,
        name: str,
        files: NodeFiles,
        launcher: Launcher,
        signals: Signals,
        public: tuple[str, ...],
        started_wall_ms: int,
        announce: Callable[[], None],
    ) -> None:
        configure(config.log_json)
        self._log = logger(node=name)
        self._tree = tree
        self._files = files
        self._launcher = launcher
        self._signals = signals
        self._announce = announce
        self._started_wall_ms = started_wall_ms
        self._children = {spec.id: Child(spec) for spec in processes(tree)}
        self._by_fd: dict[int, Child] = {}
        self._boots = Boots(config, name, str(files.data_dir), str(files.run_dir), public)
        self._control = Control(self._boots.root_endpoint, self._log)
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._timers = Timers()
        self._reload = Reload(
            self._children, self._control, self._boots, self._log, self._stop, self._start
        )
        self._news = News(self._children, self._control, LocalSessions(name), self._timers)
        self._storage = StorageFailures()
        on_demand = [spec.id for spec in processes(tree) if spec.on_demand]
        self._pool = QuarantinePool(on_demand)
        self._watch = Watch(self._children, self._news, self._log)
        self._poller = zmq.Poller()
        for source in (self._control.socket, self._wake, signals.fd):
            self._poller.register(source, zmq.POLLIN)
        self._top: pykka.ActorRef[Supervisor] | None = None
        self._state = State.STARTING
        self._is_killing = False
        self._is_finished = False
        self._exit_code = 0
        self._reason = ""

    # --- the loop -----------------------------------------------------------
    def run(self) -> tuple[int, str]:
        """Start the tree, serve until it has stopped: exit status, and the reason where that is not
        0.
        """
        self._log.info(LogName.NODE_STARTING, data_dir=str(self._files.data_dir))
        self._top = Supervisor.start(self._tree, self._ask)
        self._top.tell(Begin())
        self._timers.after(PING_MS, self._look)
        while not self._is_finished:
            self._turn()
        return self._exit_code, self._reason

    def _ask(self, request: Request) -> None:
        """From a supervisor's thread."""
        self._requests.put(request)
        os.eventfd_write(self._wake, 1)

    def _turn(self) -> None:
        ready = {source for source, _ in self._poller.poll(self._timers.timeout_ms())}
        if self._signals.fd in ready:
            for _ in range(self._signals.take()):
                self._on_signal()
        # Words before deaths: a child may have said why it ends.
        if self._control.socket in ready:
            self._hear()
        for fd in ready & self._by_fd.keys():
            self._on_exit(self._by_fd[fd])
        if self._wake in ready:
            os.eventfd_read(self._wake)
            while not self._requests.empty():
                self._perform(self._requests.get())
        self._timers.run()
        if self._is_killing and not self._by_fd:
            self._is_finished = True

    # --- what supervisors ask for -------------------------------------------
    def _perform(self, request: Request) -> None:
        match request:
            case StartProcess(id=name, delay_ms=delay_ms, is_restart=is_restart):
                self._plan_start(self._children[name], request.supervisor, delay_ms, is_restart)
            case StopProcess(id=name):
                self._stop(self._children[name])
            case GaveUp(id=name, reason=reason):
                self._log.error(LogName.SUPERVISOR_GAVE_UP, supervisor=name, reason=reason)
                self._shut_down(EXIT_ESCALATED, reason)
                if not (self._top and self._top.is_alive()):
                    self._kill_all()
            case SupervisorStopped():
                self._is_finished = True

    def _plan_start(self, child: Child, supervisor: Any, delay_ms: int, is_restart: bool) -> None:
        child.supervisor = supervisor
        if is_restart:
            reached(CrashPoint.SUPERVISOR_RESTART_DECIDED)
        child.restarts += is_restart
        child.starts += 1
        if delay_ms == 0:
            self._start(child)
            return
        child.state = State.WAITING
        planned = child.starts

        def start() -> None:
            if child.state is State.WAITING and child.starts == planned:
                self._start(child)

        self._timers.after(delay_ms, start)

    def _start(self, child: Child) -> None:
        if self._is_killing:
            return
        if child.spec.kind is Kind.WORKER:
            child.session = self._news.open_session()
        boot = self._boots.make(child.spec, child.session)
        child.incarnation = boot.incarnation
        child.state = State.STARTING
        child.started_wall_ms = wall_ms()
        try:
            handle = self._launcher.start(child.spec.id, self._boots.pack(boot), child.spec.start)
        except StartFailed as error:
            self._log.error(LogName.CHILD_EXITED, child=child.spec.id, error=str(error))
            self._ended(child, None)
            return
        reached(CrashPoint.SUPERVISOR_CHILD_STARTED_NOT_RECORDED)
        child.handle = handle
        child.beginning = Liveness(limit_ms=child.spec.ready_within_ms, now_ms=boottime_ms())
        self._by_fd[handle.fd] = child
        self._poller.register(handle.fd, zmq.POLLIN)
        self._log.info(
            LogName.CHILD_STARTED,
            child=child.spec.id,
            pid=handle.pid,
            incarnation=child.incarnation,
            restarts=child.restarts,
        )

    def _stop(self, child: Child) -> None:
        if child.handle is None:
            # It waits for its restart, or has just ended: its supervisor hears of the end once.
            if child.state is State.WAITING:
                self._ended(child, None)
            return
        child.state = State.STOPPING
        grace_ms = child.spec.shutdown_ms
        if child.spec.kind is Kind.WORKER:
            grace_ms = min(grace_ms, self._boots.grace_ms)
        stop = links.Stop(grace_ms)
        if not child.has_said_hello or not self._control.send(child.incarnation, [stop]):
            child.handle.kill()  # It has not begun, so there is nothing to end in order.
            return
        child.stop_by_ms = boottime_ms() + grace_ms
        handle = child.handle

        def kill() -> None:
            if child.handle is handle:
                self._log.warning(LogName.CHILD_KILLED, child=child.spec.id, pid=handle.pid)
                handle.kill()

        self._timers.after(child.spec.shutdown_ms, kill)

    # --- what happens to children -------------------------------------------
    def _on_exit(self, child: Child) -> None:
        handle = child.handle
        if handle is None:
            return
        if child.ready_at_ms is None and self._control.socket.poll(
            0 if self._is_killing else LAST_WORDS_MS
        ):
            self._hear()
        self._poller.unregister(handle.fd)
        del self._by_fd[handle.fd]
        code = handle.finish()
        reached(CrashPoint.SUPERVISOR_DEATH_SEEN)
        self._log.info(
            LogName.CHILD_EXITED,
            child=child.spec.id,
            pid=handle.pid,
            incarnation=child.incarnation,
            exit_code=code,
            was_ready=child.ready_at_ms is not None,
        )
        if child.spec.id == links.HISTORY:
            self._look_at_storage(code, child.ready_at_ms is not None)
        self._ended(child, code)

    def _look_at_storage(self, code: int | None, was_ready: bool) -> None:
        if self._storage.is_final(exit_code=code, was_ready=was_ready):
            self._shut_down(EXIT_ESCALATED, FAILED_TWICE)
        elif code == EXIT_COMMIT_FAILED:
            drop_cached_pages(self._files.data_dir)

    def _ended(self, child: Child, code: int | None) -> None:
        """Tell the supervisor, the peers, and those who know the sessions; in this order, before
        any restart.
        """
        name, session, was_peer = child.spec.id, child.session, child.is_peer
        exit_ = Exit(
            id=name,
            exit_code=code,
            ready_at_ms=child.ready_at_ms,
            at_ms=boottime_ms(),
            was_late=child.is_late,
            was_asked=self._reload.ended(child),
        )
        self._control.forget(child.incarnation)
        inbox = child.endpoint.removeprefix("ipc://")
        child.reset()
        child.state = State.STOPPED
        if child.spec.on_demand and self._pool.ended(name):
            self._demand()  # Before it is heard as an exit: it is not to be restarted.
        # One that crashed hears nothing any more; that it gave up is on its way.
        with suppress(pykka.ActorDeadError):
            child.supervisor.tell(Exited(exit_))
        if was_peer:
            self._news.tell_peers()
            Path(inbox).unlink(missing_ok=True)
        if session is not None:
            self._news.session_died(session)

    def _hear(self) -> None:
        for sender, message in self._control.receive():
            match message:
                case PsRequest():
                    tree = describe(
                        self._tree,
                        self._children,
                        state=self._state,
                        started_wall_ms=self._started_wall_ms,
                    )
                    self._control.answer(message, tree)
                case ReloadRequest():
                    self._reload.asked(message, is_running=self._state is State.RUNNING)
                case links.SessionDone(session=session):
                    self._news.session_done(session)
                case links.RemoteWorkers() | links.Outboxes():
                    self._on_seen(sender, message)
                case links.Pong():
                    self._on_pong(sender, message)
                case links.Quarantine():
                    self._on_quarantine(sender, message)
                case links.ChildHello():
                    self._on_hello(sender, message)
                case links.ChildReady(role=role, incarnation=incarnation, build=build):
                    self._on_ready(role, incarnation, build)
                case links.ChildFailed():
                    self._on_failed(message)

    def _current(self, role: str, incarnation: str) -> Child | None:
        child = self._children.get(role)
        return child if child is not None and child.incarnation == incarnation else None

    def _on_seen(self, sender: str, message: links.RemoteWorkers | links.Outboxes) -> None:
        """What `ps` shows below a child."""
        child = self._current(sender.rpartition(".")[0], sender)
        if child is not None and isinstance(message, links.RemoteWorkers):
            child.remote_workers = message.worker_ids
        elif child is not None and isinstance(message, links.Outboxes):
            child.outboxes = message.states

    def _on_hello(self, sender: str, hello: links.ChildHello) -> None:
        child = self._current(hello.role, hello.incarnation)
        if child is None:
            # Started by a forkserver that died meanwhile: nobody watches it.
            self._control.send(sender, [links.Stop(0)])
            return
        child.has_said_hello = True
        child.endpoint = hello.endpoint
        reached(CrashPoint.SUPERVISOR_CHILD_HEARD_NOT_TOLD)
        self._news.greet(child)

    def _on_ready(self, role: str, incarnation: str, build: str) -> None:
        child = self._current(role, incarnation)
        if child is None or child.ready_at_ms is not None:
            return
        now_ms = boottime_ms()
        child.ready_at_ms, child.build = now_ms, build
        if child.state is State.STARTING:
            child.state = State.RUNNING
        if child.spec.silence_ms is not None:
            child.liveness = Liveness(limit_ms=child.spec.silence_ms, now_ms=now_ms)
        self._log.info(LogName.CHILD_READY, child=role, incarnation=incarnation)
        self._reload.ready(child)
        if self._state is State.STARTING and all(
            each.ready_at_ms is not None or each.spec.on_demand for each in self._children.values()
        ):
            self._state = State.RUNNING
            reached(CrashPoint.SUPERVISOR_ALL_READY_NOT_ANNOUNCED)
            self._announce()
            self._log.info(LogName.NODE_READY, ms=wall_ms() - self._started_wall_ms)

    def _on_failed(self, failed: links.ChildFailed) -> None:
        child = self._current(failed.role, failed.incarnation)
        if child is None:
            return
        self._log.error(
            LogName.CHILD_FAILED,
            child=failed.role,
            exit_code=failed.exit_code,
            message=failed.message,
        )
        self._reload.said(failed.role, failed.message)
        if child.spec.kind is Kind.WORKER and self._state is State.RUNNING:
            return  # The node has served with this application before: it is restarted ever slower.
        self._shut_down(failed.exit_code or EXIT_ESCALATED, failed.message)

    def _on_quarantine(self, sender: str, message: links.Quarantine) -> None:
        if self._current(links.SCHEDULER, sender) is None:
            return
        there = {name: child.session for name, child in self._children.items() if child.session}
        self._pool.heard(message, {name: session.ordinal for name, session in there.items()})
        self._demand()

    def _demand(self) -> None:
        if self._top is not None:
            with suppress(pykka.ActorDeadError):
                self._top.tell(Demand(self._pool.wanted))

    def _on_pong(self, sender: str, pong: links.Pong) -> None:
        child = self._current(sender.rpartition(".")[0], sender)
        if child is not None:
            self._watch.answered(child, pong)

    def _look(self) -> None:
        self._timers.after(PING_MS, self._look)
        self._watch.look(boottime_ms())

    # --- the end ------------------------------------------------------------
    def _on_signal(self) -> None:
        if self._state is State.STOPPING:
            self._reason = self._reason or "stopped at once by a second signal"
            self._kill_all()
        else:
            self._shut_down(0, "")

    def _shut_down(self, exit_code: int, reason: str) -> None:
        if self._state is State.STOPPING:
            return
        self._state = State.STOPPING
        self._reload.given_up("the node stops")
        self._exit_code, self._reason = exit_code, reason
        reached(CrashPoint.SUPERVISOR_STOP_BEGUN)
        self._log.info(LogName.NODE_STOPPING, exit_code=exit_code, reason=reason)
        if self._top is not None:
            with suppress(pykka.ActorDeadError):
                self._top.tell(Shutdown())

    def _kill_all(self) -> None:
        self._is_killing = True
        for child in self._by_fd.values():
            if child.handle is not None:
                child.handle.kill()

    def close(self) -> None:
        """Nothing is left after this: no process, no thread, no socket."""
        self._kill_all()
        while self._by_fd:
            for fd, _ in self._poller.poll():
                if fd in self._by_fd:
                    self._on_exit(self._by_fd[fd])
        pykka.ActorRegistry.stop_all(block=True)
        self._control.close()
        os.close(self._wake)
        self._log.info(LogName.NODE_STOPPED, exit_code=self._exit_code, reason=self._reason)
