"""A real node drains the outbox of an application's database, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing

import pytest

from chaos.harness import flat
from perdure.outbox import SqliteOutbox
from tests.process.conftest import until

pytestmark = pytest.mark.process
ROWS = 200


def shown(node):
    """(state, reason) of the one outbox, as `ps` has it."""
    rows = [each for each in flat(node.tree()) if each["kind"] == "outbox"]
    return [(each["state"], each["reason"]) for each in rows]


def count(db, state):
    return db.execute("SELECT count(*) FROM perdure_outbox WHERE state = ?", (state,)).fetchone()[0]


def cli(node, *words):
    command = [sys.executable, "-m", "perdure.cli.main", *words]
    return subprocess.run(
        command, cwd=node.directory, capture_output=True, text=True, check=False, timeout=30
    )


@pytest.fixture
def shop(tmp_path):
    """The application's database, which is not there yet; the node is told of it in its file."""
    (tmp_path / "perdure.toml").write_text('[outbox]\nsqlite = ["app.db"]\n')
    return tmp_path / "app.db"


def test_each_committed_row_is_exactly_one_start_whoever_is_killed(hurt, shop):
    node = hurt(workers=1)
    # There is no database yet: that is told, and nothing else waits for it.
    until(lambda: shown(node) == [("waiting", "the file is not there")], "the reason in ps")
    db = sqlite3.connect(shop)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE orders (id)")
    until(lambda: shown(node)[0][1] == "it has no table perdure_outbox yet", "the next reason")
    committed = set()
    for number in range(ROWS):
        db.execute("INSERT INTO orders VALUES (?)", (number,))
        SqliteOutbox(db).start_workflow("naps", 1, workflow_id=f"order-{number}")
        if number % 2:
            db.rollback()
        else:
            db.commit()
            committed.add(f"order-{number}")
        if number in (40, 90, 140):
            until(lambda: count(db, "done"), "the first row that is done")
            node.kill("outbox" if number != 90 else "gateway")
    # The drainer stands still between the answers and its own note of them, and dies there.
    os.kill(node.pid_of("outbox"), signal.SIGSTOP)
    node.kill("outbox")
    until(lambda: count(db, "done") == len(committed), "all rows done")
    with closing(db), node.client() as client:
        events = client.events(kinds=["WorkflowStarted"], follow=False)
        starts = Counter(event.workflow_id for event in events)
        assert starts == Counter(committed)
        assert {client.result(each, timeout_ms=30_000) for each in committed} == {"awake"}
        assert shown(node) == [("running", None)]


def test_a_database_that_is_locked_or_damaged_or_refuses_stops_no_node(hurt, shop):
    db = sqlite3.connect(shop)
    with db:
        SqliteOutbox(db).start_workflow("naps", 1, workflow_id="first")
    db.execute("PRAGMA locking_mode=EXCLUSIVE")
    db.execute("BEGIN EXCLUSIVE")
    node = hurt(workers=1)
    until(lambda: shown(node) == [("waiting", "database is locked")], "the reason in ps")
    db.commit()
    db.close()
    with node.client() as client, closing(sqlite3.connect(shop)) as db:
        until(lambda: count(db, "done") == 1, "the row done")
        assert client.result("first", timeout_ms=30_000) == "awake"
        with db:
            SqliteOutbox(db).start_workflow("naps", 1, workflow_id="first")
        until(lambda: count(db, "failed") == 1, "the row refused")
        [row] = json.loads(cli(node, "outbox", "list", "--json").stdout)
        assert (row["workflow_id"], row["code"]) == ("first", "ALREADY_EXISTS")
        assert cli(node, "outbox", "retry", "absent").returncode == 5
        assert "pending again" in cli(node, "outbox", "retry", row["id"]).stdout
        until(lambda: count(db, "failed") == 1, "the row refused again")
    shop.write_bytes(b"no database" * 1_000)
    shop.with_name("other.db").write_bytes(b"no database" * 1_000)
    os.replace(shop.with_name("other.db"), shop)
    until(lambda: shown(node) == [("waiting", "file is not a database")], "the reason in ps")
    table = cli(node, "ps").stdout
    assert "waiting: file is not a database" in table
    with node.client() as client:
        client.start_workflow("naps", 1, workflow_id="beside")
        assert client.result("beside", timeout_ms=30_000) == "awake"
