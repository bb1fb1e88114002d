"""What a worker process does, from its first line to its last: beside a node, or on its own."""

from __future__ import annotations

import gc
import os
import re
import secrets
import socket
import sys
import threading
from collections.abc import Sequence
from typing import NamedTuple

import zmq

from perdure import logs, registry
from perdure.births import birth_of
from perdure.client import TIMEOUT_MS, Client
from perdure.core.boot import Boot
from perdure.core.ids import Session
from perdure.crash_points import CrashPoint, reached
from perdure.errors import InvalidArgument
from perdure.log_names import LogName
from perdure.worker import guard
from perdure.worker.build import build_of
from perdure.worker.locator import Locator
from perdure.worker.restarting import Restarting, execute_again, trouble_with
from perdure.worker.session import Config, Worker
from perdure.worker.sockets import ControlLink, GatewayLink, Inbox
from perdure.worker.speaking import speak_for_workflows
from perdure.worker.stopping import Stopping, leave

SLOTS_DEFAULT = 100
QUEUES_DEFAULT = ("default",)
GRACE_MS_DEFAULT = 5_000
EXIT_BAD_INPUT = 2
EXIT_WORN_OUT = 3  # Too many threads are stuck in code that does not return.
HASH_SEED = "PYTHONHASHSEED"
# Threads that compute hand the interpreter over this often, so that the main loop gets its turn.
SWITCH_SECONDS = 0.001
GC_THRESHOLD = 25_000


class AppCheck(NamedTuple):
    """Whether the applications can be loaded, why not (one line), and what they define."""

    ok: bool
    message: str
    workflow_types: tuple[str, ...]
    activity_types: tuple[str, ...]


def check_apps(apps: Sequence[str], cwd: str) -> AppCheck:
    """Import the applications in this process, modules of `cwd` first, and say what came of it."""
    try:
        found = load_apps(apps, cwd)
    except InvalidArgument as refusal:
        return AppCheck(False, " ".join(refusal.message.split()), (), ())
    return AppCheck(True, "", tuple(found.workflows), tuple(found.activities))


def load_apps(apps: Sequence[str], cwd: str) -> registry.Registry:
    """The workflows and activities of these modules; InvalidArgument where one can't be loaded."""
    directory = os.path.abspath(cwd)
    # In front of everything, whoever put it elsewhere: the user's `actors` is not ours.
    sys.path[:] = [directory, *(entry for entry in sys.path if entry != directory)]
    return registry.load(apps)


def main(boot: Boot) -> None:
    """The life of a local worker: until the root says Stop.

    `boot.options`: apps, cwd, slots, queues, worker_id, the ordinal of its session, and whether it
    is in quarantine. Does not return where a user's code still runs at the end: the process exits
    with 0.
    """
    logs.configure(boot.log_json)
    options = boot.options
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    control = ControlLink(context, boot)
    control.hello()
    guard.install()  # Before the application, which may import by name what is guarded.
    try:
        found = load_apps(options.get("apps", ()), options.get("cwd", "."))
    except InvalidArgument as refusal:
        control.failed(EXIT_BAD_INPUT, " ".join(refusal.message.split()))
        control.close()
        context.term()
        sys.exit(EXIT_BAD_INPUT)
    reached(CrashPoint.WORKER_APPLICATION_LOADED)
    config = _config(
        found,
        worker_id=options.get("worker_id", boot.role),
        node=boot.node,
        session=Session(boot.node, options["ordinal"]),
        slots=options.get("slots", SLOTS_DEFAULT),
        queues=tuple(options.get("queues", QUEUES_DEFAULT)),
        quarantine=options.get("quarantine", False),
        apps=tuple(options.get("apps", ())),
        build=options.get("build") or build_of(options.get("cwd", "."), options.get("apps", ())),
    )
    _tune()
    inbox = Inbox()
    gateway = GatewayLink(context, boot.workers_endpoint)
    worker = Worker(config, gateway, inbox, control=control)
    if not config.quarantine:
        worker.connect_directly(context, boot.incarnation)
    is_quiet = worker.run()
    code = _code_of(worker)
    worker.close()
    context.term()
    if code or not (is_quiet and _only_daemons()):
        leave(code)


def run_external(
    apps: Sequence[str],
    cwd: str,
    endpoint: str | None = None,
    slots: int = SLOTS_DEFAULT,
    queues: Sequence[str] = QUEUES_DEFAULT,
    *,
    worker_id: str | None = None,
    grace_ms: int = GRACE_MS_DEFAULT,
    log_json: bool = True,
    stopping: Stopping | None = None,
    build: str = "",
    timeout_ms: int = TIMEOUT_MS,
) -> int:
    """The life of `perdure worker`, in the main thread: until SIGINT or SIGTERM. The exit status.

    `endpoint` is a node's public one, found as by `perdure.Client` where it is not given. A second
    signal ends the process at once. InvalidArgument where an application can't be loaded,
    Unavailable where no node answers within `timeout_ms`. Where PYTHONHASHSEED is not 0 the process
    executes itself again with that, so that sets of texts have one order in every worker.
    `stopping`: where the caller minds the signals already. `build`: what the application is called;
    by default it is named by what its files hold.
    """
    stopping = stopping or Stopping()
    if os.environ.get(HASH_SEED) != "0":
        os.environ[HASH_SEED] = "0"
        execute_again()
    logs.configure(log_json)
    guard.install()
    found = _some(load_apps(apps, cwd), apps)
    client = Client(endpoint, timeout_ms=timeout_ms)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    config = _config(
        found,
        worker_id=worker_id or _own_name(),
        node="",
        session=None,
        slots=slots,
        queues=tuple(queues) or QUEUES_DEFAULT,
        apps=tuple(apps),
        build=build or build_of(cwd, apps),
        restarts=True,
    )
    _tune()
    inbox = Inbox()
    gateway = GatewayLink(context, client.worker_endpoint())
    worker = Worker(config, gateway, inbox, locator=Locator(client.worker_endpoint, inbox))
    restarting = Restarting(worker, inbox, lambda: trouble_with(apps, cwd), grace_ms)
    stopping.attach(lambda: inbox.post(worker.stop, grace_ms))
    is_quiet = worker.run()
    code = _code_of(worker)
    worker.close()
    client.close()
    context.term()
    if restarting.is_wanted and not (code or stopping.is_told):
        execute_again()
    if not (is_quiet and _only_daemons()):
        leave(code)
    return code


def _some(found: registry.Registry, apps: Sequence[str]) -> registry.Registry:
    """Itself; where there is nothing in it the log says so."""
    if not (found.workflows or found.activities):
        logs.logger().warning(LogName.WORKER_EMPTY, apps=list(apps))
    return found


def _config(
    found: registry.Registry,
    *,
    worker_id: str,
    node: str,
    session: Session | None,
    slots: int,
    queues: tuple[str, ...],
    apps: tuple[str, ...],
    build: str,
    quarantine: bool = False,
    restarts: bool = False,
) -> Config:
    return Config(
        worker_id=worker_id,
        node=node,
        pid=os.getpid(),
        pid_started=birth_of(os.getpid()),
        session=session,
        slots=slots,
        queues=queues,
        activities=found.activities,
        workflows=found.workflows,
        quarantine=quarantine,
        apps=apps,
        build=build,
        restarts=restarts,
    )


def _code_of(worker: Worker) -> int:
    """The exit status; a refusal is said."""
    if worker.refusal:
        sys.stderr.write(f"perdure: {worker.refusal}\n")
        return EXIT_BAD_INPUT
    return EXIT_WORN_OUT if worker.is_worn_out else 0


def _tune() -> None:
    """Settings of the process, once the application is loaded."""
    speak_for_workflows()
    sys.setswitchinterval(SWITCH_SECONDS)
    # Workflows in memory are many small objects; what was imported need not be searched as well.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])


def _own_name() -> str:
    """A name of this process that fits the rules for worker names."""
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())
    return f"{host[:64] or 'worker'}-{os.getpid()}-{secrets.token_hex(2)}"


def _only_daemons() -> bool:
    """Whether the end of the interpreter has nobody to wait for."""
    mine = threading.current_thread()
    return all(thread.daemon or thread is mine for thread in threading.enumerate())
