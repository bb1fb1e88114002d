"""Live leases by who holds them, and how many there are of each kind."""

from __future__ import annotations

from collections import Counter

from perdure.core.ids import Session
from perdure.core.open_work import Entry
from perdure.core.state import Lease


class LeaseIndex:
    """Of the activities in a task queue: kept up to date by `put`."""

    __slots__ = ("by_session", "count", "counts", "freed", "polled")

    def __init__(self) -> None:
        # Of worker sessions, and those polled by hand by (worker id, poll id).
        self.by_session: dict[Session, dict[Entry, None]] = {}
        self.polled: dict[tuple[str, str], Entry] = {}
        self.freed: set[Session] = set()  # Whose leases ended since the caller cleared it.
        self.counts = False  # Whether anybody wants to know.
        self.count: Counter[tuple[str, str]] = Counter()  # By (task queue, type).

    @property
    def parts(
        self,
    ) -> tuple[dict[Session, dict[Entry, None]], dict[tuple[str, str], Entry], set[Session]]:
        """(by_session, polled, freed)."""
        return self.by_session, self.polled, self.freed

    def put(self, entry: Entry, lease: Lease | None) -> None:
        """The activity has this lease now, or none."""
        if entry.held_by is not None:
            held = self.by_session[entry.held_by]
            del held[entry]
            self.freed.add(entry.held_by)
            if not held:
                del self.by_session[entry.held_by]
            entry.held_by = None
        if entry.polled_by is not None:
            if self.polled.get(entry.polled_by) is entry:
                del self.polled[entry.polled_by]
            entry.polled_by = None
        entry.token = None
        entry.sent_ms = 0
        if entry.is_leased is (lease is None):
            entry.is_leased = lease is not None
            if self.counts:
                self.count[entry.key[0], entry.key[1]] += 1 if entry.is_leased else -1
        if lease is None:
            return
        if lease.session is not None:
            entry.held_by = lease.session
            self.by_session.setdefault(lease.session, {})[entry] = None
        elif lease.poll_id is not None:
            entry.polled_by = (lease.worker_id, lease.poll_id)
            self.polled[entry.polled_by] = entry
