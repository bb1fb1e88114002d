"""Finding a node by its data directory, and asking its root for the tree.

For tools beside a node, not inside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from perdure.errors import Unavailable

NODE_FILE = "node.json"
POLL_S = 0.02
PS = b"PS"
RELOAD = b"RELOAD "
LAST_STEPS = frozenset({"done", "failed", "look"})
ANSWER_BYTES_MAX = 16 * 1024 * 1024


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A node that serves: `endpoint` is for clients, `root` for `ps`.

    `pid_started` is in seconds since the epoch.
    """

    pid: int
    pid_started: float
    node: str
    endpoint: str
    root: str
    run_dir: str
    endpoints: tuple[str, ...] = ()


def read_node(data_dir: str | os.PathLike[str]) -> NodeInfo | None:
    """What the node of `data_dir` wrote when it became ready; None where none did.

    A node that was killed leaves its file behind: that one is there says nothing about whether it
    answers.
    """
    try:
        raw = (Path(data_dir) / NODE_FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return msgspec.json.decode(raw, type=NodeInfo)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"{Path(data_dir) / NODE_FILE} is not a node's file: {error}") from error


def await_node(data_dir: str | os.PathLike[str], timeout_ms: int) -> NodeInfo | None:
    """As read_node, once a node that is only starting has written it; None after `timeout_ms`."""
    until = time.monotonic() + timeout_ms / 1_000
    while (found := read_node(data_dir)) is None and time.monotonic() < until:
        time.sleep(POLL_S)
    return found


def ps(node: str | os.PathLike[str], timeout_ms: int = 5_000) -> dict[str, Any]:
    """The supervisor tree, as `perdure ps --json` prints it.

    `node` is a data directory or the root's own endpoint (`NodeInfo.root`). Raises Unavailable
    where no root answers within `timeout_ms`.
    """
    with _asked(node, PS, timeout_ms) as answer:
        tree: dict[str, Any] = answer()
        return tree


def reload(
    node: str | os.PathLike[str], order: dict[str, Any], timeout_ms: int = 5_000
) -> Iterator[dict[str, Any]]:
    """Have the root replace children (supervisors.reload.ReloadOrder); each step as it comes.

    The last one is of the event "done", "failed" or "look". Raises Unavailable where nothing is
    heard for `timeout_ms`.
    """
    with _asked(node, RELOAD + msgspec.json.encode(order), timeout_ms) as answer:
        while True:
            step: dict[str, Any] = answer()
            yield step
            if step["event"] in LAST_STEPS:
                return


@contextmanager
def _asked(
    node: str | os.PathLike[str], words: bytes, timeout_ms: int
) -> Iterator[Callable[[], Any]]:
    """What gives the root's answers to these words, one after the other."""
    endpoint = os.fspath(node)
    if "://" not in endpoint:
        info = read_node(endpoint)
        if info is None:
            raise Unavailable(f"no node runs on {endpoint}")
        endpoint = info.root
    import zmq  # Late: who only reads node.json starts faster without it.

    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    try:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 10)
        socket.setsockopt(zmq.RCVHWM, 1_000)
        socket.setsockopt(zmq.MAXMSGSIZE, ANSWER_BYTES_MAX)
        socket.setsockopt(zmq.HANDSHAKE_IVL, timeout_ms)
        socket.setsockopt(zmq.RCVTIMEO, timeout_ms)
        socket.setsockopt(zmq.SNDTIMEO, timeout_ms)
        try:
            socket.connect(endpoint)
            socket.send(words)
            yield lambda: msgspec.json.decode(socket.recv())
        except zmq.ZMQError as error:
            raise Unavailable(f"no root answers at {endpoint}: {error}") from error
    finally:
        socket.close(0)
        context.term()
