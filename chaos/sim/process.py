"""A simulated process: its queue of frames, when it gets a turn, how it ends.

What a turn sends leaves while the turn lasts: a slow sync in the middle delays what comes behind.
"""

from __future__ import annotations

import traceback
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from chaos.sim import broken_plant
from chaos.sim.loop import MS_US

if TYPE_CHECKING:
    from chaos.sim.world import World

SIGKILLED = -9
CRASHED = 70
NEVER = 1 << 62

Frames = list[bytes]
Take = Callable[[Frames], None]


class ProcessExit(BaseException):
    """The process ends itself with this status."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Killed(BaseException):
    """The process is killed in the middle of what it does."""


class Process:
    """One life of one process. `role` is what faults and links are named by."""

    def __init__(self, world: World, role: str, name: str) -> None:
        self.world = world
        self.loop = world.loop
        self.role = role
        self.name = name
        self.address = name.encode("ascii")
        self.is_alive = True
        self.exit_code: int | None = None
        self.elapsed_us = 0  # Within this turn.
        self.queue: deque[tuple[Take, Frames]] = deque()
        self.routes: dict[bytes, Process] = {}  # Whom it can send to, by routing id.
        self.dialed: set[bytes] = set()  # Those of them that it connected to itself.
        self.endpoint = ""
        self.take: Take | None = None
        self.on_end: Callable[[Process], None] | None = None
        self._busy_until_us = 0
        self.paused_until_us = 0
        self._wake_us = NEVER
        self._wake_number = 0
        world.processes.append(self)
        world.by_address[self.address] = self

    # --- what subclasses do ---------------------------------------------------------
    @abstractmethod
    def work(self) -> None:
        """One turn: take what lies in the queue, do what is due."""

    @abstractmethod
    def next_us(self) -> int | None:
        """When there is something to do, apart from what comes in."""

    def rests(self, at_us: int, until_us: int | None) -> None:
        """A turn ends at `at_us`; the next comes with a frame, or at `until_us` (None: not so)."""

    def take_frame(self, frames: Frames) -> None:
        """A frame for its own socket."""
        raise NotImplementedError

    def ended(self) -> None:
        """The process is no more: let go of what it held."""

    # --- time -------------------------------------------------------------------------
    def here_us(self) -> int:
        """The instant within the turn that runs."""
        return self.loop.now_us + self.elapsed_us

    def wake(self, at_us: int = 0) -> None:
        """Have a turn no later than that instant (now), as soon as it is free."""
        at_us = max(at_us, self.loop.now_us, self._busy_until_us, self.paused_until_us)
        if at_us >= self._wake_us or not self.is_alive:
            return
        self._wake_us = at_us
        self._wake_number += 1
        self.loop.at(at_us + self.world.turn_delay_us(self), self._turn, self._wake_number)

    def pause(self, length_ms: int) -> None:
        """As SIGSTOP, and SIGCONT so much later."""
        until_us = self.loop.now_us + length_ms * MS_US
        self.paused_until_us = max(self.paused_until_us, until_us)

    @property
    def is_paused(self) -> bool:
        """Whether it stands still now."""
        return self.loop.now_us < self.paused_until_us

    def _turn(self, number: int) -> None:
        if number != self._wake_number or not self.is_alive:
            return
        self._wake_us = NEVER
        now_us = self.loop.now_us
        if now_us < self.paused_until_us:
            self.wake(self.paused_until_us)
            return
        world = self.world
        world.current = self
        self.elapsed_us = 0
        try:
            world.count("turn", self.role)
            self.work()
        except Killed:
            self.end(SIGKILLED)
        except ProcessExit as exit_:
            self.end(exit_.code)
        except Exception as problem:  # noqa: BLE001 - what no process may do is a finding
            broken_plant.check("".join(traceback.format_exception(problem)))
            world.crashed(self, problem)
            self.end(CRASHED)
        finally:
            world.current = None
        if self.is_alive:
            self._plan_next(now_us)

    def _plan_next(self, now_us: int) -> None:
        world = self.world
        self._busy_until_us = now_us + self.elapsed_us + world.turn_cost_us
        self.elapsed_us = 0
        next_us = self.loop.now_us if self.queue else self.next_us()
        self.rests(self._busy_until_us, next_us)
        if next_us is not None:
            self.wake(next_us)

    # --- frames ------------------------------------------------------------------------
    def deliver(self, take: Take, frames: Frames) -> None:
        """A frame has arrived."""
        if not self.is_alive:
            return
        if len(self.queue) >= self.world.queue_max:
            self.world.goal("a full queue dropped a frame")
            return
        self.queue.append((take, frames))
        self.wake()

    def drain(self) -> bool:
        """Hand over what lies in the queue, as much as one drain takes; whether that was all."""
        queue = self.queue
        note = self.loop.note
        for _ in range(self.world.drain_max):
            if not queue:
                break
            take, frames = queue.popleft()
            note(frames[-1])
            take(frames)
        return not queue

    # --- the end --------------------------------------------------------------------------
    def end(self, code: int) -> None:
        """The process is over, in whichever way."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.exit_code = code
        self.queue.clear()
        self.world.processes.remove(self)
        self.ended()
        self.world.hung_up(self)
        if self.on_end is not None:
            self.on_end(self)
