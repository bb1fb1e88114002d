"""What actors, workers and the root say to each other inside a node, and how it is framed.

One ZeroMQ message between two actors is [peer identity][head][body]. `body` is a MessagePack list
of messages of one conversation (a batch). `head` says whose batch it is: b"" is the sender's own; a
packed Session means that the gateway passed it on for that worker, untouched, or that the receiver
(the gateway) shall pass it on to that worker.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.core.commands import AnyAnswer, AnyCommand
from perdure.core.ids import Session
from perdure.core.loan_links import Lend as Lend
from perdure.core.loan_links import Lent as Lent
from perdure.core.query_links import DeadListed as DeadListed
from perdure.core.query_links import ListDead as ListDead
from perdure.core.query_links import Query as Query
from perdure.core.query_links import QueryAnswer as QueryAnswer
from perdure.core.query_links import RestartWorker as RestartWorker
from perdure.core.records import ActivityOptions, Payload
from perdure.core.tree_links import (
    ChildFailed as ChildFailed,
)
from perdure.core.tree_links import (
    ChildHello as ChildHello,
)
from perdure.core.tree_links import (
    ChildReady as ChildReady,
)
from perdure.core.tree_links import (
    FromRoot as FromRoot,
)
from perdure.core.tree_links import (
    Message as Message,
)
from perdure.core.tree_links import (
    Outboxes as Outboxes,
)
from perdure.core.tree_links import (
    Peers as Peers,
)
from perdure.core.tree_links import (
    Ping as Ping,
)
from perdure.core.tree_links import (
    Pong as Pong,
)
from perdure.core.tree_links import (
    Quarantine as Quarantine,
)
from perdure.core.tree_links import (
    RemoteWorkers as RemoteWorkers,
)
from perdure.core.tree_links import (
    SessionDead as SessionDead,
)
from perdure.core.tree_links import (
    SessionDone as SessionDone,
)
from perdure.core.tree_links import (
    Sessions as Sessions,
)
from perdure.core.tree_links import (
    Stop as Stop,
)
from perdure.core.tree_links import (
    ToRoot as ToRoot,
)

# Roles, as `perdure ps` names them.
ROOT = "root"
HISTORY = "history"
LEASE_KEEPER = "lease_keeper"
SCHEDULER = "scheduler"
DLQ = "dlq"
GATEWAY = "gateway"
OUTBOX = "outbox"
WORKER = "worker"  # "worker-1" and so on.
CORE_ROLES = (HISTORY, LEASE_KEEPER, SCHEDULER, DLQ, GATEWAY)


# --- to and from history ----------------------------------------------------
class Hello(Message, frozen=True, tag=1):
    """First word of a projection or gateway to history.

    With `follow`, every later commit is sent to it, or with `only_dead_letters` those that may
    concern dead letters; with `patient` not each by itself but what came up in PATIENT_MS.
    """

    role: str
    incarnation: str
    node: str
    version: int
    follow: bool = False
    only_dead_letters: bool = False
    patient: bool = False


class Welcome(Message, frozen=True, tag=2):
    """History's first answer, after its epoch commit: the store may be read from `n` on.

    `base_ms` plus CLOCK_BOOTTIME in ms is history's clock.
    """

    incarnation: str
    epoch: int
    n: int
    base_ms: int


class Ask(Message, frozen=True, tag=3):
    """A command.

    `n` is the originator's own number; the answer bears it. Sent again until answered.
    """

    n: int
    command: AnyCommand


class Watch(Message, frozen=True, tag=4):
    """Tell me when this execution is closed (at once, if it is).

    With an `update_id`: when that update of the workflow, in whichever run, is answered.

    Answered NOT_FOUND where there is none.
    """

    n: int
    workflow_id: str
    update_id: str = ""


class Unwatch(Message, frozen=True, tag=5):
    """No longer interested in watch `n`."""

    n: int


class Answer(Message, frozen=True, tag=6):
    """The answer to Ask or Watch `n`, durable as of `commit`."""

    n: int
    commit: int
    answer: AnyAnswer


class Feed(Message, frozen=True, tag=7):
    """Commit `n`; the one sent to this follower before it was `previous`.

    `body` is perdure.core.records.CommitBody.
    """

    previous: int
    n: int
    body: bytes


class Newest(Message, frozen=True, tag=8):
    """History's newest commit, repeated every 100 ms.

    `sent` is the newest that was sent to this follower: if it has not reached that, it reads the
    log. What lies between `sent` and `n` does not concern it. `stall_ms`: sum of all stalls.
    """

    n: int
    sent: int
    stall_ms: int = 0


# --- worker to scheduler, lease keeper (passed on by the gateway) -----------
class Sync(Message, frozen=True, tag=20):
    """What a worker session holds, all of it, and how much it can take.

    Sent at hello, reconnect, drain, every second.

    `workflows`: (workflow_id, consumed, commands) of the workflow tasks it holds. `n`: newest
    commit that it saw. `backlog`: what the last Backlog said. Which workflows it has cached is not
    sent; a miss replays.
    """

    worker_id: str
    queues: tuple[str, ...]
    activity_types: tuple[str, ...]
    workflow_types: tuple[str, ...]
    activity_slots: int
    workflow_slots: int
    tokens: tuple[str, ...]
    workflows: tuple[tuple[str, int, int], ...]
    n: int
    draining: bool = False
    quarantine: bool = False  # It takes one task at a time, of those that must run alone.
    sent_ms: int = 0  # By the worker's own clock; comes back in LeaseTerms.
    backlog: bool = False


class Heartbeat(Message, frozen=True, tag=21):
    """The holder of `token` lives.

    Beats rise by one per message of that token. Answered by Answer `n`.
    """

    n: int
    token: str
    beat: int
    details: Payload | None
    has_details: bool


class Direct(Message, frozen=True, tag=23):
    """To the scheduler: the session that heads this batch can be sent its tasks at this address.

    `sync`, once the session is known to its gateway: so a new scheduler need not wait for the next.
    """

    sync: Sync | None = None


# --- to a worker (passed on by the gateway) ---------------------------------
class WorkflowTask(Message, frozen=True, tag=30):
    """Run this workflow on from its cursor.

    `events`: encoded events after `consumed`; None: fetch them. `permits`: so many of the
    activities that it schedules may be asked for in its report; that many slots are kept free.
    """

    workflow_id: str
    workflow_type: str
    consumed: int
    commands: int
    last_event_id: int
    events: tuple[msgspec.Raw, ...] | None
    n: int
    permits: int = 0


class ActivityTask(Message, frozen=True, tag=31):
    """Run this attempt. Payloads may be references: the gateway puts the payload in their place.

    `lease_ms`: how long the lease lasts from its grant; `attempt_ms`: what is left of the attempt,
    heartbeats or not. `scheduled_event_id`: the event that the input stands in.
    """

    token: str
    workflow_id: str
    workflow_type: str
    activity_id: str
    activity_type: str
    generation: int
    grant: int
    attempt: int
    input: Payload | None
    details: Payload | None
    beat: int
    options: ActivityOptions
    scheduled_event_id: int
    scheduled_ms: int
    deadline_ms: int
    lease_ms: int
    attempt_ms: int
    n: int


class CancelTask(Message, frozen=True, tag=32):
    """Do not go on: it is not live ("stale", "cancelled"), or its end alone is wanted ("wait")."""

    token: str
    reason: str


class Echo(Message, frozen=True, tag=23):
    """Lease keeper to gateway, and back behind all that had come from workers and clients."""

    n: int


class DropWorkflow(Message, frozen=True, tag=33):
    """Forget the cached state and any task of this workflow."""

    workflow_id: str


class LeaseTerms(Message, frozen=True, tag=34):
    """How long these leases last: (token, lease_ms, attempt_ms), later than their tasks said.

    Counted from `sent_ms`, when the worker sent the Sync that this answers.
    """

    sent_ms: int
    leases: tuple[tuple[str, int, int], ...]


class Backlog(Message, frozen=True, tag=35):
    """Whether activities wait for a slot of this worker.

    While none do, an attempt's slot may go on to the next activity of the same workflow.
    """

    waits: bool


# --- worker and gateway -----------------------------------------------------
class WorkerHello(Message, frozen=True, tag=40):
    """First word of a worker on every connection.

    `pid_started` is the process's birth (perdure.births). `session` is set by the supervisor for
    its own workers. The rest is what it serves.
    """

    worker_id: str
    pid: int
    pid_started: float
    node: str
    version: int
    session: Session | None
    queues: tuple[str, ...] = ()
    activity_types: tuple[str, ...] = ()
    workflow_types: tuple[str, ...] = ()
    build: str = ""  # Of its application (perdure.worker.build).
    restarts: bool = False  # Whether it does as RestartWorker says.
    trouble: str = ""  # Why it did not, the last time.


class WorkerRefused(Message, frozen=True, tag=48):
    """The gateway can't work with the worker, now or ever: it speaks protocol `version`."""

    version: int
    message: str


class WorkerWelcome(Message, frozen=True, tag=41):
    """The gateway knows the worker by this session.

    `history`: its incarnation; a new one means: send reports again. `base_ms`: of history's clock
    (0 for a worker that may be on another machine).
    """

    session: Session
    gateway: str
    history: str
    epoch: int
    base_ms: int = 0


class HistoryChanged(Message, frozen=True, tag=42):
    """History is a new one: send again all that is not answered. `base_ms` as in WorkerWelcome."""

    history: str
    base_ms: int = 0


class Fetch(Message, frozen=True, tag=43):
    """The events of a workflow after `after`, at most about 1 MiB of them. Answered by Page `n`."""

    n: int
    workflow_id: str
    after: int


class Page(Message, frozen=True, tag=44):
    """Encoded events; `complete` when there were no more at commit `commit`.

    None: no such workflow.
    """

    n: int
    events: tuple[msgspec.Raw, ...] | None
    complete: bool


class WorkerBye(Message, frozen=True, tag=45):
    """The worker ends in order: nothing is held any more."""


# --- gateway and scheduler, by hand -----------------------------------------
class Poll(Message, frozen=True, tag=50):
    """A client polls for one activity task. Answered by Polled `n`; `wait_ms` 0 answers at once."""

    n: int
    task_queue: str
    worker_id: str
    types: tuple[str, ...]
    wait_ms: int
    poll_id: str | None


class Polled(Message, frozen=True, tag=51):
    """A task, or None after `wait_ms` without one."""

    n: int
    task: ActivityTask | None


class Unpoll(Message, frozen=True, tag=52):
    """The client of poll `n` went away."""

    n: int


ToHistory = Hello | Ask | Watch | Unwatch | Lend
FromHistory = Welcome | Answer | Feed | Newest | Lent
ToScheduler = Sync | Direct | Poll | Unpoll | Sessions
ToLeaseKeeper = Sync | Heartbeat | Sessions | Echo
ToWorker = (
    WorkerWelcome
    | WorkerRefused
    | HistoryChanged
    | Page
    | Answer
    | WorkflowTask
    | ActivityTask
    | CancelTask
    | DropWorkflow
    | LeaseTerms
    | Backlog
    | Query
    | RestartWorker
)
FromWorkerToGateway = WorkerHello | Fetch | WorkerBye | QueryAnswer

_encoder = msgspec.msgpack.Encoder()


def pack(batch: Sequence[Message]) -> bytes:
    """The body of one frame."""
    return _encoder.encode(batch)


def pack_session(session: Session) -> bytes:
    """The head that names a worker session."""
    return _encoder.encode(session)


_session_decoder = msgspec.msgpack.Decoder(Session)


def unpack_session(head: bytes) -> Session:
    """The session that `pack_session` made `head` from; raises msgspec.DecodeError on anything
    else.
    """
    return _session_decoder.decode(head)
