"""Who talks to workflows that run: signals, updates, queries, cancellations; and what they heard,
held against what the workflow says in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chaos.sim import app
from chaos.sim.client import ClientProcess, Outcome
from chaos.sim.people import AGAIN_MS, WAIT_MS
from chaos.sim.plan import Flow, Talk
from perdure import values, wire
from perdure.core.links import ActivityTask
from perdure.errors import (
    FailedPrecondition,
    NotFound,
    PerdureError,
    UpdateFailed,
    UpdateRejected,
)

if TYPE_CHECKING:
    from chaos.sim.world import World

# Not an answer to what was asked, but to when: it is asked again.
_NOT_NOW = frozenset({*wire.UNKNOWN_OUTCOME, "NOT_FOUND", "DEADLINE_EXCEEDED"})
Heard = Callable[..., None]


class Patient(ClientProcess):
    """Asks until there is an answer that will not change. `is_done`: nothing is open."""

    def __init__(self, world: World, role: str) -> None:
        super().__init__(world, role)
        self._open = 0

    @property
    def is_done(self) -> bool:
        """Whether all that it means to do has been answered."""
        return self._open == 0

    def soon(self, delay_ms: int, args: wire.Args, heard: Heard, *of: Any) -> None:
        """Ask this in so much time; `heard(outcome, *of)` of a definite answer."""
        self._open += 1
        self.later(delay_ms, self._ask, args, heard, of)

    def _ask(self, args: wire.Args, heard: Heard, of: tuple[Any, ...]) -> None:
        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, PerdureError) and outcome.code in self.not_now(args):
                self.later(AGAIN_MS, self._ask, args, heard, of)
                return
            self._open -= 1
            heard(outcome, *of)

        wait_ms = getattr(args, "wait_ms", None) or 0
        self.call(args, answered, wait_ms)

    def not_now(self, args: wire.Args) -> frozenset[str]:
        """Codes that are no answer to this."""
        return _NOT_NOW


class Talker(Patient):
    """Talks to every talking workflow of the plan."""

    def __init__(self, world: World, flows: list[Flow]) -> None:
        super().__init__(world, "talker")
        self.taken: dict[str, int] = {}  # How many signals each has acknowledged.
        self.added: dict[str, list[int]] = {}  # The updates that it has answered.
        for flow in flows:
            self.taken[flow.id], self.added[flow.id] = 0, []
            self._begin(flow, _talk(flow))

    def _begin(self, flow: Flow, talk: Talk) -> None:
        id_, from_ms = flow.id, flow.start_ms + 1
        if talk.signals:
            self._signal(flow, from_ms)
        for number in range(talk.updates):
            self._update(flow, number, from_ms + talk.gap_ms * number, None)
        for number in range(talk.queries):
            query = wire.QueryWorkflow(id_, "said", wait_ms=WAIT_MS)
            self.later(from_ms + talk.gap_ms * number, self._query, flow, query)
        if talk.cancel_ms:
            cancel = wire.CancelWorkflow(id_, "planned", f"c-{id_}")
            self.soon(from_ms + talk.cancel_ms, cancel, lambda outcome: None)
        if talk.terminate_ms:
            terminate = wire.TerminateWorkflow(id_, "planned", f"t-{id_}")
            self.soon(from_ms + talk.terminate_ms, terminate, lambda outcome: None)

    # --- signals ------------------------------------------------------------------------
    def _signal(self, flow: Flow, delay_ms: int) -> None:
        number = self.taken[flow.id]
        raw = wire.raw_payload(values.encode([number]))
        args = wire.SignalWorkflow(flow.id, "number", raw, f"s-{number}")
        self.soon(delay_ms, args, self._signalled, flow)

    def _signalled(self, outcome: Outcome, flow: Flow) -> None:
        talk = _talk(flow)
        if isinstance(outcome, PerdureError):
            if not ends_from_outside(talk):
                what = f"{flow.id}: signal {self.taken[flow.id]} was refused: {outcome}"
                self.world.violated(8, what)
            return
        self.taken[flow.id] += 1
        if self.taken[flow.id] < talk.signals:
            self._signal(flow, talk.gap_ms)

    # --- updates ------------------------------------------------------------------------
    def _update(self, flow: Flow, number: int, delay_ms: int, before: str | None) -> None:
        raw = wire.raw_payload(values.encode([number]))
        args = wire.UpdateWorkflow(flow.id, "add", f"u-{number}", raw, WAIT_MS)
        self.soon(delay_ms, args, self._updated, flow, number, before)

    def _updated(self, outcome: Outcome, flow: Flow, number: int, before: str | None) -> None:
        """The first answer is the answer: it is asked for a second time."""
        said = f"{type(outcome).__name__}: {outcome}"
        if before is not None:
            if before != said:
                self.world.violated(8, f"{flow.id}: update {number} was {before} and is {said}")
            return
        if isinstance(outcome, UpdateRejected):
            if not app.is_bad(number):
                self.world.violated(35, f"{flow.id}: update {number}: {outcome}")
        elif isinstance(outcome, UpdateFailed):
            self.world.goal("a workflow ended before an update was answered")
        elif not isinstance(outcome, PerdureError):
            self.added[flow.id].append(number)
        elif isinstance(outcome, FailedPrecondition):
            return  # It came after the end.
        self._update(flow, number, AGAIN_MS, said)

    # --- queries ------------------------------------------------------------------------
    def _query(self, flow: Flow, args: wire.QueryWorkflow) -> None:
        self.call(args, lambda outcome: self._queried(flow, outcome), WAIT_MS)

    def _queried(self, flow: Flow, outcome: Outcome) -> None:
        if isinstance(outcome, PerdureError):
            if isinstance(outcome, NotFound) and self.taken[flow.id]:
                self.world.violated(5, f"{flow.id}: it was signalled, and {outcome}")
            return
        self.world.goal("a query was answered")
        seen = outcome["result"]["seen"]
        if seen != list(range(len(seen))):
            self.world.violated(34, f"{flow.id}: asked, it has seen the signals {seen}")

    # --- the end ------------------------------------------------------------------------
    def judge(self, flow: Flow, outcome: Outcome) -> None:
        """What the workflow ended with, against what was heard of it meanwhile."""
        if isinstance(outcome, PerdureError):
            return
        talk, said = _talk(flow), outcome["result"]
        seen, done = said["seen"], said["done"]
        taken = self.taken[flow.id]
        if seen != list(range(len(seen))):
            self.world.violated(34, f"{flow.id}: it has seen the signals {seen}")
        elif not (talk.endless or ends_from_outside(talk)) and len(seen) != talk.signals:
            self.world.violated(34, f"{flow.id}: it has seen {len(seen)} of {talk.signals} signals")
        elif talk.endless and len(seen) > taken + 1:
            self.world.violated(34, f"{flow.id}: it has seen {len(seen)} signals of {taken}")
        missing = [number for number in self.added[flow.id] if done.count(number) != 1]
        if missing or len(set(done)) != len(done):
            self.world.violated(34, f"{flow.id}: updates {done}, answered {self.added[flow.id]}")
        self._judge_children(flow, talk, said)
        if not all(said["patched"]) or len(said["marks"]) != said["run"]:
            self.world.violated(35, f"{flow.id}: patches {said['patched']}, marks {said['marks']}")

    def _judge_children(self, flow: Flow, talk: Talk, said: Any) -> None:
        """What parent and child have said to each other, each once and in order."""
        ends = dict(map(tuple, said["ends"]))
        for at, child in enumerate(talk.children):
            heard = [number for which, number in said["heard"] if which == at]
            if at in ends:
                self.world.goal("a child heard all, and was heard")
                is_whole = (heard, ends[at]) == ([*range(child.reports)], [*range(child.signals)])
            else:
                is_whole = heard == [*range(len(heard))]
            if not is_whole:
                what = f"child {at} was told {ends.get(at)} and has said {heard}"
                self.world.violated(34, f"{flow.id}: {what}")


class Finisher(Patient):
    """Ends the attempts that were left open, some time later."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "finisher")
        self._draw = world.chance.stream("finisher").choice

    def left_open(self, task: ActivityTask, receipt: str) -> None:
        """It is ours from now on."""
        raw = wire.raw_payload(values.encode(receipt))
        args = wire.CompleteActivityTask(task.token, raw)
        self.soon(self._draw((1, 50, 700, 4_000)), args, self._heard)

    def not_now(self, args: wire.Args) -> frozenset[str]:
        """What is not there has ended."""
        return wire.UNKNOWN_OUTCOME

    def _heard(self, outcome: Outcome) -> None:
        if not isinstance(outcome, PerdureError):
            self.world.goal("an attempt was completed by whoever had its token")


def ends_from_outside(talk: Talk) -> bool:
    """Whether something else than its code may end it."""
    return bool(talk.cancel_ms or talk.terminate_ms or talk.timeout_ms or talk.is_stopped)


def _talk(flow: Flow) -> Talk:
    assert flow.talk is not None
    return flow.talk
