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

from perdure import wire, wire_flow, wire_schedules
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
    wire.SignalWorkflow: Kind.CHANGE,
    wire.CancelWorkflow: Kind.CHANGE,
    wire.TerminateWorkflow: Kind.CHANGE,
    wire.UpdateWorkflow: Kind.CHANGE,
    wire.RedriveDeadLetter: Kind.CHANGE,
    wire.FailDeadLetter: Kind.CHANGE,
    wire.CompleteDeadLetter: Kind.CHANGE,
    wire.CompleteActivityTask: Kind.REPORT,
    wire.FailActivityTask: Kind.REPORT,
    wire.DescribeWorkflow: Kind.LOOK,
    wire.QueryWorkflow: Kind.LOOK,
    wire.ReadEvents: Kind.LOOK,
    wire.GetHistory: Kind.LOOK,
    wire.ListWorkflows: Kind.LOOK,
    wire.ListDeadLetters: Kind.LOOK,
    wire.PollActivityTask: Kind.LOOK,
    wire.RecordHeartbeat: Kind.HEARTBEAT,
    wire.Ping: Kind.FREE,
    wire.WorkerEndpoint: Kind.FREE,
    wire.WorkerTypes: Kind.FREE,
    wire.RestartWorker: Kind.FREE,
    **{
        kind: Kind.LOOK if kind in wire_schedules.LOOKS else Kind.CHANGE
        for kind in wire_schedules.OPERATIONS.values()
    },
    **dict.fromkeys(wire_flow.CHANGES, Kind.CHANGE),
    **dict.fromkeys(wire_flow.LOOKS, Kind.LOOK),
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
        # By its bytes: a request that comes again is told by them.
        self.open: dict[object, Open] = {}
        self.waiting: deque[Open] = deque()
        self.changes = 0  # Sent to history and not answered yet.
        self.heartbeats = 0
        self.is_moving = False


class Open:
    """One request that is not answered yet. `n` is the number under which a peer was asked.

    `asked_ms` is when history was asked for a watch last.
    """

    __slots__ = (
        "asked_ms",
        "connection",
        "is_delimited",
        "is_done",
        "is_sent",
        "key",
        "kind",
        "n",
        "request",
        "watched",
    )

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
        self.asked_ms = 0
        self.watched = ("", "")  # The execution, and the update of it, if it is one.


class Requests:
    """Every connection with its open requests."""

    def __init__(self, open_max: int = CLIENT_REQUESTS_MAX) -> None:
        self._connections: dict[tuple[int, bytes], Connection] = {}
        self._open_max = open_max

    def __len__(self) -> int:
        return len(self._connections)

    def connection(self, door: int, identity: bytes) -> Connection:
        """The connection of this client; a new one is kept once it has a request open."""
        return self._connections.get((door, identity)) or Connection(door, identity)

    def admit(
        self, connection: Connection, body: bytes, request: wire.Request, is_delimited: bool
    ) -> Open | None:
        """A new open request, in line on its connection; None where it has too many."""
        if not connection.open:
            self._connections[connection.door, connection.identity] = connection
        elif len(connection.open) >= self._open_max:
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
        if kind is Kind.CHANGE or kind is Kind.REPORT:
            if kind is Kind.REPORT and connection.heartbeats:
                return None
            connection.changes += 1
        elif kind is Kind.LOOK or kind is Kind.HEARTBEAT:
            if connection.changes:
                return None
            if kind is Kind.HEARTBEAT:
                connection.heartbeats += 1
        waiting.popleft()
        entry.is_sent = True
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

    def accepted(self, entry: Open) -> None:
        """The change that it asked for has been made, and what it still waits for is another thing:
        it holds up nobody any more. Others may be free to go then.
        """
        if entry.kind is Kind.CHANGE and not entry.is_done:
            entry.connection.changes -= 1
            entry.kind = Kind.WATCH

    def all_open(self) -> list[Open]:
        """Every open request."""
        return [entry for it in self._connections.values() for entry in it.open.values()]
