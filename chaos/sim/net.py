"""The simulated network: frames between processes, with everything that may happen to them.

A connection is FIFO, as ZeroMQ's are, until a fault says otherwise. Faults are named by link (the
two roles) and by the number of the frame on it, so that a plan can repeat them one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.sim.loop import MS_US
from chaos.sim.plan import NetFault
from chaos.sim.process import Frames, Process, Take

if TYPE_CHECKING:
    from chaos.sim.world import World

Link = tuple[str, str]


class _Lane:
    """One directed link between two roles."""

    __slots__ = ("count", "draw", "mean_us", "planned")

    def __init__(self, world: World, link: Link) -> None:
        stream = world.chance.stream(f"net/{link[0]}/{link[1]}")
        self.count = 0
        self.draw = stream.random
        latency_us = world.plan.knobs.latency_us
        self.mean_us = latency_us * (0.2 + 1.6 * stream.random())
        self.planned = {
            fault.nth: fault
            for fault in world.plan.net
            if (fault.source, fault.target) == link and fault.action not in ("cut", "clog")
        }


class Net:
    """All links. `rates` apply only while the plan's faults are on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loop = world.loop
        self._lanes: dict[Link, _Lane] = {}
        self._last_us: dict[tuple[str, str], int] = {}
        self._cuts: list[tuple[Link, int, int, str]] = []
        self.sent = 0

    def cut(self, source: str, target: str, length_ms: int, action: str) -> None:
        """From now on nothing passes ("cut"), or all is held back ("clog"), for so long."""
        now_us = self._loop.now_us
        self._cuts.append(((source, target), now_us, now_us + length_ms * MS_US, action))

    def heal(self) -> None:
        """All links work."""
        self._cuts.clear()

    def send(self, source: Process, target: Process, take: Take, frames: Frames) -> None:
        """Bring a frame to its receiver, or not."""
        link = (source.role, target.role)
        lane = self._lanes.get(link)
        if lane is None:
            lane = self._lanes[link] = _Lane(self._world, link)
        lane.count += 1
        self.sent += 1
        draw = lane.draw
        # Always the same number of draws, whatever comes of them.
        spread, chosen, much = draw(), draw(), draw()
        at_us = source.here_us() + int(lane.mean_us * (0.5 + spread)) + 1
        action = ""
        if self._world.is_faulty:
            fault = self._fault(lane, link, chosen, much)
            if fault is not None:
                action = fault.action
                if action == "twice":
                    again_us = at_us + fault.ms * MS_US
                    self._loop.at(again_us, self._arrive, source, target, take, frames)
                elif action in ("late", "swap"):
                    at_us += fault.ms * MS_US
            held_us = self._held(link, source.here_us()) if self._cuts else 0
            if action == "drop" or held_us < 0:
                return
            at_us = max(at_us, held_us)
        if action != "swap":
            pair = (source.name, target.name)
            last_us = self._last_us.get(pair, 0)
            if at_us <= last_us:
                at_us = last_us + 1
            self._last_us[pair] = at_us
        self._loop.at(at_us, self._arrive, source, target, take, frames)

    def _arrive(self, source: Process, target: Process, take: Take, frames: Frames) -> None:
        self._world.record(source, target, frames)
        target.deliver(take, frames)

    def _fault(self, lane: _Lane, link: Link, chosen: float, much: float) -> NetFault | None:
        fault = lane.planned.get(lane.count)
        knobs = self._world.plan.knobs
        if fault is None:
            for action, rate in (
                ("drop", knobs.drop),
                ("twice", knobs.twice),
                ("late", knobs.late),
                ("swap", knobs.swap),
            ):
                if chosen < rate:
                    length_ms = 0 if action == "drop" else 1 + int(knobs.late_ms * much * much)
                    fault = NetFault(link[0], link[1], lane.count, action, length_ms)
                    break
                chosen -= rate
        if fault is not None:
            self._world.fired(fault)
        return fault

    def _held(self, link: Link, now_us: int) -> int:
        """When what is sent on `link` now may arrive at the earliest; -1: never."""
        held_us = 0
        for cut, from_us, until_us, action in self._cuts:
            if cut == link and from_us <= now_us < until_us:
                if action == "cut":
                    return -1
                held_us = max(held_us, until_us)
        return held_us
