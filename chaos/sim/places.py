"""Where faults strike: counts how often a place was reached, and does what the plan says there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from chaos.sim.loop import MS_US
from chaos.sim.plan import Fault
from chaos.sim.process import SIGKILLED, Killed
from perdure.crash_points import CrashPoint

if TYPE_CHECKING:
    from chaos.sim.world import World

PCT_STEP_US = 400
JITTER_US = 30
# What the caller that counts does itself.
_RETURNED = frozenset({"eio_kept", "eio_lost", "full", "slow", "unsynced_kept", "unsynced_lost"})


class Places:
    """All faults of a plan but those of the network's frames."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._planned: dict[str, dict[str, dict[int, Fault]]] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self.node_delay_ms = 0
        for fault in world.plan.faults:
            if fault.place != "ms":
                of_place = self._planned.setdefault(fault.place, {})
                of_place.setdefault(fault.role, {})[fault.nth] = fault
        knobs = world.plan.knobs
        stream = world.chance.stream("schedule/pct")
        self._jitter = world.chance.stream("schedule/jitter").random
        self.counts_turns = "turn" in self._planned
        self.counts_commits = "commit" in self._planned
        self._is_pct = knobs.strategy == "pct"
        # What draws a part of JITTER_US that each turn waits; None where that depends on the role.
        self.jitter = None if self._is_pct else self._jitter
        self._ranks: dict[str, int] = {}
        self._rank_draw = stream.randrange
        self._changes = sorted(stream.randrange(1, 20_000) for _ in range(knobs.pct_depth))
        self._turns = 0

    # --- places -------------------------------------------------------------------------
    def count(self, place: str, role: str) -> Fault | None:
        """`role` has reached `place`. What is planned there is done, or returned to the caller."""
        of_place = self._planned.get(place)
        if of_place is None:
            return None
        of_role = of_place.get(role)
        if of_role is None:
            return None
        key = (place, role)
        nth = self._counts[key] = self._counts.get(key, 0) + 1
        fault = of_role.get(nth)
        if fault is None or not self._world.is_faulty:
            return None
        self._world.fired(fault)
        if fault.action in _RETURNED:
            return fault
        self._strike(fault)
        return None

    def reached(self, point: CrashPoint) -> None:
        """The engine has reached one of its crash points."""
        process = self._world.current
        if process is not None:
            self.count(point.name, process.role)

    def hears_points(self) -> Callable[[CrashPoint], None] | None:
        """Who hears of crash points; None where the plan names none."""
        return self.reached if self._planned.keys() & CrashPoint.__members__.keys() else None

    def plan_instants(self) -> None:
        """Plan the faults that name an instant."""
        for fault in self._world.plan.faults:
            if fault.place == "ms":
                self._world.loop.at(fault.nth * MS_US, self._instant, fault)

    def _instant(self, fault: Fault) -> None:
        if self._world.is_faulty:
            self._world.fired(fault)
            self._strike(fault)

    def _strike(self, fault: Fault) -> None:
        world = self._world
        match fault.action:
            case "kill":
                self._kill(fault.role)
            case "pause":
                process = world.find(fault.role)
                if process is not None:
                    process.pause(fault.ms)
            case "node" | "power":
                self.node_delay_ms = fault.ms
                if fault.action == "power":
                    world.boot_anew()
                self._kill("root")
            case "stop":
                self.node_delay_ms = fault.ms
                world.root.deliver(lambda frames: world.root.shut_down(), [b"stop"])
            case "wall":
                world.step_wall(fault.ms)
            case "room":
                world.disk.fill(fault.ms)
            case "cut" | "clog":
                world.net.cut(fault.role, fault.detail, fault.ms, fault.action)
            case _:
                raise AssertionError(f"no such action: {fault}")

    def _kill(self, role: str) -> None:
        world = self._world
        process = world.find(role)
        if process is None:
            return
        process.end(SIGKILLED)
        if world.current is not None and not world.current.is_alive:
            raise Killed

    # --- who runs next --------------------------------------------------------------------
    def turn_delay_us(self, role: str) -> int:
        """How long a process that could run waits for its turn."""
        if not self._is_pct:
            return int(JITTER_US * self._jitter())
        rank = self._ranks.get(role)
        if rank is None:
            rank = self._ranks[role] = self._rank_draw(8)
        self._turns += 1
        if self._changes and self._turns >= self._changes[0]:
            self._changes.pop(0)
            self._ranks[role] = rank = self._rank_draw(8, 16)
        return rank * PCT_STEP_US
