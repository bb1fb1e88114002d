"""One live lease as the lease keeper knows it, and a heartbeat of it on its way to history."""

from __future__ import annotations

from typing import Any

from perdure.core.commands import RecordHeartbeat
from perdure.core.ids import Address, Session
from perdure.core.records import Payload


class Beat:
    """A heartbeat on its way to history, and everyone who asked for it or is content with it."""

    __slots__ = ("askers", "beat", "details", "has_details", "lease", "token")

    def __init__(
        self,
        lease: LiveLease | None,
        token: str,
        beat: int,
        details: Payload | None,
        has_details: bool,
    ) -> None:
        self.lease = lease
        self.token = token
        self.askers: list[Any] = []
        self.beat = beat
        self.details = details
        self.has_details = has_details

    def command(self) -> RecordHeartbeat:
        """What history is asked."""
        return RecordHeartbeat(self.token, self.beat, self.details, self.has_details)


class LiveLease:
    """One live grant. `news`: it has details that are newer than what history has committed."""

    __slots__ = (
        "address",
        "attempt_deadline_ms",
        "beat",
        "deadline_ms",
        "details",
        "ending",
        "granted_ms",
        "heartbeat_ms",
        "holder",
        "in_flight",
        "is_given_up",
        "is_moved",
        "length_ms",
        "missed_ms",
        "misses",
        "news",
        "probe",
        "session",
        "stall_ms",
        "waiting",
    )

    def __init__(self, address: Address, session: Session | None, granted_ms: int) -> None:
        self.address = address
        self.session = session
        self.holder = session  # Differs where the worker came back as another session.
        self.granted_ms = granted_ms
        # As of `stall_ms`: both move by what the stalls of history grow from there.
        self.stall_ms = 0
        self.is_moved = False  # Later than its holder was told.
        self.deadline_ms = 0
        self.attempt_deadline_ms = 0
        self.heartbeat_ms = 0
        self.length_ms = 0
        self.beat = 0
        self.details: Payload | None = None
        self.news = False
        self.is_given_up = False  # Its workflow waits for its end only.
        self.in_flight: Beat | None = None
        self.waiting: Beat | None = None
        self.ending = ""  # Why its end is proposed: a reason of EndLease, or "expired".
        self.probe = 0  # The look at the path that it waits for, once it is over.
        self.misses = 0
        self.missed_ms = 0
