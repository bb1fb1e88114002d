"""The table behind searches, over versions that do not know it."""

from __future__ import annotations

import sqlite3

import pytest

from perdure.store.protocol import WorkflowFilter
from perdure.store.sqlite import SqliteReader
from tests.contract.conftest import Line, SqliteStore
from tests.contract.test_store_found_by import found, one


def database(tmp_path) -> sqlite3.Connection:
    return sqlite3.connect(tmp_path / "perdure.db", isolation_level=None)


def rows(tmp_path) -> list[tuple[str, str]]:
    connection = database(tmp_path)
    try:
        return list(connection.execute("SELECT name, value FROM found_by ORDER BY name, value"))
    finally:
        connection.close()


@pytest.fixture
def store(tmp_path) -> SqliteStore:
    return SqliteStore(tmp_path)


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_a_store_that_never_had_it_is_searched_all_the_same_and_has_it_from_the_next_start(
    store, tmp_path, monkeypatch, at_once
):
    monkeypatch.setattr("perdure.store.sqlite_found_by.SORTED_AT_ONCE", at_once)
    line = Line(store)
    line.commit(started=[one("w", "p", customer="c", n=1), one("v", customer="d")])
    line.writer.close()
    before = rows(tmp_path)
    connection = database(tmp_path)
    connection.execute("DROP TABLE found_by")
    connection.execute("DELETE FROM meta WHERE name = 'found_by_epoch'")
    connection.close()
    assert found(store, customer="c") == found(store, parent="p") == ["w"]
    Line(store, "history.2").writer.close()
    assert rows(tmp_path) == before
    assert len(before) == 4
    assert found(store, customer="c") == found(store, parent="p") == ["w"]


def test_what_a_version_that_does_not_know_it_has_written_meanwhile_is_found(store, tmp_path):
    Line(store).writer.close()
    # It takes the store over and leaves table and meta as they are.
    other = Line(store, "history.2")
    other.commit(started=[one("w", customer="c")])
    other.writer.close()
    connection = database(tmp_path)
    connection.execute("DELETE FROM found_by")
    connection.execute("UPDATE meta SET value = 1 WHERE name = 'found_by_epoch'")
    connection.close()
    assert found(store, customer="c") == ["w"]
    Line(store, "history.3").writer.close()
    assert rows(tmp_path) == [("attribute customer", "sc")]


def test_a_search_reads_only_what_it_finds(store, tmp_path):
    line = Line(store)
    line.commit(started=[one("w", "p", customer="c")])
    reader = SqliteReader(tmp_path)
    connection = reader._connection()
    queries = []
    connection.exec_trace = lambda _, query, bindings: queries.append((query, bindings)) or True
    reader.list_workflows(WorkflowFilter(parent="p", attributes=(("customer", "c"),)), 5, None)
    reader.list_workflows(
        WorkflowFilter(attributes=(("customer", "c"),), status="Failed"), 5, "AA=="
    )
    connection.exec_trace = None
    plans = [
        [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", bindings)]
        for query, bindings in queries
        if "executions USING" in query
    ]
    assert len(plans) == 2
    for plan in plans:
        assert "SEARCH found_by USING PRIMARY KEY (name=? AND value=?" in plan[0]
        assert not [step for step in plan if step.startswith("SCAN") or "B-TREE" in step]
