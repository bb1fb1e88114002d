"""Who keeps the node's work in order: holds something back, tries it at once, has it done by the
clock. All of it is undone when the faults are over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from chaos.sim import app
from chaos.sim.client import Outcome
from chaos.sim.plan import Flow, Step
from chaos.sim.talkers import Patient
from perdure import values, wire, wire_flow, wire_schedules
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from chaos.sim.world import World

DOUBLED_MS = 6_000
LENGTHS_MS = (5, 100, 1_000, 3_000)
EVERY_MS = (1_000, 1_500, 4_000)
POLICIES: tuple[wire_schedules.Policy, ...] = (
    "skip",
    "buffer_one",
    "buffer_all",
    "cancel_other",
    "terminate_other",
    "allow_all",
)


class Holder(Patient):
    """Pauses and resumes workflows, queues and types, and has things tried at once."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "holder")
        draw = world.chance.stream("holder")
        flows, fault_ms = world.plan.flows, world.plan.knobs.fault_ms
        for number in range(world.plan.knobs.pauses if flows else 0):
            at_ms = draw.randrange(1, fault_ms)
            until_ms = at_ms + draw.choice(LENGTHS_MS)
            flow = draw.choice(flows)
            pause, resume = self._pair(draw.choice(("workflow", "queue", "type")), flow, number)
            self.soon(at_ms, pause, self._paused, until_ms - at_ms, resume)
            again = wire_flow.RetryWorkflow(flow.id, draw.choice((None, "a1")), f"again-{number}")
            self._plan(draw.randrange(1, fault_ms), again)

    def _pair(self, what: str, flow: Flow, number: int) -> tuple[wire.Args, wire.Args]:
        names = (f"p-{number}", f"r-{number}")
        if what == "workflow":
            return (
                wire_flow.PauseWorkflow(flow.id, "planned", names[0]),
                wire_flow.ResumeWorkflow(flow.id, None, names[1]),
            )
        if what == "queue":
            queue = flow.steps[0].queue if flow.steps else "default"
            return (
                wire_flow.PauseQueue(queue, "planned", names[0]),
                wire_flow.ResumeQueue(queue, None, names[1]),
            )
        kind = flow.steps[0].kind if flow.steps else "sync"
        return (
            wire_flow.PauseActivityType(kind, "planned", names[0]),
            wire_flow.ResumeActivityType(kind, None, names[1]),
        )

    def _paused(self, outcome: Outcome, length_ms: int, resume: Any) -> None:
        """Only what is held back is let go again: the two may not overtake each other."""
        if not isinstance(outcome, PerdureError):
            self.world.goal("something was held back")
            self._plan(length_ms, resume)
        # A frame that the network has doubled may hold it back later, where the first was refused
        # or changed nothing: that leaves no trace by which the second would be known.
        rest_ms = max(1, self.world.plan.knobs.fault_ms - self.world.loop.now_us // 1_000)
        again = replace(resume, request_id=f"{resume.request_id}-again")
        self._plan(rest_ms + DOUBLED_MS, again)

    def _plan(self, at_ms: int, args: wire.Args) -> None:
        self.soon(at_ms, args, self._heard, type(args).__name__)

    def _heard(self, outcome: Outcome, what: str) -> None:
        if not isinstance(outcome, PerdureError):
            self.world.goal(f"{what} was done")

    def not_now(self, args: wire.Args) -> frozenset[str]:
        """A workflow that has not begun needs no resuming."""
        return wire.UNKNOWN_OUTCOME


class Planner(Patient):
    """Has workflows started by schedules, for as long as there are faults."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "planner")
        self._draw = world.chance.stream("planner")
        self._past = world.chance.stream("planner/past")
        for number in range(world.plan.knobs.schedules):
            self._schedule(f"plan-{number}")

    def _schedule(self, name: str) -> None:
        draw, fault_ms = self._draw, self.world.plan.knobs.fault_ms
        at_ms = draw.randrange(1, fault_ms)
        step = Step(id="a1", ms=draw.choice((1, 50, 1_500)))
        run = Flow(id=name, steps=(step,), nap_ms=draw.choice((0, 100)))
        create = wire_schedules.CreateSchedule(
            name,
            "flow",
            wire.raw_payload(values.encode(app.input_of(run))),
            every_ms=draw.choice(EVERY_MS),
            overlap=draw.choice(POLICIES),
            catch_up=draw.choice((0, 1, 3)),
            request_id=f"{name}-made",
        )
        self.soon(at_ms, create, self._made, name)

    def _made(self, outcome: Outcome, name: str) -> None:
        if isinstance(outcome, PerdureError):
            self.world.violated(6, f"schedule {name} was not made: {outcome}")
            return
        draw = self._draw
        left_ms = max(2, self.world.plan.knobs.fault_ms - self.world.loop.now_us // 1_000)
        if draw.random() < 0.5:
            trigger = wire_schedules.TriggerSchedule(name, request_id=f"{name}-now")
            self._plan(draw.randrange(1, left_ms), trigger)
        if draw.random() < 0.3:
            at_ms = draw.randrange(1, left_ms)
            pause = wire_schedules.PauseSchedule(name, "planned", f"{name}-pause")
            resume = wire_schedules.ResumeSchedule(name, "", f"{name}-resume")
            length_ms = draw.choice(LENGTHS_MS)
            self.soon(at_ms, pause, lambda outcome: self._plan(length_ms, resume))
        for number in range(self.world.plan.knobs.backfills):
            at_ms = self._past.randrange(1, left_ms)
            self.later(at_ms, self._make_up, name, f"{name}-past-{number}")
        self._plan(left_ms + 1, wire_schedules.DeleteSchedule(name, f"{name}-gone"))

    def _make_up(self, name: str, request_id: str) -> None:
        """Have it run for a span that is over, or partly to come."""
        now_ms = self.world.history_ms()
        first_ms = max(0, now_ms - self._past.choice((500, 3_000, 9_000)))
        span = (first_ms, now_ms + self._past.choice((-200, 0, 5_000)))
        policy = self._past.choice((None, *POLICIES))
        args = wire_schedules.BackfillSchedule(name, *span, policy, request_id)
        self.soon(1, args, lambda outcome: self._made_up(outcome))

    def _made_up(self, outcome: Outcome) -> None:
        if not isinstance(outcome, PerdureError):
            self.world.goal("runs of a schedule were made up for")

    def _plan(self, at_ms: int, args: wire.Args) -> None:
        self.soon(at_ms, args, lambda outcome: None)

    def not_now(self, args: wire.Args) -> frozenset[str]:
        """What was deleted is gone."""
        return wire.UNKNOWN_OUTCOME
