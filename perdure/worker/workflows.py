"""The workflow tasks that this worker holds: from receipt, over missing events, to the answer.

All of it belongs to the main loop, which runs the workflow functions too: see `Replays`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import Enum, auto

import msgspec

from perdure import logs
from perdure.clock import boottime_ms
from perdure.core import commands, links
from perdure.core.records import decode_event
from perdure.crash_points import ARMED, CrashPoint, reached
from perdure.log_names import LogName
from perdure.worker.asks import TO_GATEWAY, TO_HISTORY, UNKNOWN_CODES, Asks
from perdure.worker.hiring import Hiring
from perdure.worker.relay import Relay
from perdure.worker.replays import Replays
from perdure.worker.sockets import GatewayLink, Inbox
from perdure.worker.stage import Following, Missing, Outcome, Work
from perdure.workflow import Definition

DONE_KEPT = 10_000


class State(Enum):
    """What is with a workflow task, from this worker's side."""

    RUNNING = auto()
    FETCHING = auto()
    REPORTED = auto()


class Held:
    """One workflow task that this worker holds."""

    __slots__ = ("after", "events", "n", "report", "state", "task")

    def __init__(self, task: links.WorkflowTask) -> None:
        self.task = task
        self.state = State.RUNNING
        self.events: list[msgspec.Raw] = []
        self.after = 0
        self.n = 0
        self.report: commands.Command | None = None

    @property
    def cursor(self) -> tuple[int, int]:
        """Where the task starts."""
        return self.task.consumed, self.task.commands


class Workflows:
    """The workflow side of a worker."""

    def __init__(
        self,
        definitions: Mapping[str, Definition],
        relay: Relay,
        inbox: Inbox,
        asks: Asks,
        gateway: GatewayLink,
        clock: Callable[[], int] = boottime_ms,
    ) -> None:
        self.replays = Replays(definitions, relay, inbox, self.finished, clock)
        self._asks = asks
        self._gateway = gateway
        self._held: dict[str, Held] = {}
        self._ahead: set[str] = set()  # Run on before history knew; its answer is to come.
        self._sent: dict[int, Held] = {}
        self._done: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._draining = False
        self.hiring = Hiring()

    # --- what the session asks ------------------------------------------------------
    def held(self) -> tuple[tuple[str, int, int], ...]:
        """Every workflow task that is held, as a Sync names it."""
        return tuple((id_, *held.cursor) for id_, held in self._held.items())

    @property
    def running(self) -> int:
        """How many have no report yet."""
        return sum(held.state is not State.REPORTED for held in self._held.values())

    # --- tasks ------------------------------------------------------------------------
    def take(self, task: links.WorkflowTask, now_ms: int) -> None:
        """A task came; one that is known, or older than what is known, is left alone."""
        cursor = task.consumed, task.commands
        known = self._held.get(task.workflow_id)
        if known is not None:
            if cursor <= known.cursor:
                return
            # Whether it went on as here, or as another worker said, is not known.
            self._forget(known)
            self.replays.evict(task.workflow_id)
        if cursor <= self._done.get(task.workflow_id, (-1, -1)):
            return
        if task.workflow_id in self._ahead:
            self.replays.evict(task.workflow_id)  # Whether that counts is not known yet.
        held = self._held[task.workflow_id] = Held(task)
        if ARMED:
            reached(CrashPoint.WORKER_WORKFLOW_TASK_TAKEN)
        if self._draining:
            self._report(held, Work(task, None, False).fails("handed_back"), now_ms)
        else:
            self.replays.submit(Work(task, task.events, False))

    def drop(self, workflow_id: str) -> None:
        """The node says that this workflow needs nothing of us any more."""
        held = self._held.get(workflow_id)
        if held is not None:
            self._forget(held)
        self.replays.evict(workflow_id)

    def history_changed(self) -> None:
        """Another history may stand at an earlier point (after a restore)."""
        self._done.clear()

    # --- ahead of history -----------------------------------------------------------------
    def follow(self, following: Following) -> bool:
        """Run a workflow on from the end of the activity that it waits for.

        False where that can't be: it is not in memory, or stands elsewhere.
        """
        id_ = following.workflow_id
        return not (self._draining or id_ in self._held or id_ in self._ahead) and (
            self.replays.follow(following)
        )

    def with_hire(self, following: commands.CompleteWorkflowTask) -> commands.CompleteWorkflowTask:
        """With the wish for the next activity, whose slot is the one that was just freed."""
        self._ahead.add(following.workflow_id)
        if self.hiring.backlog:
            return following
        hire = self.hiring.wish(following.steps, 1)
        return following if hire is None else msgspec.structs.replace(following, hire=hire)

    def followed(self, workflow_id: str, counts: bool) -> None:
        """History has said whether what was done ahead of it counts."""
        self._ahead.discard(workflow_id)
        if not counts:
            self.replays.evict(workflow_id)

    def finished(self, work: Work, outcome: Outcome, now_ms: int) -> None:
        """`work` is over."""
        if ARMED:
            reached(CrashPoint.WORKER_WORKFLOW_RUN_NOT_REPORTED)
        held = self._held.get(work.task.workflow_id)
        if held is None or held.task is not work.task or held.state is not State.RUNNING:
            return
        if isinstance(outcome, Missing):
            held.events = []
            held.after = outcome.after
            self._fetch(held, outcome.after, now_ms)
            return
        permits = work.task.permits
        if permits and isinstance(outcome, commands.CompleteWorkflowTask):
            hire = self.hiring.wish(outcome.steps, permits)
            if hire is not None:
                outcome = msgspec.structs.replace(outcome, hire=hire)
        self._report(held, outcome, now_ms)

    # --- missing events -----------------------------------------------------------------
    def _fetch(self, held: Held, after: int, now_ms: int) -> None:
        if self._draining:
            self._report(held, Work(held.task, None, False).fails("handed_back"), now_ms)
            return
        held.state = State.FETCHING
        message = links.Fetch(self._number(held), held.task.workflow_id, after)
        self._asks.add(held.n, TO_GATEWAY, message, self, now_ms)
        self._gateway.send(TO_GATEWAY, message)

    def page(self, page: links.Page, now_ms: int) -> None:
        """Events came: more are asked for until there are enough."""
        held = self._sent.pop(page.n, None)
        self._asks.close(page.n)
        if held is None:
            return
        if page.events is None:
            self._forget(held)  # No such workflow.
            self.replays.evict(held.task.workflow_id)
            return
        held.events.extend(page.events)
        if page.events and not page.complete:
            last = decode_event(bytes(page.events[-1])).event_id
            if last < held.task.last_event_id:
                self._fetch(held, last, now_ms)
                return
        held.state = State.RUNNING
        self.replays.submit(Work(held.task, held.events, held.after == 0))
        held.events = []

    # --- reports --------------------------------------------------------------------------
    def _report(self, held: Held, command: commands.AnyCommand, now_ms: int) -> None:
        if isinstance(command, commands.FailWorkflowTask) and command.reason != "handed_back":
            logs.logger().warning(
                LogName.WORKER_WORKFLOW_FAILED,
                workflow_id=held.task.workflow_id,
                reason=command.reason,
                problem=command.failure.message if command.failure else "",
            )
        held.state = State.REPORTED
        held.report = command
        message = links.Ask(self._number(held), command)
        self._asks.add(held.n, TO_HISTORY, message, self, now_ms)
        self._gateway.send(TO_HISTORY, message)
        if ARMED:
            reached(CrashPoint.WORKER_WORKFLOW_REPORT_MADE)

    def answered(self, n: int, answer: commands.AnyAnswer, now_ms: int) -> None:
        """History answered message `n`, for good or with "unknown"."""
        held = self._sent.get(n)
        if held is None or (isinstance(answer, commands.Refusal) and answer.code in UNKNOWN_CODES):
            return
        self._forget(held)
        id_ = held.task.workflow_id
        if isinstance(answer, commands.Refusal):
            self.replays.evict(id_)
        elif isinstance(held.report, commands.CompleteWorkflowTask):
            # A copy of the task may still be on the way.
            if isinstance(answer, commands.Done) and answer.state == commands.REPEATED:
                self.replays.evict(id_)
            self._done[id_] = held.cursor
            self._done.move_to_end(id_)
            if len(self._done) > DONE_KEPT:
                self._done.popitem(last=False)

    def _number(self, held: Held) -> int:
        """A fresh number for what is said about `held`; the one before is closed."""
        if held.n:
            self._asks.close(held.n)
            self._sent.pop(held.n, None)
        held.n = self._asks.next_n()
        self._sent[held.n] = held
        return held.n

    def _forget(self, held: Held) -> None:
        self._held.pop(held.task.workflow_id, None)
        self._sent.pop(held.n, None)
        self._asks.close(held.n)

    # --- the end --------------------------------------------------------------------------
    def drain(self, now_ms: int) -> None:
        """Run nothing more: what does not run yet goes back."""
        self._draining = True
        self.replays.hand_back()
        self._hand_back_in(State.FETCHING, now_ms)

    def hand_back(self, now_ms: int) -> None:
        """Give back what still runs."""
        self._hand_back_in(State.RUNNING, now_ms)

    def _hand_back_in(self, state: State, now_ms: int) -> None:
        for held in list(self._held.values()):
            if held.state is state:
                fails = Work(held.task, None, False).fails("handed_back")
                self._report(held, fails, now_ms)
