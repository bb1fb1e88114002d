"""Commands on their way to history: sent again by their originator, and by nobody else, until they
are answered.
"""

from __future__ import annotations

import heapq
from typing import Any

import msgspec

from perdure.core.commands import AnyCommand
from perdure.core.limits import RESEND_FIRST_MS, RESEND_MAX_MS
from perdure.core.links import Answer, Ask


class _Open(msgspec.Struct):
    ask: Ask
    tag: Any
    wait_ms: int
    due_ms: int


class Asks:
    """What one originator has asked and not been answered yet. Pure: time comes in."""

    def __init__(self, first_ms: int = RESEND_FIRST_MS, max_ms: int = RESEND_MAX_MS) -> None:
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._open: dict[int, _Open] = {}
        self._due: list[tuple[int, int]] = []  # (due_ms, n); entries of answered asks are skipped.
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, command: AnyCommand, now_ms: int, tag: Any = None) -> Ask:
        """The message to send. `tag` comes back with the answer."""
        self._last += 1
        n = self._last
        message = Ask(n, command)
        due_ms = now_ms + self._first_ms
        self._open[n] = _Open(message, tag, self._first_ms, due_ms)
        heapq.heappush(self._due, (due_ms, n))
        return message

    def answered(self, answer: Answer) -> tuple[AnyCommand, Any] | None:
        """The command and tag that `answer` is for; None where it was answered before, or is not
        ours.
        """
        found = self._open.pop(answer.n, None)
        return None if found is None else (found.ask.command, found.tag)

    def forget(self, n: int) -> None:
        """Nobody waits for this one any more."""
        self._open.pop(n, None)

    def unanswered(self) -> list[Ask]:
        """All of them, in the order asked: for a new incarnation of the receiver."""
        return [entry.ask for entry in self._open.values()]

    def drop_all(self) -> list[tuple[AnyCommand, Any]]:
        """Give up on all of them: (command, tag) in the order asked."""
        entries = [(entry.ask.command, entry.tag) for entry in self._open.values()]
        self._open.clear()
        self._due.clear()
        return entries

    def due(self, now_ms: int) -> list[Ask]:
        """Those to send again now; each waits twice as long the next time."""
        again: list[Ask] = []
        while self._due and self._due[0][0] <= now_ms:
            due_ms, n = heapq.heappop(self._due)
            entry = self._open.get(n)
            if entry is None or entry.due_ms != due_ms:
                continue
            entry.wait_ms = min(entry.wait_ms * 2, self._max_ms)
            entry.due_ms = now_ms + entry.wait_ms
            heapq.heappush(self._due, (entry.due_ms, n))
            again.append(entry.ask)
        return again

    def next_ms(self) -> int | None:
        """When `due` has something, or None."""
        while self._due:
            due_ms, n = self._due[0]
            entry = self._open.get(n)
            if entry is not None and entry.due_ms == due_ms:
                return due_ms
            heapq.heappop(self._due)
        return None
