"""The embedded store: a SQLite database in the data directory, through APSW's own SQLite."""

from __future__ import annotations

from perdure.store.sqlite_reader import SqliteReader
from perdure.store.sqlite_schema import DATABASE_NAME
from perdure.store.sqlite_writer import SqliteWriter

__all__ = ["DATABASE_NAME", "SqliteReader", "SqliteWriter"]
