"""Reports that are held back until their lease is long over: the late message of a dead attempt.

Pure: no socket. A body is that of a frame between a worker and history, whichever way it takes.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from perdure.core import commands, links

STALE = b"FAILED_PRECONDITION"

_reports = msgspec.msgpack.Decoder(list[links.Ask])
_to_worker = msgspec.msgpack.Decoder(list[links.ToWorker])

Go = Callable[[], None]


class Holder:
    """Picks completions of activities as workers report them, and keeps them and their repeats.

    `tokens` are those that were ever held, `refused` those of them whose report was refused.
    """

    def __init__(self) -> None:
        self.tokens: set[str] = set()
        self.refused: set[str] = set()
        self._asks: dict[tuple[bytes, int], str] = {}  # By worker and number.
        self._seen: set[str] = set()  # A repeat may be of what history has accepted long ago.
        self._wanted = 0
        self._kept: list[Go] = []
        self._is_holding = False

    def hold(self, count: int) -> None:
        """Keep the next `count` completions, and all that names their tokens."""
        self._wanted += count
        self._is_holding = True

    def release(self) -> list[Go]:
        """What was kept, in order; nothing is held any more."""
        self._is_holding, self._wanted = False, 0
        kept, self._kept = self._kept, []
        return kept

    def holds(self, worker: bytes, body: bytes, go: Go) -> bool:
        """True when this frame is kept; `go`, which passes it on, then comes with the release."""
        found = _completions(body)
        new = found.keys() - self._seen
        self._seen |= new
        if not self._is_holding:
            return False
        # A frame of others' reports too would hold up those as well.
        if self._wanted and len(found) == 1 and new:
            self._wanted -= 1
            self.tokens |= new
        mine = found.keys() & self.tokens
        if not mine:
            return False
        self._asks |= {(worker, found[token]): token for token in mine}
        self._kept.append(go)
        return True

    def hears(self, worker: bytes, body: bytes) -> None:
        """What a worker is sent: a refusal of a report that was held is noted."""
        if STALE not in body or not self._asks:
            return
        try:
            batch = _to_worker.decode(body)
        except msgspec.MsgspecError:
            return  # Not for a worker.
        for message in batch:
            if isinstance(message, links.Answer) and isinstance(message.answer, commands.Refusal):
                token = self._asks.get((worker, message.n))
                if token is not None:
                    self.refused.add(token)


def _completions(body: bytes) -> dict[str, int]:
    """The completions of activities in a frame: their tokens, and the numbers they are asked as."""
    try:
        batch = _reports.decode(body)
    except msgspec.MsgspecError:
        return {}
    return {
        ask.command.token: ask.n
        for ask in batch
        if isinstance(ask.command, commands.CompleteActivity)
    }
