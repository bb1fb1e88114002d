"""The heartbeats of one attempt: how often they leave, and which details they carry.

`record` is called by the activity, from any thread, as often as it likes; the rest belongs to the
main loop.
"""

from __future__ import annotations

import threading

from perdure.core import limits
from perdure.core.records import Payload


def interval_ms(heartbeat_ms: int) -> int:
    """The shortest time between two heartbeats that leave; `heartbeat_ms` 0: no timeout."""
    if heartbeat_ms == 0:
        return limits.HEARTBEAT_EVERY_UNSET_MS
    return min(heartbeat_ms * 8 // 10, limits.HEARTBEAT_EVERY_MAX_MS)


class Beats:
    """What was recorded and not acknowledged. Beats rise from the last that history knew."""

    __slots__ = ("_details", "_fresh", "_lock", "_sent", "beat", "every_ms", "next_ms")

    def __init__(self, heartbeat_ms: int, beat: int) -> None:
        self.every_ms = interval_ms(heartbeat_ms)
        self.next_ms = 0  # The first leaves at once.
        self.beat = beat
        self._lock = threading.Lock()
        self._fresh = False  # Something was recorded after the last that left.
        self._details: Payload | None = None  # The newest recorded, if not acknowledged.
        self._sent = beat  # The beat under which `_details` left.

    def record(self, details: Payload | None) -> bool:
        """Note that the activity lives. True: the main loop has to be told.

        None keeps the details that were recorded before.
        """
        with self._lock:
            told, self._fresh = self._fresh, True
            if details is not None:
                self._details = details
                self._sent = 0
        return not told

    def take(self, now_ms: int) -> tuple[int, Payload | None] | None:
        """The beat and details of the heartbeat that leaves now; None: not now."""
        with self._lock:
            if not self._fresh or now_ms < self.next_ms:
                return None
            self._fresh = False
            self.next_ms = now_ms + self.every_ms
            self.beat += 1
            if self._details is not None:
                self._sent = self.beat
            return self.beat, self._details

    def acknowledged(self, beat: int) -> None:
        """History has `beat` and its details."""
        with self._lock:
            if self._details is not None and 0 < self._sent <= beat:
                self._details = None

    def unacknowledged(self) -> tuple[Payload | None, int]:
        """The newest details and their beat, for a report; (None, 0) if history has them."""
        with self._lock:
            if self._details is None:
                return None, 0
            if self._sent == 0:
                self.beat += 1
                self._sent = self.beat
            return self._details, self._sent
