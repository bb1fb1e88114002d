"""The scheduler's mind: what is ready, who is there, who gets what.

What a session holds is compared with what it should hold at each of its Syncs, so that a task that
got lost on the way is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure.core.activity_tasks import ActivityTasks
from perdure.core.admission import Admission
from perdure.core.commands import (
    AnyAnswer,
    AnyCommand,
    FireTimer,
    GrantLease,
    Refusal,
    TimeOutActivity,
    TimeOutWorkflow,
    TimeOutWorkflowTask,
)
from perdure.core.gates import Gate
from perdure.core.ids import GATEWAY_SOURCE, Session
from perdure.core.lending import Lending
from perdure.core.links import Lend, Lent, Message, Poll, Polled, Quarantine, Sessions, Sync
from perdure.core.open_work import Key
from perdure.core.polls import Asker
from perdure.core.quarantine import QuarantineNeeds
from perdure.core.records import (
    ActivityTaskScheduled,
    LeaseGranted,
    LeaseReleased,
    Record,
    WorkflowTaskCompleted,
    WorkflowTaskFailed,
)
from perdure.core.rules import NO_RULES, Rules
from perdure.core.seats import UNKNOWN_CODES, Given, Seat, Serving, SessionSets
from perdure.core.state import Execution
from perdure.core.task_queues import TaskQueues
from perdure.core.workflow_tasks import START_HOLD_MS, WorkflowTasks

# Before a refused proposal is made again, should the feed not have told why by then.
REFUSED_MS = 250
UNKNOWN_MS = 1_000


class Matching:
    """Records and messages come in as they arrive; `step` then does all there is to do.

    `propose` brings a command to history, `tell` a message to the worker whose packed session is
    given, `answer_poll` a Polled to the gateway that asked. Of workers in quarantine there are at
    most `quarantine_max`; how many are wanted, `say_quarantine` brings to the root. `lend` tells
    history what it may give out itself; False: not for this seat.
    """

    def __init__(
        self,
        key: bytes,
        propose: Callable[[AnyCommand], None],
        tell: Callable[[bytes, Message], None],
        answer_poll: Callable[[str, Polled], None],
        quarantine_max: int = 0,
        say_quarantine: Callable[[Quarantine], None] = lambda _: None,
        lend: Callable[[Seat, Lend], bool] = lambda *_: False,
        rules: Rules = NO_RULES,
    ) -> None:
        self.queues = TaskQueues()
        self.admission = Admission(self.queues, rules)
        self.seats: dict[Session, Seat] = {}
        self._propose = propose
        self._sets = SessionSets()
        self._serving = Serving(self.seats, has_quarantine=quarantine_max > 0)
        self._activities = ActivityTasks(
            self.queues, self.admission, self._serving, key, propose, tell, answer_poll
        )
        self._workflows = WorkflowTasks(
            self.queues,
            self.admission.gates,
            self._serving,
            propose,
            tell,
            self._activities.room,
        )
        self._quarantine = QuarantineNeeds(
            self.queues, self.seats, self._serving, quarantine_max, say_quarantine
        )
        self._lending = Lending(self.queues, self.seats, self._activities.room, lend)
        self._unjudged: dict[Session, tuple[Sync, int]] = {}
        self._hold_until_ms = 0
        self._gateway = ""

    # --- the log ----------------------------------------------------------------
    def load(self, executions: list[Execution], now_ms: int, gates: Sequence[Gate] = ()) -> None:
        """Begin with what is open. Who holds which workflow task, the first Syncs tell."""
        self.admission.begin(executions, gates, now_ms)
        self.queues.load(executions, now_ms)
        self._hold_until_ms = now_ms + START_HOLD_MS

    def apply(
        self, n: int, at_ms: int, workflow_id: str, records: Sequence[Record], now_ms: int
    ) -> None:
        """What commit `n` states about one workflow."""
        queues = self.queues
        if self.admission.counts or not workflow_id:
            self.admission.follow(workflow_id, records, at_ms)
        work = queues.works.get(workflow_id)
        given: Given | None = None if work is None else work.given
        for record in records:
            if type(record) is LeaseReleased:
                self._activities.handed_back(workflow_id, record)
        queues.apply(workflow_id, at_ms, records, n)
        for record in records:
            if type(record) is LeaseGranted:
                hired = _schedules(records, record.activity_id)
                self._activities.granted(workflow_id, record, now_ms, hired=hired)
            elif given is not None and isinstance(
                record, WorkflowTaskCompleted | WorkflowTaskFailed
            ):
                self._workflows.ended(given, record, at_ms, hired=_hires(records))
                given = None
        if given is not None and queues.works.get(workflow_id) is not work:
            self._workflows.drop(given)
        if queues.freed:
            for session in queues.freed:
                seat = self.seats.get(session)
                if seat is not None:
                    seat.freed_ms = at_ms
            queues.freed.clear()

    def answered(self, command: AnyCommand, answer: AnyAnswer, now_ms: int) -> None:
        """History has judged a proposal. What it accepted, the feed tells."""
        if not isinstance(answer, Refusal):
            return
        unknown = answer.code in UNKNOWN_CODES
        again_ms = max(answer.at_ms, now_ms + (UNKNOWN_MS if unknown else REFUSED_MS))
        if isinstance(command, GrantLease):
            self._activities.refused(command, again_ms, now_ms)
        elif isinstance(command, FireTimer | TimeOutActivity | TimeOutWorkflow):
            self.queues.refused(command, again_ms)
        elif isinstance(command, TimeOutWorkflowTask):
            self._workflows.refused(command, unknown=unknown, now_ms=now_ms)

    def lent(self, message: Lent, reached: int, now_ms: int) -> None:
        """History has sent first tasks itself; or gives back what was lent to it."""
        seat = self._lending.heard(message)
        if seat is not None:
            for workflow_id in message.workflow_ids:
                self._workflows.sent(workflow_id, seat, reached, now_ms)
        elif self._sets.is_dead(message.session):
            # Its end was heard first. What it had been sent it may have died of.
            last = Seat(message.session)
            for workflow_id in message.workflow_ids:
                self._workflows.sent(workflow_id, last, reached, now_ms)
            self._workflows.seat_ended(last)

    def new_history(self) -> None:
        """Another history, to whom nothing was lent yet."""
        self._lending.begin_anew()

    # --- sessions and polls -------------------------------------------------------
    def sync(self, session: Session, message: Sync, now_ms: int) -> None:
        """A worker says what it holds and can take. The difference is judged in `step`."""
        if self._sets.is_dead(session) or self._is_past(session):
            return
        seat = self.seats.get(session)
        if seat is None:
            seat = self.seats[session] = Seat(session)
        if seat.hear(message, now_ms):
            self._serving.heard(seat)
        seat.backlog = message.backlog
        self._lending.say_again(seat)
        self._unjudged[session] = (message, now_ms)

    def sessions(self, message: Sessions) -> None:
        """A source's live sessions: what is not among them has ended."""
        self._sets.put(message)
        for session in [s for s in self.seats if self._sets.is_dead(s)]:
            self._workflows.seat_ended(self._leave(session))

    def gateway(self, incarnation: str) -> None:
        """Another gateway: sessions and polls of earlier ones can't be reached any more.

        Their workers say hello again, as new sessions; what they held meanwhile stays theirs.
        """
        if incarnation == self._gateway:
            return
        self._gateway = incarnation
        self._sets.forget_gateways(incarnation)
        self._activities.polls.forget_gateways(incarnation)
        for session in [s for s in self.seats if self._is_past(s)]:
            self._leave(session)

    def poll(self, asker: Asker, message: Poll, now_ms: int) -> None:
        """A client wants one activity task."""
        self._activities.poll(asker, message, now_ms)

    def unpoll(self, asker: Asker) -> None:
        """That client went away."""
        self._activities.polls.remove(asker)

    def _is_past(self, session: Session) -> bool:
        source = session.source
        return bool(self._gateway) and source.startswith(GATEWAY_SOURCE) and source != self._gateway

    def _leave(self, session: Session) -> Seat:
        seat = self.seats.pop(session)
        self._lending.left(seat)
        self._unjudged.pop(session, None)
        self._serving.changed()
        return seat

    def room(self, key: Key, workflows: bool) -> tuple[int, int]:
        """(How many workers take this kind of task, how many free slots they have for it.)"""
        seats = self._serving.seats(key, workflows=workflows)
        room = self._workflows.room if workflows else self._activities.room
        return len(seats), sum(max(0, room(seat)) for seat in seats)

    # --- time -------------------------------------------------------------------
    def next_ms(self) -> int | None:
        """When `step` has something to do, apart from what comes in; None: not at all."""
        first_ms = self.queues.next_due_ms()
        for at_ms in (
            self._workflows.next_ms(),
            self._activities.next_ms(),
            self._quarantine.next_ms(),
            self._hold_until_ms if self._hold_until_ms and self.queues.workflows else None,
        ):
            if at_ms is not None and (first_ms is None or at_ms < first_ms):
                first_ms = at_ms
        return first_ms

    def step(self, reached: int, now_ms: int) -> None:
        """Do all there is to do; `reached` is the newest commit that was applied."""
        if self._unjudged:
            self._judge(reached, now_ms)
        for command in self.queues.due(now_ms):
            self._propose(command)
        self._workflows.look(now_ms)
        # Activities that wait go before those that a workflow may yet schedule.
        if self.queues.activities:
            self._activities.match(now_ms)
        self._activities.tell_backlog(self.seats.values())
        if self.queues.workflows and not self._holds(now_ms):
            self._workflows.match(reached, now_ms)
        self._activities.expire_polls(now_ms)
        self._quarantine.look(now_ms)
        self._lending.look(now_ms)

    def _judge(self, reached: int, now_ms: int) -> None:
        """Compare with the newest Sync of each session, once we know all that it knew."""
        ready = [session for session, (sync, _) in self._unjudged.items() if sync.n <= reached]
        for session in ready:
            sync, heard_ms = self._unjudged.pop(session)
            seat = self.seats[session]
            self._activities.judge(seat, sync, heard_ms, now_ms)
            self._workflows.judge(seat, sync, heard_ms, reached, now_ms)

    def _holds(self, now_ms: int) -> bool:
        """True at a start, until every known session was heard or the wait is over."""
        if not self._hold_until_ms:
            return False
        if now_ms < self._hold_until_ms:
            live = list(self._sets.live())
            if not live or any(session not in self.seats for session in live):
                return True
        self._hold_until_ms = 0
        return False


def _schedules(records: Sequence[Record], activity_id: str) -> bool:
    """Whether the activity comes into being with these records."""
    return any(
        type(record) is ActivityTaskScheduled and record.activity_id == activity_id
        for record in records
    )


def _hires(records: Sequence[Record]) -> bool:
    return any(type(record) is LeaseGranted for record in records)
