"""Gateway: the door of the node, for clients of any language and for workers.

Owns the public sockets and the workers' socket, and nothing durable. Receives requests (clients),
frames to pass on (workers), answers (history, lease keeper, scheduler, dead letters), and the
deaths of workers (root). Changes go to history, which alone decides; what only looks is read from
the store; a request that was on its way to an actor that died is answered UNAVAILABLE at once.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from actors import gateway_explain, gateway_reads, gateway_sockets
from actors.asks import Asks
from actors.gateway_clients import ClientSide
from actors.gateway_commands import outcome_of, task_view, too_late
from actors.gateway_events import Events
from actors.gateway_queries import Queries
from actors.gateway_requests import Kind, Open
from actors.gateway_watches import WATCH_FROM, Watches
from actors.gateway_workers import Workers
from actors.host import Host
from actors.mailbox import run
from perdure import __version__, errors, wire, wire_flow
from perdure.commanding import command_of
from perdure.core import limits
from perdure.core.boot import Boot
from perdure.core.commands import AnyAnswer, Refusal, Updated
from perdure.core.explain_links import Explained
from perdure.core.ids import execution_id
from perdure.core.links import (
    DLQ,
    GATEWAY,
    HISTORY,
    LEASE_KEEPER,
    SCHEDULER,
    Answer,
    DeadListed,
    Echo,
    FromHistory,
    Heartbeat,
    Hello,
    ListDead,
    Poll,
    Polled,
    SessionDead,
    Sessions,
    Unpoll,
    Welcome,
)
from perdure.crash_points import ARMED, CrashPoint, reached
from perdure.errors import PerdureError
from perdure.store.protocol import Reader

# --- messages ---------------------------------------------------------------
_from_history = msgspec.msgpack.Decoder(list[FromHistory])
_from_scheduler = msgspec.msgpack.Decoder(list[Polled | Explained])
_from_lease_keeper = msgspec.msgpack.Decoder(list[Answer | Echo])
_from_dlq = msgspec.msgpack.Decoder(list[DeadListed | Answer])

HELLO_AGAIN_MS = 2_000
# A peer that answers nothing for so long is on its way to be replaced.
PEER_ANSWER_MS = 10_000
# Who waits longer asks again: the watch of one that has vanished ends.
RESULT_WAIT_MAX_MS = 600_000
LIST_LIMIT = 100
EXIT_REFUSED = 6


# --- state ------------------------------------------------------------------
class Gateway(ClientSide):
    """The actor. Holds requests until they are answered, and who the workers are."""

    role = GATEWAY
    peers_wanted = (HISTORY, SCHEDULER, LEASE_KEEPER, DLQ)
    decoders: ClassVar[dict[str, msgspec.msgpack.Decoder[Any]]] = {
        HISTORY: _from_history,
        SCHEDULER: _from_scheduler,
        LEASE_KEEPER: _from_lease_keeper,
        DLQ: _from_dlq,
    }

    def __init__(self, boot: Boot, host: Host | None = None) -> None:
        super().__init__(boot, host)
        self._asks = Asks()
        self._watches = Watches(self, lambda: self._reader)
        self._peer_open: dict[str, dict[int, Open]] = {SCHEDULER: {}, LEASE_KEEPER: {}, DLQ: {}}
        self._reader: Reader | None = None
        self._history = ""  # The incarnation that has said Welcome, while it is there.
        self._newest = 0  # The newest commit that an answer spoke of.
        self._hello_ms: int | None = None
        self._echo: Echo | None = None  # The newest that is not sent back yet.
        self._workers: Workers
        self._queries: Queries
        self._events = Events(self, lambda: self._reader, self._greet_again)

    # --- handle: beginning, end, peers ----------------------------------------
    def on_begin(self) -> None:
        """Open the doors. The gateway serves once history has."""
        try:
            for endpoint in self.boot.public_endpoints:
                self.open_door(endpoint)
            self._workers = Workers(self, lambda: self._reader)
            self._queries = Queries(self, self._workers, lambda: self._reader)
            self._workers.on_query_answer = self._queries.answered
            self._workers.on_gone = self._queries.worker_gone
        except gateway_sockets.CannotBind as problem:
            self.fail(EXIT_REFUSED, str(problem))
        reached(CrashPoint.GATEWAY_DOORS_OPEN)

    def on_peer(self, role: str, incarnation: str) -> None:
        """Greet history; tell those who judge sessions which of ours live."""
        if role == HISTORY:
            self._greet_history()
        elif role in (SCHEDULER, LEASE_KEEPER):
            self._workers.tell_sessions(role)

    def _greet_history(self) -> None:
        self._hello_ms = self.now_ms() + HELLO_AGAIN_MS
        boot = self.boot
        follow = self._events.is_following
        hello = Hello(
            GATEWAY,
            boot.incarnation,
            boot.node,
            limits.PROTOCOL_VERSION,
            follow=follow,
            patient=follow,
        )
        self.send(HISTORY, hello)

    def _greet_again(self) -> None:
        """What we want of history has changed."""
        if HISTORY in self.peers:
            self._greet_history()

    def on_peer_gone(self, role: str, incarnation: str) -> None:
        """What it was asked may be done or not: say so at once, clients ask again."""
        lost = errors.Unavailable(f"the {role.replace('_', ' ')} of the node is starting again")
        if role == HISTORY:
            self._history = ""
            self._hello_ms = None
            entries = [tag for _, tag in self._asks.drop_all()]
            entries += self._watches.drop_all()
        else:
            entries = list(self._peer_open[role].values())
            self._peer_open[role].clear()
        for entry in entries:
            self.refuse(entry, lost)

    def on_orderly_stop(self, grace_ms: int) -> None:
        """Answer whoever still waits."""
        for entry in self.requests.all_open():
            self.refuse(entry, errors.Unavailable("the node is stopping"))

    def on_session_message(self, message: Sessions | SessionDead) -> None:
        """A worker of this node has died, or which of them live."""
        if isinstance(message, SessionDead):
            self._workers.session_dead(message.session)
        else:
            self._workers.local_sessions(message)

    def _welcome(self, welcome: Welcome) -> None:
        if welcome.incarnation != self.peers.get(HISTORY):
            return
        self._hello_ms = None
        self.base_ms = welcome.base_ms
        if self._reader is None:
            self._reader = self.host.reader(self.boot.data_dir)
        # A history without room has no epoch of its own at first, and dropped what workers said.
        if (self._history, self._workers.epoch) != (welcome.incarnation, welcome.epoch):
            self._history = welcome.incarnation
            self._workers.history_changed(welcome.incarnation, welcome.epoch)
        # A hello makes history forget our watches: one that was late took those since with it.
        self._watches.again()
        self._events.on_welcome(welcome.n)
        self.ready()

    # --- handle: messages of actors ---------------------------------------------
    def on_raw(self, sender: str, head: bytes, body: bytes) -> bool:
        """Frames for a worker are passed on untouched."""
        if not head:
            return False
        self._workers.forward(sender, head, body)
        return True

    def on_message(self, sender: str, head: bytes, message: Any) -> None:
        """An answer to one of our questions."""
        if isinstance(message, Answer) and sender == self.peers.get(HISTORY):
            self._answered_by_history(message)
            return
        role = sender.partition(".")[0]
        if self.peers.get(role) != sender:
            return  # Of an incarnation whose requests were answered UNAVAILABLE already.
        match message:
            case Answer():
                entry = self._peer_open[role].pop(message.n, None)
                if entry is not None:
                    self._settle(entry, message.answer, message.commit)
            case Polled() | DeadListed() | Explained():
                entry = self._peer_open[role].pop(message.n, None)
                if entry is not None:
                    self._peer_answered(entry, message)
            case Welcome():
                self._welcome(message)
            case Echo():
                self._echo = message
            case _:
                self._events.on_message(message)

    def _answered_by_history(self, message: Answer) -> None:
        if message.commit > self._newest:
            self._newest = message.commit
        if message.n >= WATCH_FROM:
            entry = self._watches.pop(message.n)
        else:
            found = self._asks.answered(message)
            entry = None if found is None else found[1]
        if entry is not None:
            if ARMED:
                reached(CrashPoint.GATEWAY_ANSWER_HEARD_NOT_PASSED_ON)
            self._settle(entry, message.answer, message.commit)

    def _settle(self, entry: Open, answer: AnyAnswer, commit: int) -> None:
        next_run = self._watches.follows(entry, answer)
        if next_run is not None:
            self._watches.put(entry, self.next_number(), next_run)
            return
        if self._goes_on(entry, answer):
            return
        try:
            ok = outcome_of(entry.request, answer)
        except PerdureError as problem:
            self.refuse(entry, problem, commit)
        else:
            self.answer(entry, ok, commit)

    # --- handle: requests -------------------------------------------------------
    def carry_out(self, entry: Open) -> None:
        """Ask whoever knows; what is refused before that is raised."""
        request, reader = entry.request, self._reader
        args = request.args
        if isinstance(args, wire.WorkerEndpoint):
            self.answer(entry, {"endpoint": self.boot.workers_endpoint})
            return
        if reader is None or not self._history:
            # Also for what only looks: before history's first commit nothing read is sure to stay.
            raise errors.Unavailable("the node is starting")
        if entry.kind is Kind.CHANGE or entry.kind is Kind.REPORT:
            command = command_of(request.form, args)
            self.send(HISTORY, self._asks.ask(command, self.now_ms(), entry))
            if ARMED:
                reached(CrashPoint.GATEWAY_COMMAND_ASKED_NOT_ANSWERED)
            return
        match args:
            case wire.GetResult() if args.wait_ms:
                first = execution_id(args.workflow_id, args.run or 1)
                self._watches.put(entry, self.next_number(), first)
                self.set_deadline(entry, min(args.wait_ms, RESULT_WAIT_MAX_MS))
            case wire.Ping():
                ping = {"version": __version__, "node": self.boot.node, "now_ms": self.now_ms()}
                self.answer(entry, ping)
            case wire.PollActivityTask():
                self._poll(entry, args)
            case wire.RecordHeartbeat():
                details = request.form.payload(args.details, "details")
                has_details = args.details is not wire.ABSENT
                self._ask_peer(
                    entry,
                    LEASE_KEEPER,
                    lambda n: Heartbeat(n, args.token, 0, details, has_details),
                )
            case wire.ListDeadLetters():
                self._ask_peer(entry, DLQ, lambda n: self._list_dead_of(n, args))
            case wire.QueryWorkflow():
                self._queries.ask(entry, args)
            case _:
                self._look(entry, reader)

    def _look(self, entry: Open, reader: Reader) -> None:
        args = entry.request.args
        if isinstance(args, wire.ReadEvents):
            self._events.ask(entry, args)
            return
        if isinstance(args, wire.WorkerTypes | wire.RestartWorker):
            self.answer(entry, self._workers.asked(args))
            return
        if isinstance(args, wire_flow.ExplainWorkflow):
            asked = gateway_explain.question(reader, args, self._newest)
            if isinstance(asked, dict):
                self.answer(entry, asked)
            else:
                self._ask_peer(entry, SCHEDULER, asked)
            return
        offers = self._workers.offers
        grace_ms = self.boot.recovery_grace_ms
        ok = gateway_reads.look(reader, entry.request, offers, self.now_ms(), grace_ms)
        self.answer(entry, ok)

    # --- handle: each kind of question --------------------------------------------
    def _ask_peer(self, entry: Open, role: str, message_of: Any) -> None:
        if role not in self.peers:
            raise errors.Unavailable(f"the {role.replace('_', ' ')} of the node is starting")
        if not entry.n:
            entry.n = self.next_number()
            self.set_deadline(entry, PEER_ANSWER_MS)
        self._peer_open[role][entry.n] = entry
        self.send(role, message_of(entry.n))

    def _peer_answered(self, entry: Open, message: Polled | DeadListed | Explained) -> None:
        match message:
            case Polled(task=task):
                self._give_task(entry, task)
            case DeadListed():
                self._list_dead(entry, message)
            case Explained():
                args: Any = entry.request.args
                try:
                    self.answer(entry, gateway_explain.answered(self._reader, args, message))
                except PerdureError as problem:
                    self.refuse(entry, problem)

    def _poll(self, entry: Open, args: wire.PollActivityTask) -> None:
        wait_ms = args.wait_ms or 0
        entry.n = self.next_number()
        self.set_deadline(entry, wait_ms + PEER_ANSWER_MS)
        types = args.types or ()
        self._ask_peer(
            entry,
            SCHEDULER,
            lambda n: Poll(n, args.task_queue, args.worker_id, types, wait_ms, args.request_id),
        )

    def _give_task(self, entry: Open, task: Any) -> None:
        reader = self._reader
        if task is None or reader is None:
            self.answer(entry, None)
            return
        if gateway_reads.has_reference(task):
            task = gateway_reads.resolved(reader, task)
        try:
            view = task_view(entry.request.form, task)
        except PerdureError as problem:
            # The lease ends by its deadline; what can't be shown must not stop the gateway.
            self.refuse(entry, problem)
        else:
            self.answer(entry, view)

    def _list_dead_of(self, n: int, args: wire.ListDeadLetters) -> ListDead:
        return ListDead(
            n,
            self._newest,
            args.workflow_id,
            args.activity_id,
            args.activity_type,
            args.failure_type,
            args.older_than_ms,
            args.limit or LIST_LIMIT,
            args.page,
        )

    def _list_dead(self, entry: Open, listed: DeadListed) -> None:
        args = entry.request.args
        entries = list(listed.entries)
        reader = self._reader
        is_one = isinstance(args, wire.ListDeadLetters) and args.workflow_id and args.activity_id
        if is_one and reader is not None:
            entries = [gateway_reads.whole_dead_letter(reader, it) for it in entries]
        self.answer(entry, {"dead_letters": entries, "next_page": listed.next_page})

    def _goes_on(self, entry: Open, answer: AnyAnswer) -> bool:
        """Whether an update was accepted, and is waited for from now on."""
        args = entry.request.args
        if not isinstance(args, wire.UpdateWorkflow) or isinstance(answer, Refusal | Updated):
            return False
        if not args.wait_ms:
            return False
        self.requests.accepted(entry)
        # History finds the run that has it.
        self._watches.put(entry, self.next_number(), args.workflow_id, args.request_id)
        self.set_deadline(entry, min(args.wait_ms, RESULT_WAIT_MAX_MS))
        self.move(entry.connection)
        return True

    def asked_again(self, entry: Open) -> None:
        """A watch may have got lost. Commands are sent again in their own time (asks)."""
        if entry.kind is Kind.WATCH and self._history:
            self._watches.asked_again(entry)

    # --- handle: time -----------------------------------------------------------
    def on_drained(self, now_ms: int) -> None:
        """What lay in the doors has been passed on: so the lease keeper may know it. What the feed
        brought is for those who wait for it.
        """
        self._events.on_drained(now_ms)
        if self._echo is not None and self.inbox.is_empty:
            self.send(LEASE_KEEPER, self._echo)
            self._echo = None

    def next_timer_ms(self) -> int | None:
        """The earliest of: a wait that ends, a command or hello to send again, a session's end."""
        earliest = self.next_deadline_ms()
        for due_ms in (
            self._asks.next_ms(),
            self._hello_ms,
            self._workers.next_ms(),
            self._events.next_ms(),
        ):
            if due_ms is not None and (earliest is None or due_ms < earliest):
                earliest = due_ms
        return earliest

    def on_timer(self, now_ms: int) -> None:
        """Do what is due."""
        if self._hello_ms is not None and self._hello_ms <= now_ms:
            self._greet_history()
        for ask in self._asks.due(now_ms):
            self.send(HISTORY, ask)
        self._workers.on_timer(now_ms)
        self._events.on_timer(now_ms)
        for entry in self.overdue(now_ms):
            self._time_is_up(entry)

    def _time_is_up(self, entry: Open) -> None:
        args = entry.request.args
        if isinstance(args, wire.GetResult | wire.UpdateWorkflow):
            self._watches.give_up(entry)
            self.refuse(entry, too_late(args, min(args.wait_ms or 0, RESULT_WAIT_MAX_MS)))
            return
        if isinstance(args, wire.ReadEvents):
            self._events.time_is_up(entry)
            return
        if isinstance(args, wire.QueryWorkflow):
            self._queries.time_is_up(entry)
            return
        if isinstance(args, wire.PollActivityTask):
            self.send(SCHEDULER, Unpoll(entry.n))
        for entries in self._peer_open.values():
            entries.pop(entry.n, None)
        self.refuse(entry, errors.Unavailable("the node is too busy to answer"))


def main(boot: Boot) -> None:
    """Be the gateway until the root says stop."""
    gateway_sockets.allow_descriptors()
    run(Gateway, boot)
