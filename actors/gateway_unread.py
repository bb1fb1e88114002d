"""How much of what clients were answered they have not taken yet, and how much more they may have.

ZeroMQ queues answers for who does not read, by their number only: some thousands of the largest
would be more memory than there is. So bytes are counted: every now and then an answer is marked,
and the mark is gone when ZeroMQ has let go of it, and so of all before it.

Pure: whether a mark is gone is asked of whoever set it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

# Bytes to one client between two marks: it may always have so many, unseen.
MARK_EVERY = 64 * 1024
CLIENT_MAX = 64 * 1024 * 1024
ALL_MAX = 256 * 1024 * 1024
# Where all together have too much, who has less than this is not the reason.
FAIR_SHARE = 1024 * 1024
TIDY_AT = 10_000


class _Client:
    """What one client was sent since its last mark, and its marks that are not gone."""

    __slots__ = ("marked", "marks", "since")

    def __init__(self) -> None:
        self.since = 0
        self.marked = 0
        self.marks: deque[tuple[Callable[[], bool], int]] = deque()


class Unread:
    """Of all clients of one door, by their ZeroMQ identity."""

    def __init__(self, client_max: int = CLIENT_MAX, all_max: int = ALL_MAX) -> None:
        self._client_max = client_max
        self._all_max = all_max
        self._clients: dict[bytes, _Client] = {}
        self._total = 0
        self._tidy_at = TIDY_AT

    @property
    def total(self) -> int:
        """Bytes under marks that were not seen to be gone."""
        return self._total

    def has_room(self, identity: bytes, size: int) -> bool:
        """Whether `size` bytes more may be sent there. Who has read all may have any."""
        client = self._clients.get(identity)
        if client is None or not client.marks:
            return True
        self._look(client)
        if not client.marks:
            return True
        if client.marked + client.since + size > self._client_max:
            return False
        if self._total + size > self._all_max:
            for each in self._clients.values():
                self._look(each)
        return self._total + size <= self._all_max or client.marked < FAIR_SHARE

    def sends(self, identity: bytes, size: int) -> bool:
        """So many bytes are sent there now; True where they are to be marked (see `mark`)."""
        client = self._clients.get(identity)
        if client is None:
            if len(self._clients) >= self._tidy_at:
                self._tidy()
            client = self._clients[identity] = _Client()
        client.since += size
        return client.since >= MARK_EVERY

    def mark(self, identity: bytes, is_gone: Callable[[], bool]) -> None:
        """What was sent last is marked: all up to it is taken when `is_gone` says so."""
        client = self._clients[identity]
        client.marks.append((is_gone, client.since))
        client.marked += client.since
        self._total += client.since
        client.since = 0

    def forget(self, identity: bytes) -> None:
        """That client is not there."""
        client = self._clients.pop(identity, None)
        if client is not None:
            self._total -= client.marked

    def _look(self, client: _Client) -> None:
        marks = client.marks
        while marks and marks[0][0]():
            size = marks.popleft()[1]
            client.marked -= size
            self._total -= size

    def _tidy(self) -> None:
        """Connections come and go under ever new names: those that wait for nothing are dropped."""
        for identity, client in list(self._clients.items()):
            self._look(client)
            if not client.marks:
                del self._clients[identity]
        self._tidy_at = max(TIDY_AT, 2 * len(self._clients))
