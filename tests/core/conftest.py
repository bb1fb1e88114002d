"""A history without a store: the real decide and evolve, and a log that projections can follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from perdure.core import commands as c
from perdure.core.decide import decide
from perdure.core.execution import begin, evolve
from perdure.core.facts import Facts, Standing
from perdure.core.ids import Address, Session, seal, unseal
from perdure.core.links import ActivityTask, Poll, Polled, Quarantine, Sessions, Sync, pack_session
from perdure.core.matching import Matching
from perdure.core.records import ActivityOptions, Record, WorkflowStarted
from perdure.core.rules import NO_RULES, Rules
from perdure.core.state import Execution
from perdure.failures import Failure
from perdure.policy import RetryPolicy

KEY = b"k" * 32
NODE, GATEWAY = "node.1", "gateway.1"
ONE = Session(NODE, 1)
Listener = Callable[[int, int, str, Sequence[Record]], None]


class LittleHistory:
    """Every command is one commit. Listeners hear (n, at_ms, workflow_id, records) at once."""

    def __init__(self) -> None:
        self.key = KEY
        self.now_ms = 1_000
        self.n = 0
        self.executions: dict[str, Execution] = {}
        self.listeners: list[Listener] = []
        self.u = 0.5
        self.stall_ms = 0

    def ask(self, command: c.Command) -> c.AnyAnswer:
        """Judge, commit, publish."""
        token = getattr(command, "token", None)
        address = getattr(command, "address", None)
        if token is not None:
            address = unseal(token, KEY)
            assert address is not None
        workflow_id = address.workflow_id if address else command.workflow_id
        execution = self.executions.get(workflow_id)
        facts = Facts(self.now_ms, Standing(lambda: self.u), address, self.stall_ms)
        decision = decide(execution, command, facts)
        if decision.records:
            self.n += 1
            for record in decision.records:
                if isinstance(record, WorkflowStarted):
                    self.executions[workflow_id] = begin(workflow_id, record)
                else:
                    evolve(self.executions[workflow_id], record, self.n)
            for listener in self.listeners:
                listener(self.n, self.now_ms, workflow_id, decision.records)
        return decision.answer

    def open_state(self) -> list[Execution]:
        """As a reader finds it: copies."""
        return [self.stored(key) for key, one in self.executions.items() if one.is_open]

    def stored(self, workflow_id: str) -> Execution:
        """As a reader finds it: a copy."""
        encoded = msgspec.msgpack.encode(self.executions[workflow_id])
        return msgspec.msgpack.decode(encoded, type=Execution)

    # --- what tests do often ----------------------------------------------------
    def start(self, workflow_id: str = "w", type: str = "T", queue: str = "default") -> None:
        self.ask(c.StartWorkflow(workflow_id, type, queue, None, None, b""))

    def step(self, workflow_id: str = "w", *steps: c.Step) -> c.AnyAnswer:
        """The workflow's next task is done with these steps."""
        execution = self.executions[workflow_id]
        return self.ask(
            c.CompleteWorkflowTask(
                workflow_id,
                execution.consumed,
                execution.commands,
                execution.last_event_id,
                steps,
            )
        )

    def schedule(
        self,
        workflow_id: str = "w",
        activity_id: str = "a",
        type: str = "t",
        retry: RetryPolicy | None = None,
        **options: int | str,
    ) -> None:
        """Start the workflow if need be, and have it schedule an activity."""
        if workflow_id not in self.executions:
            self.start(workflow_id)
        known = ActivityOptions(retry or RetryPolicy(), **options)  # type: ignore[arg-type]
        self.step(workflow_id, c.ScheduleActivity(activity_id, type, None, known))

    def grant(
        self,
        workflow_id: str = "w",
        activity_id: str = "a",
        session: Session | None = None,
        poll_id: str | None = None,
        worker_id: str = "w1",
    ) -> Address:
        """Lease it, whoever asks."""
        held = self.executions[workflow_id].activities[activity_id]
        name = (workflow_id, activity_id, held.generation, held.grant + 1, held.attempt)
        answer = self.ask(c.GrantLease(*name, worker_id, session, poll_id))
        assert isinstance(answer, c.Done), answer
        return Address(workflow_id, activity_id, held.generation, held.grant)

    def fail(self, address: Address, type: str = "Oops") -> c.AnyAnswer:
        return self.ask(c.FailActivity(seal(address, KEY), Failure(type, "message")))


class SchedulerAround:
    """A Matching between a history that answers at once, workers and a gateway."""

    def __init__(self, history, quarantine_max: int = 0, rules: Rules = NO_RULES) -> None:
        self.history = history
        self.wanted: list[Quarantine] = []
        self.proposed: list[c.AnyCommand] = []
        self.sent: list[tuple[bytes, object]] = []
        self.polled: list[Polled] = []
        self.mind = Matching(
            history.key,
            self.proposed.append,
            lambda head, message: self.sent.append((head, message)),
            lambda gateway, message: self.polled.append(message),
            quarantine_max,
            self.wanted.append,
            rules=rules,
        )
        self.asked: list[c.AnyCommand] = []
        history.listeners.append(self.hear)
        self.mind.load(history.open_state(), history.now_ms)
        self.mind.gateway(GATEWAY)
        self.live: set[int] = set()

    def hear(self, n, at_ms, workflow_id, records) -> None:
        self.mind.apply(n, at_ms, workflow_id, records, at_ms)

    def sets(self, *live: int, highest: int = 9) -> None:
        self.mind.sessions(Sessions(NODE, highest, live))
        self.step()

    def sync(self, session: Session = ONE, **fields) -> None:
        known = {
            "worker_id": f"worker-{session.ordinal}",
            "queues": ("default",),
            "activity_types": ("t",),
            "workflow_types": ("T",),
            "activity_slots": 10,
            "workflow_slots": 10,
            "tokens": (),
            "workflows": (),
            "n": 0,
        }
        self.mind.sync(session, Sync(**{**known, **fields}), self.history.now_ms)
        self.step()

    def hello(self, session: Session = ONE, **fields) -> None:
        """A set with this session, and its first Sync."""
        self.live.add(session.ordinal)
        self.mind.sessions(Sessions(NODE, max(self.live), tuple(self.live)))
        self.sync(session, **fields)

    def step(self, answers: bool = True) -> None:
        """A turn; with `answers` history judges at once, until nothing is proposed."""
        self.mind.step(self.history.n, self.history.now_ms)
        while answers and self.proposed:
            batch = list(self.proposed)
            self.proposed.clear()
            for command in batch:
                self.asked.append(command)
                answer = self.history.ask(command)
                self.mind.answered(command, answer, self.history.now_ms)
            self.mind.step(self.history.n, self.history.now_ms)

    def at(self, now_ms: int) -> None:
        self.history.now_ms = now_ms
        self.step()

    def tasks(self, kind=ActivityTask, session: Session | None = None) -> list:
        head = None if session is None else pack_session(session)
        found = [m for h, m in self.sent if isinstance(m, kind) and head in (None, h)]
        self.sent = [(h, m) for h, m in self.sent if m not in found]
        return found

    def poll(self, n: int = 1, wait_ms: int = 0, types=(), poll_id=None, worker_id="h") -> None:
        message = Poll(n, "default", worker_id, types, wait_ms, poll_id)
        self.mind.poll((GATEWAY, n), message, self.history.now_ms)
        self.step()


@pytest.fixture(scope="session")
def make_history() -> type[LittleHistory]:
    """For tests that need several."""
    return LittleHistory


@pytest.fixture
def history() -> LittleHistory:
    """A new one."""
    return LittleHistory()


@pytest.fixture
def make_scheduler() -> type[SchedulerAround]:
    """For tests that begin with something in history."""
    return SchedulerAround


@pytest.fixture
def scheduler(history: LittleHistory) -> SchedulerAround:
    """A scheduler's mind that follows `history` from the beginning."""
    return SchedulerAround(history)
