"""What a drainer does with the rows of an outbox, whatever happens to it, the node or the file."""

from __future__ import annotations

import sqlite3

import pytest

from perdure import errors, outbox, workflow
from perdure.outbox import SQLITE_SCHEMA, SqliteOutbox
from perdure.outbox.drain import KEEP_DONE_MS, MANY, PAGE_BYTES, STUCK_FIRST_MS, Drain
from perdure.outbox.sqlite import SqliteSource
from perdure.outbox.table import Trouble, last_of
from perdure.testing import LocalEngine


@workflow.define
async def collect(count: int) -> list:
    box = workflow.receive("item")
    return [await box.get() for _ in range(count)]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "app.db")


@pytest.fixture
def db(path):
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")
    yield db
    db.close()


@pytest.fixture
def engine():
    return LocalEngine([collect])


class Clock:
    def __init__(self):
        self.now_ms = 1_000_000

    def __call__(self):
        return self.now_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def source(path, db):
    with db:
        SqliteOutbox(db).create_table()
    source = SqliteSource(path)
    yield source
    source.close()


def states(db):
    return dict(db.execute("SELECT workflow_id, state FROM perdure_outbox ORDER BY seq"))


def started(engine):
    return sorted(it.workflow_id for it in engine.client.list_workflows())


def test_each_committed_row_is_one_start(path, db, engine):
    with db:
        for n in range(3):
            SqliteOutbox(db).start_workflow(collect, 0, workflow_id=f"w{n}")
    assert outbox.drain(path, engine.client) == 3
    assert outbox.drain(path, engine.client) == 0
    assert started(engine) == ["w0", "w1", "w2"]
    assert set(states(db).values()) == {"done"}


def test_a_start_and_the_signals_behind_it_arrive_in_this_order(path, db, engine):
    with db:
        box = SqliteOutbox(db)
        for of in ("a", "b"):
            box.start_workflow(collect, 20, workflow_id=of)
        for n in range(20):
            for of in ("a", "b"):
                box.signal_workflow(of, "item", [of, n])
    outbox.drain(path, engine.client)
    engine.run_until_idle()
    for of in ("a", "b"):
        assert engine.client.result(of) == [[of, n] for n in range(20)]


def test_a_drainer_that_died_before_it_wrote_anything_down_is_no_second_start(
    db, source, engine, clock
):
    with db:
        SqliteOutbox(db).start_workflow(collect, 1, workflow_id="w")
        SqliteOutbox(db).signal_workflow("w", "item", 7)

    class Dead(Exception):
        pass

    def die(*_):
        raise Dead

    end, source.end = source.end, die
    for _ in range(3):
        with pytest.raises(Dead):
            Drain(source, engine.client.call_many, clock=clock, wall=clock).sweep()
    source.end = end
    Drain(source, engine.client.call_many, clock=clock, wall=clock).sweep()
    assert states(db) == {"w": "done"}
    engine.run_until_idle()
    assert engine.client.result("w") == [7]
    kinds = [event.kind for event in engine.client.history("w")]
    assert (kinds.count("WorkflowStarted"), kinds.count("SignalReceived")) == (1, 1)


def test_what_a_node_refuses_stays_in_the_row_for_people_and_holds_nobody_up(
    db, source, engine, clock
):
    engine.client.start_workflow(collect, 0, workflow_id="taken")
    told = []
    with db:
        box = SqliteOutbox(db)
        box.start_workflow(collect, 0, workflow_id="taken")
        box.signal_workflow("nobody", "item", 1)
        db.execute(
            "INSERT INTO perdure_outbox (id, op, workflow_id, name, args, created_ms) "
            "VALUES ('r', 'StartWorkflow', 'odd', 't', 'nonsense', 0)"
        )
        box.start_workflow(collect, 0, workflow_id="good")
    drain = Drain(source, engine.client.call_many, lambda *it: told.append(it), clock=clock)
    drain.sweep()
    assert states(db) == {"taken": "failed", "nobody": "failed", "odd": "failed", "good": "done"}
    codes = {entry.workflow_id: entry.code for entry in source.entries("failed", 10)}
    assert codes == {
        "taken": "ALREADY_EXISTS",
        "nobody": "NOT_FOUND",
        "odd": "INVALID_ARGUMENT",
    }
    assert len(told) == 3
    [bad] = [entry for entry in source.entries("failed", 10) if entry.workflow_id == "nobody"]
    engine.client.start_workflow(collect, 1, workflow_id="nobody")
    assert source.retry(bad.id)
    assert not source.retry("absent")
    drain.sweep()
    assert states(db)["nobody"] == "done"


def test_a_row_that_must_be_asked_again_holds_up_its_own_workflow_and_no_other(
    db, source, engine, clock
):
    with db:
        box = SqliteOutbox(db)
        for of in ("stuck", "free"):
            box.start_workflow(collect, 1, workflow_id=of)
            box.signal_workflow(of, "item", of)
    asked = []

    def submit(calls):
        asked.extend(it.workflow_id for it in calls)
        outcomes = engine.client.call_many([it for it in calls if it.workflow_id != "stuck"])
        full = errors.ResourceExhausted("too many signals wait")
        return [full if it.workflow_id == "stuck" else outcomes.pop(0) for it in calls]

    drain = Drain(source, submit, clock=clock, wall=clock)
    assert drain.sweep() == STUCK_FIRST_MS
    assert asked.count("stuck") == 1
    assert states(db) == {"stuck": "pending", "free": "done"}
    [first] = [it for it in source.entries("pending", 10) if it.code]
    assert (first.op, first.code) == ("StartWorkflow", "RESOURCE_EXHAUSTED")
    drain.sweep()  # Somebody has written something else meanwhile.
    assert asked.count("stuck") == 1
    clock.now_ms += STUCK_FIRST_MS
    assert drain.sweep() == 2 * STUCK_FIRST_MS
    assert asked.count("stuck") == 2
    clock.now_ms += 2 * STUCK_FIRST_MS
    Drain(source, engine.client.call_many, clock=clock, wall=clock).sweep()
    assert states(db) == {"stuck": "done", "free": "done"}
    engine.run_until_idle()
    assert engine.client.result("stuck") == ["stuck"]


def test_a_node_that_does_not_answer_is_trouble_and_no_row_is_blamed(db, source, engine, clock):
    with db:
        for n in range(3):
            SqliteOutbox(db).start_workflow(collect, 0, workflow_id=f"w{n}")
    gone = errors.Unavailable("no node answers")
    drain = Drain(source, lambda calls: [gone for _ in calls], clock=clock, wall=clock)
    with pytest.raises(Trouble, match="no node answers"):
        drain.sweep()
    assert [it.code for it in source.entries("pending", 10)] == [None] * 3
    Drain(source, engine.client.call_many, clock=clock, wall=clock).sweep()
    assert started(engine) == ["w0", "w1", "w2"]


def test_while_a_writer_holds_the_database_nothing_is_lost_and_nothing_asked_twice(
    path, db, source, engine, clock
):
    with db:
        SqliteOutbox(db).start_workflow(collect, 0, workflow_id="w")
    calls = []

    def submit(given):
        calls.extend(given)
        return engine.client.call_many(given)

    source._db.execute("PRAGMA busy_timeout = 1")
    drain = Drain(source, submit, clock=clock, wall=clock)
    db.execute("BEGIN IMMEDIATE")
    for _ in range(2):
        with pytest.raises(Trouble, match="locked"):
            drain.sweep()
    db.commit()
    drain.sweep()
    assert (len(calls), states(db)) == (1, {"w": "done"})


def test_rows_that_were_done_a_day_ago_are_deleted_and_those_that_failed_are_kept(
    db, source, engine, clock
):
    engine.client.start_workflow(collect, 0, workflow_id="taken")
    with db:
        for of in ("good", "taken"):
            SqliteOutbox(db).start_workflow(collect, 0, workflow_id=of)
    drain = Drain(source, engine.client.call_many, clock=clock, wall=clock)
    drain.sweep()
    clock.now_ms += KEEP_DONE_MS
    drain.sweep()
    assert states(db) == {"good": "done", "taken": "failed"}
    clock.now_ms += KEEP_DONE_MS
    drain.sweep()
    assert states(db) == {"taken": "failed"}


def test_more_rows_than_a_page_are_drained_in_one_sweep(path, db, engine):
    with db:
        for n in range(1_203):
            SqliteOutbox(db).start_workflow(collect, 0, workflow_id=f"w{n}")
    assert outbox.drain(path, engine.client) == 1_203
    assert set(states(db).values()) == {"done"}


@pytest.mark.parametrize("args", [None, 7, "text", b"", '{"workflow_id": "w", "name": "s"}'])
def test_whatever_stands_in_a_table_that_somebody_else_made_it_goes_on(path, db, engine, args):
    db.execute(SQLITE_SCHEMA.split(";")[0].replace("BLOB NOT NULL", ""))
    statement = (
        "INSERT INTO perdure_outbox (id, op, workflow_id, name, args, created_ms) "
        "VALUES ('r', 'SignalWorkflow', 'w', 's', ?, 0)"
    )
    with db:
        db.execute(statement, (args,))
        SqliteOutbox(db).start_workflow(collect, 0, workflow_id="good")
    assert outbox.drain(path, engine.client) >= 1
    assert states(db) == {"w": "failed", "good": "done"}


def test_large_rows_are_read_few_at_a_time_and_each_is_read(path, db, source):
    with db:
        for n in range(7):
            SqliteOutbox(db).start_workflow(collect, "x" * 1_900_000, workflow_id=f"w{n}")
    found, after = [], 0
    while rows := source.pending(after, 500):
        assert sum(len(row.args) for row in rows) <= PAGE_BYTES
        found += rows
        after = rows[-1].seq
    assert len(found) == 7
    assert last_of([(1, 2 * PAGE_BYTES), (2, 1)], PAGE_BYTES) == 1
    assert last_of([], PAGE_BYTES) is None


def test_a_node_that_puts_everything_off_is_trouble_and_no_row_is_written_to(
    db, source, engine, clock
):
    with db:
        for n in range(MANY):
            SqliteOutbox(db).start_workflow(collect, 0, workflow_id=f"w{n}")
    full = errors.ResourceExhausted("its disk is full")
    drain = Drain(source, lambda calls: [full for _ in calls], clock=clock, wall=clock)
    with pytest.raises(Trouble, match="its disk is full"):
        drain.sweep()
    assert [it.code for it in source.entries("pending", 100)] == [None] * MANY


def test_a_commit_ends_the_wait_and_our_own_writing_does_not(db, source, engine, clock):
    waits = []

    def pause(ms):
        waits.append(ms)
        if len(waits) == 2:
            with db:
                SqliteOutbox(db).start_workflow(collect, 0, workflow_id="w")
        return len(waits) > 5

    drain = Drain(source, engine.client.call_many, clock=clock, wall=clock)
    drain.sweep()
    source.wait(60_000, pause)
    assert len(waits) == 2
    drain.sweep()
    waits.clear()
    source.wait(60_000, lambda ms: waits.append(ms) or len(waits) == 4)
    assert len(waits) == 4


def test_a_file_that_is_not_there_is_not_made_and_one_without_the_table_is_named(tmp_path, path):
    with pytest.raises(Trouble, match="not there"):
        SqliteSource(str(tmp_path / "absent.db"))
    assert list(tmp_path.iterdir()) == []
    sqlite3.connect(path).close()
    (tmp_path / "app.db").touch()
    bare = SqliteSource(path)
    with pytest.raises(Trouble, match="no table perdure_outbox yet"):
        bare.pending(0, 1)
    bare.close()
    with pytest.raises(errors.FailedPrecondition, match="no table"):
        outbox.drain(path, None)


def test_another_file_in_its_place_is_noticed(tmp_path, path, db, source):
    other = tmp_path / "other.db"
    other.touch()
    source.pending(0, 1)
    other.replace(path)
    with pytest.raises(Trouble, match="taken its place"):
        source.wait(5_000, lambda ms: False)


def test_one_outbox_is_drained_by_one_node(path, source):
    first = SqliteSource(path, exclusive=True)
    with pytest.raises(Trouble, match="another node"):
        SqliteSource(path, exclusive=True)
    first.close()
    SqliteSource(path, exclusive=True).close()
