"""A process between any two actors of a node, the workers and its clients included.

    python -m chaos.faults.relay DIRECTORY SEED

It listens at `root`, `workers` and `public` in DIRECTORY, and for each incarnation of an actor at a
socket of its own. It learns of them as they greet the root (supervisors/relayed.py leads children
here), and in what the root tells about who is there it puts its own sockets in place of theirs.
Nobody notices: for each peer that calls at an actor's door it calls that actor under the peer's
identity. What the root and its children say to each other passes unhurt, for between them nothing
can be lost that is not noticed; all else goes through a Mangler.

A REP socket at `control` takes one JSON object a time: see RelayProcess.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import zmq

from chaos.faults.held import Holder
from chaos.faults.link_faults import Mangler, Plan
from chaos.faults.relay_door import Door, Frames
from perdure.clock import boottime_ms
from perdure.core import links

# A worker says something every second; a client asks again. Only the dead are silent for so long.
SILENT_MS = 60_000
TIDY_MS = 5_000
PARENT_LOOK_MS = 500
TURN_MESSAGES = 200
# Messages that answer a question, by the tag of their struct: Answer, Page, Polled, DeadListed.
ANSWERS = frozenset({6, 44, 51, 61})
PUBLIC_DOORS = ("workers", "public")
CLIENT = "client"
TO_HISTORY = b"H"
CORE = frozenset(links.CORE_ROLES)
_CHILDREN = CORE | {links.WORKER}

_to_root = msgspec.msgpack.Decoder(list[links.ToRoot])
_from_root = msgspec.msgpack.Decoder(list[links.FromRoot])


def is_answer(body: bytes) -> bool:
    """Whether the first message of this batch between actors answers a question."""
    try:
        batch = msgspec.msgpack.decode(body)
        return bool(batch) and batch[0][0] in ANSWERS
    except (msgspec.MsgspecError, TypeError, IndexError, KeyError):
        return False


class Relay:
    """All doors, and the faults between them and the actors behind."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, 20_000)
        self._mangler = Mangler(seed)
        self._holder = Holder()
        self._poller = zmq.Poller()
        self._takers: dict[zmq.Socket[bytes], Callable[[Frames], None]] = {}
        self._doors: dict[str, Door] = {}  # By name of the socket.
        self._run_made_ns = 0
        self._tidy_ms = boottime_ms() + TIDY_MS
        self._is_over = False
        self._root = self._doors["root"] = Door(
            self, links.ROOT, "root", f"ipc://{directory}/run/root", links.ROOT.encode()
        )
        self._control = self.context.socket(zmq.REP)
        self._control.bind(f"ipc://{directory}/control")
        self._poller.register(self._control, zmq.POLLIN)

    # --- the loop ---------------------------------------------------------------
    def run(self) -> None:
        """Relay until told to stop, or until whoever started us is gone."""
        parent = os.getppid()
        while not self._is_over and os.getppid() == parent:
            ready = {source for source, _ in self._poller.poll(self._timeout_ms())}
            if self._control in ready:
                self._obey()
            for source in ready:
                self._drain(source)
            now_ms = boottime_ms()
            for go in self._mangler.due(now_ms):
                go()
            if now_ms >= self._tidy_ms:
                self._tidy(now_ms)
        self.context.destroy(linger=0)

    def _timeout_ms(self) -> int:
        until_ms = self._tidy_ms
        next_ms = self._mangler.next_ms()
        if next_ms is not None:
            until_ms = min(until_ms, next_ms)
        return min(max(0, until_ms - boottime_ms()), PARENT_LOOK_MS)

    def _drain(self, source: Any) -> None:
        for _ in range(TURN_MESSAGES):
            take = self._takers.get(source)
            if take is None:
                return
            try:
                frames = source.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            take(frames)

    def listen(self, socket: zmq.Socket[bytes], take: Callable[[Frames], None]) -> None:
        """Hand what `socket` receives to `take`."""
        self._takers[socket] = take
        self._poller.register(socket, zmq.POLLIN)

    def unlisten(self, socket: zmq.Socket[bytes]) -> None:
        """No longer look at `socket`."""
        if self._takers.pop(socket, None) is not None:
            self._poller.unregister(socket)

    # --- what passes ------------------------------------------------------------
    def outward(self, door: Door, identity: bytes, rest: Frames) -> None:
        """From a peer to the actor behind `door`."""
        sender = self._role(door, identity)
        if door is self._root:
            self._greets(rest[-1])
            if sender not in _CHILDREN:  # `ps`
                door.to_actor(identity, rest)
                return
        answers = sender in CORE and is_answer(rest[-1])

        def go() -> None:
            door.to_actor(identity, rest)

        def late() -> None:
            self._present(door).deliver(identity, rest)

        if self._is_report(door, sender, rest) and self._holder.holds(identity, rest[-1], late):
            return
        self._pass(f"{sender}>{door.role}", (door.name, identity, 0), go, answers)

    def inward(self, door: Door, identity: bytes, rest: Frames) -> None:
        """From the actor behind `door` to a peer."""
        receiver = self._role(door, identity)
        if door is self._root:
            rest = [*rest[:-1], self._tells(rest[-1])]
            if receiver not in _CHILDREN:
                door.to_peer(identity, rest)
                return
        self._holder.hears(identity, rest[-1])
        answers = receiver == CLIENT or is_answer(rest[-1])
        self._pass(
            f"{door.role}>{receiver}",
            (door.name, identity, 1),
            lambda: door.to_peer(identity, rest),
            answers,
        )

    def _pass(self, route: str, pair: Any, go: Callable[[], None], answers: bool) -> None:
        for each in self._mangler.take(route, pair, go, boottime_ms(), is_answer=answers):
            each()

    def _present(self, door: Door) -> Door:
        """The door of this kind that is there now: what was held back outlives an incarnation."""
        is_public = door.name in PUBLIC_DOORS
        for other in self._doors.values():
            is_same = other.name == door.name if is_public else other.name not in PUBLIC_DOORS
            if other.role == door.role and is_same:
                return other
        return door

    @staticmethod
    def _is_report(door: Door, sender: str, rest: Frames) -> bool:
        """Whether a worker says this to history: through the gateway, or on a line of its own."""
        return sender == links.WORKER and (door.role == links.HISTORY or rest[0] == TO_HISTORY)

    @staticmethod
    def _role(door: Door, identity: bytes) -> str:
        if door.name == "public":
            return CLIENT
        if door.name == "workers" or identity.startswith(links.WORKER.encode()):
            return links.WORKER
        return identity.partition(b".")[0].decode("ascii", "replace")

    # --- who is there -----------------------------------------------------------
    def _greets(self, body: bytes) -> None:
        try:
            batch = _to_root.decode(body)
        except msgspec.MsgspecError:
            return  # `ps`, which is no batch.
        for message in batch:
            if isinstance(message, links.ChildHello) and message.endpoint:
                self._open(message.role, message.incarnation, message.endpoint)

    def _open(self, role: str, incarnation: str, endpoint: str) -> None:
        """An actor begins: its earlier incarnation is dead, and all of an earlier node start."""
        made_ns = os.lstat(self.directory / "run").st_mtime_ns
        is_new_start, self._run_made_ns = made_ns != self._run_made_ns, made_ns
        name = endpoint.rpartition("/")[2]
        if name in self._doors and not is_new_start:
            return  # It greets again, for the root has not heard it.
        for door in list(self._doors.values()):
            if door is not self._root and (is_new_start or door.role == role):
                self._close(door)
        self._doors[name] = Door(self, role, name, endpoint, incarnation.encode())
        if role == links.GATEWAY:
            for name in PUBLIC_DOORS:
                target = f"ipc://{self.directory}/run/{name}"
                self._doors[name] = Door(self, role, name, target, b"")
        for door in self._doors.values():
            for identity in list(door.lines):
                if identity.startswith(f"{role}.".encode()) and identity != incarnation.encode():
                    door.hang_up(identity)

    def _tells(self, body: bytes) -> bytes:
        """What the root says, with our sockets in place of theirs."""
        try:
            batch = _from_root.decode(body)
        except msgspec.MsgspecError:
            return body  # The answer to `ps`.
        if not any(isinstance(message, links.Peers) for message in batch):
            return body
        return links.pack([self._translated(message) for message in batch])

    def _translated(self, message: links.FromRoot) -> links.FromRoot:
        if not isinstance(message, links.Peers):
            return message
        return links.Peers(
            tuple(
                (role, incarnation, f"ipc://{self.directory}/{endpoint.rpartition('/')[2]}")
                for role, incarnation, endpoint in message.peers
            ),
            message.n,
        )

    def _close(self, door: Door) -> None:
        door.close()
        del self._doors[door.name]

    def _tidy(self, now_ms: int) -> None:
        self._tidy_ms = now_ms + TIDY_MS
        for door in self._doors.values():
            for identity, heard_ms in list(door.heard_ms.items()):
                if now_ms - heard_ms > SILENT_MS and door.name in PUBLIC_DOORS:
                    door.hang_up(identity)

    # --- orders -----------------------------------------------------------------
    def _obey(self) -> None:
        order = msgspec.json.decode(self._control.recv())
        answer: dict[str, Any] = {}
        match order["do"]:
            case "plan":
                self._mangler.set_plan(msgspec.convert(order["plan"], Plan), boottime_ms())
            case "fired":
                fired: Counter[tuple[str, str]] = self._mangler.fired
                answer = {f"{route} {kind}": count for (route, kind), count in fired.items()}
            case "hold":
                self._holder.hold(order["count"])
            case "release":
                for go in self._holder.release():
                    go()
            case "held":
                answer = {
                    "tokens": sorted(self._holder.tokens),
                    "refused": sorted(self._holder.refused),
                }
            case "stop":
                self._is_over = True
            case _:
                raise ValueError(order)
        self._control.send(msgspec.json.encode(answer))


def main() -> None:
    """Relay in DIRECTORY, by SEED."""
    Relay(Path(sys.argv[1]), int(sys.argv[2])).run()


if __name__ == "__main__":
    main()
