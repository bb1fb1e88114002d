"""The gateway's side towards workers: who is which session, and frames passed on untouched.

For workers of this node the supervisor is the source of sessions; for all others this gateway is.
It watches their processes and tells scheduler and lease keeper its full set on every change.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from actors import gateway_reads
from actors.mailbox import Mailbox
from perdure import errors, wire
from perdure.core import limits
from perdure.core.ids import Session
from perdure.core.links import (
    HISTORY,
    LEASE_KEEPER,
    ROOT,
    SCHEDULER,
    ActivityTask,
    Fetch,
    FromWorkerToGateway,
    HistoryChanged,
    Message,
    QueryAnswer,
    RemoteWorkers,
    RestartWorker,
    SessionDone,
    Sessions,
    ToWorker,
    WorkerBye,
    WorkerHello,
    WorkerRefused,
    WorkerWelcome,
    pack,
    pack_session,
)
from perdure.core.seats import SessionSets
from perdure.crash_points import CrashPoint, reached
from perdure.log_names import LogName
from perdure.store.protocol import Reader
from perdure.values import REFERENCE_FROM, refer
from perdure.waiting import Offer

# After a death, what its socket's buffer still held has been read by ZeroMQ's own thread.
SETTLE_MS = 2
DRAIN_ROUNDS = 10
TELL_AGAIN_MS = 2_000

# How a payload that is a reference begins in a frame; anything else may look like it, too.
REFERENCE_MARK = msgspec.msgpack.encode(refer(bytes(REFERENCE_FROM + 1)))[:3]

_to_gateway = msgspec.msgpack.Decoder(list[FromWorkerToGateway])
_to_worker = msgspec.msgpack.Decoder(list[ToWorker])
_ROUTES = {
    b"H": (HISTORY,),
    b"S": (SCHEDULER,),
    b"L": (LEASE_KEEPER,),
    b"A": (SCHEDULER, LEASE_KEEPER),
}


class _Worker:
    """One session; `identity` is that of its newest connection."""

    __slots__ = ("head", "hello", "identity", "session", "unwatch")

    def __init__(self, session: Session, identity: bytes, hello: WorkerHello) -> None:
        self.session = session
        self.head = pack_session(session)
        self.identity = identity
        self.hello = hello
        self.unwatch: Callable[[], None] | None = None

    @property
    def process(self) -> tuple[str, int, float]:
        """What tells it from all other workers."""
        return _process(self.hello)


def _process(hello: WorkerHello) -> tuple[str, int, float]:
    return (hello.worker_id, hello.pid, hello.pid_started)


def _has_become(before: WorkerHello, now: WorkerHello) -> bool:
    """Whether a worker's process has executed itself anew, and is this one by now: it is called by
    its machine, its process, and something random.
    """
    stem = f"-{now.pid}-"
    return (
        before.worker_id != now.worker_id
        and (before.pid, before.pid_started) == (now.pid, now.pid_started)
        and stem in now.worker_id
        and before.worker_id.rpartition("-")[0] == now.worker_id.rpartition("-")[0]
    )


def _offer(hello: WorkerHello) -> Offer:
    return Offer(hello.queues, hello.activity_types, hello.workflow_types)


def _union(parts: Iterable[tuple[str, ...]]) -> list[str]:
    return sorted({name for part in parts for name in part})


class Workers:
    """All workers that said hello. `reader` gives the store's reader once history has begun."""

    def __init__(self, mailbox: Mailbox, reader: Callable[[], Reader | None]) -> None:
        self._mailbox = mailbox
        self._door = mailbox.host.workers_door(
            mailbox.boot.workers_endpoint, mailbox.inbox, self.take
        )
        self._reader = reader
        self._by_identity: dict[bytes, _Worker] = {}
        self._by_head: dict[bytes, _Worker] = {}
        self._ordinal = 0
        self._tell_ms = 0  # When our set is told again.
        self._ending: list[tuple[int, Session]] = []  # (due_ms, session), in order.
        self._local = SessionSets()
        self.history = ""
        self.epoch = 0
        self.unroutable = 0
        self.refused = 0
        self.on_query_answer: Callable[[QueryAnswer], None] = lambda answer: None
        self.on_gone: Callable[[bytes], None] = lambda head: None
        # What is served by those who are there now, each kind of worker once.
        self.offers: tuple[Offer, ...] = ()

    # --- from workers ------------------------------------------------------------
    def take(self, frames: list[bytes]) -> None:
        """One message of a worker: for us, or passed on for its session."""
        if len(frames) != 3:
            self.refused += 1
            return
        identity, destination, body = frames
        if destination == b"G":
            self._take_own(identity, body)
            return
        worker = self._by_identity.get(identity)
        route = _ROUTES.get(destination)
        if worker is None or route is None:
            # It says hello on every connection, and then all of it again.
            self.refused += 1
            return
        reached(CrashPoint.GATEWAY_REPORT_TAKEN_NOT_PASSED_ON)
        for role in route:
            self._mailbox.send_raw(role, worker.head, body)

    def _take_own(self, identity: bytes, body: bytes) -> None:
        try:
            batch = _to_gateway.decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            self.refused += 1
            self._mailbox.log.warning(
                LogName.MESSAGE_UNDECODABLE, sender="worker", error=str(error)
            )
            return
        for message in batch:
            match message:
                case WorkerHello():
                    self._greet(identity, message)
                case Fetch():
                    self._fetch(identity, message)
                case QueryAnswer():
                    self.on_query_answer(message)
                case WorkerBye():
                    worker = self._by_identity.get(identity)
                    # The supervisor sees the end of its own workers itself.
                    if worker is not None and not worker.session.is_local:
                        self._forget(worker)
                        self.tell_sessions()

    def _greet(self, identity: bytes, hello: WorkerHello) -> None:
        if hello.version != limits.PROTOCOL_VERSION:
            self.refused += 1
            self._mailbox.log.warning(
                LogName.PEER_REFUSED,
                sender=hello.worker_id,
                version=hello.version,
                speaks=limits.PROTOCOL_VERSION,
            )
            text = (
                f"worker {hello.worker_id} speaks protocol {hello.version}, this node"
                f" {limits.PROTOCOL_VERSION}: have both run the same version of perdure"
            )
            refused = WorkerRefused(limits.PROTOCOL_VERSION, text)
            self._door.send(identity, pack([refused]))
            return
        known = self._known(hello)
        if known is not None:
            self._by_identity.pop(known.identity, None)
            known.identity, known.hello = identity, hello
            worker = known
        else:
            session = hello.session if hello.session and hello.session.is_local else None
            if session is not None and self._local.is_dead(session):
                return  # Its last word, come late.
            worker = _Worker(session or self._new_session(), identity, hello)
        self._by_identity[identity] = worker
        self._by_head[worker.head] = worker
        self._count_offers()
        base_ms = self._mailbox.base_ms if worker.session.is_local else 0
        welcome = WorkerWelcome(
            worker.session, self._mailbox.boot.incarnation, self.history, self.epoch, base_ms
        )
        self._send(worker, pack([welcome]))
        reached(CrashPoint.GATEWAY_WORKER_WELCOMED)
        if known is None and not worker.session.is_local:
            for before in [it for it in self._by_head.values() if _has_become(it.hello, hello)]:
                self.session_dead(before.session)  # Its process lives, and is another worker now.
            self._watch(worker, hello)
            self.tell_sessions()

    def _count_offers(self) -> None:
        hellos = (worker.hello for worker in self._by_head.values())
        self.offers = tuple(dict.fromkeys(map(_offer, hellos)))

    def _known(self, hello: WorkerHello) -> _Worker | None:
        if hello.session is not None and hello.session.is_local:
            return self._by_head.get(pack_session(hello.session))
        for worker in self._by_head.values():
            if worker.process == _process(hello) and not worker.session.is_local:
                return worker
        return None

    def _new_session(self) -> Session:
        self._ordinal += 1
        return Session(self._mailbox.boot.incarnation, self._ordinal)

    def _fetch(self, identity: bytes, fetch: Fetch) -> None:
        worker, reader = self._by_identity.get(identity), self._reader()
        if worker is not None and reader is not None:
            self._send(worker, pack([gateway_reads.page(reader, fetch)]))

    # --- to workers --------------------------------------------------------------
    def forward(self, sender: str, head: bytes, body: bytes) -> None:
        """A frame of an actor for the worker whose session `head` is."""
        worker = self._by_head.get(head)
        if worker is None:
            self.unroutable += 1
            return
        # Only tasks hold references.
        if REFERENCE_MARK in body and sender.startswith(SCHEDULER):
            self._forward_resolved(worker, body)
        else:
            self._send(worker, body)
        reached(CrashPoint.GATEWAY_TASK_PASSED_ON)

    def _forward_resolved(self, worker: _Worker, body: bytes) -> None:
        batch = _to_worker.decode(body)
        reader = self._reader()
        if reader is None or not any(
            isinstance(it, ActivityTask) and gateway_reads.has_reference(it) for it in batch
        ):
            self._send(worker, body)
            return
        small: list[Message] = []
        for message in batch:
            if isinstance(message, ActivityTask) and gateway_reads.has_reference(message):
                # A frame of its own: a batch of the largest inputs would pass no limit.
                self._send(worker, pack([gateway_reads.resolved(reader, message)]))
            else:
                small.append(message)
        if small:
            self._send(worker, pack(small))

    def that_have(self, workflow_type: str, queue: str) -> list[bytes]:
        """The heads of the workers that have this type of workflow on this queue."""
        return [
            worker.head
            for worker in self._by_head.values()
            if workflow_type in worker.hello.workflow_types and queue in worker.hello.queues
        ]

    def say(self, head: bytes, message: Message) -> None:
        """A word of ours to a worker."""
        worker = self._by_head.get(head)
        if worker is not None:
            self._send(worker, pack([message]))

    def history_changed(self, history: str, epoch: int) -> None:
        """Every worker sends its unanswered reports again."""
        self.history, self.epoch = history, epoch
        here = pack([HistoryChanged(history, self._mailbox.base_ms)])
        elsewhere = pack([HistoryChanged(history)])
        for worker in self._by_identity.values():
            self._send(worker, here if worker.session.is_local else elsewhere)

    def _send(self, worker: _Worker, body: bytes) -> None:
        if not self._door.send(worker.identity, body):
            self.unroutable += 1  # Its next Sync shows what it lacks.

    # --- sessions ----------------------------------------------------------------
    def tell_sessions(self, role: str | None = None) -> None:
        """Send our full set to those who judge by it (or to one that is new)."""
        ours = [worker for worker in self._by_head.values() if not worker.session.is_local]
        live = tuple(worker.session.ordinal for worker in ours)
        message = Sessions(self._mailbox.boot.incarnation, self._ordinal, live)
        self._tell_ms = self._mailbox.now_ms() + TELL_AGAIN_MS
        for receiver in (SCHEDULER, LEASE_KEEPER) if role is None else (role,):
            if receiver in self._mailbox.peers:
                self._mailbox.send(receiver, message)
        if role is None:
            # The root forgets them when it sees us end.
            self._mailbox.send(ROOT, RemoteWorkers(tuple(it.hello.worker_id for it in ours)))

    def asked(self, args: wire.WorkerTypes | wire.RestartWorker) -> dict[str, Any]:
        """Who is there; or (NotFound, FailedPrecondition) somebody is told to begin anew."""
        if isinstance(args, wire.WorkerTypes):
            return self._view()
        for worker in self._by_head.values():
            if worker.hello.worker_id == args.worker_id:
                break
        else:
            raise errors.NotFound(f"there is no worker {args.worker_id!r}")
        if not worker.hello.restarts:
            why = "the node replaces it" if worker.session.is_local else "end it and start another"
            text = f"worker {args.worker_id!r} does not restart itself: {why}"
            raise errors.FailedPrecondition(text)
        worker.hello = msgspec.structs.replace(worker.hello, trouble="")
        self._send(worker, pack([RestartWorker()]))
        return {}

    def _view(self) -> dict[str, Any]:
        """The workers that are there now and what they have, as the answer to WorkerTypes."""
        hellos = [(worker.session.is_local, worker.hello) for worker in self._by_head.values()]
        return {
            "workflow_types": _union(hello.workflow_types for _, hello in hellos),
            "activity_types": _union(hello.activity_types for _, hello in hellos),
            "queues": _union(hello.queues for _, hello in hellos),
            "workers": [
                {
                    "worker_id": hello.worker_id,
                    "pid": hello.pid,
                    "local": is_local,
                    "build": hello.build or None,
                    "restarts": hello.restarts,
                    "trouble": hello.trouble or None,
                    "queues": hello.queues,
                    "workflow_types": hello.workflow_types,
                    "activity_types": hello.activity_types,
                }
                for is_local, hello in hellos
            ],
        }

    def _watch(self, worker: _Worker, hello: WorkerHello) -> None:
        """Learn of the death of a process of this machine; elsewhere its leases' deadlines do."""
        worker.unwatch = self._mailbox.host.watch(
            hello.pid, hello.pid_started, self._mailbox.inbox, lambda: self._died(worker)
        )

    def _died(self, worker: _Worker) -> None:
        self._unwatch(worker)
        self.session_dead(worker.session)

    def _unwatch(self, worker: _Worker) -> None:
        if worker.unwatch is not None:
            worker.unwatch()
            worker.unwatch = None

    def session_dead(self, session: Session) -> None:
        """Its process has ended: pass on what it had sent, then say that nothing more comes."""
        self._drain()
        self._ending.append((self._mailbox.now_ms() + SETTLE_MS, session))

    def local_sessions(self, message: Sessions) -> None:
        """The root's whole set: what is not in it has ended, also where nobody told us so."""
        self._local.put(message)
        for worker in [it for it in self._by_head.values() if self._local.is_dead(it.session)]:
            self._forget(worker)

    def next_ms(self) -> int | None:
        """When `on_timer` has something to do."""
        ending_ms = self._ending[0][0] if self._ending else None
        if not self._ordinal:
            return ending_ms  # Nobody from elsewhere ever came.
        return self._tell_ms if ending_ms is None else min(ending_ms, self._tell_ms)

    def on_timer(self, now_ms: int) -> None:
        """Finish with the sessions whose buffers have settled; repeat our set, lest it got lost."""
        if self._ordinal and self._tell_ms <= now_ms:
            self.tell_sessions()
        if not self._ending or self._ending[0][0] > now_ms:
            return
        self._drain()
        ended = [session for due_ms, session in self._ending if due_ms <= now_ms]
        self._ending = [entry for entry in self._ending if entry[0] > now_ms]
        for session in ended:
            worker = self._by_head.get(pack_session(session))
            if worker is not None:
                self._forget(worker)
            if session.is_local:
                self._mailbox.send(ROOT, SessionDone(session))
        if not all(session.is_local for session in ended):
            self.tell_sessions()

    def _forget(self, worker: _Worker) -> None:
        self._unwatch(worker)
        self._by_head.pop(worker.head, None)
        self.on_gone(worker.head)
        if self._by_identity.get(worker.identity) is worker:
            del self._by_identity[worker.identity]
        self._count_offers()

    def _drain(self) -> None:
        for frames in itertools.islice(self._door.waiting(), limits.DRAIN_MAX * DRAIN_ROUNDS):
            self.take(frames)
