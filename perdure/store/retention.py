"""How long a store keeps what nobody works on any more."""

from __future__ import annotations

import msgspec

# What one commit takes away beside what it writes: twice what it adds, so that a store at work
# never falls behind; and what a tidying transaction takes away at most, so that it is short.
TIMES_ADDED = 2
TIDY_WORKFLOWS = 100
TIDY_EVENTS = 5_000
TIDY_COMMITS = 1_000


class Retention(msgspec.Struct, frozen=True):
    """Both in milliseconds; None: for ever.

    `retention_ms`: a workflow's history after its end. What stays is a tombstone: the id with its
    request id and digest, so that the id and with it every idempotency key stays taken.
    `audit_ms`: commits of the log, counted from their own instant. The hash of the last one that
    was taken away stays, so that what is left can still be checked. The newest is always kept.
    """

    retention_ms: int | None = None
    audit_ms: int | None = None
