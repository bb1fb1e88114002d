"""A client that keeps thousands of workflows under way over one ZeroMQ socket, as a busy program
would.
"""

from __future__ import annotations

import time

import msgspec
import zmq

from perdure import wire
from perdure.errors import Unavailable
from perdure.values import encode

WINDOW = 2_500
SILENCE_MS = 30_000


def run_all(endpoint: str, kind: str, prefix: str, count: int, *, wait: bool = True) -> float:
    """Starts `count` workflows and, with `wait`, sees every result; the seconds from the first
    start to the last answer.

    A GetResult goes right behind each StartWorkflow, at most WINDOW workflows under way. Raises
    Unavailable where an answer is an error or nothing comes for 30 s.
    """
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    try:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.connect(endpoint)
        return _run(socket, kind, prefix, count, wait)
    finally:
        socket.close()
        context.term()


def _run(socket: zmq.Socket[bytes], kind: str, prefix: str, count: int, wait: bool) -> float:
    sent = done = 0
    began = time.perf_counter()
    while done < count:
        while sent < count and sent - done < WINDOW:
            workflow_id = f"{prefix}-{sent}"
            raw = msgspec.Raw(encode([sent])[1:])
            # Even numbers are starts, odd ones results.
            start = wire.StartWorkflow(kind, workflow_id, raw, workflow_id)
            socket.send(wire.write_request(2 * sent, start))
            if wait:
                socket.send(wire.write_request(2 * sent + 1, wire.GetResult(workflow_id, 600_000)))
            sent += 1
        if not socket.poll(SILENCE_MS):
            raise Unavailable(f"no answer for {SILENCE_MS} ms: {done} of {count} workflows done")
        while True:
            try:
                body = socket.recv(zmq.DONTWAIT)
            except zmq.Again:
                break
            answer = wire.read_answer(body)
            if answer.error is not None:
                raise wire.to_error(answer.error)
            if answer.id is not None and bool(answer.id % 2) == wait:
                done += 1
    return time.perf_counter() - began
