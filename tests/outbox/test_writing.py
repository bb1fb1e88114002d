"""The application's side: a row goes with the transaction that it was written in."""

from __future__ import annotations

import sqlite3

import apsw
import pytest

from perdure import errors, workflow
from perdure.outbox import SqliteOutbox
from perdure.outbox.drain import request_of
from perdure.outbox.table import Row


@workflow.define
async def order(item: str, count: int = 1) -> str:
    return f"{count} {item}"


def opened(path, kind="sqlite3"):
    return apsw.Connection(str(path)) if kind == "apsw" else sqlite3.connect(path)


def rows_of(path):
    with sqlite3.connect(path) as db:
        found = db.execute("SELECT seq, id, op, args FROM perdure_outbox ORDER BY seq").fetchall()
    db.close()
    return [Row(*row) for row in found]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "app.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE orders (id)")
    db.close()
    return path


@pytest.mark.parametrize("kind", ["sqlite3", "apsw"])
def test_a_row_is_there_if_and_only_if_the_transaction_was_committed(path, kind):
    db = opened(path, kind)
    outbox = SqliteOutbox(db)
    for name, verdict in (("a", "ROLLBACK"), ("b", "COMMIT"), ("c", "ROLLBACK"), ("d", "COMMIT")):
        db.execute("BEGIN")
        db.execute("INSERT INTO orders VALUES (?)", (name,))
        outbox.start_workflow(order, "lamp", workflow_id=name)
        db.execute(verdict)
    assert [request_of(row).workflow_id for row in rows_of(path)] == ["b", "d"]
    assert [row[0] for row in db.execute("SELECT id FROM orders")] == ["b", "d"]
    db.close()


def test_sqlite3_begins_the_transaction_itself_unless_it_was_told_not_to(path):
    db = sqlite3.connect(path)
    SqliteOutbox(db).start_workflow(order, "lamp", workflow_id="a")
    assert db.in_transaction
    db.rollback()
    db.close()
    assert rows_of(path) == []


@pytest.mark.parametrize("kind", ["sqlite3", "apsw"])
def test_without_a_transaction_it_is_refused(path, kind):
    db = opened(path, kind)
    if kind == "sqlite3":
        db.isolation_level = None
    with pytest.raises(errors.FailedPrecondition, match="begin one first"):
        SqliteOutbox(db).start_workflow(order, "lamp", workflow_id="a")
    with pytest.raises(errors.FailedPrecondition):
        SqliteOutbox(db).signal_workflow("a", "s")
    db.close()


def test_what_can_not_be_right_is_refused_at_the_call_and_leaves_the_transaction_open(path):
    db = opened(path)
    outbox = SqliteOutbox(db)
    outbox.start_workflow(order, "lamp", workflow_id="good")
    for bad in (
        lambda: outbox.start_workflow(order, "lamp", workflow_id=""),
        lambda: outbox.start_workflow("no name", workflow_id="w"),
        lambda: outbox.start_workflow(order, "x" * 3_000_000, workflow_id="w"),
        lambda: outbox.start_workflow(order, "lamp", workflow_id="w", start_delay_ms=-1),
        lambda: outbox.signal_workflow("w", "no name"),
    ):
        with pytest.raises(errors.InvalidArgument):
            bad()
    assert db.in_transaction
    db.commit()
    db.close()
    assert [request_of(row).workflow_id for row in rows_of(path)] == ["good"]


def test_a_row_is_asked_for_under_its_own_id(path):
    db = opened(path)
    row_id = SqliteOutbox(db).start_workflow(order, "lamp", count=2, workflow_id="a")
    chosen = SqliteOutbox(db).signal_workflow("a", "more", 1, request_id="mine")
    db.commit()
    db.close()
    assert chosen == "mine"
    assert [request_of(row).request_id for row in rows_of(path)] == [row_id, "mine"]


def test_a_program_in_any_language_may_insert_json():
    row = Row(1, "r", "StartWorkflow", b'{"type": "order", "workflow_id": "w", "input": ["lamp"]}')
    args = request_of(row)
    assert (args.type, args.workflow_id, args.request_id) == ("order", "w", "r")
    assert bytes(args.input) == b"\x91\xa4lamp"


@pytest.mark.parametrize("row_id", ["", "x" * 201, "a\nb"])
def test_a_row_whose_id_can_be_no_request_id_is_no_request(row_id):
    with pytest.raises(errors.InvalidArgument, match="request_id"):
        request_of(Row(1, row_id, "StartWorkflow", b'{"type": "t", "workflow_id": "w"}'))


@pytest.mark.parametrize(
    ("op", "args", "told"),
    [
        ("TerminateWorkflow", b'{"workflow_id": "w"}', "StartWorkflow, SignalWorkflow"),
        ("StartWorkflow", b"", "args"),
        ("StartWorkflow", b"not a map", "args"),
        ("StartWorkflow", b'{"type": "t"}', "workflow_id"),
        ("StartWorkflow", b'{"type": "t", "workflow_id": "w", "x": 1}', "x"),
        ("StartWorkflow", b'{"type": "t", "workflow_id": ""}', "workflow_id"),
        ("SignalWorkflow", b'{"workflow_id": "w", "name": 1}', "name"),
        (
            "StartWorkflow",
            b'{"type": "t", "workflow_id": "w", "input": 1' + b"0" * 400 + b"}",
            "args",
        ),
    ],
)
def test_a_row_that_is_no_request_says_what_is_wrong_with_it(op, args, told):
    with pytest.raises(errors.InvalidArgument, match=told):
        request_of(Row(1, "r", op, args))
