"""The rows of an outbox in a PostgreSQL database. Needs psycopg 3, which is no dependency."""

from __future__ import annotations

import contextlib
import importlib
import select
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from perdure.outbox import table
from perdure.outbox.drain import PAGE_BYTES, End
from perdure.outbox.table import Entry, Row, Trouble

CONNECT_S = 5
STATEMENT_MS, LOCK_MS = 10_000, 2_000
# A NOTIFY may get lost (a pooler between, a program that inserts without it): then this finds it.
LOOK_MS = 1_000
SLICE_MS = 100
# Of the session that drains: a second node gets nothing. Any number that others do not use.
ADVISORY_LOCK = 0x7065_7264_7572_65
_WANTED = {"connect_timeout": CONNECT_S, "tcp_user_timeout": 10_000, "application_name": "perdure"}


class PostgresSource:
    """See perdure.outbox.drain.Source. Raises Trouble where the server can't be reached.

    With `exclusive` it is the only one of its kind on this database.
    """

    def __init__(self, address: str, *, exclusive: bool = False) -> None:
        psycopg: Any = importlib.import_module("psycopg")
        self._error: type[Exception] = psycopg.Error
        with self._telling():
            self._db: Any = psycopg.connect(address, autocommit=True, **_WANTED)
        try:
            self._begin(exclusive)
        except Trouble:
            self._db.close()
            raise

    def _begin(self, exclusive: bool) -> None:
        with self._telling():
            self._db.execute(f"SET statement_timeout = {STATEMENT_MS}")
            self._db.execute(f"SET lock_timeout = {LOCK_MS}")
            if exclusive:
                lock = self._db.execute("SELECT pg_try_advisory_lock(%s)", (ADVISORY_LOCK,))
                if not lock.fetchone()[0]:
                    raise Trouble("another node drains it")
                self._db.execute(f"LISTEN {table.CHANNEL}")

    def pending(self, after: int, limit: int) -> list[Row]:
        """Rows that nobody has dealt with, in order, as many as fit into PAGE_BYTES."""
        sizes = self._run(table.SIZES, (after, limit)).fetchall()
        last = table.last_of(sizes, PAGE_BYTES)
        if last is None:
            return []
        rows = self._run(table.SELECT_PENDING, (after, last)).fetchall()
        return [Row(seq, row_id, op, bytes(args or b"")) for seq, row_id, op, args in rows]

    def end(self, ends: Iterable[End], at_ms: int) -> None:
        """Write down what became of these, in one transaction."""
        all_ends = list(ends)
        final = [(it.state, at_ms, it.code, it.message, it.id) for it in all_ends if it.state]
        noted = [(it.code, it.message, it.id) for it in all_ends if not it.state]
        with self._telling(), self._db.transaction(), self._db.cursor() as cursor:
            for statement, rows in ((table.END, final), (table.NOTE, noted)):
                if rows:
                    cursor.executemany(_own(statement), [_clean(row) for row in rows])

    def prune(self, before_ms: int, limit: int) -> int:
        """Delete rows that were done before then; how many they were."""
        return int(self._run(table.PRUNE, (before_ms, limit)).rowcount)

    def entries(self, state: str, limit: int) -> list[Entry]:
        """Rows in this state, the newest first."""
        return [Entry(*row) for row in self._run(table.LIST, (state, limit)).fetchall()]

    def retry(self, row_id: str) -> bool:
        """Have a failed row asked again; False where there is none of this id."""
        return bool(self._run(table.RETRY, (row_id,)).rowcount)

    def wait(self, timeout_ms: int, pause: Callable[[int], bool]) -> None:
        """Return once somebody has written, or after `timeout_ms`, or when `pause(ms)` says True.

        It may return early: what there is, is asked for then.
        """
        until = time.monotonic() + min(timeout_ms, LOOK_MS) / 1_000
        with self._telling():
            while (left := until - time.monotonic()) > 0:
                ready = select.select([self._db.fileno()], [], [], min(left, SLICE_MS / 1_000))[0]
                if ready:
                    list(self._db.notifies(timeout=0))
                    return
                if pause(0):
                    return

    def close(self) -> None:
        """Let go of the connection."""
        with contextlib.suppress(self._error):
            self._db.close()

    def _run(self, statement: str, values: tuple[Any, ...]) -> Any:
        with self._telling():
            return self._db.execute(_own(statement), values)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """The driver's errors, as Trouble."""
        try:
            yield
        except self._error as error:
            text = " ".join(str(error).split())
            if f'relation "{table.TABLE}" does not exist' in text:
                text = f"it has no table {table.TABLE} yet"
            raise Trouble(text) from error


def _own(statement: str) -> str:
    return statement.replace("?", "%s")


def _clean(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A text of PostgreSQL has no NUL."""
    return tuple(it.replace("\0", "") if isinstance(it, str) else it for it in row)
