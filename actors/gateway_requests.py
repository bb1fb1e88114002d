"""Open requests of clients: which may go on now, which is asked again, how many there may be.

Pure: no socket, no clock. Requests of one connection take effect in the order in which they came:

- what changes something goes to history over one link, which keeps the order, and need not wait;
- what only looks (and a poll, and a heartbeat) waits until all changes before it are answered;
- a report waits for the heartbeats before it, so that it can't overtake the details they carry.

Whatever waits holds up what came behind it, on its own connection only.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

import msgspec

from perdure import wire
from perdure.core.limits import CLIENT_REQUESTS_MAX


class Kind(Enum):
    """What an operation has to wait for."""

    CHANGE = "change"
    REPORT = "report"
    WATCH = "watch"
    LOOK = "look"
    HEARTBEAT = "heartbeat"
    FREE = "free"


_KINDS: dict[type[wire.Args], Kind] = {
    wire.StartWorkflow: Kind.CHANGE,
    wire.RedriveDeadLetter: Kind.CHANGE,
    wire.FailDeadLetter: Kind.CHANGE,
    wire.CompleteDeadLetter: Kind.CHANGE,
    wire.CompleteActivityTask: Kind.REPORT,
    wire.FailActivityTask: Kind.REPORT,
    wire.DescribeWorkflow: Kind.LOOK,
    wire.GetHistory: Kind.LOOK,
    wire.ListWorkflows: Kind.LOOK,
    wire.ListDeadLetters: Kind.LOOK,
    wire.PollActivityTask: Kind.LOOK,
    wire.RecordHeartbeat: Kind.HEARTBEAT,
    wire.Ping: Kind.FREE,
    wire.WorkerEndpoint: Kind.FREE,
}


def kind_of(args: wire.Args) -> Kind:
    """The kind of the operation whose arguments these are."""
    if isinstance(args, wire.GetResult):  # Without a wait it is answered from the store.
        return Kind.WATCH if args.wait_ms else Kind.LOOK
    return _KINDS[type(args)]


class Connection:
    """One client that has requests open; it is forgotten when it has none."""

    __slots__ = ("changes", "door", "heartbeats", "identity", "is_moving", "open", "waiting")

    def __init__(self, door: int, identity: bytes) -> None:
        self.door = door  # Which public socket it came through.
        self.identity = identity
        self.open: dict[object, Open] = {}
        self.waiting: deque[Open] = deque()
        self.changes = 0  # Sent to history and not answered yet.
        self.heartbeats = 0
        self.is_moving = False


class Open:
    """One request that is not answered yet. `n` is the number under which a peer was asked."""

    __slots__ = ("connection", "is_delimited", "is_done", "is_sent", "key", "kind", "n", "request")

    def __init__(
        self, connection: Connection, key: object, request: wire.Request, is_delimited: bool
    ) -> None:
        self.connection = connection
        self.key = key
        self.request = request
        self.kind = kind_of(request.args)
        self.is_delimited = is_delimited
        self.is_sent = False
        self.is_done = False
        self.n = 0


class Requests:
    """Every connection with its open requests."""

    def __init__(self, open_max: int = CLIENT_REQUESTS_MAX) -> None:
        self._connections: dict[tuple[int, bytes], Connection] = {}
        self._open_max = open_max

    def __len__(self) -> int:
        return len(self._connections)

    def find(self, door: int, identity: bytes, body: bytes) -> Open | None:
        """The open request that consists of the very same bytes: it was sent again."""
        connection = self._connections.get((door, identity))
        return None if connection is None else connection.open.get(body)

    def admit(
        self, door: int, identity: bytes, body: bytes, request: wire.Request, is_delimited: bool
    ) -> Open | None:
        """A new open request, in line on its connection; None where it has too many."""
        connection = self._connections.get((door, identity))
        if connection is None:
            connection = self._connections[door, identity] = Connection(door, identity)
        if len(connection.open) >= self._open_max:
            return None
        # Without an id of its own a repeat can't be told from a second request.
        key: object = object() if request.id == request.form.null else body
        entry = Open(connection, key, request, is_delimited)
        connection.open[key] = entry
        connection.waiting.append(entry)
        return entry

    def next_to_go(self, connection: Connection) -> Open | None:
        """The next request of this connection that may be carried out now, counted as sent."""
        waiting = connection.waiting
        if not waiting:
            return None
        entry = waiting[0]
        kind = entry.kind
        if kind is Kind.LOOK or kind is Kind.HEARTBEAT:
            if connection.changes:
                return None
        elif kind is Kind.REPORT and connection.heartbeats:
            return None
        waiting.popleft()
        entry.is_sent = True
        if kind is Kind.CHANGE or kind is Kind.REPORT:
            connection.changes += 1
        elif kind is Kind.HEARTBEAT:
            connection.heartbeats += 1
        return entry

    def finish(self, entry: Open) -> bool:
        """Close a request; False where it was closed before. Others may be free to go then."""
        if entry.is_done:
            return False
        entry.is_done = True
        connection = entry.connection
        connection.open.pop(entry.key, None)
        if entry.is_sent:
            if entry.kind is Kind.CHANGE or entry.kind is Kind.REPORT:
                connection.changes -= 1
            elif entry.kind is Kind.HEARTBEAT:
                connection.heartbeats -= 1
        if not connection.open:
            self._connections.pop((connection.door, connection.identity), None)
        return True

    def all_open(self) -> list[Open]:
        """Every open request."""
        return [entry for it in self._connections.values() for entry in it.open.values()]


class Frame(msgspec.Struct, frozen=True, gc=False):
    """What a client sent, taken apart."""

    identity: bytes
    body: bytes
    is_delimited: bool  # A REQ socket's empty delimiter was there, and goes back with the answer.


def frame_of(frames: list[bytes]) -> Frame | None:
    """The request in a multipart message of a DEALER or REQ; None for any other shape."""
    if len(frames) == 2:
        return Frame(frames[0], frames[1], False)
    if len(frames) == 3 and not frames[1]:
        return Frame(frames[0], frames[2], True)
    return None
