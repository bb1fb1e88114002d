"""The side of the application: one INSERT in the transaction that its connection has open."""

from __future__ import annotations

import sqlite3
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import apsw

from perdure import values, wire
from perdure.errors import FailedPrecondition
from perdure.operations import start_args, start_options
from perdure.outbox import table
from perdure.wire_checks import Findable

NO_TRANSACTION = (
    "no transaction is open on this connection, so the row would not go together with anything: "
    "begin one first"
)
_IDLE = 0  # psycopg's transaction status outside a transaction.


class Outbox(ABC):
    """What both outboxes can. Every method raises a perdure.errors.PerdureError for what can't be
    right, and the driver's own errors for what the database refuses.
    """

    def start_workflow(
        self,
        workflow: str | Callable[..., Any],
        *args: Any,
        workflow_id: str,
        request_id: str | None = None,
        task_queue: str = "default",
        start_delay_ms: int | None = None,
        timeout_ms: int | None = None,
        search_attributes: Mapping[str, Findable] | None = None,
        **kwargs: Any,
    ) -> str:
        """Have the workflow started once this transaction is committed; the row's id.

        The parameters are those of Client.start_workflow. That the workflow's id is taken is found
        out later, and stands in the row then (`perdure outbox list`). FailedPrecondition where no
        transaction is open.
        """
        options = start_options(start_delay_ms, timeout_ms, search_attributes)
        chosen = request_id or str(uuid.uuid4())
        request = start_args(workflow, args, kwargs, workflow_id, chosen, task_queue, options)
        return self._insert(chosen, request, workflow_id, request.type)

    def signal_workflow(
        self,
        workflow_id: str,
        name: str,
        *args: Any,
        request_id: str | None = None,
        **kwargs: Any,
    ) -> str:
        """Have the signal sent once this transaction is committed; the row's id.

        What one transaction asks about one workflow is asked in that order: a start first, then
        signals to it.
        """
        raw = wire.raw_payload(values.encode_input(None, args, kwargs))
        chosen = request_id or str(uuid.uuid4())
        return self._insert(
            chosen, wire.SignalWorkflow(workflow_id, name, raw, chosen), workflow_id, name
        )

    def _insert(self, row_id: str, request: wire.Args, workflow_id: str, name: str) -> str:
        self._check_transaction()
        wire.write_request(1, request)  # Raises for what would be too large to be sent.
        args = wire.MSGPACK.encode(request)
        created_ms = time.time_ns() // 1_000_000
        self._put((row_id, type(request).__name__, workflow_id, name, args, created_ms))
        return row_id

    @abstractmethod
    def _check_transaction(self) -> None: ...

    @abstractmethod
    def _put(self, row: tuple[Any, ...]) -> None: ...

    @abstractmethod
    def create_table(self) -> None:
        """Create the table and its indexes where they are not there, in the open transaction."""


class SqliteOutbox(Outbox):
    """An outbox in the database of `connection`, which is sqlite3's or apsw's.

    The table is created with the first row.
    """

    def __init__(self, connection: sqlite3.Connection | apsw.Connection) -> None:
        self._connection: Any = connection

    def _check_transaction(self) -> None:
        if self._connection.in_transaction:
            return
        # sqlite3 begins one itself before an INSERT, unless it was told not to.
        begins = getattr(self._connection, "isolation_level", None) is not None
        if not begins or getattr(self._connection, "autocommit", None) is True:
            raise FailedPrecondition(NO_TRANSACTION)

    def _put(self, row: tuple[Any, ...]) -> None:
        statement = table.INSERT + "(?, ?, ?, ?, ?, ?)"
        # The INSERT first: a look before it would make the transaction a reader's, which SQLite
        # refuses to let write once somebody else has written.
        try:
            self._connection.execute(statement, row)
        except (sqlite3.OperationalError, apsw.SQLError) as error:
            if f"no such table: {table.TABLE}" not in str(error):
                raise
            self.create_table()
            self._connection.execute(statement, row)

    def create_table(self) -> None:
        """Create the table and its indexes where they are not there, in the open transaction."""
        # Not as a script: sqlite3's executescript commits first.
        for statement in filter(str.strip, table.SQLITE_SCHEMA.split(";")):
            self._connection.execute(statement)


class PostgresOutbox(Outbox):
    """An outbox in the database of `connection`, a psycopg 3 connection (psycopg2's will do).

    The table has to be there: `create_table()`, or POSTGRES_SCHEMA among your migrations.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def _check_transaction(self) -> None:
        status = int(self._connection.info.transaction_status)
        if self._connection.autocommit and status == _IDLE:
            raise FailedPrecondition(NO_TRANSACTION)

    def _put(self, row: tuple[Any, ...]) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(table.INSERT + "(%s, %s, %s, %s, %s, %s)", row)
            # Heard at the commit, and only then.
            cursor.execute(f"NOTIFY {table.CHANNEL}")

    def create_table(self) -> None:
        """Create the table and its indexes where they are not there, in the open transaction."""
        with self._connection.cursor() as cursor:
            cursor.execute(table.POSTGRES_SCHEMA)
