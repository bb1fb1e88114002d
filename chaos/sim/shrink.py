"""From a plan that fails to a small one that fails in the same way.

What a candidate must do to count: violate the same invariant, twice, with equal traces. First the
network's faults that fired become a list like the others, so that they can be left out one by one.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from chaos.sim import run
from chaos.sim.plan import BY_HAND, Fault, Flow, Knobs, NetFault, Plan, Step

TIME_BOX_S = 120.0
RATES = ("drop", "twice", "late", "swap")
# Of these the smallest that still fails is wanted, not production's.
COUNTS = {"workers": 1, "clients": 1, "external_workers": 0, "pollers": 0, "strangers": 0}

Struct = TypeVar("Struct", bound=msgspec.Struct)


def replace(struct: Struct, **changes: Any) -> Struct:
    """The same with these fields changed."""
    return msgspec.structs.replace(struct, **changes)


@dataclasses.dataclass(slots=True)
class Shrunk:
    """What is left, how often a plan was run for it, and whether the time was enough."""

    plan: Plan
    runs: int
    is_done: bool


AnyFault = TypeVar("AnyFault", Fault, NetFault)


class _TimeIsUp(Exception):
    """The time box is used up."""


class Shrinker:
    """Makes one failing plan smaller. `clock` counts seconds."""

    def __init__(
        self,
        plan: Plan,
        time_box_s: float = TIME_BOX_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._until = clock() + time_box_s
        self._runs = 0
        self._plan = plan
        self._invariant = plan.invariant

    def shrink(self) -> Shrunk:
        """The smallest plan found. ValueError where the given one does not fail."""
        result, world = run.run_world(self._plan)
        if not result.violations:
            raise ValueError("the plan violates nothing")
        self._invariant = result.violations[0].invariant
        self._plan = replace(self._plan, invariant=self._invariant)
        is_done = True
        try:
            self._list_net(tuple(f for f in world.fired_faults if isinstance(f, NetFault)))
            size = None
            while size != (size := self._size()):
                self._pass()
        except _TimeIsUp:
            is_done = False
        return Shrunk(self._plan, self._runs, is_done)

    def _size(self) -> int:
        return len(msgspec.json.encode(self._plan))

    def _pass(self) -> None:
        self._cut_time()
        self._fewer("faults", self._plan.faults)
        self._fewer("net", self._plan.net)
        self._fewer("flows", self._plan.flows)
        self._fewer_steps()
        for candidate in self._simpler_knobs():
            self._try(candidate())
        self._simpler_faults()

    # --- one candidate ------------------------------------------------------------------
    def _fails(self, plan: Plan) -> bool:
        if self._clock() > self._until:
            raise _TimeIsUp
        self._runs += 1
        result = run.run_plan(plan)
        if not result.violations or result.violations[0].invariant != self._invariant:
            return False
        self._runs += 1
        return run.run_plan(plan).trace == result.trace

    def _try(self, plan: Plan) -> bool:
        if plan == self._plan or not self._fails(plan):
            return False
        self._plan = plan
        return True

    # --- parts ---------------------------------------------------------------------------
    def _list_net(self, fired: tuple[NetFault, ...]) -> None:
        knobs = replace(self._plan.knobs, **dict.fromkeys(RATES, 0.0))
        known = {(f.source, f.target, f.nth): f for f in (*self._plan.net, *fired)}
        self._try(replace(self._plan, knobs=knobs, net=tuple(known.values())))

    def _cut_time(self) -> None:
        knobs = self._plan.knobs
        for length_ms in (knobs.fault_ms // 4, knobs.fault_ms // 2, knobs.fault_ms * 3 // 4):
            if length_ms and self._try(
                replace(self._plan, knobs=replace(knobs, fault_ms=length_ms))
            ):
                return

    def _fewer(self, field: str, parts: Sequence[Any]) -> None:
        """Leave out as much as possible, halves first (ddmin)."""

        def with_parts(left: Sequence[Any]) -> Plan:
            return replace(self._plan, **{field: tuple(left)})

        if not parts:
            return
        if self._try(with_parts(())):
            return
        size = max(1, len(parts) // 2)
        while size:
            at = 0
            while at < len(parts):
                left = [*parts[:at], *parts[at + size :]]
                if left and self._try(with_parts(left)):
                    parts = left
                else:
                    at += size
            size //= 2

    def _fewer_steps(self) -> None:
        for at, flow in enumerate(self._plan.flows):
            steps = flow.steps
            for number in reversed(range(len(steps))):
                left = steps[:number] + steps[number + 1 :]
                if left and self._try(self._with_flow(at, replace(flow, steps=left))):
                    steps, flow = left, replace(flow, steps=left)
            for number, step in enumerate(steps):
                for simpler in _simpler_steps(step):
                    changed = (*steps[:number], simpler, *steps[number + 1 :])
                    if self._try(self._with_flow(at, replace(flow, steps=changed))):
                        steps, flow = changed, replace(flow, steps=changed)

    def _with_flow(self, at: int, flow: Flow) -> Plan:
        flows = self._plan.flows
        return replace(self._plan, flows=(*flows[:at], flow, *flows[at + 1 :]))

    def _simpler_knobs(self) -> Iterator[Callable[[], Plan]]:
        """Each tunable at its default, one by one."""
        simple = {name: getattr(Knobs(), name) for name in Knobs.__struct_fields__} | COUNTS
        if any(step.queue == BY_HAND for flow in self._plan.flows for step in flow.steps):
            simple["pollers"] = 1  # Without any it would never end, which is another story.
        for name, value in simple.items():
            if name not in ("world", "fault_ms", "heal_ms", "limits"):
                yield lambda name=name, value=value: self._with_knob(name, value)  # type: ignore[misc]
        for name in list(self._plan.knobs.limits):
            yield lambda name=name: self._without_limit(name)  # type: ignore[misc]
        yield lambda: self._with_knob("latency_us", 1_000)

    def _with_knob(self, name: str, value: Any) -> Plan:
        return replace(self._plan, knobs=replace(self._plan.knobs, **{name: value}))

    def _without_limit(self, name: str) -> Plan:
        limits = {key: value for key, value in self._plan.knobs.limits.items() if key != name}
        return self._with_knob("limits", limits)

    def _simpler_faults(self) -> None:
        for at, fault in enumerate(self._plan.faults):
            for simpler in _simpler_lengths(fault):
                faults = self._plan.faults
                self._try(replace(self._plan, faults=(*faults[:at], simpler, *faults[at + 1 :])))
        for at, hit in enumerate(self._plan.net):
            for shorter in _simpler_lengths(hit):
                net = self._plan.net
                self._try(replace(self._plan, net=(*net[:at], shorter, *net[at + 1 :])))


def _simpler_steps(step: Step) -> Iterator[Step]:
    plain = Step(id=step.id)
    for name in Step.__struct_fields__:
        if getattr(step, name) != getattr(plain, name):
            yield replace(step, **{name: getattr(plain, name)})


def _simpler_lengths(fault: AnyFault) -> Iterator[AnyFault]:
    for length_ms in (1, 10, 100, 1_000):
        if fault.ms > length_ms:
            yield replace(fault, ms=length_ms)
            return
