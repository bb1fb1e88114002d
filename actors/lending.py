"""First tasks that history sends itself, of what the scheduler has lent it: history's side.

It saves a lone workflow the way over the scheduler, and the scheduler most of its waking: what a
commit brings about is sent by history or done by the worker already, so its news may wait. Loans
are a help and no more: they are gone with whoever made or had them, and the scheduler gives out
what was not given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from perdure.core.batch import Batch
from perdure.core.ids import Session
from perdure.core.ledger import Ledger
from perdure.core.limits import INLINE_BYTES
from perdure.core.links import Lend, Lent, WorkflowTask, pack, pack_session
from perdure.core.records import (
    ActivityTaskCompleted,
    ActivityTaskScheduled,
    LeaseGranted,
    Record,
    WorkflowCompleted,
    WorkflowStarted,
    WorkflowTaskCompleted,
)
from perdure.core.state import Execution

Transmit = Callable[[bytes, bytes, bytes], bool]

# What the scheduler need not hear of at once, where nothing of it is left to be given out.
_QUIET = frozenset(
    {
        WorkflowStarted,
        WorkflowTaskCompleted,
        ActivityTaskScheduled,
        LeaseGranted,
        ActivityTaskCompleted,
        WorkflowCompleted,
    }
)


class _Loan:
    """What may be sent to one session."""

    __slots__ = ("head", "queues", "types", "up_to", "used", "worker")

    def __init__(self, session: Session) -> None:
        self.head = pack_session(session)
        self.worker = b""
        self.queues: frozenset[str] = frozenset()
        self.types: frozenset[str] = frozenset()
        self.used = self.up_to = 0


class Loans:
    """What the scheduler has lent. `transmit` sends a frame at once, False where it can't."""

    def __init__(self, transmit: Transmit) -> None:
        self._transmit = transmit
        self._loans: dict[Session, _Loan] = {}

    @property
    def is_some_left(self) -> bool:
        """Whether the scheduler has lent more than was used: then nothing waits there."""
        return any(loan.used < loan.up_to for loan in self._loans.values())

    def clear(self) -> None:
        """Another scheduler, which has lent nothing yet."""
        self._loans.clear()

    def hear(self, message: Lend) -> Lent | None:
        """The scheduler lends, or takes back; the answer to the latter."""
        session = message.session
        if not message.up_to:
            self._loans.pop(session, None)
            return Lent(session, 0, 0)
        loan = self._loans.get(session)
        if loan is None:
            loan = self._loans[session] = _Loan(session)
        loan.worker = message.worker.encode("ascii")
        loan.queues = frozenset(message.queues)
        loan.types = frozenset(message.workflow_types)
        loan.up_to = message.up_to
        loan.used = max(loan.used, message.used)
        return None if loan.used < loan.up_to else Lent(session, loan.used, loan.up_to)

    def send_first_tasks(
        self, batch: Batch, is_held: Callable[[Execution], bool] = lambda _: False
    ) -> list[Lent]:
        """Of the workflows that `batch`, which is durable, has started: what is to be told.

        What `is_held` is sent to nobody.
        """
        change = batch.change
        if change is None or not change.started or not self._loans:
            return []
        bodies: dict[str, bytes] = {}
        chosen: dict[Session, list[WorkflowTask]] = {}
        for event in change.events:
            if event.event_id == 1:
                bodies[event.workflow_id] = event.body
        for execution in change.started:
            body = bodies.get(execution.workflow_id, b"")
            may_go = 0 < len(body) <= INLINE_BYTES and not is_held(execution)
            session = self._take(execution) if may_go else None
            if session is not None:
                task = _first_task(execution, body, batch.n)
                chosen.setdefault(session, []).append(task)
        return [self._send(session, tasks) for session, tasks in chosen.items()]

    def _take(self, execution: Execution) -> Session | None:
        """Whoever has one left for it; the first, so that few workers are kept awake."""
        if not _is_plain(execution):
            return None
        for session, loan in self._loans.items():
            if (
                loan.used < loan.up_to
                and execution.task_queue in loan.queues
                and execution.workflow_type in loan.types
            ):
                loan.used += 1
                return session
        return None

    def _send(self, session: Session, tasks: list[WorkflowTask]) -> Lent:
        loan = self._loans[session]
        if self._transmit(loan.worker, loan.head, pack(tasks)):
            ids = tuple(task.workflow_id for task in tasks)
            return Lent(session, loan.used, loan.up_to, ids)
        loan.used -= len(tasks)
        loan.up_to = loan.used
        return Lent(session, loan.used, -1)


def _is_plain(execution: Execution) -> bool:
    """Whether its first task is all that there is of it, and is due."""
    is_first = execution.is_open and execution.last_event_id == 1 and not execution.task_due_ms
    return is_first and execution.more is None


def _first_task(execution: Execution, started: bytes, n: int) -> WorkflowTask:
    return WorkflowTask(
        workflow_id=execution.workflow_id,
        workflow_type=execution.workflow_type,
        consumed=0,
        commands=0,
        last_event_id=1,
        events=(msgspec.Raw(started),),
        n=n,
        permits=1,
    )


def may_wait(batch: Batch, ledger: Ledger, lent: Iterable[Lent]) -> bool:
    """Whether the scheduler has nothing to do about `batch` for now: what it started was sent, what
    it scheduled is leased, and no workflow of it has something to run.
    """
    sent = {workflow_id for one in lent for workflow_id in one.workflow_ids}
    return all(
        workflow_id in sent or _is_quiet(workflow_id, records, ledger)
        for workflow_id, records in batch.records.items()
    )


def _is_quiet(workflow_id: str, records: Sequence[Record], ledger: Ledger) -> bool:
    scheduled = granted = 0
    for record in records:
        kind = type(record)
        if kind not in _QUIET:
            return False
        scheduled += kind is ActivityTaskScheduled
        granted += kind is LeaseGranted
    if type(records[-1]) is WorkflowCompleted:
        return True
    execution = ledger.execution(workflow_id)
    return scheduled == granted and execution is not None and not execution.task_ready
