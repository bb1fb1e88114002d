"""Facts about the embedded store alone: its files, settings, format, log, and failing disks."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.core.chain import GENESIS, next_hash
from perdure.core.change import Change, StoredEvent
from perdure.core.state import Execution, Status
from perdure.store import (
    sqlite_changes,
    sqlite_retention,
    sqlite_rows,
    sqlite_schema,
    sqlite_tables,
    sqlite_wal,
)
from perdure.store.protocol import DiskFailed, Retention, StoreError, WorkflowFilter
from perdure.store.rules import Newest
from perdure.store.sqlite import DATABASE_NAME, SqliteReader, SqliteWriter

WALL_MS = 1_700_000_000_000
VFS = "test-disk"


def opened(data_dir: Path, **options: Any) -> SqliteWriter:
    writer = SqliteWriter(data_dir, **options)
    writer.open_epoch("history.1", WALL_MS, "boot", 0)
    return writer


def commit(writer: SqliteWriter, data_dir: Path, body: bytes = b"", **parts: Any) -> None:
    """Commit what follows the newest commit."""
    reader = SqliteReader(data_dir)
    last = reader.commits(reader.newest() - 1, 1)[0]
    reader.close()
    link = next_hash(last.hash, body)
    writer.commit(Change(last.n + 1, last.epoch, last.at_ms, last.hash, link, body, **parts))


def execution(workflow_id: str) -> Execution:
    return Execution(workflow_id, "T", "q", WALL_MS, None, b"")


def database(data_dir: Path) -> apsw.Connection:
    return apsw.Connection(str(data_dir / DATABASE_NAME))


# --- the data directory ------------------------------------------------------
def test_the_database_is_for_its_owner_alone(tmp_path):
    data_dir = tmp_path / "deep" / "data"
    writer = opened(data_dir)
    commit(writer, data_dir)
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in data_dir.iterdir()} == {0o600}


@pytest.mark.parametrize("name", ["plain", "a?b#c%20d e", "mode=rw&x"])
def test_any_name_of_a_directory_will_do(tmp_path, name):
    opened(tmp_path / name).close()
    assert SqliteReader(tmp_path / name).newest() == 1
    assert (tmp_path / name / DATABASE_NAME).is_file()


def test_a_data_directory_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "data").write_text("mine")
    with pytest.raises(StoreError, match="not a directory; give a directory"):
        opened(tmp_path / "data")
    with pytest.raises(StoreError, match="cannot make the data directory"):
        opened(tmp_path / "data" / "below")


def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path):
    content = b"not a database, but long enough to look like one" * 100
    (tmp_path / DATABASE_NAME).write_bytes(content)
    for make in (opened, SqliteReader):
        with pytest.raises(StoreError, match="not a database of perdure; give another"):
            make(tmp_path)
    assert (tmp_path / DATABASE_NAME).read_bytes() == content


def test_the_database_of_another_program_is_refused_and_left_as_it_is(tmp_path):
    other = database(tmp_path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = (tmp_path / DATABASE_NAME).read_bytes()
    for make in (opened, SqliteReader):
        with pytest.raises(StoreError, match="belongs to another program; give another"):
            make(tmp_path)
    assert (tmp_path / DATABASE_NAME).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [DATABASE_NAME]


def test_a_directory_in_the_place_of_the_database_is_refused(tmp_path):
    (tmp_path / DATABASE_NAME).mkdir()
    with pytest.raises(StoreError, match="cannot open"):
        opened(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_what_cannot_be_written_is_refused_with_what_to_do(tmp_path):
    opened(tmp_path / "data").close()
    (tmp_path / "data" / DATABASE_NAME).chmod(0o400)
    with pytest.raises(StoreError, match="read-only; make it writable"):
        opened(tmp_path / "data")
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(StoreError, match="can be written"):
        opened(tmp_path / "closed")


def test_what_a_first_start_left_when_it_was_killed_is_an_empty_store(tmp_path):
    database(tmp_path).pragma("journal_mode", "wal")
    with pytest.raises(StoreError, match="no store"):
        SqliteReader(tmp_path)
    opened(tmp_path)
    assert SqliteReader(tmp_path).newest() == 1


def test_a_lock_that_another_process_holds_is_reported(tmp_path, monkeypatch):
    opened(tmp_path).close()
    short = [("busy_timeout", 1, 1), *sqlite_schema.WRITER_PRAGMAS[1:]]
    monkeypatch.setattr(sqlite_schema, "WRITER_PRAGMAS", tuple(short))
    writer = opened(tmp_path)
    other = database(tmp_path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="holds the write lock"):
        commit(writer, tmp_path)
    with pytest.raises(StoreError, match="holds the write lock"):
        opened(tmp_path)
    other.execute("ROLLBACK")
    opened(tmp_path)
    assert SqliteReader(tmp_path).newest() == 3


# --- settings and format -----------------------------------------------------
def test_every_setting_is_read_back(tmp_path, monkeypatch):
    connection = sqlite_schema.open_for_writing(tmp_path)
    expected = {"journal_mode": "wal", "synchronous": 2, "wal_autocheckpoint": 0, "mmap_size": 0}
    expected |= {"foreign_keys": 1, "trusted_schema": 0, "cell_size_check": 1}
    assert {name: connection.pragma(name) for name in expected} == expected
    assert connection.pragma("busy_timeout") > 0
    connection.close()
    for name, value, found in sqlite_schema.WRITER_PRAGMAS:
        wrong = (name, value, f"not {found}")
        monkeypatch.setattr(sqlite_schema, "WRITER_PRAGMAS", (wrong,))
        with pytest.raises(StoreError, match=f"{name} is {found!r} and cannot be set"):
            opened(tmp_path)


def test_a_reader_cannot_write(tmp_path):
    opened(tmp_path)
    connection = sqlite_schema.open_for_reading(tmp_path)
    with pytest.raises(apsw.ReadOnlyError):
        connection.execute("DELETE FROM commits")


def set_format(data_dir: Path, version: int) -> None:
    database(data_dir).execute("UPDATE meta SET value = ? WHERE name = 'format'", (version,))


def test_a_newer_format_is_refused_by_writer_and_reader(tmp_path):
    opened(tmp_path).close()
    set_format(tmp_path, sqlite_schema.FORMAT_VERSION + 1)
    for make in (opened, SqliteReader):
        with pytest.raises(StoreError, match=r"has format 4.* knows up to 3; use the perdure that"):
            make(tmp_path)
    set_format(tmp_path, sqlite_schema.FORMAT_VERSION)
    assert SqliteReader(tmp_path).newest() == 1, "a refused opening has written something"


def test_an_older_format_is_upgraded_in_the_commit_of_the_epoch(tmp_path, monkeypatch):
    opened(tmp_path).close()
    set_format(tmp_path, 1)
    monkeypatch.setattr(sqlite_schema, "FORMAT_VERSION", 3)
    with pytest.raises(StoreError, match="start a node to upgrade it"):
        SqliteReader(tmp_path)
    steps = {1: lambda connection: connection.execute("CREATE TABLE two (x)")}
    monkeypatch.setattr(sqlite_tables, "UPGRADES", steps)
    with pytest.raises(StoreError, match="has format 2, too old"):
        opened(tmp_path)
    assert not database(tmp_path).table_exists(None, "two"), "half an upgrade was kept"
    steps[2] = lambda connection: connection.execute("CREATE TABLE three (x)")
    opened(tmp_path)
    assert SqliteReader(tmp_path).newest() == 2
    assert database(tmp_path).table_exists(None, "three")


def test_a_store_of_format_1_keeps_what_it_has_and_can_remove_it_from_then_on(tmp_path):
    writer = opened(tmp_path)
    commit(writer, tmp_path, started=[execution("w")])
    ended = execution("w")
    ended.status, ended.closed_ms = Status.COMPLETED, WALL_MS
    commit(writer, tmp_path, touched=[ended])
    writer.close()
    connection = database(tmp_path)
    for statement in (
        "DROP VIEW tombstones",
        "ALTER TABLE executions DROP COLUMN more",
        "DROP TABLE schedules",
        "CREATE TABLE tombstones (workflow_id TEXT PRIMARY KEY, digest BLOB, closed_ms INTEGER)",
        "DROP INDEX executions_closed",
        "CREATE INDEX executions_closed ON executions (closed_ms) WHERE closed_ms IS NOT NULL",
    ):
        connection.execute(statement)
    connection.close()
    set_format(tmp_path, 1)
    writer = opened(tmp_path)
    assert writer.load("w") == ended
    writer.retain(Retention(0))
    assert writer.tidy(WALL_MS) is True
    rows = database(tmp_path).execute("SELECT workflow_id, closed_ms FROM tombstones").fetchall()
    assert rows == [("w", WALL_MS)]


def test_what_is_to_be_removed_is_found_without_a_look_at_the_rest(tmp_path):
    writer = opened(tmp_path)
    plan = database(tmp_path).execute("EXPLAIN QUERY PLAN " + sqlite_retention.OLDEST_CLOSED, (1,))
    assert "USING INDEX executions_closed" in str(plan.fetchall())
    writer.close()


def test_a_log_cut_at_its_front_goes_on_from_the_base_in_the_database(tmp_path):
    connection = sqlite_schema.open_for_writing(tmp_path)
    sqlite_schema.prepare(connection, tmp_path)
    assert sqlite_rows.load_newest(connection) == Newest(0, 0, 0, GENESIS)


# --- what is read ------------------------------------------------------------
def test_no_call_reads_what_it_does_not_need(tmp_path):
    writer = opened(tmp_path)
    commit(writer, tmp_path, started=[execution("w")])
    reader = SqliteReader(tmp_path)
    connection = reader._connection()
    queries: list[tuple[str, Any]] = []

    def note(_: apsw.Cursor, query: str, bindings: Any) -> bool:
        queries.append((query, bindings))
        return True

    connection.exec_trace = note
    reader.open_state()
    reader.commits(0, 1)
    reader.execution("w")
    reader.events("w", 0, 1, 1)
    reader.event("w", 1)
    reader.details("w", "a")
    reader.list_workflows(WorkflowFilter(status="Failed"), 1, None)
    reader.list_workflows(WorkflowFilter(pending_state="Leased"), 1, None)
    list(reader.dead_letters())
    sqlite_rows.closing_event(connection, "w", "a")
    sqlite_rows.requested_event(connection, "w", "r")
    connection.exec_trace = None
    plans = [
        row[3]
        for query, bindings in queries
        if query.lstrip().startswith("SELECT")
        for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", bindings)
    ]
    assert plans
    # The two small tables hold only what is open; the end of the log is one row.
    fine = ("SCAN activities", "SCAN timers", "SCAN commits", "SCAN CONSTANT ROW")
    fine += ("SCAN a USING INDEX activities_dead",)
    assert [plan for plan in plans if plan.startswith("SCAN") and plan not in fine] == []
    assert [plan for plan in plans if "TEMP B-TREE" in plan] == []


def test_the_writer_remembers_only_executions_that_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_changes, "SEQS_KEPT", 2)
    writer = opened(tmp_path)
    many = [execution(str(number)) for number in range(5)]
    commit(writer, tmp_path, started=many)
    for one in many:
        one.status, one.closed_ms = Status.COMPLETED, WALL_MS
    commit(writer, tmp_path, touched=many)
    assert writer._seqs == {}
    for one in many:
        commit(writer, tmp_path, events=[StoredEvent(one.workflow_id, 9, WALL_MS, "K", b"late")])
    assert len(writer._seqs) <= 2
    assert all(writer.event(one.workflow_id, 9) == b"late" for one in many)


# --- the log file ------------------------------------------------------------
def sizes(data_dir: Path) -> tuple[int, int]:
    """(bytes of the database, of its log); stat opens nothing."""
    path = data_dir / DATABASE_NAME
    return path.stat().st_size, path.with_name(f"{path.name}-wal").stat().st_size


def test_the_log_is_copied_back_between_commits_once_it_has_grown(tmp_path, monkeypatch):
    monkeypatch.setattr(SqliteWriter, "checkpoint_idle_pages", 40)
    monkeypatch.setattr(SqliteWriter, "checkpoint_pages", 60)
    monkeypatch.setattr(SqliteWriter, "log_bytes", 0)
    writer = opened(tmp_path)
    commit(writer, tmp_path, b"x" * 4096 * 5)
    writer.maybe_checkpoint(idle=True)
    small = sizes(tmp_path)
    assert small[0] <= 4096
    commit(writer, tmp_path, b"x" * 4096 * 20)
    writer.maybe_checkpoint()
    assert sizes(tmp_path)[0] == small[0]
    writer.maybe_checkpoint(idle=True)
    copied, log = sizes(tmp_path)
    assert copied > 4096 * 25
    commit(writer, tmp_path, b"x" * 4096 * 15)
    assert sizes(tmp_path) == (copied, log), "the log has not begun anew"
    commit(writer, tmp_path, b"x" * 4096 * 50)
    writer.maybe_checkpoint(idle=True)
    assert sizes(tmp_path)[0] > copied + 4096 * 50


def test_the_log_is_stretched_once_and_overwritten_from_then_on(tmp_path):
    for _ in range(2):  # A new store, and one that was closed in order.
        writer = opened(tmp_path)
        log = sizes(tmp_path)[1]
        assert log >= sqlite_wal.LOG_BYTES
        for _ in range(30):
            commit(writer, tmp_path, b"x" * 4096 * 50)
            writer.maybe_checkpoint()
        assert sizes(tmp_path)[1] == log
        writer.close()
    assert SqliteReader(tmp_path).newest() == 62


def test_a_log_that_stays_long_is_cut_when_no_reader_is_in_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(SqliteWriter, "checkpoint_pages", 10)
    monkeypatch.setattr(SqliteWriter, "truncate_pages", 20)
    monkeypatch.setattr(sqlite_wal, "TRUNCATE_WAIT_MS", 1)
    writer = opened(tmp_path)
    reader = database(tmp_path)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM commits").fetchall()
    commit(writer, tmp_path, b"x" * 4096 * 30)
    writer.maybe_checkpoint()
    assert sizes(tmp_path)[1] > 4096 * 30
    reader.execute("COMMIT")
    writer.maybe_checkpoint()
    assert sizes(tmp_path)[1] > 4096 * 30, "tried again although nothing was added"
    commit(writer, tmp_path, b"x" * 4096 * 10)
    writer.maybe_checkpoint()
    assert sizes(tmp_path)[1] == 0
    assert SqliteReader(tmp_path).newest() == 3


# --- a disk that fails -------------------------------------------------------
class Disk(apsw.VFS):
    """The real one, which notes every sync and fails those of the log on demand."""

    def __init__(self) -> None:
        self.syncs: list[str] = []
        self.fails = False
        super().__init__(VFS, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return DiskFile(self, name, flags)


class DiskFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._name = Path(name.filename() if isinstance(name, apsw.URIFilename) else name).name
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.syncs.append(self._name)
        if self._disk.fails:
            raise apsw.IOError
        super().xSync(flags)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.unregister()


def test_taking_over_and_every_commit_sync_the_log(tmp_path, disk):
    for _ in range(2):  # A new store, and one that is there.
        disk.syncs.clear()
        writer = opened(tmp_path, vfs=VFS)
        assert f"{DATABASE_NAME}-wal" in disk.syncs
        for _ in range(2):
            disk.syncs.clear()
            commit(writer, tmp_path)
            # Where the log begins anew its head is synced too.
            assert set(disk.syncs) == {f"{DATABASE_NAME}-wal"}


def test_after_a_failed_sync_the_writer_is_over_and_the_store_whole(tmp_path, disk):
    writer = opened(tmp_path, vfs=VFS)
    commit(writer, tmp_path, started=[execution("before")])
    disk.fails = True
    with pytest.raises(DiskFailed):
        commit(writer, tmp_path, started=[execution("unknown")])
    disk.fails = False
    with pytest.raises(StoreError, match="has failed"):
        commit(writer, tmp_path)
    disk.syncs.clear()
    writer.close()
    assert disk.syncs == [], "a failed writer wrote while it was closed"
    again = opened(tmp_path)
    reader = SqliteReader(tmp_path)
    # Unknown, not refused: it is there as a whole, or it is not.
    there = reader.execution("unknown") is not None
    rows = reader.commits(0, 10)
    assert len(rows) == (4 if there else 3)
    assert [row.n for row in rows] == list(range(1, len(rows) + 1))
    assert all(row.hash == next_hash(row.previous_hash, row.body) for row in rows)
    assert reader.execution("before") == again.load("before") == execution("before")


def test_an_epoch_that_cannot_be_synced_is_not_opened(tmp_path, disk):
    opened(tmp_path, vfs=VFS).close()
    disk.fails = True
    writer = SqliteWriter(tmp_path, vfs=VFS)
    with pytest.raises(DiskFailed):
        writer.open_epoch("history.2", WALL_MS, "boot", 0)
    with pytest.raises(StoreError):
        writer.load("w")
