"""The witness: what a damaged, shortened, replaced or deleted store is recognised by."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perdure.core.chain import GENESIS, next_hash
from perdure.core.change import Change, StoredEvent
from perdure.core.state import Execution
from perdure.store import witness
from perdure.store.protocol import StoreBehind, StoreError
from perdure.store.room import BALLAST_NAME
from perdure.store.sqlite import DATABASE_NAME, SqliteReader, SqliteWriter
from perdure.store.witness import SLOT_BYTES, WITNESS_NAME, Seen, Witness

LOG_NAME = f"{DATABASE_NAME}-wal"
FILES = (DATABASE_NAME, LOG_NAME, f"{DATABASE_NAME}-shm", WITNESS_NAME)


def wrote(data_dir: Path, commits: int, mark: bytes = b"a") -> None:
    """A store with so many more commits, as the SIGKILL of its writer leaves it: all in the log."""
    other = data_dir.with_name("of-the-writer")
    shutil.copytree(data_dir, other) if data_dir.exists() else other.mkdir()
    writer = SqliteWriter(other)
    opened = writer.open_epoch("history.1", 1_000, "boot", 0)
    n, link = opened.n, opened.last_hash
    for _ in range(commits):
        n, before, body = n + 1, link, mark * 500
        link = next_hash(before, body)
        name = f"{mark.decode()}{n}"
        event = StoredEvent(name, 1, 1_000, "WorkflowStarted", b"e" * 500)
        started = [Execution(name, "T", "q", 1_000, None, b"")]
        writer.commit(
            Change(n, opened.epoch, 1_000, before, link, body, started=started, events=[event])
        )
    shutil.rmtree(data_dir, ignore_errors=True)
    shutil.copytree(other, data_dir)
    writer.close()
    shutil.rmtree(other)


def refusal(data_dir: Path) -> str:
    """Why the store is not opened; that it changes nothing is checked as well."""
    before = {path.name: path.read_bytes() for path in data_dir.iterdir() if path.name in FILES}
    with pytest.raises(StoreBehind) as caught:
        SqliteWriter(data_dir).open_epoch("history.2", 1_000, "boot", 0)
    after = {path.name: path.read_bytes() for path in data_dir.iterdir() if path.name in FILES}
    for name in (DATABASE_NAME, LOG_NAME, WITNESS_NAME):
        assert (after.get(name) or b"") == (before.get(name) or b""), f"{name} was changed"
    return str(caught.value)


def reopened(data_dir: Path) -> int:
    """The number of the epoch's commit."""
    writer = SqliteWriter(data_dir)
    n = writer.open_epoch("history.2", 1_000, "boot", 0).n
    writer.close()
    return n


# --- what it finds -----------------------------------------------------------
def test_a_store_that_was_killed_is_whole(tmp_path):
    wrote(tmp_path / "data", 20)
    assert [one.n for one in witness.read(tmp_path / "data")] == [21, 20]
    assert reopened(tmp_path / "data") == 22


def test_one_flipped_bit_in_the_middle_of_the_log_refuses_to_start(tmp_path):
    data = tmp_path / "data"
    wrote(data, 50)
    log = data / LOG_NAME
    raw = bytearray(log.read_bytes())
    raw[raw.rindex(b"a" * 500) // 2] ^= 1
    log.write_bytes(raw)
    (data / f"{DATABASE_NAME}-shm").unlink()  # As after a power loss.
    said = refusal(data)
    assert "commit 51 was there" in said
    assert f"perdure restore SRC --data {data}" in said
    assert "\n" not in said


def test_whatever_bit_of_the_log_is_flipped_no_commit_is_missed_silently(tmp_path):
    data, hurt = tmp_path / "data", tmp_path / "hurt"
    wrote(data, 30)
    raw = (data / LOG_NAME).read_bytes()
    end = raw.rindex(b"a" * 100)  # Behind it lies what the log was stretched to.
    refused = 0
    for at in range(0, end, end // 40):
        shutil.copytree(data, hurt)
        flipped = bytearray(raw)
        flipped[at] ^= 1 << at % 8
        (hurt / LOG_NAME).write_bytes(flipped)
        (hurt / f"{DATABASE_NAME}-shm").unlink()
        try:
            assert reopened(hurt) == 32, f"byte {at}: commits are missing"
        except StoreBehind:
            refused += 1
        shutil.rmtree(hurt)
    assert refused > 35


def test_a_deleted_log_refuses_to_start(tmp_path):
    data = tmp_path / "data"
    wrote(data, 20)
    (data / LOG_NAME).unlink()
    (data / f"{DATABASE_NAME}-shm").unlink()
    assert "commit 21 was there" in refusal(data)


def test_a_deleted_database_is_not_taken_for_a_new_store(tmp_path):
    data = tmp_path / "data"
    wrote(data, 20)
    for name in FILES[:3]:
        (data / name).unlink()
    assert "ends at commit 0, but commit 21 was there" in refusal(data)
    assert not (data / DATABASE_NAME).exists()


def test_an_older_copy_put_back_refuses_to_start(tmp_path):
    data = tmp_path / "data"
    wrote(data, 5)
    shutil.copytree(data, tmp_path / "yesterday")
    wrote(data, 10)
    for name in FILES[:3]:
        shutil.copy(tmp_path / "yesterday" / name, data / name)
    assert "ends at commit 6, but commit 17 was there: 11 commits are lost" in refusal(data)


def test_another_store_of_the_same_length_or_longer_refuses_to_start(tmp_path):
    data, other = tmp_path / "data", tmp_path / "other"
    for length in (20, 30):
        wrote(data, 20)
        wrote(other, length, b"b")
        for name in FILES[:3]:
            shutil.copy(other / name, data / name)
        assert "is not the commit 21 that was there" in refusal(data)
        shutil.rmtree(data)
        shutil.rmtree(other)


def test_a_last_commit_that_is_not_what_its_hash_says_refuses_to_start(tmp_path):
    data = tmp_path / "data"
    wrote(data, 5)
    reopened(data)
    (data / LOG_NAME).unlink()  # All is in the database now.
    path = data / DATABASE_NAME
    path.write_bytes(path.read_bytes().replace(b"history.2", b"History.2"))
    assert "commit 7, the last" in refusal(data)


# --- what it bears -----------------------------------------------------------
@pytest.mark.parametrize("slot", [0, 1])
def test_one_unreadable_slot_is_ignored(tmp_path, slot):
    data = tmp_path / "data"
    wrote(data, 20)
    raw = bytearray((data / WITNESS_NAME).read_bytes())
    raw[slot * SLOT_BYTES + 20] ^= 1
    (data / WITNESS_NAME).write_bytes(raw)
    assert [one.n for one in witness.read(data)] == [21 - (slot == 1)]
    assert reopened(data) == 22


def test_a_witness_of_which_nothing_can_be_read_refuses_to_start(tmp_path):
    data = tmp_path / "data"
    wrote(data, 2)
    (data / WITNESS_NAME).write_bytes(b"\1" * 2 * SLOT_BYTES)
    assert "witness" in refusal(data)


def test_a_store_of_an_earlier_version_has_none_and_gets_one(tmp_path):
    data = tmp_path / "data"
    wrote(data, 2)
    (data / WITNESS_NAME).unlink()
    assert reopened(data) == 4
    assert witness.read(data)[0].n == 4


def test_a_witness_behind_the_store_is_what_a_power_loss_leaves(tmp_path):
    data = tmp_path / "data"
    wrote(data, 2)
    early = (data / WITNESS_NAME).read_bytes()
    wrote(data, 5)
    (data / WITNESS_NAME).write_bytes(early)
    assert reopened(data) == 10
    reader = SqliteReader(data)
    assert witness.read(data)[0] == Seen(10, reader.commits(9, 1)[0].hash)


# --- the file ----------------------------------------------------------------
def test_the_slots_take_turns(tmp_path):
    one = Witness(tmp_path)
    for n in range(1, 6):
        one(n, bytes([n]) * 32)
        newest = witness.read(tmp_path)
        assert [seen.n for seen in newest] == [n, n - 1][: min(n, 2)]
        assert newest[0].hash == bytes([n]) * 32
    one.close()
    one.close()
    assert (tmp_path / WITNESS_NAME).stat().st_size == 2 * SLOT_BYTES
    assert (tmp_path / WITNESS_NAME).stat().st_mode & 0o777 == 0o600


def test_a_reset_forgets_what_was_seen(tmp_path):
    Witness(tmp_path)(9, b"x" * 32)
    witness.reset(tmp_path, Seen(4, b"y" * 32))
    assert witness.read(tmp_path) == [Seen(4, b"y" * 32)]
    witness.reset(tmp_path, None)
    assert witness.read(tmp_path) == []


def test_a_pruned_commit_cannot_be_compared(tmp_path):
    seen = [Seen(3, b"x" * 32)]
    witness.check(tmp_path, seen, Seen(9, b"y" * 32), lambda n: None)
    with pytest.raises(StoreError):
        witness.check(tmp_path, seen, Seen(9, b"y" * 32), lambda n: GENESIS)


def test_a_store_that_is_gone_together_with_its_witness_is_missed_by_its_ballast(tmp_path):
    data = tmp_path / "data"
    writer = SqliteWriter(data)
    writer.reserve(1)
    writer.open_epoch("history.1", 1_000, "boot", 0)
    writer.is_short()  # Has the ballast made, as history does.
    writer.close()
    assert (data / BALLAST_NAME).exists()
    for name in FILES:
        (data / name).unlink(missing_ok=True)
    said = refusal(data)
    assert "there was a store" in said
    assert "restore a backup" in said
    assert "delete the whole directory" in said
    assert not (data / DATABASE_NAME).exists()
    (data / BALLAST_NAME).unlink()
    assert reopened(data) == 1
