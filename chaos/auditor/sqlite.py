"""The embedded store as the auditor reads it: its own statements, in one read transaction."""

from __future__ import annotations

import hashlib
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from chaos.auditor.findings import Findings
from chaos.auditor.log import GENESIS, Base
from chaos.auditor.source import (
    ActivityRow,
    EpochRow,
    EventRow,
    ExecutionRow,
    GateRow,
    ScheduleRow,
    TimerRow,
    TombstoneRow,
)

DATABASE = "perdure.db"
WITNESS = "witness"
BALLAST = "ballast"  # Made only where there is a store.
WITNESS_SLOT_BYTES = 512
WITNESS_CHECKED_BYTES = 4 + 8 + 32  # A mark, the number, the hash; then the checksum of these.
FORMATS = (1, 2, 3)
FORMATS_WITHOUT_MORE = (1, 2)
BUSY_MS = 10_000
PAGE_REPORT_HEAD = "*** in database main ***"
_HAS = "SELECT name FROM sqlite_schema WHERE name ="
_EXECUTION = ", ".join(ExecutionRow._fields)


class NoStore(Exception):
    """There is no store where one was looked for."""


class LogRow(NamedTuple):
    """One row of the log."""

    n: int
    epoch: int
    at_ms: int
    previous_hash: bytes
    hash: bytes
    body: bytes
    stall_ms: int = 0


def witness(data_dir: Path, found: Findings) -> list[tuple[int, bytes]]:
    """The (number, hash) that the readable slots of the witness file hold; none without a file."""
    try:
        raw = (data_dir / WITNESS).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return []
    slots = []
    for at in (0, WITNESS_SLOT_BYTES):
        slot = raw[at : at + WITNESS_CHECKED_BYTES + 16]
        body, check = slot[:WITNESS_CHECKED_BYTES], slot[WITNESS_CHECKED_BYTES:]
        if body[:4] == b"PWT1" and hashlib.blake2b(body, digest_size=16).digest() == check:
            slots.append((int.from_bytes(body[4:12], "little"), body[12:]))
    if not slots and raw.strip(b"\0"):
        found.add(9, WITNESS, "no slot of it can be read, so nobody knows what was durable")
    return slots


class SqliteStore:
    """One consistent view of a store, also of one that a node is writing to.

    NoStore where there is none. A page that can't be read ends an iteration and is a violation of
    invariant 13.
    """

    def __init__(self, data_dir: Path, found: Findings) -> None:
        path = data_dir / DATABASE
        if not path.is_file():
            gone = (data_dir / BALLAST).is_file() or (data_dir / WITNESS).is_file()
            was = ", though there was one: its files are gone" if gone else ""
            raise NoStore(f"there is no store in {data_dir}{was}")
        self._found = found
        uri = f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro"
        try:
            self._connection = apsw.Connection(
                uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            )
        except apsw.Error as problem:
            raise NoStore(f"cannot open {path}: {problem}") from problem
        self._connection.set_busy_timeout(BUSY_MS)
        self._meta: dict[str, Any] = {}
        try:
            self._connection.execute("PRAGMA query_only = ON")
            self._connection.execute("PRAGMA cell_size_check = ON")
            self._connection.execute("BEGIN")
            self._meta = dict(self._connection.execute("SELECT name, value FROM meta"))
        except apsw.BusyError as problem:
            self._connection.close()
            raise NoStore(f"{path} is locked by another process") from problem
        except (apsw.Error, UnicodeDecodeError) as problem:
            found.add(13, "meta", f"can't be read: {problem}")

    def look_around(self) -> None:
        """Say what stands beside what is audited, and whether this auditor knows the format."""
        version = self._meta.get("format")
        if self._meta and version not in FORMATS:
            text = f"the store has format {version}, this auditor knows {FORMATS}"
            self._found.add(13, "meta", text)
        if list(self._rows("sqlite_schema", f"{_HAS} 'asides'")):
            for (count,) in self._rows("asides", "SELECT count(*) FROM asides"):
                if count:
                    self._found.note(f"{count} commands were set aside: see perdure aside")

    def base(self) -> Base:
        """Where the log begins."""
        n, link = self._meta.get("base_n", 0), self._meta.get("base_hash", GENESIS)
        if isinstance(n, int) and isinstance(link, bytes):
            return Base(n, link)
        self._found.add(13, "meta", "the base of the log makes no sense")
        return Base()

    def key(self) -> bytes | None:
        """The key of the store's tokens."""
        key = self._meta.get("key")
        return key if isinstance(key, bytes) else None

    def rekeyed_ms(self) -> int:
        """When the key was last replaced, by a restore; 0: never."""
        at_ms = self._meta.get("rekeyed_ms")
        return at_ms if isinstance(at_ms, int) else 0

    def commits(self) -> Iterator[LogRow]:
        """The log, in order."""
        columns = ", ".join(LogRow._fields)
        for row in self._rows("commits", f"SELECT {columns} FROM commits ORDER BY n"):
            yield LogRow(*row)

    def epochs(self) -> Iterator[EpochRow]:
        """Every epoch."""
        for row in self._rows("epochs", "SELECT epoch, incarnation, now_ms FROM epochs"):
            yield EpochRow(*row)

    def executions(self) -> Iterator[ExecutionRow]:
        """Every execution that was not removed; of those that were, this is the tombstone."""
        columns = _EXECUTION
        if self._meta.get("format") in FORMATS_WITHOUT_MORE:
            columns = columns.replace("more", "NULL")
        query = f"SELECT {columns} FROM executions WHERE status <> 'Removed' ORDER BY seq"
        for row in self._rows("executions", query):
            yield ExecutionRow(*row)

    def events(self) -> Iterator[EventRow]:
        """Every event, execution by execution."""
        query = (
            "SELECT e.workflow_id, v.event_id, v.at_ms, v.kind, v.body, v.closes, v.request_id"
            " FROM events AS v LEFT JOIN executions AS e USING (seq) ORDER BY v.seq, v.event_id"
        )
        for row in self._rows("events", query):
            yield EventRow(*row)

    def activities(self) -> Iterator[ActivityRow]:
        """Every open activity."""
        query = (
            "SELECT e.workflow_id, a.activity_id, a.state, a.activity_type, a.failure_type,"
            " a.attempt, a.body FROM activities AS a LEFT JOIN executions AS e USING (seq)"
        )
        for row in self._rows("activities", query):
            yield ActivityRow(*row)

    def timers(self) -> Iterator[TimerRow]:
        """Every running timer."""
        query = (
            "SELECT e.workflow_id, t.timer_id, t.due_ms"
            " FROM timers AS t LEFT JOIN executions AS e USING (seq)"
        )
        for row in self._rows("timers", query):
            yield TimerRow(*row)

    def gates(self) -> Iterator[GateRow]:
        """Every gate; none where the store has no such table yet."""
        if not list(self._rows("sqlite_schema", f"{_HAS} 'gates'")):
            return
        query = "SELECT kind, name, paused, since_ms, reason FROM gates"
        for kind, name, paused, since_ms, reason in self._rows("gates", query):
            yield GateRow(kind, name, bool(paused), since_ms, reason)

    def schedules(self, known: Iterable[str]) -> Iterator[ScheduleRow]:
        """Every schedule; none where the store has no such table yet."""
        if not list(self._rows("sqlite_schema", f"{_HAS} 'schedules'")):
            return
        query = "SELECT schedule_id, deleted, body FROM schedules"
        for schedule_id, deleted, body in self._rows("schedules", query):
            yield ScheduleRow(schedule_id, bool(deleted), body)

    def tombstones(self) -> Iterator[TombstoneRow]:
        """Every tombstone."""
        query = "SELECT workflow_id, digest, closed_ms FROM tombstones"
        for row in self._rows("tombstones", query):
            yield TombstoneRow(*row)

    def check_pages(self) -> None:
        """Have SQLite look at its own structure, indexes included."""
        for (text,) in self._rows("database", "PRAGMA integrity_check(20)"):
            if text != "ok":
                self._found.add(13, "database", str(text).removeprefix(PAGE_REPORT_HEAD))

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        self._connection.close()

    def _rows(self, what: str, query: str) -> Iterator[Any]:
        # A damaged text makes the driver raise UnicodeDecodeError.
        try:
            yield from self._connection.execute(query)
        except (apsw.Error, UnicodeDecodeError) as problem:
            self._found.add(13, what, f"can't be read: {problem}")
