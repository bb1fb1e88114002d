"""A backup or a restore that is SIGKILLed before any of its steps on the disk: nothing half done,
nothing lost, and it can be run again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import local, workflow
from perdure.store import backup, restore
from perdure.store.protocol import StoreError
from perdure.store.sqlite import DATABASE_NAME, SqliteReader, SqliteWriter
from perdure.testing import LocalEngine

pytestmark = pytest.mark.process

# Does the same work again and again, each time in a child that dies one step later, until one comes
# to the end. A step is what changes names or makes files; what lies between two is SQLite's.
KILLED = """
import json, os, shutil, signal, sys
from pathlib import Path
from perdure.store import backup, restore

what, cases, original, copy = sys.argv[1], *map(Path, sys.argv[2:])
CHANGES = {"os.rename", "os.remove", "os.mkdir", "shutil.copyfile"}

def die_before(step):
    left = step
    def look(event, args):
        nonlocal left
        makes = event == "open" and args[2] is not None and args[2] & os.O_CREAT
        if event in CHANGES or makes:
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
    sys.addaudithook(look)

for step in range(100):
    case = cases / str(step)
    shutil.copytree(original, case / "data")
    child = os.fork()
    if not child:
        die_before(step)
        if what == "backup":
            backup.backup(case / "data", case / "copy.db")
        else:
            restore.restore(case / "data", copy, "first")
        os._exit(0)
    if not os.waitpid(child, 0)[1]:
        print(json.dumps(step))
        break
"""


@workflow.define
async def waits() -> None:
    await workflow.receive("never").get()


class Kept:
    """Stands where LocalEngine makes its store in memory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: list[SqliteWriter | SqliteReader] = []

    def writer(self) -> SqliteWriter:
        self._open.append(SqliteWriter(self._directory))
        return self._open[-1]

    def reader(self) -> SqliteReader:
        self._open.append(SqliteReader(self._directory))
        return self._open[-1]

    def close(self) -> None:
        while self._open:
            self._open.pop().close()


@pytest.fixture
def stores(tmp_path, monkeypatch):
    """A store with the workflows w1 and w2, and a copy of it that was made before w2 came."""
    store = Kept(tmp_path / "data")
    monkeypatch.setattr(local, "MemoryStore", lambda: store)
    engine = LocalEngine([waits])
    engine.client.start_workflow(waits, workflow_id="w1")
    backup.backup(tmp_path / "data", tmp_path / "copy.db")
    engine.client.start_workflow(waits, workflow_id="w2")
    store.close()
    return tmp_path / "data", tmp_path / "copy.db"


def killed_at_each_step(what: str, stores: tuple[Path, Path], cases: Path) -> list[Path]:
    """The directories in which it was killed, and as the last the one in which it was not."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, what, str(cases), *map(str, stores)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [cases / str(step) for step in range(json.loads(done.stdout) + 1)]


def ids(data: Path) -> set[str]:
    """The workflows of the store, if a node may start on it."""
    writer = SqliteWriter(data)
    try:
        writer.open_epoch("history.x", 1_000, "boot", 0)
        return {name for name in ("w1", "w2") if writer.load(name) is not None}
    finally:
        writer.close()


def test_a_backup_that_is_killed_leaves_a_whole_copy_or_none_and_can_be_run_again(stores, tmp_path):
    cases = killed_at_each_step("backup", stores, tmp_path / "cases")
    assert len(cases) > 2
    for case in cases:
        copy = case / "copy.db"
        if copy.exists():
            assert backup.examine(copy).workflows == 2
        else:
            assert backup.backup(case / "data", copy).workflows == 2
        assert {path.name for path in case.iterdir()} == {"data", "copy.db"}
        assert ids(case / "data") == {"w1", "w2"}
    assert (cases[-1] / "copy.db").exists()


def test_a_restore_that_is_killed_lets_the_old_store_start_or_none_and_can_be_run_again(
    stores, tmp_path
):
    cases = killed_at_each_step("restore", stores, tmp_path / "cases")
    assert len(cases) > 5
    found = []
    for case in cases:
        data = case / "data"
        was = case / "was"
        shutil.copytree(data, was)  # The start of a node must not decide what a restore finds.
        try:
            found.append(ids(was))
        except StoreError:
            found.append(set())
        restore.restore(data, stores[1], "second")
        assert ids(data) == {"w1"}
        assert "w2" in {name for old in data.glob("aside/*") for name in kept_in(old)}
    assert found[0] == {"w1", "w2"}
    assert found[-1] == {"w1"}
    assert set() in found, "where the files are on their way, no node starts"


def kept_in(directory: Path) -> set[str]:
    """The workflows of the store that was put aside, if it is one."""
    if not (directory / DATABASE_NAME).exists():
        return set()
    with backup.opened(directory / DATABASE_NAME) as connection:
        return {name for (name,) in connection.execute("SELECT workflow_id FROM executions")}
