"""Readers: connections of their own that see what is committed, a short transaction per call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from perdure.core.gates import Gate
from perdure.core.schedule_state import Schedule
from perdure.core.state import Activity, ActivityState, Execution, Status
from perdure.store import (
    rules,
    sqlite_asides,
    sqlite_found_by,
    sqlite_gates,
    sqlite_rows,
    sqlite_schedules,
    sqlite_schema,
)
from perdure.store.protocol import AsideRow, CommitRow, Damaged, StoreError, WorkflowFilter

DEAD_LETTERS_AT_ONCE = 500
JUDGED_AT_ONCE = 2_000
# A page ends behind so many open activities: whoever asked is not the only one who waits.
ACTIVITIES_AT_ONCE = 50_000
_MORE_FITS = "perdure_more_fits"

_DEAD_LETTERS = f"""
SELECT e.workflow_id, e.workflow_type, a.body, a.seq, a.activity_id
FROM activities AS a JOIN executions AS e USING (seq)
WHERE a.state = '{ActivityState.DEAD_LETTERED.value}'
    AND (a.seq, a.activity_id) > (?, ?)
ORDER BY a.seq, a.activity_id LIMIT {DEAD_LETTERS_AT_ONCE}
"""


class SqliteReader:
    """Reads the store in `data_dir`; see perdure.store.protocol.Reader.

    Raises StoreError where there is no store of this format yet.
    """

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / sqlite_schema.DATABASE_NAME
        self._open: apsw.Connection | None = sqlite_schema.open_for_reading(data_dir)

    def key(self) -> bytes:
        """The key of the store's tokens."""
        return sqlite_rows.load_key(self._connection())

    def newest(self) -> int:
        """The newest commit's number."""
        return sqlite_rows.load_newest(self._connection()).n

    def began_ms(self) -> int:
        """When the present epoch began."""
        return sqlite_rows.load_began_ms(self._connection())

    def base(self) -> tuple[int, bytes]:
        """(n, hash) of the commit that the log begins after."""
        return sqlite_rows.load_base(self._connection())

    def open_state(self) -> tuple[int, list[Execution]]:
        """(n, every open execution with its open activities and timers) as of commit n."""
        try:
            with self._transaction() as connection:
                return sqlite_rows.load_newest(connection).n, sqlite_rows.load_open(connection)
        except apsw.CorruptError as cause:
            raise Damaged(str(sqlite_schema.told(cause, self._path))) from cause

    def commits(self, after: int, limit: int) -> list[CommitRow]:
        """Commit rows after `after`, in order."""
        rows = self._connection().execute(
            "SELECT n, epoch, at_ms, previous_hash, hash, body, stall_ms FROM commits"
            " WHERE n > ? ORDER BY n LIMIT ?",
            (after, limit),
        )
        return [CommitRow(*row) for row in rows]

    def execution(self, workflow_id: str) -> Execution | None:
        """The execution with all its open activities and timers; None: never started."""
        with self._transaction() as connection:
            return sqlite_rows.load_execution(connection, workflow_id)

    def newest_run(self, workflow_id: str) -> int:
        """How many runs the workflow of this id has had; 0: it was never started."""
        with self._transaction() as connection:
            return sqlite_rows.load_newest_run(connection, workflow_id)

    def events(self, workflow_id: str, after: int, limit: int, bytes_max: int) -> list[bytes]:
        """Encoded events after `after`, in order: at most `limit` and `bytes_max`, but one."""
        found: list[bytes] = []
        size = 0
        # A transaction, so that leaving early leaves no open statement behind.
        with self._transaction() as connection:
            for body in sqlite_rows.load_events(connection, workflow_id, after, limit):
                size += len(body)
                if found and size > bytes_max:
                    break
                found.append(body)
        return found

    def event(self, workflow_id: str, event_id: int) -> bytes | None:
        """The encoded event record at exactly this id."""
        return sqlite_rows.load_event(self._connection(), workflow_id, event_id)

    def details(self, workflow_id: str, activity_id: str) -> bytes | None:
        """The heartbeat details payload of an open activity."""
        body = sqlite_rows.activity_body(self._connection(), workflow_id, activity_id)
        return None if body is None else sqlite_rows.decode_activity(body).details

    def list_workflows(
        self, where: WorkflowFilter, limit: int, page: str | None
    ) -> tuple[list[Execution], str | None]:
        """Executions that match, newest start first, with their open activities; the next page.

        pending_state, failure_type, activity_type and attempts speak of one and the same open
        activity.
        Raises InvalidArgument on a page that is not a token from here.
        """
        conditions, bindings = _conditions(where)
        source = "executions"
        if where.attributes or where.parent is not None:
            conditions.append(f"more IS NOT NULL AND {_MORE_FITS}(more)")

            def fits(*more: Any) -> bool:
                return rules.more_fits(sqlite_rows.decode_more(more[0]), where)

            self._connection().create_scalar_function(_MORE_FITS, fits, 1)
            if sqlite_found_by.is_kept(self._connection()):
                source = sqlite_found_by.SOURCE
                conditions = [*sqlite_found_by.conditions(where, bindings), *conditions]
        if page is not None:
            conditions.append("seq < :page")
            bindings["page"] = rules.page_start(page)
        size = limit if where.judge is None else max(limit, JUDGED_AT_ONCE)
        with self._transaction() as connection:
            found = sqlite_rows.select_executions(
                connection, source, conditions, bindings, size + 1
            )
            last_seq = found[size - 1][0] if len(found) > size else None
            listed: list[Execution] = []
            loaded = 0
            for seq, execution in found[:size]:
                sqlite_rows.load_activities(connection, seq, execution)
                loaded += len(execution.activities)
                if where.judge is None or where.judge(execution):
                    listed.append(execution)
                is_full = len(listed) == limit or loaded > ACTIVITIES_AT_ONCE
                if is_full and seq != found[-1][0]:
                    last_seq = seq
                    break
        return listed, None if last_seq is None else rules.page_token(last_seq)

    def failure_types(self, limit: int) -> list[str]:
        """The types of the last failures of open activities, by name."""
        rows = self._connection().execute(
            "SELECT DISTINCT failure_type FROM activities WHERE failure_type IS NOT NULL"
            " ORDER BY failure_type LIMIT ?",
            (limit,),
        )
        return [name for (name,) in rows]

    def gates(self) -> list[Gate]:
        """Every gate that was ever set, by kind and name."""
        return sqlite_gates.load(self._connection())

    def asides(self) -> list[AsideRow]:
        """What was set aside, the newest last."""
        return sqlite_asides.load(self._connection())

    def schedule(self, schedule_id: str) -> Schedule | None:
        """The schedule, deleted or not; None where there never was one."""
        return sqlite_schedules.load(self._connection(), schedule_id)

    def schedules(self, after: str, limit: int) -> list[Schedule]:
        """Those with an id above `after`, by id, without deleted ones; a limit of -1 means all."""
        return sqlite_schedules.load_some(self._connection(), after, limit)

    def dead_letters(self) -> Iterator[tuple[str, str, Activity]]:
        """(workflow_id, workflow_type, activity) of every dead letter, oldest workflow first.

        Read in parts, each as of its own instant: what comes or goes meanwhile may be in it or not.
        """
        at: tuple[int, str] = (0, "")
        while True:
            rows = list(self._connection().execute(_DEAD_LETTERS, at))
            for workflow_id, workflow_type, body, *at_row in rows:
                yield workflow_id, workflow_type, sqlite_rows.decode_activity(body)
                at = (at_row[0], at_row[1])
            if len(rows) < DEAD_LETTERS_AT_ONCE:
                return

    def close(self) -> None:
        """Let go of the files. Idempotent."""
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    # --- within --------------------------------------------------------------
    def _connection(self) -> apsw.Connection:
        if self._open is None:
            raise StoreError("this reader is closed; make another")
        return self._open

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        """One instant of the store for all reads within."""
        connection = self._connection()
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            connection.execute("COMMIT")


def _conditions(where: WorkflowFilter) -> tuple[list[str], dict[str, str | int]]:
    """What a filter asks of an execution, and the values that it asks for."""
    bindings: dict[str, str | int] = {}
    conditions = [] if where.status else [f"status <> '{Status.REMOVED.value}'"]
    of_activity = []
    for name, condition, wanted in (
        ("type", "workflow_type = :type", where.workflow_type),
        ("status", "status = :status", where.status),
        ("older", "started_ms < :older", where.older_than_ms),
        ("younger", "started_ms >= :younger", where.younger_than_ms),
    ):
        if wanted is not None:
            conditions.append(condition)
            bindings[name] = wanted
    for name, condition, wanted in (
        ("pending", "state = :pending", where.pending_state),
        ("failure", "failure_type = :failure", where.failure_type),
        ("activity", "activity_type = :activity", where.activity_type),
        ("attempts", "attempt >= :attempts", where.attempts),
    ):
        if wanted is not None:
            of_activity.append(condition)
            bindings[name] = wanted
    if of_activity or where.judge is not None:
        # Only what runs has open activities: this keeps the search among those.
        conditions.append(f"status = '{Status.RUNNING.value}'")
    if of_activity:
        conditions.append(
            "EXISTS (SELECT 1 FROM activities AS a WHERE a.seq = executions.seq"
            f" AND {' AND '.join(of_activity)})"
        )
    return conditions, bindings
