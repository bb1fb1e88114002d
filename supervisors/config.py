"""What `perdure up` tells the root, checked at the door."""

from __future__ import annotations

import os
import re
import socket
import stat
from pathlib import Path

import msgspec

from perdure.core.bounds import DEFAULT, Bounds
from perdure.core.limits import AUDIT_MS, GRACE_MS, INTEGER_MAX, RESERVE_BYTES, RETENTION_MS
from perdure.core.rules import NO_RULES, Rules
from perdure.errors import InvalidArgument
from perdure.outbox.places import check_driver, place_of
from perdure.wire_checks import check_name
from supervisors.node_files import SOCKET_PATH_MAX, Refused, lock_file

EXIT_ESCALATED = 1
EXIT_BAD_INPUT = 2
EXIT_REFUSED = 6
WORKERS_MAX = 1_000

_TCP = re.compile(r"tcp://(127\.0\.0\.1|\[::1\]|localhost):(\d{1,5}|\*)\Z")


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a node runs. `bind`: public endpoints beside its own; only ipc and loopback are allowed.

    `slots`: activities that one worker runs at a time. `seed`: of the jitter that history draws;
    None: from the system. `grace_ms`: what workers get at a stop to finish what they hold.
    `queues`: the task queues they serve. `retention_ms`, `audit_ms`: how long history keeps closed
    workflows and its commit log; `recovery_grace_ms`: after a restart a lease lasts so long, or its
    own length where that is shorter; with less than `reserve_bytes` free on its disk history
    refuses new work; `bounds`: how much one workflow may have; `rules`: the operator's, of queues
    and types. `build`: what the application is called; empty: by what its files hold. `outboxes`:
    where outboxes to be drained are, as perdure.outbox.places has them.
    """

    data_dir: str = ".perdure"
    apps: tuple[str, ...] = ()
    cwd: str = "."
    workers: int = 1
    slots: int = 100
    bind: tuple[str, ...] = ()
    log_json: bool = True
    dlq_after_attempts: int = 5
    retention_ms: int = RETENTION_MS
    audit_ms: int = AUDIT_MS
    recovery_grace_ms: int = GRACE_MS
    reserve_bytes: int = RESERVE_BYTES
    bounds: Bounds = DEFAULT
    seed: int | None = None
    grace_ms: int = 5_000
    queues: tuple[str, ...] = ("default",)
    rules: Rules = NO_RULES
    outboxes: tuple[str, ...] = ()
    build: str = ""


def check_config(config: NodeConfig) -> None:
    """Raise Refused, with status 2, naming the first setting that is out of its range."""
    for name, value, low, high in (
        ("workers", config.workers, 0, WORKERS_MAX),
        ("slots", config.slots, 1, 10_000),
        ("grace_ms", config.grace_ms, 0, 86_400_000),
        ("dlq_after_attempts", config.dlq_after_attempts, 1, 2**31),
        ("retention_ms", config.retention_ms, 0, INTEGER_MAX),
        ("audit_ms", config.audit_ms, 0, INTEGER_MAX),
        ("recovery_grace_ms", config.recovery_grace_ms, 0, INTEGER_MAX),
        ("reserve_bytes", config.reserve_bytes, 0, INTEGER_MAX),
    ):
        if not low <= value <= high:
            raise Refused(EXIT_BAD_INPUT, f"{name} must be {low} to {high}, not {value}")
    try:
        for queue in config.queues:
            check_name(f"queue {queue!r:.80}", queue)
        for text in config.outboxes:
            check_driver(place_of(text, config.cwd))
    except InvalidArgument as error:
        raise Refused(EXIT_BAD_INPUT, error.message) from error
    for endpoint in config.bind:
        _check_endpoint(endpoint)


def _check_endpoint(endpoint: str) -> None:
    """Whether it can be one at all; whether it is free is another question."""
    if not endpoint.startswith("ipc://"):
        _tcp_parts(endpoint)
        return
    text = endpoint.removeprefix("ipc://")
    if not text or text[0] == "@" or "*" in text:
        raise Refused(EXIT_BAD_INPUT, f"cannot bind {endpoint}: it needs the path of a file")
    path = Path(text).absolute()
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_MAX:
        raise Refused(
            EXIT_BAD_INPUT,
            f"socket path too long: {path} has {length} bytes, the limit is {SOCKET_PATH_MAX}",
        )


def _tcp_parts(endpoint: str) -> tuple[str, int]:
    """Host and port, 0 for any. Raises Refused where it is none, or not of this machine."""
    match = _TCP.match(endpoint)
    if match is None or (match[2] != "*" and int(match[2]) > 65_535):
        raise Refused(
            EXIT_BAD_INPUT,
            f"cannot bind {endpoint}: only ipc://PATH and tcp:// on 127.0.0.1, [::1] or "
            "localhost, with a port, are allowed",
        )
    host = "[::1]" if match[1] == "[::1]" else "127.0.0.1"
    return host, 0 if match[2] == "*" else int(match[2])


class Endpoints:
    """Public endpoints that the operator asked for; holds each ipc path's lock until `close`."""

    def __init__(self) -> None:
        self._locks: list[tuple[int, Path]] = []

    def claim(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """The endpoints to bind, ports chosen where `*` or 0 left them open.

        Raises Refused: status 2 for what may not be bound, 6 for what another process holds.
        """
        return tuple(self._claim(endpoint) for endpoint in asked)

    def _claim(self, endpoint: str) -> str:
        _check_endpoint(endpoint)
        if endpoint.startswith("ipc://"):
            return self._claim_ipc(endpoint)
        host, port = _tcp_parts(endpoint)
        return f"tcp://{host}:{_probe_tcp(endpoint, host, port)}"

    def _claim_ipc(self, endpoint: str) -> str:
        path = Path(endpoint.removeprefix("ipc://")).absolute()
        lock = path.with_name(path.name + ".lock")
        try:
            fd, holder = lock_file(lock)
        except OSError as error:
            raise Refused(EXIT_BAD_INPUT, f"cannot bind {endpoint}: {error}") from error
        if fd is None:
            raise Refused(EXIT_REFUSED, f"endpoint {endpoint} is held by process {holder}")
        self._locks.append((fd, lock))
        _probe_ipc(endpoint, path)
        return f"ipc://{path}"

    def close(self) -> None:
        """Give the ipc paths back."""
        for fd, lock in self._locks:
            lock.unlink(missing_ok=True)
            os.close(fd)
        self._locks.clear()


def _probe_tcp(endpoint: str, host: str, port: int) -> int:
    family = socket.AF_INET6 if host == "[::1]" else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except PermissionError as error:
            raise Refused(EXIT_BAD_INPUT, f"cannot bind {endpoint}: {error}") from error
        except OSError as error:
            raise Refused(EXIT_REFUSED, f"endpoint {endpoint} is held: {error}") from error
        chosen: int = probe.getsockname()[1]
        return chosen


def _probe_ipc(endpoint: str, path: Path) -> None:
    """ZeroMQ would silently take a path away from its owner, whatever the file is: look first."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Refused(EXIT_BAD_INPUT, f"cannot bind {endpoint}: {path} is a file, not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return  # Left over by a process that was killed.
        except OSError as error:
            raise Refused(EXIT_REFUSED, f"endpoint {endpoint} is held: {error}") from error
    raise Refused(EXIT_REFUSED, f"endpoint {endpoint} is held by another process")
