"""What stands beside the log about pauses, search attributes and schedules: one thing wrong in a
whole store, found under its number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import apsw
import msgspec
import pytest

from chaos.auditor import AuditReport, audit_data_dir, names
from chaos.auditor.sqlite import DATABASE
from perdure import workflow
from perdure.store.sqlite import SqliteReader, SqliteWriter
from perdure.testing import LocalEngine, ManualClock

MINUTE_MS = 60_000


class Disk:
    """A store in a directory, for an engine that thinks it has one in memory."""

    def __init__(self, directory: Any) -> None:
        self.directory = directory
        self.one: SqliteWriter | None = None

    def writer(self) -> SqliteWriter:
        self.one = SqliteWriter(self.directory)
        return self.one

    def reader(self) -> SqliteReader:
        return SqliteReader(self.directory)


@workflow.define(name="tagged")
async def _tagged() -> None:
    workflow.set_search_attributes({"customer": "c-1", "urgent": True})
    await workflow.wait_condition(lambda: False)


@workflow.define(name="short")
async def _short() -> None:
    return None


class Store:
    """Of an engine with two pauses, a tagged workflow and two schedules, one of them deleted."""

    def __init__(self, directory: Any) -> None:
        self.directory = directory
        self.db = apsw.Connection(str(directory / DATABASE))
        self.db.execute("PRAGMA synchronous = OFF")

    def audit(self) -> AuditReport:
        return audit_data_dir(self.directory)

    def breaks(self, number: int, text: str) -> None:
        found = self.audit().violations
        assert [one.invariant for one in found] == [number], [str(one) for one in found]
        assert text in str(found[0])

    def change(
        self, table: str, key: str, value: str, column: str, with_: Callable[..., Any]
    ) -> None:
        """Have `with_` change what a row says, in place or by what it returns."""
        raw = self.db.execute(f"SELECT {column} FROM {table} WHERE {key} = ?", (value,)).get
        said = msgspec.msgpack.decode(raw)
        made = with_(said)
        body = msgspec.msgpack.encode(said if made is None else made)
        self.db.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (body, value))


@pytest.fixture
def store(tmp_path, monkeypatch) -> Iterator[Store]:
    disk = Disk(tmp_path / "data")
    monkeypatch.setattr("perdure.local.MemoryStore", lambda: disk)
    clock = ManualClock(0)
    engine = LocalEngine([_tagged, _short], [], clock=clock)
    client = engine.client
    client.start_workflow("tagged", workflow_id="w-tagged")
    engine.run_workflow_tasks()
    client.pause_queue("mail", reason="the provider is down")
    client.pause_activity_type("charge", reason="refunds first")
    client.resume_activity_type("charge")
    for name in ("kept", "gone"):
        client.create_schedule(name, "short", every_ms=MINUTE_MS)
    clock.advance_ms(MINUTE_MS)
    engine.run_workflow_tasks()
    clock.advance_ms(2 * MINUTE_MS)
    engine.run_workflow_tasks()
    client.schedule_handle("kept").trigger()
    client.schedule_handle("kept").pause(reason="a holiday")
    client.schedule_handle("gone").delete()
    assert disk.one is not None
    disk.one.close()
    made = Store(disk.directory)
    yield made
    made.db.close()


def test_the_store_is_whole(store):
    report = store.audit()
    assert report.violations == ()
    (count,) = store.db.execute("SELECT count(*) FROM schedules").fetchone()
    assert count == 2


# --- pauses ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("UPDATE gates SET paused = 0 WHERE name = 'mail'", "it is (False, 0, 'the provider is"),
        ("UPDATE gates SET paused = 1 WHERE name = 'charge'", "it is (True, 0, "),
        ("UPDATE gates SET reason = 'a whim' WHERE name = 'mail'", "'a whim'), the log gives"),
        ("UPDATE gates SET since_ms = 7 WHERE name = 'mail'", "it is (True, 7, "),
        ("DELETE FROM gates WHERE name = 'mail'", "the log sets it, the table has no row"),
        ("INSERT INTO gates VALUES ('queue', 'new', 1, 0, '', x'90')", "the log gives None"),
        ("UPDATE gates SET kind = 'queue' WHERE name = 'charge'", "gates, "),
    ],
)
def test_a_row_of_a_pause_that_the_log_does_not_give(store, statement, text):
    store.db.execute(statement)
    found = store.audit().violations
    assert {one.invariant for one in found} == {11}
    assert any(text in str(one) for one in found)


# --- search attributes ------------------------------------------------------------
@pytest.mark.parametrize(
    "attributes", [{}, {"customer": "c-2", "urgent": True}, {"customer": "c-1"}]
)
def test_search_attributes_that_nobody_has_set(store, attributes):
    at = names.MORE.index("attributes")

    def change(more: list[Any]) -> None:
        more[at] = attributes

    store.change("executions", "workflow_id", "w-tagged", "more", change)
    store.breaks(11, "w-tagged: attributes is not what the log gives")


# --- schedules --------------------------------------------------------------------
def field(name: str, value: Any) -> Callable[[list[Any]], None]:
    def change(body: list[Any]) -> None:
        body[names.SCHEDULE.index(name)] = value

    return change


@pytest.mark.parametrize(
    ("name", "value", "number"),
    [
        ("schedule_id", "other", 11),
        ("created_ms", 1, 11),
        ("changed_ms", 1, 11),
        ("next_ms", 5 * MINUTE_MS, 27),
        ("next_ms", None, 27),
        ("paused", False, 11),
        ("reason", "no reason", 11),
        ("running", {"kept-1": 5}, 11),
        ("buffered", [5], 11),
        ("started", 9, 11),
        ("skipped", 9, 11),
        ("missed", 9, 11),
        ("recent", [], 11),
        ("requests", [], 11),
        ("deleted", True, 11),
        ("changed_n", 2, 11),
        ("runs", 0, 11),
    ],
)
def test_a_field_of_a_schedule_that_the_log_does_not_give(store, name, value, number):
    store.change("schedules", "schedule_id", "kept", "body", field(name, value))
    store.breaks(number, f"schedules, kept: {name} is {value!r}, the log gives ")


def test_a_schedule_that_says_something_else_than_was_asked_for(store):
    def every_hour(body: list[Any]) -> None:
        body[names.SCHEDULE.index("spec")][4] = 60 * MINUTE_MS

    store.change("schedules", "schedule_id", "kept", "body", every_hour)
    store.breaks(11, "schedules, kept: spec is ")


@pytest.mark.parametrize(("name", "number"), [("kept", 36), ("gone", 11)])
def test_a_schedule_without_its_row(store, name, number):
    store.db.execute("DELETE FROM schedules WHERE schedule_id = ?", (name,))
    store.breaks(number, f"schedules, {name}: the log has it, the table has not")


def test_a_row_of_a_schedule_that_nobody_has_made(store):
    store.db.execute(
        "INSERT INTO schedules SELECT 'ghost', deleted, body FROM schedules"
        " WHERE schedule_id = 'kept'"
    )
    store.breaks(11, "schedules, ghost: the log has no such schedule")


def test_a_deleted_schedule_that_stands_there_as_if_it_went_on(store):
    store.db.execute("UPDATE schedules SET deleted = 0 WHERE schedule_id = 'gone'")
    store.breaks(11, "schedules, gone: its column says deleted: False; the log does not")


@pytest.mark.parametrize("body", [b"\xc1", msgspec.msgpack.encode(["kept"]), b"\x01"])
def test_a_schedule_that_can_not_be_read(store, body):
    store.db.execute("UPDATE schedules SET body = ? WHERE schedule_id = 'kept'", (body,))
    store.breaks(13, "schedules, kept")
