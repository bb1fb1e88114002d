"""Who uses the node: submitters, an operator of dead letters, and workers that poll by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chaos.sim import app
from chaos.sim.client import ClientProcess, Outcome
from chaos.sim.plan import BY_HAND, Flow
from perdure import values, wire
from perdure.errors import AlreadyExists, NotFound, PerdureError, WorkflowFailed
from perdure.wire_args import FailureArgs

if TYPE_CHECKING:
    from chaos.sim.world import World

WAIT_MS = 2_000
AGAIN_MS = 300
OPERATOR_MS = 1_500


class Submitter(ClientProcess):
    """Starts its flows, each until it is known to be there, and waits for their results."""

    def __init__(self, world: World, role: str, flows: list[Flow]) -> None:
        super().__init__(world, role)
        self.results: dict[str, Any] = {}
        for flow in flows:
            self.later(flow.start_ms, self._start, flow)
            if flow.twice:
                self.later(flow.start_ms * 2 + 50, self._start, flow)

    def _start(self, flow: Flow) -> None:
        args = wire.StartWorkflow(
            "flow" if flow.talk is None else "talk",
            flow.id,
            wire.raw_payload(values.encode(app.input_of(flow))),
            flow.request_id or f"r-{flow.id}",
            options=_options(flow),
        )

        def heard(outcome: Outcome) -> None:
            if not isinstance(outcome, PerdureError):
                self._wait(flow)
            elif outcome.code in wire.UNKNOWN_OUTCOME:
                self.world.goal("a submit had an unknown outcome")
                self.later(AGAIN_MS, self._start, flow)
            else:
                assert not isinstance(outcome, NotFound)
                if not isinstance(outcome, AlreadyExists) or flow.request_id == "":
                    self.world.violated(6, f"{flow.id}: its own request was refused: {outcome}")

        self.call(args, heard)

    def _wait(self, flow: Flow) -> None:
        def heard(outcome: Outcome) -> None:
            if not isinstance(outcome, PerdureError) or isinstance(outcome, WorkflowFailed):
                self._ended(flow, outcome)
            elif isinstance(outcome, NotFound):
                self.world.violated(5, f"{flow.id}: acknowledged, and now there is none")
            else:
                self._wait(flow)

        self.call(wire.GetResult(flow.id, WAIT_MS), heard, WAIT_MS)

    def _ended(self, flow: Flow, outcome: Outcome) -> None:
        said = str(outcome)
        before = self.results.setdefault(flow.id, said)
        if before != said and flow.id not in self.world.rewinder.taken_back:
            self.world.violated(8, f"{flow.id}: its result was {before} and is {said}")
        if flow.talk is not None:
            self.world.talker.judge(flow, outcome)


def _options(flow: Flow) -> wire.StartOptions | None:
    talk = flow.talk
    if talk is None:
        return None
    return wire.StartOptions(
        start_delay_ms=talk.delay_ms or None,
        timeout_ms=talk.timeout_ms or None,
        search_attributes={"plan": flow.id},
    )


class Operator(ClientProcess):
    """Looks at the dead letters now and then, and decides about each."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "operator")
        self._choose = world.chance.stream("operator").random
        self._decided = 0
        self.later(OPERATOR_MS, self._look)

    def _look(self) -> None:
        self.call(wire.ListDeadLetters(), self._listed)

    def _listed(self, outcome: Outcome) -> None:
        self.later(OPERATOR_MS, self._look)
        if isinstance(outcome, PerdureError):
            return
        for letter in outcome["dead_letters"]:
            self._decide(letter)

    def _decide(self, letter: dict[str, Any]) -> None:
        self._decided += 1
        request_id = f"o{self._decided}"
        of = (letter["workflow_id"], letter["activity_id"])
        chosen = self._choose()
        args: wire.Args
        if chosen < 0.6:
            args = wire.RedriveDeadLetter(*of, request_id=request_id)
        elif chosen < 0.8:
            args = wire.FailDeadLetter(*of, request_id=request_id)
        else:
            result = wire.raw_payload(values.encode("by hand"))
            args = wire.CompleteDeadLetter(*of, result, request_id=request_id)
        self.call(args, lambda outcome: None)
        if chosen < 0.1:  # Two operators at once: one of them is refused.
            again = wire.RedriveDeadLetter(*of, request_id=f"{request_id}-again")
            self.call(again, lambda outcome: None)


class Poller(ClientProcess):
    """Works off activities of the queue "hand" over the public protocol."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"poller-{number}")
        self._polls = 0
        self.later(10 * number, self._poll)

    def _poll(self) -> None:
        self._polls += 1
        args = wire.PollActivityTask(
            self.role, BY_HAND, wait_ms=WAIT_MS, request_id=f"{self.role}-{self._polls}"
        )
        self.call(args, self._polled, WAIT_MS)

    def _polled(self, outcome: Outcome) -> None:
        if isinstance(outcome, PerdureError) or outcome is None:
            self.later(AGAIN_MS, self._poll)
            return
        self.world.goal("a task was polled by hand")
        step = app.step_given(outcome["input"])
        self.later(max(1, step.ms // 2), self._beat, outcome)
        self.later(max(2, step.ms), self._report, outcome, step.fails >= outcome["attempt"])

    def _beat(self, task: dict[str, Any]) -> None:
        raw = wire.raw_payload(values.encode("half"))
        self.call(wire.RecordHeartbeat(task["token"], details=raw), lambda outcome: None)

    def _report(self, task: dict[str, Any], fails: bool) -> None:
        args: wire.Args
        if fails:
            args = wire.FailActivityTask(task["token"], FailureArgs(type="SimError"))
        else:
            receipt = self.world.sink.apply(
                task["workflow_id"], task["activity_id"], task["token"], task["attempt"]
            )
            args = wire.CompleteActivityTask(
                task["token"], wire.raw_payload(values.encode(receipt))
            )
        self.call(args, self._reported)

    def _reported(self, outcome: Outcome) -> None:
        self.later(AGAIN_MS // 10, self._poll)
