"""Reports that are held back until their lease is long over: the late message of a dead attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from perdure.core import commands, links

TO_HISTORY = b"H"

_reports = msgspec.msgpack.Decoder(list[links.Ask])
_to_worker = msgspec.msgpack.Decoder(list[links.ToWorker])


class Holder:
    """Picks completions of activities as workers report them, and keeps them and their repeats."""

    def __init__(self) -> None:
        self.tokens: list[str] = []  # Held or released.
        self.refused: Counter[str] = Counter()  # Refusals that workers were sent, by code.
        self._wanted = 0
        self._kept: list[Callable[[], None]] = []
        self._released: list[Callable[[], None]] = []
        self._is_holding = False

    def hold(self, count: int) -> None:
        """Keep the next `count` completions, and all that names their tokens."""
        self._wanted += count
        self._is_holding = True

    def release(self) -> None:
        """Let go of all that is kept: see `due`."""
        self._is_holding = False
        self._wanted = 0
        self._released += self._kept
        self._kept = []

    def due(self) -> list[Callable[[], None]]:
        """What was released and not gone on yet."""
        released, self._released = self._released, []
        return released

    def holds(self, frames: list[bytes], go: Callable[[], None]) -> bool:
        """True when this frame of a worker is kept; `go` then passes it on at the release."""
        if not self._is_holding or len(frames) != 2 or frames[0] != TO_HISTORY:
            return False
        body = frames[1]
        if self._wanted and len(found := _completed(body)) == 1:
            self._wanted -= 1
            self.tokens += found
            self._kept.append(go)
            return True
        if any(token.encode() in body for token in self.tokens):
            self._kept.append(go)
            return True
        return False

    def hears(self, body: bytes) -> None:
        """What a worker is sent: refusals are counted."""
        if b"FAILED_PRECONDITION" not in body:
            return
        try:
            batch = _to_worker.decode(body)
        except msgspec.MsgspecError:
            return  # Not for a worker.
        for message in batch:
            if isinstance(message, links.Answer) and isinstance(message.answer, commands.Refusal):
                self.refused[message.answer.code] += 1


def _completed(body: bytes) -> list[str]:
    """The tokens of a frame that holds nothing but completions of activities."""
    try:
        batch = _reports.decode(body)
    except msgspec.MsgspecError:
        return []
    tokens = [
        ask.command.token for ask in batch if isinstance(ask.command, commands.CompleteActivity)
    ]
    return tokens if len(tokens) == len(batch) else []
