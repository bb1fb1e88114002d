"""Starting and signalling workflows from inside a transaction of one's own database.

What is to be asked of Perdure is written to a table, `perdure_outbox`, in the transaction of the
application's own work: both are committed or neither is. A node drains the table: see
docs/outbox.md.
"""

from perdure.outbox.drain import drain
from perdure.outbox.table import POSTGRES_SCHEMA, SQLITE_SCHEMA
from perdure.outbox.writing import PostgresOutbox, SqliteOutbox

__all__ = ["POSTGRES_SCHEMA", "SQLITE_SCHEMA", "PostgresOutbox", "SqliteOutbox", "drain"]
