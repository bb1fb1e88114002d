"""Backups are whole or absent; a restore puts one in place and loses no file."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import apsw
import pytest

from perdure import activity, local, workflow
from perdure.activity import NonRetryable
from perdure.effects import SqliteEffects
from perdure.store import backup, restore, sqlite_schema, witness
from perdure.store.protocol import StoreBehind, StoreError
from perdure.store.sqlite import DATABASE_NAME, SqliteReader, SqliteWriter
from perdure.store.witness import WITNESS_NAME
from perdure.testing import LocalEngine


class OnDisk:
    """Stands where LocalEngine makes its store in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.current: SqliteWriter | None = None
        self.readers: list[SqliteReader] = []

    def writer(self) -> SqliteWriter:
        self.close()
        self.current = SqliteWriter(self.directory)
        return self.current

    def reader(self) -> SqliteReader:
        self.readers.append(SqliteReader(self.directory))
        return self.readers[-1]

    def close(self) -> None:
        while self.readers:
            self.readers.pop().close()
        if self.current is not None:
            self.current.close()
            self.current = None


class Shop:
    """An engine on a disk whose activity has an effect."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data = directory / "data"
        self.ledger = directory / "effects.db"
        self.sink = SqliteEffects(self.ledger)
        self.sink.applied()
        store = self.store = OnDisk(self.data)
        monkeypatch.setattr(local, "MemoryStore", lambda: store)
        sink = self.sink

        @activity.define(name="charge")
        def charge(fails: bool) -> str:
            sink.apply_once(fn=lambda: "receipt", token=activity.task_token())
            if fails:
                raise NonRetryable("Never", "after the effect")
            return "receipt"

        @workflow.define(name="order")
        async def order(fails: bool = False) -> str | None:
            try:
                return await workflow.execute_activity(charge, fails, activity_id="charge")
            except workflow.ActivityFailed:
                return None

        @activity.define(name="later")
        def later() -> None:
            sink.apply_once(fn=lambda: None, token=activity.task_token())
            raise activity.CompleteLater

        @workflow.define(name="patient")
        async def patient() -> None:
            enough = workflow.receive("enough")
            charged = workflow.start_activity(later, activity_id="charge")
            await enough.get()
            charged.cancel()
            await enough.get()

        @workflow.define(name="twice")
        async def twice(run: int = 1) -> None:
            await workflow.execute_activity(charge, False, activity_id="charge")
            if run == 1:
                workflow.continue_as_new(2)

        self.engine = LocalEngine([order, patient, twice], [charge, later])

    def order(self, *workflow_ids: str, fails: bool = False) -> None:
        for workflow_id in workflow_ids:
            self.engine.client.start_workflow("order", fails, workflow_id=workflow_id)
        self.engine.run_until_idle()

    def stop(self) -> None:
        self.store.close()
        self.sink.close()


@pytest.fixture
def shop(tmp_path, monkeypatch):
    found = Shop(tmp_path, monkeypatch)
    yield found
    found.stop()


def ids(data_dir: Path) -> set[str]:
    connection = apsw.Connection(str(data_dir / DATABASE_NAME))
    found = {row[0] for row in connection.execute("SELECT workflow_id FROM executions")}
    connection.close()
    return found


def started(data_dir: Path) -> int:
    writer = SqliteWriter(data_dir)
    n = writer.open_epoch("history.next", 1, "boot", 1).n
    writer.close()
    return n


# --- backup ------------------------------------------------------------------
def test_a_backup_of_a_store_in_use_is_one_file_that_stands_for_itself(shop, tmp_path):
    shop.order("w1", "w2")
    newest = shop.store.reader().newest()
    copied = backup.backup(shop.data, tmp_path / "copy.db")
    shop.order("w3")  # Nothing was in its way.
    assert (copied.n, copied.workflows, copied.base_n) == (newest, 2, 0)
    assert copied == backup.examine(tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.glob("copy*")) == ["copy.db"]
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    assert copied.bytes == (tmp_path / "copy.db").stat().st_size


def test_a_backup_never_takes_the_place_of_a_file(shop, tmp_path):
    (tmp_path / "copy.db").write_bytes(b"mine")
    with pytest.raises(StoreError, match="is there already"):
        backup.backup(shop.data, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_bytes() == b"mine"


def test_a_damaged_store_gives_no_backup(shop, tmp_path):
    shop.order("w1")
    shop.store.close()
    connection = apsw.Connection(str(shop.data / DATABASE_NAME))
    connection.execute("UPDATE commits SET body = CAST(body || x'00' AS BLOB) WHERE n = 2")
    connection.close()
    with pytest.raises(StoreError, match="commit 2 does not follow commit 1"):
        backup.backup(shop.data, tmp_path / "copy.db")
    assert list(tmp_path.glob("copy*")) == []


@pytest.mark.parametrize("what", ["text", "empty", "nothing"])
def test_what_is_no_backup_is_refused(shop, tmp_path, what):
    source = tmp_path / "source.db"
    if what == "text":
        source.write_text("not a database" * 100)
    elif what == "empty":
        source.write_bytes(b"")
    before = ids(shop.data)
    shop.store.close()
    with pytest.raises(StoreError, match=r"source\.db"):
        restore.restore(shop.data, source, "now")
    assert ids(shop.data) == before
    assert started(shop.data) > 1


# --- restore -----------------------------------------------------------------
def test_a_restore_installs_the_copy_and_keeps_what_was_there(shop, tmp_path):
    shop.order("w1")
    backup.backup(shop.data, tmp_path / "copy.db")
    shop.order("w2", "w3")
    seen = shop.store.reader().newest()
    shop.store.close()
    done = restore.restore(shop.data, tmp_path / "copy.db", "now")
    assert ids(shop.data) == {"w1"}
    assert (done.seen, done.lost) == (seen, seen - done.store.n)
    assert [one.n for one in witness.read(shop.data)] == [done.store.n]
    aside = shop.data / "aside" / "now"
    assert done.aside == str(aside)
    assert ids(aside) == {"w1", "w2", "w3"}
    assert witness.read(aside)[0].n == seen
    assert started(shop.data) == done.store.n + 1


def test_tokens_of_the_time_that_is_lost_are_not_known_after_a_restore(shop, tmp_path):
    shop.order("w1")
    key = shop.store.reader().key()
    backup.backup(shop.data, tmp_path / "copy.db")
    shop.store.close()
    restore.restore(shop.data, tmp_path / "copy.db", "now")
    reader = SqliteReader(shop.data)
    assert reader.key() != key
    reader.close()


def test_the_directory_of_another_store_will_do_as_a_source(shop, tmp_path):
    shop.order("w1")
    shop.store.close()
    target = tmp_path / "new"
    target.mkdir()
    done = restore.restore(target, shop.data, "now")
    assert ids(target) == {"w1"}
    assert (done.seen, done.lost) == (None, 0)
    assert started(target) == done.store.n + 1


def test_a_store_is_not_restored_from_itself(shop):
    shop.store.close()
    with pytest.raises(StoreError, match="--accept"):
        restore.restore(shop.data, shop.data / DATABASE_NAME, "now")


@pytest.mark.parametrize("moves", range(3))
def test_a_restore_that_was_killed_lets_no_node_start_and_can_be_run_again(
    shop, tmp_path, monkeypatch, moves
):
    shop.order("w1")
    backup.backup(shop.data, tmp_path / "copy.db")
    shop.order("w2")
    shop.store.close()
    (shop.data / WITNESS_NAME).unlink()  # Even where there was none.
    done: list[str] = []
    replace = restore.os.replace

    def fragile(source: Path, dest: Path) -> None:
        in_restore = Path(dest).parent.name == "first" or Path(source).name == restore.FRESH
        if in_restore and len(done) == moves:
            raise KeyboardInterrupt
        replace(source, dest)
        done.extend([str(dest)] * in_restore)

    monkeypatch.setattr(restore.os, "replace", fragile)
    with pytest.raises(KeyboardInterrupt):
        restore.restore(shop.data, tmp_path / "copy.db", "first")
    monkeypatch.undo()
    with pytest.raises(StoreBehind, match="was interrupted: run it again"):
        started(shop.data)
    restore.restore(shop.data, tmp_path / "copy.db", "second")
    assert ids(shop.data) == {"w1"}
    assert started(shop.data) > 1


# --- accepting ---------------------------------------------------------------
def shortened(shop: Shop, tmp_path: Path) -> int:
    """A store that has lost the commits of its log; how many commits it had."""
    shop.order("w1")
    shop.store.close()  # All is in the database.
    shutil.copytree(shop.data, tmp_path / "early")
    shop.store.writer()
    shop.engine.restart()
    shop.order("w2")
    n = shop.store.reader().newest()
    shop.store.close()
    for path in shop.data.glob(f"{DATABASE_NAME}*"):
        path.unlink()
    for path in (tmp_path / "early").glob(f"{DATABASE_NAME}*"):
        shutil.copy(path, shop.data)
    with pytest.raises(StoreBehind):
        started(shop.data)
    return n


def test_a_shorter_store_can_be_accepted_and_only_so(shop, tmp_path):
    seen = shortened(shop, tmp_path)
    done = restore.accept(shop.data, "now")
    assert (done.seen, done.lost) == (seen, seen - done.store.n)
    assert ids(shop.data) == {"w1"}
    assert witness.read(shop.data / "aside" / "now")[0].n == seen
    assert started(shop.data) == done.store.n + 1


def test_a_store_that_lost_nothing_is_left_alone(shop):
    shop.order("w1")
    shop.store.close()
    before = {path.name: path.read_bytes() for path in shop.data.iterdir()}
    done = restore.accept(shop.data, "now")
    assert (done.lost, done.aside) == (0, None)
    after = {path.name: path.read_bytes() for path in shop.data.iterdir()}
    assert {name for name in before if before[name] != after.get(name)} <= {f"{DATABASE_NAME}-shm"}


def test_there_must_be_a_store_to_accept(tmp_path):
    with pytest.raises(StoreError, match="no store"):
        restore.accept(tmp_path, "now")


# --- effects -----------------------------------------------------------------
def test_effects_that_the_store_does_not_know_are_listed_with_why(shop, tmp_path):
    shop.order("w1", "w/1#%")
    shop.order("failed", fails=True)
    shop.engine.client.start_workflow("order", workflow_id="begun")
    shop.engine.run_workflow_tasks()
    shop.engine.client.start_workflow("order", workflow_id="not-run")
    backup.backup(shop.data, tmp_path / "copy.db")
    shop.engine.run_until_idle()
    shop.order("w2")
    shop.sink.apply_once("mine", lambda: None, attempt=1)
    shop.store.close()
    done = restore.restore(shop.data, tmp_path / "copy.db", "now")
    assert done.lost > 0
    found = list(restore.unknown_effects(shop.data, [shop.ledger]))
    assert {one.key: one.why for one in found} == {
        "failed/charge": "given up",
        "begun/charge": "not completed",
        "not-run/charge": "not scheduled",
        "w2/charge": "no workflow",
        "mine": "no key",
    }
    assert {one.ledger for one in found} == {str(shop.ledger)}


def test_an_effect_that_nobody_will_ask_for_again_is_given_up(shop):
    client = shop.engine.client
    for name in ("one that ended", "one that goes on", "one that is taken back"):
        client.start_workflow("patient", workflow_id=name)
    shop.engine.run_until_idle(skip_time=False)
    client.terminate_workflow("one that ended")
    for name in ("one that goes on", "one that is taken back"):
        client.signal_workflow(name, "enough")
    shop.engine.run_until_idle(skip_time=False)
    client.reset_workflow("one that is taken back", 1)
    shop.store.close()
    found = restore.unknown_effects(shop.data, [shop.ledger])
    assert {one.key: one.why for one in found} == {
        "one that ended/charge": "given up",
        "one that goes on/charge": "given up",
        "one that is taken back/charge": "not scheduled",
    }


def test_an_effect_of_a_later_run_is_looked_for_in_that_run(shop, tmp_path):
    client = shop.engine.client
    client.start_workflow("twice", workflow_id="w")
    shop.engine.run_workflow_tasks()
    shop.engine.run_activities()
    shop.engine.run_workflow_tasks()  # The first run has ended, the second waits for its charge.
    backup.backup(shop.data, tmp_path / "copy.db")
    shop.engine.run_until_idle()
    shop.store.close()
    restore.restore(shop.data, tmp_path / "copy.db", "now")
    found = list(restore.unknown_effects(shop.data, [shop.ledger]))
    assert {one.key: one.why for one in found} == {"w#2/charge": "not completed"}


def test_an_effect_that_a_reset_has_taken_back_is_one_that_the_store_would_ask_for(shop):
    shop.order("w")
    shop.engine.client.reset_workflow("w", 2)
    shop.store.close()
    (found,) = restore.unknown_effects(shop.data, [shop.ledger])
    assert (found.key, found.why) == ("w/charge", "not completed")


def test_a_restored_store_has_schedules_pauses_and_what_is_more_than_plain(shop, tmp_path):
    client = shop.engine.client
    client.pause_queue("mail", "no quota")
    client.create_schedule("nightly", "order", cron="0 3 * * *")
    client.start_workflow("order", workflow_id="w", search_attributes={"shop": 7})
    client.pause_workflow("w", "a bad address")
    before = [client.list_pauses(), client.list_schedules(), client.describe_workflow("w")]
    backup.backup(shop.data, tmp_path / "copy.db")
    shop.order("later")
    shop.store.close()
    restore.restore(shop.data, tmp_path / "copy.db", "now")
    shop.store.writer()
    shop.engine.restart()
    assert [client.list_pauses(), client.list_schedules(), client.describe_workflow("w")] == before
    assert [one.workflow_id for one in client.list_workflows(attributes={"shop": 7}).workflows] == [
        "w"
    ]


def test_a_file_that_is_no_ledger_is_refused(shop, tmp_path):
    other = tmp_path / "other.db"
    apsw.Connection(str(other)).execute("CREATE TABLE t (x)")
    with pytest.raises(StoreError, match="no ledger"):
        restore.check_ledgers([other])
    with pytest.raises(StoreError, match="there is no ledger"):
        restore.check_ledgers([tmp_path / "absent.db"])


def test_a_backup_of_a_newer_format_is_refused(shop, tmp_path):
    backup.backup(shop.data, tmp_path / "copy.db")
    connection = apsw.Connection(str(tmp_path / "copy.db"))
    newer = sqlite_schema.FORMAT_VERSION + 1
    connection.execute("UPDATE meta SET value = ? WHERE name = 'format'", (newer,))
    connection.close()
    with pytest.raises(StoreError, match=f"has format {newer}"):
        restore.restore(shop.data, tmp_path / "copy.db", "now")
