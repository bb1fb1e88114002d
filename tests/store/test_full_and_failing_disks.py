"""What the store does on a disk that is full, fails, or is slow, through the VFS of the drills."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from chaos.faults.disk_vfs import ALWAYS, DiskFaults, FaultyDisk
from perdure.core.chain import next_hash
from perdure.core.change import Change, StoredEvent
from perdure.core.state import Execution
from perdure.store import room
from perdure.store.protocol import DiskFailed, NoRoom, Opened, StoreError
from perdure.store.room import BALLAST_BYTES, BALLAST_NAME, Room
from perdure.store.sqlite import DATABASE_NAME, SqliteReader, SqliteWriter

WALL_MS = 1_000


class Bench:
    """A data directory on a faulty disk."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.faults = DiskFaults(data_dir)
        self.name = f"faulty-{uuid.uuid4()}"
        self.vfs = FaultyDisk(self.faults, self.name)
        self.count = 0

    def writer(self, reserve_bytes: int = 1) -> SqliteWriter:
        writer = SqliteWriter(self.data_dir, vfs=self.name)
        writer.reserve(reserve_bytes)
        return writer

    def open(self, writer: SqliteWriter) -> Opened:
        self.count += 1
        opened = writer.open_epoch(f"history.{self.count}", WALL_MS, "boot", 0)
        self.at = (opened.epoch, opened.n, opened.last_hash)
        return opened

    def commit(self, writer: SqliteWriter, size: int = 10) -> str:
        epoch, n, link = self.at
        body = b"b" * size
        self.at = (epoch, n + 1, next_hash(link, body))
        name = f"w{n + 1}"
        started = [Execution(name, "T", "q", WALL_MS, None, b"")]
        event = StoredEvent(name, 1, WALL_MS, "WorkflowStarted", b"event" * 100)
        change = Change(
            n + 1, epoch, WALL_MS, link, self.at[2], body, started=started, events=[event]
        )
        writer.commit(change)
        return name

    def there(self) -> set[str]:
        reader = SqliteReader(self.data_dir)
        found = {one.workflow_id for one in reader.open_state()[1]}
        rows = reader.commits(0, 100_000)
        # Never half a batch: each commit has its workflow, but for the epochs'.
        assert len(found) == sum(row.body.startswith(b"b") for row in rows)
        reader.close()
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    yield found
    found.vfs.unregister()


def fill(bench: Bench, writer: SqliteWriter, size: int = 100_000) -> set[str]:
    """Commit until there is no room; what was committed."""
    done = set()

    def on_and_on() -> None:
        while True:
            done.add(bench.commit(writer, size))

    with pytest.raises(NoRoom):
        on_and_on()
    writer.close()
    return done


# --- full --------------------------------------------------------------------
def test_a_commit_without_room_ends_the_writer_and_leaves_no_half_of_it(bench):
    writer = bench.writer()
    bench.open(writer)
    bench.faults["grow_bytes"] = 1_000_000
    done = fill(bench, writer)
    with pytest.raises(StoreError, match="has failed"):
        writer.begin()
    bench.faults.heal()
    bench.open(bench.writer())
    assert bench.there() >= done
    assert len(bench.there()) <= len(done) + 1, "unknown is one commit, not more"


def test_the_ballast_goes_overboard_when_a_commit_finds_no_room(bench):
    writer = bench.writer()
    bench.open(writer)
    assert writer.is_short() is False
    assert (bench.data_dir / BALLAST_NAME).stat().st_blocks * 512 >= BALLAST_BYTES
    bench.faults["grow_bytes"] = 0
    fill(bench, writer)
    assert not (bench.data_dir / BALLAST_NAME).exists()


def test_without_room_for_an_epoch_the_ballast_is_freed_once(bench):
    writer = bench.writer()
    bench.open(writer)
    writer.is_short()
    writer.close()
    bench.faults["no_room"] = 1
    with pytest.raises(NoRoom) as first:
        bench.open(bench.writer())
    assert first.value.has_freed
    assert not (bench.data_dir / BALLAST_NAME).exists()
    with pytest.raises(NoRoom) as second:
        bench.open(bench.writer())
    assert not second.value.has_freed
    bench.faults.heal()
    assert bench.open(bench.writer()).epoch == 2


def test_where_there_is_no_room_for_an_epoch_what_is_there_is_synced_and_can_be_read(bench):
    writer = bench.writer()
    first = bench.open(writer)
    bench.faults["grow_bytes"] = 1_000_000
    done = fill(bench, writer)
    syncs = bench.faults["syncs"]
    there = bench.writer().make_durable(WALL_MS, "boot", 0)
    assert bench.faults["syncs"] == syncs + 1
    assert there.epoch == first.epoch
    assert there.key == first.key
    assert bench.there() >= done
    assert there.n == SqliteReader(bench.data_dir).newest()


def test_nothing_is_shown_that_could_not_be_synced(bench):
    writer = bench.writer()
    bench.open(writer)
    bench.commit(writer)
    writer.close()
    bench.faults["fail_sync"] = ALWAYS
    with pytest.raises(DiskFailed):
        bench.writer().make_durable(WALL_MS, "boot", 0)


def test_with_no_room_a_checkpoint_waits_and_the_commits_go_on(bench):
    writer = bench.writer()
    bench.open(writer)
    for _ in range(90):
        bench.commit(writer, 100_000)  # The database has 8 MiB of free pages.
    bench.faults["grow_bytes"] = 0
    writer.maybe_checkpoint()
    assert bench.faults["full"] > 0
    bench.faults.heal()
    bench.commit(writer)
    assert len(bench.there()) == 91
    writer.close()


def test_a_new_store_needs_room(bench):
    bench.faults["grow_bytes"] = 0
    with pytest.raises(NoRoom):
        bench.open(bench.writer())
    with pytest.raises(StoreError):
        bench.writer().make_durable(WALL_MS, "boot", 0)


# --- how much room there is ---------------------------------------------------
def rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Room, Any]:
    found = Room(tmp_path, **{"reserve_bytes": 1_000, "has_ballast": True, **options})
    return found, lambda free: monkeypatch.setattr(Room, "free_bytes", lambda self: free)


def test_room_is_short_below_the_reserve(tmp_path, monkeypatch):
    one, set_free = rooms(tmp_path, monkeypatch)
    one.load()
    set_free(999)
    assert one.is_short()
    set_free(1_000)
    assert not one.is_short()


def test_a_reserve_of_nothing_is_never_short(tmp_path, monkeypatch):
    one, set_free = rooms(tmp_path, monkeypatch, reserve_bytes=0)
    set_free(0)
    assert not one.is_short()


def test_the_ballast_comes_aboard_only_where_it_costs_nobody_anything(tmp_path, monkeypatch):
    one, set_free = rooms(tmp_path, monkeypatch)
    set_free(1_000 + 2 * BALLAST_BYTES - 1)
    assert one.is_short(), "what was thrown out is not there for new work"
    assert not (tmp_path / BALLAST_NAME).exists()
    set_free(1_000 + 2 * BALLAST_BYTES)
    assert not one.is_short()
    assert (tmp_path / BALLAST_NAME).stat().st_size == BALLAST_BYTES


def test_half_a_ballast_is_thrown_out_at_once(tmp_path, monkeypatch):
    one, _ = rooms(tmp_path, monkeypatch)

    def no_room(*args: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(room.os, "posix_fallocate", no_room)
    one.load()
    assert not (tmp_path / BALLAST_NAME).exists()


def test_a_history_that_used_its_ballast_up_begins_only_with_room_again(tmp_path, monkeypatch):
    one, set_free = rooms(tmp_path, monkeypatch)
    one.load()
    set_free(0)
    assert one.is_enough()
    assert one.drop()
    assert not one.drop()
    assert not one.is_enough()
    set_free(BALLAST_BYTES // 2)
    assert one.is_enough()


# --- failing, slow ------------------------------------------------------------
@pytest.mark.parametrize("order", ["fail_sync", "fail_write"])
def test_a_failing_disk_is_told_from_a_full_one(bench, order):
    writer = bench.writer()
    bench.open(writer)
    before = bench.commit(writer)
    bench.faults[order] = 1
    with pytest.raises(DiskFailed, match=DATABASE_NAME):
        bench.commit(writer)
    assert bench.faults["failed"] == 1
    writer.close()
    bench.open(bench.writer())
    assert before in bench.there()


def test_the_nth_call_fails_and_no_other(bench):
    writer = bench.writer()
    bench.open(writer)
    bench.commit(writer)  # It syncs the log's new head as well.
    bench.faults["fail_sync"] = 3
    bench.commit(writer)
    bench.commit(writer)
    with pytest.raises(DiskFailed):
        bench.commit(writer)
    assert bench.faults["fail_sync"] == 0


def test_a_slow_sync_is_slow_and_nothing_else(bench):
    writer = bench.writer()
    bench.open(writer)
    bench.commit(writer)
    bench.faults["slow_sync_ms"] = 1
    bench.commit(writer)
    assert bench.faults.counts()["slowed"] == 1
    writer.close()


def test_a_failing_checkpoint_ends_the_writer(bench):
    writer = bench.writer()
    bench.open(writer)
    for _ in range(12):
        bench.commit(writer, 100_000)
    bench.faults["fail_write"] = 1
    with pytest.raises(DiskFailed):
        writer.maybe_checkpoint(idle=True)
    writer.close()
    assert len(bench.there()) == 12


def test_the_system_is_left_as_it_was():
    assert not [name for name in apsw.vfs_names() if name.startswith("faulty-")]
