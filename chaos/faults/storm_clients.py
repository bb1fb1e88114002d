"""Thousands of clients in one process: raw sockets, each a connection of its own.

    python -m chaos.faults.storm_clients ENDPOINT COUNT PREFIX MODE HISTORY

Each submits a workflow, asks for its result, and begins anew. What is not answered is sent again,
the very same. MODE is "patient" (waits double, up to a bound) or "hasty" (connects and asks again
at once, always). A line on standard input, or its end, means: finish what you have begun. Twice a
second, and at the end, a line of JSON on standard output says how far they are. What they were told
goes to the file HISTORY.
"""

from __future__ import annotations

import resource
import select
import sys
from pathlib import Path

import msgspec
import zmq

from chaos.client_history import Recorder
from perdure import wire
from perdure.clock import boottime_ms

RESULT_WAIT_MS = 10_000
SAY_EVERY_MS = 500
SCAN_EVERY_MS = 50
LAST_MS = 60_000


class Mode(msgspec.Struct, frozen=True):
    """How soon a client connects, and asks, again. Lengths in ms."""

    connect_ms: int
    connect_max_ms: int
    ask_ms: int
    ask_max_ms: int


MODES = {
    "patient": Mode(connect_ms=20, connect_max_ms=1_000, ask_ms=1_000, ask_max_ms=8_000),
    "hasty": Mode(connect_ms=1, connect_max_ms=0, ask_ms=250, ask_max_ms=250),
}


class Said(msgspec.Struct, kw_only=True):
    """How far the clients are: answers so far, requests sent again, and when each of them had an
    answer at last (the oldest of these instants, boot time in ms; 0: not all had one).
    """

    started: int = 0
    results: int = 0
    refused: int = 0
    again: int = 0
    all_heard_ms: int = 0
    open: int = 0


class _Client:
    """One client: what it waits for, and when it asks again."""

    __slots__ = ("body", "call", "due_ms", "heard_ms", "number", "round", "socket", "wait_ms")

    def __init__(self, number: int, socket: zmq.Socket[bytes]) -> None:
        self.number = number
        self.socket = socket
        self.round = 0
        self.body = b""
        self.call = 0
        self.due_ms = 0
        self.wait_ms = 0
        self.heard_ms = 0


class Storm:
    """All clients, on one thread."""

    def __init__(self, endpoint: str, count: int, prefix: str, mode: Mode, history: Path) -> None:
        self.said = Said()
        self._prefix = prefix
        self._mode = mode
        self._recorder = Recorder(history)
        self._numbers = 0
        self._is_last_round = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, count + 100)
        self._poller = zmq.Poller()
        self._clients: dict[zmq.Socket[bytes], _Client] = {}
        for number in range(count):
            socket = self._context.socket(zmq.DEALER)
            socket.linger = 0
            socket.setsockopt(zmq.RECONNECT_IVL, mode.connect_ms)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, mode.connect_max_ms)
            socket.setsockopt(zmq.IMMEDIATE, 1)
            socket.connect(endpoint)
            self._poller.register(socket, zmq.POLLIN)
            self._clients[socket] = _Client(number, socket)

    def run(self) -> None:
        """Until told to finish, and until what was begun is over."""
        for client in self._clients.values():
            self._start(client, boottime_ms())
        scan_ms = say_ms = last_ms = 0
        while True:
            ready = self._poller.poll(SCAN_EVERY_MS)
            now_ms = boottime_ms()
            for socket, _ in ready:
                self._receive(self._clients[socket], now_ms)
            if now_ms >= scan_ms:
                scan_ms = now_ms + SCAN_EVERY_MS
                self._ask_again(now_ms)
            if not self._is_last_round and select.select([sys.stdin], [], [], 0)[0]:
                self._is_last_round, last_ms = True, now_ms + LAST_MS
            is_over = self._is_last_round and (not self._open() or now_ms >= last_ms)
            if now_ms >= say_ms or is_over:
                say_ms = now_ms + SAY_EVERY_MS
                self._say()
            if is_over:
                break
        self._recorder.close()
        self._context.destroy(linger=0)

    def _open(self) -> int:
        return sum(1 for client in self._clients.values() if client.call)

    def _say(self) -> None:
        self.said.open = self._open()
        self.said.all_heard_ms = min(it.heard_ms for it in self._clients.values())
        print(msgspec.json.encode(self.said).decode(), flush=True)

    # --- one client -------------------------------------------------------------
    def _workflow_id(self, client: _Client) -> str:
        return f"{self._prefix}-{client.number}-{client.round}"

    def _start(self, client: _Client, now_ms: int) -> None:
        client.round += 1
        name = self._workflow_id(client)
        number = msgspec.Raw(msgspec.msgpack.encode([client.number]))
        self._ask(client, wire.StartWorkflow("Nod", name, number, name), now_ms)

    def _ask(self, client: _Client, args: wire.Args, now_ms: int) -> None:
        self._numbers += 1
        client.body = wire.write_request(self._numbers, args)
        client.call = self._recorder.begin(f"{self._prefix}-{client.number}", args, now_ms)
        client.wait_ms = self._mode.ask_ms
        self._send(client, now_ms)

    def _send(self, client: _Client, now_ms: int) -> None:
        client.due_ms = now_ms + client.wait_ms
        try:
            client.socket.send(client.body, zmq.NOBLOCK)
        except zmq.Again:
            return  # Not connected: it is sent when it is due again.

    def _ask_again(self, now_ms: int) -> None:
        for client in self._clients.values():
            if client.call and now_ms >= client.due_ms:
                self.said.again += 1
                client.wait_ms = min(2 * client.wait_ms, self._mode.ask_max_ms)
                self._send(client, now_ms)

    def _receive(self, client: _Client, now_ms: int) -> None:
        while True:
            try:
                answer = wire.read_answer(client.socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                return
            self._take(client, answer, now_ms)

    def _take(self, client: _Client, answer: wire.AnswerBody, now_ms: int) -> None:
        asked = msgspec.msgpack.decode(client.body)
        if not client.call or answer.id != asked["id"]:
            return  # The second answer to what was asked twice.
        error = None if answer.error is None else wire.to_error(answer.error)
        if error is not None and (error.code in (*wire.UNKNOWN_OUTCOME, "DEADLINE_EXCEEDED")):
            client.due_ms = now_ms + client.wait_ms  # It is asked again.
            return
        client.heard_ms = now_ms
        self._recorder.end(client.call, True if error is None else error, now_ms, answer.n)
        client.call = 0
        if error is not None:
            self.said.refused += 1
        elif asked["op"] == "StartWorkflow":
            self.said.started += 1
            wait = wire.GetResult(self._workflow_id(client), wait_ms=RESULT_WAIT_MS)
            self._ask(client, wait, now_ms)
            return
        else:
            self.said.results += 1
        if not self._is_last_round:
            self._start(client, now_ms)


def main() -> None:
    """Run the clients that the command line asks for."""
    endpoint, count, prefix, mode, history = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    Storm(endpoint, int(count), prefix, MODES[mode], Path(history)).run()


if __name__ == "__main__":
    main()
