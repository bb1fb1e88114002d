"""Taking away what the embedded store no longer keeps, within transactions of the writer.

A removed workflow's row stays where it is, as its tombstone: to delete it and to insert another by
its id, which is as good as random, would cost two pages of the log for each.
"""

from __future__ import annotations

from typing import Any

import apsw

from perdure.core.state import Status
from perdure.store import leaps, sqlite_found_by
from perdure.store.retention import TIDY_EVENTS, Retention

NEWEST_AGAIN_MS = 60_000

OLDEST_CLOSED = (
    "SELECT seq, closed_ms, last_event_id FROM executions"
    f" WHERE closed_ms IS NOT NULL AND status <> '{Status.REMOVED.value}'"
    " ORDER BY closed_ms LIMIT ?"
)
_BURY = (
    f"UPDATE executions SET status = '{Status.REMOVED.value}', task_failure = NULL,"
    " task_reason = '', more = NULL WHERE seq = ?"
)
_OLDEST_COMMITS = "SELECT n, at_ms, hash FROM commits ORDER BY n LIMIT ?"


class Tidying:
    """Knows when something is due to go, so that asking costs nothing while nothing is."""

    def __init__(
        self, connection: apsw.Connection, retention: Retention, leaps: leaps.Leaps
    ) -> None:
        self._connection = connection
        self._retention = retention
        self._leaps = leaps
        # When the oldest of each is due; None: not known, to be looked up.
        self._removal_ms: int | None = None
        self._prune_ms: int | None = None

    def is_due(self, now_ms: int) -> bool:
        """Whether `remove` or `prune` may find something."""
        keeps = self._retention
        return (
            keeps.retention_ms is not None
            and (self._removal_ms is None or self._removal_ms <= now_ms)
        ) or (keeps.audit_ms is not None and (self._prune_ms is None or self._prune_ms <= now_ms))

    def remove(self, now_ms: int, limit: int) -> int:
        """Remove the workflows that closed longest ago, where their time is over; how many."""
        keep_ms = self._retention.retention_ms
        if keep_ms is None or (self._removal_ms is not None and self._removal_ms > now_ms):
            return 0
        found: list[Any] = self._connection.execute(OLDEST_CLOSED, (limit + 1,)).fetchall()
        events = removed = 0
        for seq, closed_ms, last_event_id in found:
            due_ms = leaps.due_ms(self._leaps, closed_ms, keep_ms)
            if due_ms > now_ms or removed == limit or events > TIDY_EVENTS:
                self._removal_ms = due_ms
                return removed
            self._connection.execute("DELETE FROM events WHERE seq = ?", (seq,))
            sqlite_found_by.removed(self._connection, seq)
            self._connection.execute(_BURY, (seq,))
            removed += 1
            events += last_event_id
        # What closes from now on is due later than that.
        self._removal_ms = now_ms + keep_ms
        return removed

    def prune(self, now_ms: int, limit: int) -> int:
        """Take the oldest commits from the front of the log, where their time is over; how many."""
        keep_ms = self._retention.audit_ms
        if keep_ms is None or (self._prune_ms is not None and self._prune_ms > now_ms):
            return 0
        # One more than may go: the newest stays, and who is first then says when it is due.
        found: list[Any] = self._connection.execute(_OLDEST_COMMITS, (limit + 1,)).fetchall()
        due = [leaps.due_ms(self._leaps, at_ms, keep_ms) for _, at_ms, _ in found]
        old = [row for row, due_ms in zip(found[:-1], due, strict=False) if due_ms <= now_ms]
        if old:
            n, _, link = old[-1]
            self._connection.execute("DELETE FROM commits WHERE n <= ?", (n,))
            self._connection.executemany(
                "UPDATE meta SET value = ? WHERE name = ?", [(n, "base_n"), (link, "base_hash")]
            )
        self._prune_ms = due[len(old)]
        if len(found) <= limit and len(old) == len(found) - 1:
            # Only the newest is left, which may be over its time until another follows it.
            self._prune_ms = max(self._prune_ms, now_ms + min(keep_ms, NEWEST_AGAIN_MS))
        return len(old)
