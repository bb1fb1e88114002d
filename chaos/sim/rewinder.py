"""Who takes workflows back to an earlier event, ended or not, and asks a second time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.sim.client import Outcome
from chaos.sim.people import AGAIN_MS
from chaos.sim.plan import Flow
from chaos.sim.talkers import Patient, ends_from_outside
from perdure import wire, wire_flow
from perdure.errors import InvalidArgument, PerdureError

if TYPE_CHECKING:
    from chaos.sim.world import World

TRIES = 6
EVENT_MAX = 14


class Rewinder(Patient):
    """Resets flows of the plan, to whichever event the engine says they can go back to."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "rewinder")
        self._draw = world.chance.stream("rewinder")
        self.taken_back: set[str] = set()  # They may have had another result before.
        knobs = world.plan.knobs
        flows = [flow for flow in world.plan.flows if can_go_back(flow)]
        for number in range(knobs.resets if flows else 0):
            flow = self._draw.choice(flows)
            self.taken_back.add(flow.id)
            at_ms = self._draw.randrange(1, knobs.fault_ms + 2_000)
            self._try(at_ms, flow, f"back-{number}", TRIES)

    def _try(self, at_ms: int, flow: Flow, name: str, tries: int) -> None:
        to_event = self._draw.randrange(1, EVENT_MAX)
        args = wire_flow.ResetWorkflow(flow.id, to_event, "planned", f"{name}-{tries}")
        self.soon(at_ms, args, self._heard, args, flow, name, tries)

    def _heard(
        self,
        outcome: Outcome,
        args: wire_flow.ResetWorkflow,
        flow: Flow,
        name: str,
        tries: int,
    ) -> None:
        if isinstance(outcome, InvalidArgument) and tries > 1:
            self._try(AGAIN_MS // 10, flow, name, tries - 1)
        elif not isinstance(outcome, PerdureError):
            self.world.goal("a workflow was taken back")
            self.soon(AGAIN_MS, args, self._again, flow, outcome)

    def _again(self, outcome: Outcome, flow: Flow, before: Outcome) -> None:
        """The same request once more: it is the same reset."""
        first = before["event_id"]
        if isinstance(outcome, PerdureError) or outcome["event_id"] != first:
            self.world.violated(8, f"{flow.id}: a reset was event {first} and is {outcome}")

    def not_now(self, args: wire.Args) -> frozenset[str]:
        """A workflow that has not begun, or a run that has gone on, is left alone."""
        return wire.UNKNOWN_OUTCOME


def can_go_back(flow: Flow) -> bool:
    """Whether what is said of it in the end holds for one that was taken back as well: answers to
    updates, and requests to end, may be taken back with it.
    """
    talk = flow.talk
    if talk is None:
        return True
    others = talk.updates or talk.endless or talk.children or talk.stops or talk.greets
    return not (others or ends_from_outside(talk))
