"""An actor whose inbox is its ZeroMQ socket: the shell that every process of the core runs.

`Mailbox` is a pykka actor type. It runs on the main thread of its process and has no other: its
inbox polls one ROUTER socket (bound for those who connect to it, and connected to those it wants),
whatever further sockets were added, and one timer. All that lies in the sockets is drained before
anything is worked on, so batches grow by themselves under load and a lone message is never delayed.
What a handler sends is collected and leaves as one frame per receiver when it is done.

A handler that raises ends the process: half a state is worse than none. The supervisor restarts it.
"""

from __future__ import annotations

import gc
from types import TracebackType
from typing import Any, ClassVar, NoReturn

import msgspec
import pykka
import structlog

from actors.host import Host
from actors.inbox import Frames, Inbox
from actors.zmq_host import ZmqHost
from perdure import logs
from perdure.core import limits
from perdure.core.boot import Boot
from perdure.core.links import (
    ROOT,
    WORKER,
    ChildFailed,
    ChildHello,
    ChildReady,
    FromRoot,
    Message,
    Peers,
    Ping,
    Pong,
    SessionDead,
    Sessions,
    Stop,
    pack,
)
from perdure.core.stalls import Stalls
from perdure.crash_points import ARMED, CrashPoint, reached
from perdure.log_names import LogName

EXIT_ACTOR_CRASHED = 70
GC_THRESHOLD = 50_000
LAST_WORDS_MS = 500
ADDRESSES_KEPT = 1_000
ROOT_ID = ROOT.encode("ascii")

# What decoding raises, also where something is nested deeper than the stack is.
UNREADABLE = (msgspec.MsgspecError, RecursionError)
_root_decoder = msgspec.msgpack.Decoder(list[FromRoot])
_items_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])


class Mailbox(pykka.ThreadingActor):
    """One actor of the core; subclasses say what they want to hear and what they do about it."""

    role: ClassVar[str]
    peers_wanted: ClassVar[tuple[str, ...]] = ()
    # By role of the sender: a Decoder(list[Union of the messages that it may send]).
    decoders: ClassVar[dict[str, msgspec.msgpack.Decoder[Any]]] = {}

    def __init__(self, boot: Boot, host: Host | None = None) -> None:
        super().__init__()
        self.boot = boot
        self.host: Host = ZmqHost() if host is None else host
        self.log = structlog.get_logger().bind(role=boot.role, incarnation=boot.incarnation)
        self.base_ms = 0
        self.peers: dict[str, str] = {}  # role -> incarnation that we are connected to
        self.there: dict[str, str] = {}  # role -> incarnation, as the root said last
        # Those that it had named before: what they had sent may still be on its way, and must not
        # be taken for the word of their successors.
        self.departed: dict[str, None] = {}
        # Messages that found their receiver gone or full; the senders' rules cover it.
        self.dropped = 0
        self.undecodable = 0
        self._boottime_ms = self.host.boottime_ms
        self._endpoints: dict[str, str] = {}
        self._addresses: dict[str, bytes] = {}  # By role of a peer, or by full name.
        self._out: dict[tuple[bytes, bytes], list[Message]] = {}
        self._is_ready = False
        self._is_stopping = False
        self._heard_peers = self._heard_sessions = 0  # The numbers of what the root said last.
        self.stalls = Stalls()  # How long this process stood still, in all.
        self.inbox: Inbox = self.actor_inbox  # type: ignore[assignment]
        self.inbox.timeout_ms = self._timeout_ms

    # --- what subclasses override -------------------------------------------
    def on_begin(self) -> None:
        """The inbox is bound and the root greeted; nothing has been received yet."""

    def on_peer(self, role: str, incarnation: str) -> None:
        """Connected to a new incarnation of a wanted role."""

    def on_peer_gone(self, role: str, incarnation: str) -> None:
        """A wanted peer is no longer there."""

    def on_session_message(self, message: Sessions | SessionDead) -> None:
        """The root speaks of its workers' sessions."""

    def on_message(self, sender: str, head: bytes, message: Any) -> None:
        """One message, in the order sent.

        `sender` is a full routing id such as "history.0a1b2c".
        """

    def on_raw(self, sender: str, head: bytes, body: bytes) -> bool:
        """Take an undecoded frame: True when it was taken."""
        return False

    def on_stall(self, now_ms: int) -> None:
        """This process stood still until now; what came in meanwhile has been handed over."""

    def on_drained(self, now_ms: int) -> None:
        """All that lay in the sockets was handed over."""

    def next_timer_ms(self) -> int | None:
        """When on_timer wants to be called, on the clock of now_ms; None: not at all."""
        return None

    def on_timer(self, now_ms: int) -> None:
        """The timer's time has come."""

    def on_orderly_stop(self, grace_ms: int) -> None:
        """The root asks for an end: close what needs closing, then the process ends."""

    # --- what subclasses use ------------------------------------------------
    def now_ms(self) -> int:
        """History's clock, once `base_ms` is known; before that, boot time."""
        return self.base_ms + self._boottime_ms()

    def send(self, to: str, message: Message, head: bytes = b"") -> None:
        """Send to a role that we are connected to, or to a full routing id, at this turn's end."""
        address = self._address(to)
        if address is None:
            self.dropped += 1
            return
        key = (address, head)
        batch = self._out.get(key)
        if batch is None:
            self._out[key] = [message]
        else:
            batch.append(message)

    def send_raw(self, to: str, head: bytes, body: bytes) -> None:
        """Pass a frame on as it is, behind everything sent before."""
        self.flush()
        address = self._address(to)
        if address is None:
            self.dropped += 1
            return
        self._transmit(address, head, body)

    def _address(self, to: str) -> bytes | None:
        """The routing id of a role that we are connected to, or of a full name; None: nobody."""
        address = self._addresses.get(to)
        if address is None and ("." in to or to == ROOT):
            if len(self._addresses) >= ADDRESSES_KEPT:
                self._addresses.clear()
                self._addresses.update((role, one.encode()) for role, one in self.peers.items())
            address = self._addresses[to] = to.encode("ascii")
        return address

    def ready(self) -> None:
        """Tell the root, once, that we serve."""
        if not self._is_ready:
            self._is_ready = True
            self.send(ROOT, ChildReady(self.boot.role, self.boot.incarnation))

    def fail(self, exit_code: int, message: str) -> NoReturn:
        """End for a reason that a restart would not change; the root shows `message`."""
        self.send(ROOT, ChildFailed(self.boot.role, self.boot.incarnation, exit_code, message))
        self.flush()
        self.host.close(LAST_WORDS_MS)
        self.host.exit(exit_code)

    # --- pykka --------------------------------------------------------------
    @staticmethod
    def _create_actor_inbox() -> Any:
        return Inbox()

    def _start_actor_loop(self) -> None:
        """Run on the thread that starts us, the only one of the process, until stopped."""
        self._actor_loop()

    def on_start(self) -> None:
        """Bind the inbox, greet the root."""
        self.host.open(self.boot, self.inbox, self._take)
        reached(CrashPoint.ACTOR_BOUND_NOT_GREETED)
        self._greet_root()
        self.flush()
        self.on_begin()
        self.flush()

    def _greet_root(self) -> None:
        boot, pid = self.boot, self.host.pid()
        self.send(ROOT, ChildHello(boot.role, boot.incarnation, pid, boot.inbox_endpoint))

    def on_receive(self, message: Any) -> None:
        """A turn: everything was drained; do the work, let it go."""
        boot_ms = self._boottime_ms()
        now_ms = self.base_ms + boot_ms
        stalled_ms = self.stalls.wakes(boot_ms)
        if stalled_ms:
            self.log.warning(LogName.ACTOR_STALLED, ms=stalled_ms)
            self.on_stall(now_ms)
        self.on_drained(now_ms)
        due_ms = self.next_timer_ms()
        if due_ms is not None and due_ms <= now_ms:
            self.on_timer(now_ms)
        self.flush()

    def _handle_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # pykka alone would stop the actor and leave its process alive, a silent hole.
        error = (exception_type, exception_value, traceback)
        self.log.error(LogName.ACTOR_CRASHED, exc_info=error)
        self.host.exit(EXIT_ACTOR_CRASHED)

    # --- inside -------------------------------------------------------------
    def _timeout_ms(self) -> int | None:
        due_ms, boot_ms = self.next_timer_ms(), self._boottime_ms()
        at_most_ms = None if due_ms is None else max(0, due_ms - self.base_ms - boot_ms)
        self.stalls.waits(boot_ms, at_most_ms)
        return at_most_ms

    def _take(self, frames: Frames) -> None:
        if len(frames) != 3:
            self._reject(frames, "frame count")
            return
        identity, head, body = frames
        if identity == ROOT_ID:
            self._take_control(body)
            return
        sender = identity.decode("ascii", "replace")
        if self.on_raw(sender, head, body):
            return
        decoder = self.decoders.get(sender.partition(".")[0])
        if decoder is None and head and sender.startswith(WORKER):
            decoder = self.decoders.get(WORKER)
        if decoder is None:
            self._reject(frames, "unknown sender")
            return
        try:
            batch = decoder.decode(body)
        except UNREADABLE:
            batch = self._decode_singly(decoder, frames)
        for message in batch:
            self.on_message(sender, head, message)

    def _decode_singly(self, decoder: msgspec.msgpack.Decoder[Any], frames: Frames) -> list[Any]:
        """What can be read of a batch that can't be read whole."""
        try:
            items = _items_decoder.decode(frames[2])
        except UNREADABLE as error:
            self._reject(frames, str(error))
            return []
        batch: list[Any] = []
        for item in items:
            try:
                batch += decoder.decode(b"\x91" + bytes(item))
            except UNREADABLE as error:
                self._reject(frames, str(error))
        return batch

    def _reject(self, frames: Frames, why: str) -> None:
        self.undecodable += 1
        self.log.warning(
            LogName.MESSAGE_UNDECODABLE,
            sender=frames[0].decode("ascii", "replace"),
            error=why,
            size=sum(map(len, frames)),
        )

    def _take_control(self, body: bytes) -> None:
        for message in _root_decoder.decode(body):
            match message:
                case Ping():
                    self._answer_root(message)
                case Peers(peers=peers, n=n):
                    if n >= self._heard_peers:
                        self._heard_peers = n
                        self._connect(peers)
                case Stop(grace_ms=grace_ms):
                    if not self._is_stopping:
                        self._is_stopping = True
                        self.flush()
                        self.on_orderly_stop(grace_ms)
                        self.flush()
                        self.stop()
                case Sessions(n=n):
                    if n >= self._heard_sessions:
                        self._heard_sessions = n
                        self.on_session_message(message)
                case SessionDead():
                    self.on_session_message(message)

    def _answer_root(self, ping: Ping) -> None:
        """Say again what the root lacks, and how far we have heard it."""
        if not ping.is_greeted:
            self._greet_root()
        if not ping.is_ready and self._is_ready:
            self.send(ROOT, ChildReady(self.boot.role, self.boot.incarnation))
        self.send(ROOT, Pong(ping.n, self._heard_peers, self._heard_sessions))

    def _connect(self, peers: tuple[tuple[str, str, str], ...]) -> None:
        """Follow the root's list of who is there; a new incarnation listens elsewhere than the old
        one.
        """
        there = {role: (incarnation, endpoint) for role, incarnation, endpoint in peers}
        now = {role: incarnation for role, incarnation, _ in peers}
        for role, incarnation in self.there.items():
            if now.get(role) != incarnation:
                self.departed[incarnation] = None
        self.there = now
        while len(self.departed) > ADDRESSES_KEPT:
            del self.departed[next(iter(self.departed))]
        for role in self.peers_wanted:
            known = self.peers.get(role)
            incarnation, endpoint = there.get(role, ("", ""))
            if known == incarnation or (known is None and not incarnation):
                continue
            if known is not None:
                del self.peers[role], self._addresses[role]
                self.host.disconnect(self._endpoints.pop(role))
                self.on_peer_gone(role, known)
            if incarnation:
                self.host.connect(incarnation, endpoint)
                self.peers[role] = incarnation
                self._addresses[role] = incarnation.encode("ascii")
                self._endpoints[role] = endpoint
                self.on_peer(role, incarnation)

    def flush(self) -> None:
        """Let go of everything that was sent in this turn."""
        if not self._out:
            return
        reached(CrashPoint.ACTOR_WORKED_NOT_SENT)
        out, self._out = self._out, {}
        for (address, head), batch in out.items():
            self._send_batch(address, head, batch)
            if ARMED:
                reached(CrashPoint.ACTOR_SENT_IN_PART)

    def _send_batch(self, address: bytes, head: bytes, batch: list[Message]) -> None:
        body = pack(batch)
        if len(body) > limits.FRAME_BYTES and len(batch) > 1:
            half = len(batch) // 2
            self._send_batch(address, head, batch[:half])
            self._send_batch(address, head, batch[half:])
            return
        self._transmit(address, head, body)

    def _transmit(self, address: bytes, head: bytes, body: bytes) -> None:
        if not self.host.transmit(address, head, body):
            self.dropped += 1


def run(actor_class: type[Mailbox], boot: Boot) -> None:
    """Be this actor until the root says stop. The process may end inside."""
    logs.configure(boot.log_json)
    # State is many small objects that hardly ever form cycles: searching them costs, and finds
    # next to nothing. What was imported need not be searched at all.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    actor_class.start(boot)
