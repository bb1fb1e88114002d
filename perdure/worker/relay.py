"""Two threads and one loop: one leads it, the other stands by and takes it over when it must.

The leader runs workflow functions in its own thread, between two turns of the loop: to hand each
of them to another thread and back is two switches of threads, which under load costs more than
most of these runs, and of a lone one doubles the time. But nothing else may wait for a workflow
that blocks. So whoever stands by looks every `TICK_MS` while there is such work, and if the leader
is still in the same one, leads on from where the loop was; the other comes back to stand by.

The thread that calls `run` does neither. Python runs signal handlers there, and they must not wait
for a workflow either.
"""

from __future__ import annotations

import contextlib
import threading
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import Protocol

TICK_MS = 25


class Parting(Enum):
    """Why a thread no longer leads."""

    OVER = auto()  # The loop has come to its end.
    LOST = auto()  # Another thread took it over.
    DROPPED = auto()  # So it did, and nobody counts on this one any more.


class Lead(Protocol):
    """Runs the loop until it is over, or until `Relay.leave` has said False."""

    def __call__(self, *, overtakes: bool) -> Parting:
        """`overtakes`: another thread led before, and is still in its work."""


class Relay:
    """Runs the loop `lead`."""

    def __init__(self, lead: Lead) -> None:
        self._lead = lead
        self._lock = threading.Lock()
        self._alarm: SimpleQueue[None] = SimpleQueue()
        self._alert = False  # Whoever stands by looks, or has been told to.
        self._work = 0  # The number of the work that the leader is in; 0: none.
        self._count = 0
        self._has_deputy = False
        self._over = threading.Event()
        self._problem: BaseException | None = None

    def run(self) -> None:
        """Have the loop run, and wait for its end. Raises what ended it otherwise."""
        self._start(leads=True)
        self._over.wait()
        if self._problem is not None:
            raise self._problem

    # --- the leader's -----------------------------------------------------------------
    def enter(self) -> int:
        """Work begins that may last: from here on the lead may be lost."""
        self._count += 1
        self._work = self._count
        if not self._alert:
            self._alert = True
            self._alarm.put(None)
            if not self._has_deputy:
                self.appoint()
        return self._count

    def leave(self, work: int) -> bool:
        """The work is over. False: the lead has been lost meanwhile."""
        with self._lock:
            if self._work != work:
                return False
            self._work = 0
            return True

    def appoint(self) -> None:
        """Have a fresh thread stand by, in place of one that nobody counts on any more."""
        self._has_deputy = True
        self._start(leads=False)

    # --- the threads ------------------------------------------------------------------
    def _start(self, *, leads: bool) -> None:
        threading.Thread(target=self._serve, args=(leads,), name="loop", daemon=True).start()

    def _serve(self, leads: bool) -> None:
        overtakes = not leads
        try:
            while leads or self._stand_by():
                parting = self._lead(overtakes=overtakes)
                overtakes = True
                if parting is Parting.DROPPED:
                    return
                if parting is Parting.OVER:
                    break
                leads = False
        except BaseException as problem:  # noqa: BLE001 - `run` raises it
            self._problem = problem
        self._over.set()
        self._alarm.put(None)

    def _stand_by(self) -> bool:
        """Wait until the lead is this thread's (True), or the loop is over (False)."""
        self._alarm.get()
        seen = count = 0
        while not self._over.is_set():
            with self._lock:
                if self._work and self._work == seen:
                    self._work = 0
                    self._alert = False
                    return True
                seen = self._work
            if self._count == count and not seen and self._is_quiet():
                self._alarm.get()
            count = self._count
            with contextlib.suppress(Empty):
                self._alarm.get(timeout=TICK_MS / 1000)
        return False

    def _is_quiet(self) -> bool:
        """Stop looking, unless work begins just now."""
        self._alert = False
        if self._work:  # Looked at behind the line before: what begins later sees that one.
            self._alert = True
        return not self._alert
