"""The sessions of local workers: every start of a worker is one, numbered by the root. Pure.

A dead session stays in the set until everything its worker had sent has passed the gateway
(SessionDone), or for `DEATH_ECHO_MS`: a completion that was on its way must not lose against the
end of its own lease.
"""

from __future__ import annotations

from perdure.core.ids import Session
from perdure.core.limits import DEATH_ECHO_MS
from perdure.core.links import Sessions

# Of so many of the newest dead it is said when they died.
DIED_KEPT = 100


class LocalSessions:
    """Which sessions of this node start live. `source` is the node's name."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._highest = 0
        self.n = 0  # How often the set has changed.
        self._live: set[int] = set()
        self._dead: dict[int, int] = {}  # Ordinal: when it is taken out at the latest.
        self._died: dict[int, int] = {}  # Ordinal: when its end was seen, of the newest.

    def open(self) -> Session:
        """The session of a worker that is about to be started."""
        self._highest += 1
        self.n += 1
        self._live.add(self._highest)
        return Session(self._source, self._highest)

    def died(self, session: Session, now_ms: int) -> int:
        """The worker is dead; when `expire` will take its session out."""
        self._died[session.ordinal] = now_ms
        if len(self._died) > DIED_KEPT:
            del self._died[next(iter(self._died))]
        self._dead[session.ordinal] = now_ms + DEATH_ECHO_MS
        return self._dead[session.ordinal]

    def done(self, session: Session) -> bool:
        """Nothing more comes from it; True when that changed the set."""
        if session.source != self._source or self._dead.pop(session.ordinal, None) is None:
            return False
        self._live.discard(session.ordinal)
        self.n += 1
        return True

    def expire(self, now_ms: int) -> bool:
        """Take out the dead whose time has passed; True when that changed the set."""
        due = [ordinal for ordinal, at_ms in self._dead.items() if at_ms <= now_ms]
        for ordinal in due:
            del self._dead[ordinal]
            self._live.discard(ordinal)
        self.n += bool(due)
        return bool(due)

    def message(self) -> Sessions:
        """The set as scheduler and lease keeper are told it."""
        died = tuple(one for one in self._died.items() if one[0] not in self._live)
        return Sessions(self._source, self._highest, tuple(sorted(self._live)), died, self.n)
