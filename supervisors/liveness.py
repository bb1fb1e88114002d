"""How long a child has been silent, in time that counts. Pure.

Time counts only while the supervisor itself ran: between two looks no more than `LOOK_MAX_PINGS`
pings' worth is added, so a machine that slept, or a supervisor that was stopped, accuses nobody. A
look at which the child sat in disk sleep adds nothing: a slow disk is no hang.
"""

from __future__ import annotations

PING_MS = 1_000
LOOK_MAX_PINGS = 2


class Liveness:
    """The silence of one child that is ready, as pings and pongs show it."""

    def __init__(self, *, limit_ms: int, now_ms: int, ping_ms: int = PING_MS) -> None:
        self._limit_ms = limit_ms
        self._look_max_ms = ping_ms * LOOK_MAX_PINGS
        self._looked_ms = now_ms
        self.silent_ms = 0

    def heard(self) -> None:
        """The child answered."""
        self.silent_ms = 0

    def look(self, *, now_ms: int, in_disk_sleep: bool) -> bool:
        """Count the time since the last look; True when the child has been silent for too long."""
        passed_ms = min(max(now_ms - self._looked_ms, 0), self._look_max_ms)
        self._looked_ms = now_ms
        if not in_disk_sleep:
            self.silent_ms += passed_ms
        return self.silent_ms >= self._limit_ms
