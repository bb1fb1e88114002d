"""A store in memory that notes all that is written to it, to be made again as of any commit."""

from __future__ import annotations

import dataclasses
import pickle

from perdure.core.change import Change
from perdure.core.limits import GRACE_MS
from perdure.store.memory import MemoryStore, MemoryWriter, Tell
from perdure.store.protocol import CommitRow, Opened
from perdure.store.rules import Boot

# An epoch's row with its boot, or a change: pickled, since the engine goes on changing what is in
# it.
Entries = list[bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """A store as it was: the first `count` of its entries. `newest` is the hash of the last."""

    key: bytes
    entries: Entries
    count: int
    newest: bytes


class KeptStore(MemoryStore):
    """A store from a picture, or an empty one."""

    def __init__(self, picture: Picture | None = None) -> None:
        super().__init__()
        self.entries: Entries = []
        if picture is None:
            return
        self.key = picture.key
        for entry in picture.entries[: picture.count]:
            self.entries.append(entry)
            self.repeat(*pickle.loads(entry))

    def picture(self) -> Picture:
        """As it is now. Pictures of one store share their entries."""
        return Picture(self.key, self.entries, len(self.entries), self.newest().hash)

    def note(self, entry: CommitRow | Change, boot: Boot | None) -> None:
        """Note what was written."""
        self.entries.append(pickle.dumps((entry, boot), pickle.HIGHEST_PROTOCOL))

    def writer(self, tell: Tell = lambda n, link: None) -> MemoryWriter:
        """A writer whose writes are noted."""
        return _Writer(self, tell)


class _Writer(MemoryWriter):
    _store: KeptStore

    def open_epoch(
        self,
        incarnation: str,
        wall_ms: int,
        boot_id: str,
        boot_ms: int,
        grace_ms: int = GRACE_MS,
    ) -> Opened:
        opened = super().open_epoch(incarnation, wall_ms, boot_id, boot_ms, grace_ms)
        self._store.note(self._store.log[-1], self._store.boot)
        return opened

    def commit(self, change: Change) -> None:
        self._store.note(change, None)
        super().commit(change)
