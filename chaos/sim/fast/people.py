"""Workers, submitters and the operator of the fast world."""

from __future__ import annotations

import heapq
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from actors.asks import Asks
from chaos.auditor import Operation
from chaos.sim.fast.flows import commands_of
from chaos.sim.fast.parts import Part
from chaos.sim.plan import Flow
from chaos.sim.process import SIGKILLED
from perdure import values
from perdure.core.commands import (
    AnyAnswer,
    AnyCommand,
    CompleteActivity,
    CompleteWorkflowTask,
    FailActivity,
    FailDeadLetter,
    RedriveDeadLetter,
    Refusal,
    StartWorkflow,
)
from perdure.core.ids import Session
from perdure.core.limits import SYNC_MS
from perdure.core.links import (
    ActivityTask,
    Answer,
    CancelTask,
    Heartbeat,
    Sync,
    WorkflowTask,
    pack_session,
)
from perdure.core.state import ActivityState
from perdure.failures import Failure

if TYPE_CHECKING:
    from chaos.sim.fast.world import FastWorld

QUEUES = ("default", "other")
ACTIVITY_TYPES = ("sync", "async")
WORKFLOW_TYPES = ("flow",)
FAILED = Failure("SimError", "as planned")
FATAL = Failure("SimFatal", "as planned", non_retryable=True)
UNKNOWN = frozenset({"UNAVAILABLE", "INTERNAL", "RESOURCE_EXHAUSTED"})
OPERATOR_MS = 1_500


class Asker(Part):
    """Asks history for things until it is answered, and does things at their time."""

    def __init__(self, world: FastWorld, role: str) -> None:
        super().__init__(world, role)
        self.asks = Asks()
        self._agenda: list[tuple[int, int, Any, tuple[Any, ...]]] = []
        self._planned = 0

    @abstractmethod
    def take(self, message: Any, now_ms: int) -> None:
        """A message that is no answer of history."""

    @abstractmethod
    def answered(self, command: AnyCommand, tag: Any, answer: Answer, now_ms: int) -> None:
        """History has answered."""

    def ask(self, command: AnyCommand, now_ms: int, tag: Any = None) -> None:
        """Ask history."""
        self.say(self.world.history, self.asks.ask(command, now_ms, tag))

    def plan(self, at_ms: int, call: Any, *args: Any) -> None:
        """Have `call(now_ms, *args)` happen then."""
        self._planned += 1
        heapq.heappush(self._agenda, (at_ms, self._planned, call, args))

    def work(self, queue: list[tuple[Part, Any]], now_ms: int) -> None:
        """Hear, do what is due, ask again."""
        for _, message in queue:
            if type(message) is Answer:
                found = self.asks.answered(message)
                if found is not None:
                    self.answered(found[0], found[1], message, now_ms)
                else:
                    self.take(message, now_ms)
            else:
                self.take(message, now_ms)
        agenda = self._agenda
        while agenda and agenda[0][0] <= now_ms and self.is_alive:
            _, _, call, args = heapq.heappop(agenda)
            call(now_ms, *args)
        for ask in self.asks.due(now_ms):
            self.say(self.world.history, ask)

    def next_ms(self) -> int | None:
        """The agenda, or something to ask again."""
        again_ms = self.asks.next_ms()
        if not self._agenda:
            return again_ms
        at_ms = self._agenda[0][0]
        return at_ms if again_ms is None or at_ms < again_ms else again_ms


class Worker(Asker):
    """One session: what it holds, the scripts of its attempts, workflows as state machines."""

    def __init__(self, world: FastWorld, role: str, session: Session) -> None:
        super().__init__(world, role)
        self.session = session
        self.head = pack_session(session)
        self._tokens: dict[str, ActivityTask | None] = {}  # None: its report is on the way.
        self._ended: dict[str, None] = {}
        self._receipts: dict[str, str] = {}
        self._workflows: dict[str, tuple[int, int]] = {}
        self._newest = 0
        self._beats = 0
        self.plan(world.now_ms(), self._sync)

    # --- what it hears --------------------------------------------------------------------
    def take(self, message: Any, now_ms: int) -> None:
        """Tasks, and what not to go on with."""
        kind = type(message)
        if kind is ActivityTask:
            self._begin(message, now_ms)
        elif kind is WorkflowTask:
            self._run(message, now_ms)
        elif kind is CancelTask and self._tokens.get(message.token) is not None:
            self._forget(message.token)

    def answered(self, command: AnyCommand, tag: Any, answer: Answer, now_ms: int) -> None:
        """A report was judged."""
        if isinstance(answer.answer, Refusal) and answer.answer.code in UNKNOWN:
            self.ask(command, now_ms, tag)
            return
        self._newest = max(self._newest, answer.commit)
        if isinstance(command, CompleteWorkflowTask):
            cursor = (command.consumed_from, command.commands_from)
            if self._workflows.get(command.workflow_id) == cursor:
                del self._workflows[command.workflow_id]
        else:
            self._forget(tag)

    def _forget(self, token: str) -> None:
        self._tokens.pop(token, None)
        self._ended[token] = None

    def _sync(self, now_ms: int) -> None:
        world = self.world
        message = Sync(
            self.role,
            QUEUES,
            ACTIVITY_TYPES,
            WORKFLOW_TYPES,
            world.plan.knobs.slots,
            500,
            tuple(self._tokens),
            tuple((key, *cursor) for key, cursor in self._workflows.items()),
            self._newest,
        )
        self.say(world.scheduler, message)
        self.say(world.keeper, message)
        self.plan(now_ms + SYNC_MS, self._sync)

    # --- workflows --------------------------------------------------------------------------
    def _run(self, task: WorkflowTask, now_ms: int) -> None:
        cursor = (task.consumed, task.commands)
        if self._workflows.get(task.workflow_id, (-1, -1)) >= cursor:
            return
        self._workflows[task.workflow_id] = cursor
        world = self.world
        seen = [
            event
            for event in world.store.events(task.workflow_id)
            if event.event_id <= task.last_event_id  # type: ignore[attr-defined]
        ]
        flow = world.flows[task.workflow_id]
        issued = commands_of(flow, world.planned[task.workflow_id], seen)
        command = CompleteWorkflowTask(
            task.workflow_id,
            task.consumed,
            task.commands,
            task.last_event_id,
            tuple(issued[task.commands :]),
        )
        self.ask(command, now_ms)

    # --- activities ---------------------------------------------------------------------------
    def _begin(self, task: ActivityTask, now_ms: int) -> None:
        token = task.token
        if token in self._tokens or token in self._ended:
            return
        self._newest = max(self._newest, task.n)
        self._tokens[token] = task
        world = self.world
        world.attempt_began(task)
        step = world.steps[task.workflow_id, task.activity_id]
        fails = task.generation == 1 and task.attempt <= step.fails
        how = step.how if fails else "ok"
        if how == "hang":
            return
        length_ms = step.ms
        if how == "late":
            length_ms = 50 + 2 * (step.heartbeat_ms or step.start_to_close_ms)
        for number in range(step.beats):
            at_ms = now_ms + length_ms * (number + 1) // (step.beats + 1)
            self.plan(at_ms, self._beat, token)
        if how not in ("error", "nonretryable"):
            self.plan(now_ms + length_ms * 2 // 3, self._effect, task)
        self.plan(now_ms + length_ms, self._end, task, how)

    def _beat(self, now_ms: int, token: str) -> None:
        if self._tokens.get(token) is not None:
            self._beats += 1
            # Numbers of beats must not meet those of asks.
            beat = Heartbeat(-self._beats, token, 0, b"m\x01", True)
            self.say(self.world.keeper, beat)

    def _effect(self, now_ms: int, task: ActivityTask) -> None:
        self._receipts[task.token] = self.world.sink.apply(
            task.workflow_id, task.activity_id, task.token, task.attempt, fence=task.grant
        )

    def _end(self, now_ms: int, task: ActivityTask, how: str) -> None:
        token = task.token
        if how == "kill":
            self.end(SIGKILLED)
            return
        if self._tokens.get(token) is not task:
            return
        self._tokens[token] = None
        if how in ("error", "raise_after"):
            self.ask(FailActivity(token, FAILED), now_ms, token)
        elif how == "nonretryable":
            self.ask(FailActivity(token, FATAL), now_ms, token)
        else:
            result = values.encode(self._receipts.pop(token))
            self.ask(CompleteActivity(token, result), now_ms, token)


class Client(Asker):
    """Submits its flows, and keeps what it heard."""

    def __init__(self, world: FastWorld, role: str, flows: list[Flow]) -> None:
        super().__init__(world, role)
        self.history: list[Operation] = []
        for flow in flows:
            self.plan(world.base_ms + flow.start_ms, self._start, flow)
            if flow.twice:
                self.plan(world.base_ms + flow.start_ms * 2 + 50, self._start, flow)

    def _start(self, now_ms: int, flow: Flow) -> None:
        command = StartWorkflow(flow.id, "flow", "default", None, f"r-{flow.id}", flow.id.encode())
        self.ask(command, now_ms, now_ms)

    def take(self, message: Any, now_ms: int) -> None:
        """Nobody says anything else."""

    def answered(self, command: AnyCommand, tag: Any, answer: Answer, now_ms: int) -> None:
        """Note what was heard."""
        assert isinstance(command, StartWorkflow)
        self.history.append(
            Operation(
                client=self.role,
                op="StartWorkflow",
                t0_ms=tag - self.world.base_ms,
                t1_ms=now_ms - self.world.base_ms,
                outcome=_outcome(answer.answer),
                digest=command.digest.hex(),
                request_id=command.request_id,
                workflow_id=command.workflow_id,
                n=answer.commit,
            )
        )
        if answer.commit > self.world.store.newest:
            self.world.violated(4, f"{self.role} was told of commit {answer.commit}")


def _outcome(answer: AnyAnswer) -> str:
    if not isinstance(answer, Refusal):
        return "ok"
    return "unknown" if answer.code in UNKNOWN else "refused"


class Operator(Asker):
    """Decides about dead letters."""

    def __init__(self, world: FastWorld) -> None:
        super().__init__(world, "operator")
        self.history: list[Operation] = []
        self._choose = world.chance.stream("operator").random
        self._decided = 0
        self.plan(world.now_ms() + OPERATOR_MS, self._look)

    def _look(self, now_ms: int) -> None:
        self.plan(now_ms + OPERATOR_MS, self._look)
        for execution in self.world.store.with_dead_letters():
            for activity in execution.activities.values():
                if activity.state is ActivityState.DEAD_LETTERED:
                    self._decide(execution.workflow_id, activity.activity_id, now_ms)

    def _decide(self, workflow_id: str, activity_id: str, now_ms: int) -> None:
        self._decided += 1
        kind = RedriveDeadLetter if self._choose() < 0.7 else FailDeadLetter
        self.ask(kind(workflow_id, activity_id, f"o{self._decided}"), now_ms)

    def take(self, message: Any, now_ms: int) -> None:
        """Nobody says anything else."""

    def answered(self, command: AnyCommand, tag: Any, answer: Answer, now_ms: int) -> None:
        """It looks again anyway."""


__all__ = ["Client", "Operator", "Worker"]
