"""What this worker said and was not answered yet. Pure: it is told the time, and sends nothing.

What must not get lost (reports, heartbeats, requests for pages) has a number, unique in this
process, and is said again, whole, on every new connection, to a new history, and otherwise after
doubling waits, until an answer closes it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Any

from perdure.core import limits, links

# --- where a message goes: the first part of what the gateway is sent ---------
TO_HISTORY = b"H"
TO_SCHEDULER = b"S"
TO_LEASE_KEEPER = b"L"
TO_BOTH = b"A"
TO_GATEWAY = b"G"

# These refusals say nothing about the state: the same is asked again later.
UNKNOWN_CODES = frozenset({"UNAVAILABLE", "INTERNAL", "RESOURCE_EXHAUSTED"})


class Open:
    """One message without an answer. `subject` is whatever the asker wants back with the answer."""

    __slots__ = ("dest", "message", "subject", "wait_ms")

    def __init__(self, dest: bytes, message: links.Message, subject: Any) -> None:
        self.dest = dest
        self.message = message
        self.subject = subject
        self.wait_ms = limits.RESEND_FIRST_MS


class Asks:
    """All messages without an answer, and when each is to be said again."""

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, Open] = {}
        # The first wait of all is the same, so these are in order as they come.
        self._first: deque[tuple[int, int]] = deque()
        self._again: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._open)

    def next_n(self) -> int:
        """A number that no message of this process has had."""
        self._last += 1
        return self._last

    def add(self, n: int, dest: bytes, message: links.Message, subject: Any, now_ms: int) -> None:
        """Keep `message`, which bears the number `n` and has just been said."""
        self._open[n] = Open(dest, message, subject)
        self._first.append((now_ms + limits.RESEND_FIRST_MS, n))

    def close(self, n: int) -> Any | None:
        """The subject of message `n`, which is answered now; None if it was before."""
        entry = self._open.pop(n, None)
        return None if entry is None else entry.subject

    def subject(self, n: int) -> Any | None:
        """The subject of message `n`, if that has no answer yet."""
        entry = self._open.get(n)
        return None if entry is None else entry.subject

    def all(self, dest: bytes | None = None) -> Iterator[Open]:
        """What is open (of one destination), oldest first."""
        return (entry for entry in self._open.values() if dest is None or entry.dest == dest)

    def due(self, now_ms: int) -> list[Open]:
        """What is to be said again now; each waits twice as long from here on."""
        again: list[Open] = []
        while self._first and self._first[0][0] <= now_ms:
            self._wait_again(self._first.popleft()[1], now_ms, again)
        while self._again and self._again[0][0] <= now_ms:
            self._wait_again(heapq.heappop(self._again)[1], now_ms, again)
        return again

    def _wait_again(self, n: int, now_ms: int, again: list[Open]) -> None:
        entry = self._open.get(n)
        if entry is None:
            return  # Answered.
        entry.wait_ms = min(entry.wait_ms * 2, limits.RESEND_MAX_MS)
        heapq.heappush(self._again, (now_ms + entry.wait_ms, n))
        again.append(entry)

    def next_ms(self) -> int | None:
        """When `due` has something to give, at the earliest."""
        while self._first and self._first[0][1] not in self._open:
            self._first.popleft()
        while self._again and self._again[0][1] not in self._open:
            heapq.heappop(self._again)
        return min(
            [waiting[0][0] for waiting in (self._first, self._again) if waiting], default=None
        )
