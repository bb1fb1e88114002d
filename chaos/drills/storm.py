"""The drill `storm`: thousands of clients connect again and again while the gateway is SIGKILLed.

Once with clients that wait longer after each failure, once with clients that try again at once,
always. Each submits workflows and asks for their results. The node starts with few descriptors, as
many systems hand them out. At last a client asks for far more than it ever reads, and others must
not notice.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
import psutil
import zmq

from chaos.drill_kit import Arena, Drill, Options
from chaos.drill_kit.kills import bring_up, kill_role
from chaos.faults.storm_clients import MODES, Said
from chaos.harness import NodeProcess, flat
from perdure import wire
from perdure.clock import boottime_ms
from perdure.errors import PerdureError

CLIENTS = 2_000
KILL_EVERY_S = 2.0
KILLS = 5
# Of the storm alone, before the first kill: all are connected, and heard.
CALM_S = 30.0
RECOVERY_MS_MAX = 30_000
FINISH_S = 70.0
SOFT_DESCRIPTORS = 1_024
SPARE_DESCRIPTORS = 16
RSS_MB_MAX = 512
UNREAD_REQUESTS = 2_000
UNREAD_S = 6.0
PING_MS_MAX = 3_000
MB = 1024 * 1024


def run(arena: Arena) -> bool:
    """Whether kills fell while clients waited, and each of them had answers after the last one."""
    node = arena.node(apps=("chaos.apps.nod",), workers=2, slots=8)
    with _few_descriptors():
        bring_up(arena, node)
    endpoint = f"ipc://{node.data}/run/node/public"
    client = arena.client(node)
    client.list_workflows(limit=1)
    watch = _Watch(arena, node)
    before = watch.descriptors()
    bitten = True
    for mode in MODES:
        with _Clients(arena, node, endpoint, mode) as clients:
            bitten = _storm(arena, node, clients, watch) and bitten
    _slow(arena, endpoint, watch)
    watch.compare(before)
    arena.figures["most memory of the gateway, in MiB"] = watch.most_rss // MB
    if watch.most_rss > RSS_MB_MAX * MB:
        arena.violate(f"the gateway took {watch.most_rss // MB} MiB, more than {RSS_MB_MAX}")
    return bitten


# --- the storm --------------------------------------------------------------------
class _Clients:
    """The process of the clients. A context manager: it is gone at the end."""

    def __init__(self, arena: Arena, node: NodeProcess, endpoint: str, mode: str) -> None:
        self.mode = mode
        self.said = Said()
        path = arena.directory / f"storm-{mode}.jsonl"
        arena.noted(node, path)
        arguments = [endpoint, str(CLIENTS), f"storm-{mode}", mode, str(path)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "chaos.faults.storm_clients", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._text = b""

    def __enter__(self) -> _Clients:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def look(self, timeout_s: float = 0.05) -> bool:
        """Takes what they say; False when they are over."""
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        if select.select([out], [], [], timeout_s)[0]:
            text = os.read(out, 65_536)
            if not text:
                return False
            *lines, self._text = (self._text + text).split(b"\n")
            if lines:
                self.said = msgspec.json.decode(lines[-1], type=Said)
        return True

    def finish(self) -> None:
        """Has them finish what they have begun, and begin nothing more."""
        assert self._process.stdin is not None
        self._process.stdin.close()


def _storm(arena: Arena, node: NodeProcess, clients: _Clients, watch: _Watch) -> bool:
    wanted = CLIENTS
    arena.say(f"{wanted} {clients.mode} clients")
    _until_all_heard(arena, clients, watch, 0, CALM_S)
    waited = 0
    dice = arena.dice(clients.mode)
    for number in range(arena.options.kills):
        _wait_ready(arena, node, clients, watch)
        _pass(arena, clients, watch, KILL_EVERY_S * dice.uniform(0.5, 1.5))
        waited += clients.said.open > 0
        kill_role(arena, node, "gateway")
        arena.progress.bar(f"{clients.mode}: kills", number + 1, arena.options.kills, colour="red")
    killed_ms = boottime_ms()
    took_ms = _until_all_heard(arena, clients, watch, killed_ms, RECOVERY_MS_MAX / 1_000)
    if took_ms is None:
        arena.violate(
            f"{RECOVERY_MS_MAX} ms after the last kill some {clients.mode} clients had no answer"
        )
    else:
        arena.recoveries_ms.append(took_ms)
    arena.figures[f"{clients.mode}: all had an answer, in ms after the last kill"] = took_ms or "-"
    _finish(arena, clients, watch)
    said = clients.said
    arena.workflows += said.started
    arena.completed += said.results
    arena.figures[f"{clients.mode}: workflows, and requests sent again"] = (
        f"{said.started}, {said.again}"
    )
    if said.refused or said.open:
        arena.violate(f"{said.refused} requests were refused, {said.open} never answered")
    return waited == arena.options.kills and took_ms is not None


def _pass(arena: Arena, clients: _Clients, watch: _Watch, length_s: float) -> None:
    until = time.monotonic() + length_s
    while time.monotonic() < until:
        clients.look()
        watch.look()
        _show(arena, clients)


def _show(arena: Arena, clients: _Clients) -> None:
    said = clients.said
    arena.progress.text(
        f"{clients.mode}: {said.results} results, {said.again} requests sent again, "
        f"{said.open} clients wait"
    )


def _wait_ready(arena: Arena, node: NodeProcess, clients: _Clients, watch: _Watch) -> None:
    """Until there is a gateway to be killed."""
    while not arena.over():
        for each in flat(node.tree()):
            if each["name"] == "gateway" and each.get("state") == "running":
                return
        _pass(arena, clients, watch, 0.05)


def _until_all_heard(
    arena: Arena, clients: _Clients, watch: _Watch, since_ms: int, limit_s: float
) -> int | None:
    """How long after `since_ms` the last client had an answer; None: not within the limit."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        _pass(arena, clients, watch, 0.05)
        if clients.said.all_heard_ms > since_ms:
            return boottime_ms() - since_ms
    return None


def _finish(arena: Arena, clients: _Clients, watch: _Watch) -> None:
    clients.finish()
    until = time.monotonic() + FINISH_S
    while clients.look() and time.monotonic() < until:
        watch.look()
        _show(arena, clients)


# --- a client that does not read --------------------------------------------------
def _slow(arena: Arena, endpoint: str, watch: _Watch) -> None:
    client = arena.client(arena.nodes[0])
    client.start_workflow("Large", workflow_id="large", request_id="large")
    client.result("large", timeout_ms=20_000)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    slow = context.socket(zmq.DEALER)
    slow.linger, slow.rcvhwm = 0, 1
    slow.connect(endpoint)
    arena.fault("unread answers", "gateway")
    slowest_ms = 0
    try:
        for number in range(1, UNREAD_REQUESTS + 1):
            slow.send(wire.write_request(number, wire.GetResult("large")))
        until = time.monotonic() + UNREAD_S
        while time.monotonic() < until:
            asked_ms = boottime_ms()
            with contextlib.suppress(PerdureError):
                client.ping()
            slowest_ms = max(slowest_ms, boottime_ms() - asked_ms)
            watch.look()
            time.sleep(0.05)
    finally:
        context.destroy(linger=0)
    arena.figures["slowest answer to others while one does not read, in ms"] = slowest_ms
    if slowest_ms > PING_MS_MAX:
        arena.violate(f"others waited {slowest_ms} ms while one client did not read")


# --- resources --------------------------------------------------------------------
class _Watch:
    """Descriptors and memory of the node's core."""

    LOOK_EVERY_S = 0.25

    def __init__(self, arena: Arena, node: NodeProcess) -> None:
        self.most_rss = 0
        self.most_descriptors = 0
        self._arena = arena
        self._node = node
        self._next = 0.0

    def _core(self) -> dict[str, psutil.Process]:
        found = {}
        for each in flat(self._node.tree()):
            if each["kind"] == "actor" and each.get("pid"):
                with contextlib.suppress(psutil.NoSuchProcess):
                    found[str(each["name"])] = psutil.Process(each["pid"])
        return found

    def look(self) -> None:
        """Samples the gateway, now and then."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self.LOOK_EVERY_S
        gateway = self._core().get("gateway")
        with contextlib.suppress(psutil.Error):
            if gateway is not None:
                self.most_rss = max(self.most_rss, gateway.memory_info().rss)
                self.most_descriptors = max(self.most_descriptors, gateway.num_fds())

    def descriptors(self) -> dict[str, int]:
        """How many descriptors each process of the core has open."""
        counts = {}
        for role, process in self._core().items():
            with contextlib.suppress(psutil.Error):
                counts[role] = process.num_fds()
        return counts

    def compare(self, before: dict[str, int]) -> None:
        """A process that has many more descriptors than before has lost some."""
        until = time.monotonic() + 5
        while (worse := self._worse(before)) and time.monotonic() < until:
            time.sleep(0.1)  # Connections that are being closed.
        for role, (then, now) in worse.items():
            self._arena.violate(f"{role} had {then} descriptors open, and has {now}")
        self._arena.figures["most descriptors of the gateway"] = self.most_descriptors

    def _worse(self, before: dict[str, int]) -> dict[str, tuple[int, int]]:
        now = self.descriptors()
        return {
            role: (before.get(role, 0), count)
            for role, count in now.items()
            if count > before.get(role, 0) + SPARE_DESCRIPTORS
        }


@contextlib.contextmanager
def _few_descriptors() -> Iterator[None]:
    """What starts in here has the soft limit that many systems set."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(SOFT_DESCRIPTORS, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


DRILL = Drill(
    name="storm",
    does="2 000 clients connect again and again, patiently and hastily, while the gateway is "
    "SIGKILLed; one never reads",
    recovery="from the last kill until every client had its answer",
    inconclusive="a kill found nobody waiting, or not everybody had an answer after the last",
    run=run,
    defaults=Options(kills=KILLS),
    takes=("kills",),
)
