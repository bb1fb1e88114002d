"""The outbox in PostgreSQL: with psycopg, and a server that PERDURE_TEST_POSTGRES names."""

from __future__ import annotations

import os
import threading
import time

import pytest

from perdure import errors, workflow
from perdure.outbox import PostgresOutbox, postgres
from perdure.outbox.drain import KEEP_DONE_MS, Drain
from perdure.outbox.postgres import PostgresSource
from perdure.outbox.table import Trouble
from perdure.testing import LocalEngine

URL = os.environ.get("PERDURE_TEST_POSTGRES", "")
psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.skipif(not URL, reason="PERDURE_TEST_POSTGRES names no server")


@workflow.define
async def collect(count: int) -> list:
    box = workflow.receive("item")
    return [await box.get() for _ in range(count)]


@pytest.fixture
def db():
    with psycopg.connect(URL) as db:
        db.execute("DROP TABLE IF EXISTS perdure_outbox, orders")
        db.execute("CREATE TABLE orders (id TEXT)")
        db.commit()
        PostgresOutbox(db).create_table()
        PostgresOutbox(db).create_table()
        db.commit()
        yield db


@pytest.fixture
def source(db):
    source = PostgresSource(URL, exclusive=True)
    yield source
    source.close()


@pytest.fixture
def engine():
    return LocalEngine([collect])


def states(db):
    found = dict(db.execute("SELECT workflow_id, state FROM perdure_outbox ORDER BY seq"))
    db.commit()
    return found


def test_each_committed_row_is_one_start_and_none_of_a_transaction_that_was_rolled_back(
    db, source, engine
):
    box = PostgresOutbox(db)
    for name, end in (("a", db.rollback), ("b", db.commit), ("c", db.rollback)):
        db.execute("INSERT INTO orders VALUES (%s)", (name,))
        box.start_workflow(collect, 1, workflow_id=name)
        box.signal_workflow(name, "item", {"of": name, "raw": b"\x00\xff"})
        end()
    for _ in range(2):
        Drain(source, engine.client.call_many).sweep()
    assert states(db) == {"b": "done"}
    engine.run_until_idle()
    assert engine.client.result("b") == [{"of": "b", "raw": b"\x00\xff"}]


def test_what_a_node_refuses_stays_in_the_row(db, source, engine):
    PostgresOutbox(db).signal_workflow("nobody", "item")
    db.commit()
    Drain(source, engine.client.call_many).sweep()
    [entry] = source.entries("failed", 10)
    assert (entry.workflow_id, entry.code) == ("nobody", "NOT_FOUND")
    assert source.retry(entry.id)
    assert states(db) == {"nobody": "pending"}


def test_done_rows_are_deleted_after_a_day(db, source, engine):
    PostgresOutbox(db).start_workflow(collect, 0, workflow_id="w")
    db.commit()
    Drain(source, engine.client.call_many).sweep()
    later = Drain(
        source, engine.client.call_many, wall=lambda: int(time.time() * 1e3) + 2 * KEEP_DONE_MS
    )
    later.sweep()
    assert states(db) == {}


def test_a_commit_is_heard_before_one_would_look_by_oneself(db, source, monkeypatch):
    monkeypatch.setattr(postgres, "LOOK_MS", 600_000)
    PostgresOutbox(db).start_workflow(collect, 0, workflow_id="w")
    threading.Timer(0.1, db.commit).start()
    source.wait(600_000, lambda ms: False)


def test_without_a_transaction_it_is_refused(db):
    db.autocommit = True
    with pytest.raises(errors.FailedPrecondition, match="begin one first"):
        PostgresOutbox(db).start_workflow(collect, 0, workflow_id="w")
    with db.transaction():
        PostgresOutbox(db).start_workflow(collect, 0, workflow_id="w")
    assert states(db) == {"w": "pending"}


def test_one_outbox_is_drained_by_one_node(source):
    with pytest.raises(Trouble, match="another node"):
        PostgresSource(URL, exclusive=True)


def test_what_is_wrong_with_the_database_is_told(db, source):
    db.execute("DROP TABLE perdure_outbox")
    db.commit()
    with pytest.raises(Trouble, match="no table perdure_outbox yet"):
        source.pending(0, 1)
    with pytest.raises(Trouble, match=r"failed|refused"):
        PostgresSource("postgresql://127.0.0.1:1/absent")


def test_a_connection_that_the_server_ends_is_trouble_and_a_new_one_goes_on(db, source, engine):
    PostgresOutbox(db).start_workflow(collect, 0, workflow_id="w")
    db.commit()
    db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure'"
    )
    db.commit()
    drain = Drain(source, engine.client.call_many)
    with pytest.raises(Trouble):
        drain.sweep()
    drain.source = PostgresSource(URL)
    drain.sweep()
    drain.source.close()
    assert states(db) == {"w": "done"}
