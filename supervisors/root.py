"""The root of a node: the main thread that starts, watches and kills every process of the tree.

Supervisors decide (threads of their own), this thread does. It waits in one place, for requests of
supervisors, messages of children, deaths, signals and its own timers.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import sys

import psutil
from msgspec import msgpack

from perdure.clock import wall_ms
from perdure.core.links import ROOT
from perdure.crash_points import CrashPoint, act_as, reached
from perdure.node_client import NodeInfo
from perdure.process import Checked
from perdure.streams import protect_streams
from supervisors.child_spec import SupervisorSpec, check_tree
from supervisors.config import (
    EXIT_BAD_INPUT,
    EXIT_ESCALATED,
    Endpoints,
    NodeConfig,
    check_config,
)
from supervisors.node_files import NodeFiles, Refused
from supervisors.processes import Launcher, StartFailed
from supervisors.signals import Signals
from supervisors.tree import node_tree

LAST_BREATH_MS = 1_000
CHECK_APPS = "perdure.worker.main:check_apps"


def run_node(
    config: NodeConfig, *, tree: SupervisorSpec | None = None, check_apps: str = CHECK_APPS
) -> int:
    """Run a node in this process's main thread until it is stopped; the exit status.

    0: stopped as it was told to. 1: a supervisor gave up. 2: bad input. 6: the data
    directory or an endpoint is held. One line on standard error says why. `tree` and `check_apps`
    are for tests of the tree itself.
    """
    act_as(ROOT)
    protect_streams()
    endpoints = Endpoints()
    files = NodeFiles(config.data_dir)
    launcher = Launcher()
    signals = Signals()
    is_open = False
    try:
        check_config(config)
        tree = tree or node_tree(
            workers=config.workers, grace_ms=config.grace_ms, drains=bool(config.outboxes)
        )
        check_tree(tree)
        files.open()
        is_open = True
        reached(CrashPoint.SUPERVISOR_DIRECTORY_HELD)
        launcher.warm_up(str(files.run_dir))
        public = (f"ipc://{files.run_dir}/public", *endpoints.claim(config.bind))
        found = _check_apps(config, launcher, signals, check_apps)
        if not (found.workflow_types or found.activity_types):
            apps = ", ".join(config.apps)
            _complain(f"warning: {apps}: no workflow and no activity is defined there")
        is_open = False
        return _serve(config, tree, files, launcher, signals, public)
    except Refused as refused:
        if is_open:
            files.undo()
        _complain(refused.message)
        return refused.exit_code
    finally:
        signals.close()
        launcher.close()
        endpoints.close()


def _serve(
    config: NodeConfig,
    tree: SupervisorSpec,
    files: NodeFiles,
    launcher: Launcher,
    signals: Signals,
    public: tuple[str, ...],
) -> int:
    # Imported late: the forkserver loads what it needs at the same time, on another core.
    from supervisors.node import Node

    name = f"node.{secrets.token_hex(5)}"
    started_wall_ms = wall_ms()

    def announce() -> None:
        info = NodeInfo(
            pid=os.getpid(),
            pid_started=psutil.Process().create_time(),
            node=name,
            endpoint=public[0],
            root=f"ipc://{files.run_dir}/root",
            run_dir=str(files.run_dir),
            endpoints=public,
        )
        files.write_node(info)
        reached(CrashPoint.SUPERVISOR_ANNOUNCED_NOT_SAID)
        _print_ready(public)

    node = Node(
        config=config,
        tree=tree,
        name=name,
        files=files,
        launcher=launcher,
        signals=signals,
        public=public,
        started_wall_ms=started_wall_ms,
        announce=announce,
    )
    try:
        code, reason = node.run()
        reached(CrashPoint.SUPERVISOR_TREE_STOPPED)
    finally:
        node.close()
        files.close()
    if reason:
        _complain(reason)
    return code


def _check_apps(config: NodeConfig, launcher: Launcher, signals: Signals, target: str) -> Checked:
    """Import the applications once, in a process of their own, before anything is started.

    What killed that process once, or the forkserver, says nothing about the applications.
    """
    for is_last in (False, True):
        try:
            checked, code = _check_once(config, launcher, signals, target)
        except StartFailed as error:
            if is_last:
                raise Refused(EXIT_ESCALATED, f"cannot start processes: {error}") from error
            continue
        if checked is not None:
            if not checked.ok:
                raise Refused(EXIT_BAD_INPUT, checked.message)
            return checked
        if code not in (-signal.SIGKILL, None):
            break
    apps = ", ".join(config.apps) or "the application"
    raise Refused(EXIT_BAD_INPUT, f"loading {apps} ended its process (exit status {code})")


def _check_once(
    config: NodeConfig, launcher: Launcher, signals: Signals, target: str
) -> tuple[Checked | None, int | None]:
    """What was found, or None and how the process ended. Raises StartFailed."""
    handle, reader = launcher.start_check(target, config.apps, os.path.abspath(config.cwd))
    poller = select.poll()
    for fd in (reader.fileno(), handle.fd, signals.fd):
        poller.register(fd, select.POLLIN)
    ready = {fd for fd, _ in poller.poll()}
    checked: Checked | None = None
    if reader.fileno() in ready:
        try:
            checked = msgpack.decode(reader.recv_bytes(), type=Checked)
        except EOFError:
            checked = None
    if signals.fd in ready and checked is None:
        reader.close()
        handle.kill()
        handle.finish()
        raise Refused(0, "stopped before anything was started")
    if checked is None:
        poller.unregister(reader)
        poller.poll(LAST_BREATH_MS)  # It ends by itself, and its status is worth telling.
    reader.close()
    handle.kill()  # What a user's module left running there is of no use to anybody.
    return checked, handle.finish()


def _print_ready(public: tuple[str, ...]) -> None:
    # Where whoever started us does not listen any more, that is no reason to stop serving.
    sys.stdout.write(f"ready {' '.join(public)}\n")
    sys.stdout.flush()


def _complain(message: str) -> None:
    sys.stderr.write(f"perdure: {' '.join(message.split())}\n")
    sys.stderr.flush()
