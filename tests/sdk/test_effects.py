"""A receiver that ignores a key it has seen, from threads, processes, forks, and after crashes."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading

import apsw
import pytest

from perdure import effects
from perdure.effects import SqliteEffects
from perdure.errors import FailedPrecondition, InvalidArgument, Unavailable


@pytest.fixture
def path(tmp_path):
    return tmp_path / "effects.db"


@pytest.fixture
def receiver(path):
    with SqliteEffects(path, now_ms=lambda: 77) as it:
        yield it


def test_the_second_delivery_gets_the_first_result_and_has_no_effect(receiver):
    calls = []
    first = receiver.apply_once("k", lambda _: calls.append(1) or {"receipt": (1, 2)}, attempt=1)
    again = receiver.apply_once("k", lambda _: calls.append(2) or "other", attempt=2)
    assert first == again == {"receipt": [1, 2]}
    assert calls == [1]
    assert receiver.applied() == {"k": 1}
    assert [(d.attempt, d.applied, d.at_ms) for d in receiver.deliveries()] == [
        (1, True, 77),
        (2, False, 77),
    ]


def test_none_is_a_result_like_any_other(receiver):
    assert receiver.apply_once("k", lambda _: None) is None
    assert receiver.apply_once("k", lambda _: "again") is None
    assert receiver.apply_once("only the key") is None
    assert receiver.applied() == {"k": 1, "only the key": 1}


def test_a_function_without_parameters_is_called_without_the_connection(receiver):
    assert receiver.apply_once("k", lambda: 5) == 5
    assert receiver.apply_once("bound early", lambda i=6: i) == 6
    assert receiver.apply_once("needs it", lambda c: c.in_transaction) is True


def test_writes_of_the_function_are_committed_with_the_key(receiver, path):
    def pay(connection):
        connection.execute("CREATE TABLE paid (cents)")
        connection.execute("INSERT INTO paid VALUES (5)")

    receiver.apply_once("k", pay)
    receiver.close()
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT cents FROM paid").fetchall() == [(5,)]
    other.close()
    assert receiver.apply_once("k", pay) is None  # Opened again, and not paid again.


def test_a_function_that_raises_leaves_nothing_but_the_delivery(receiver):
    receiver.apply_once("table", lambda c: c.execute("CREATE TABLE paid (cents)") and None)

    def fail(connection):
        connection.execute("INSERT INTO paid VALUES (5)")
        raise RuntimeError("declined")

    with pytest.raises(RuntimeError, match="declined"):
        receiver.apply_once("k", fail, attempt=1)
    assert [(d.attempt, d.applied) for d in receiver.deliveries("k")] == [(1, False)]

    def count(connection):
        return connection.execute("SELECT count(*) FROM paid").fetchall()[0][0]

    assert receiver.apply_once("k", count, attempt=2) == 0
    assert receiver.applied()["k"] == 1


def test_a_result_that_can_not_be_kept_undoes_the_effect(receiver):
    with pytest.raises(InvalidArgument, match="object"):
        receiver.apply_once("k", lambda c: c.execute("CREATE TABLE paid (x)") and object())
    assert receiver.applied() == {}
    assert receiver.apply_once("k", lambda c: c.execute("CREATE TABLE paid (x)") and "ok") == "ok"


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "END", "BEGIN"])
def test_a_function_can_not_end_the_transaction_that_makes_it_happen_once(receiver, statement):
    with pytest.raises(apsw.AuthError):
        receiver.apply_once("k", lambda c: c.execute(statement))
    assert receiver.applied() == {}
    assert receiver.apply_once("k", lambda: "fine") == "fine"


def test_a_function_may_use_savepoints(receiver):
    def nested(connection):
        with connection:
            connection.execute("CREATE TABLE paid (x)")
        return "ok"

    assert receiver.apply_once("k", nested) == "ok"


def test_a_call_inside_a_call_is_refused_and_does_not_hang(receiver):
    with pytest.raises(FailedPrecondition, match="inside"):
        receiver.apply_once("outer", lambda: receiver.apply_once("inner", lambda: 1))
    assert receiver.applied() == {}


def test_a_coroutine_function_is_refused(receiver):
    async def later(connection):
        return 1

    with pytest.raises(InvalidArgument, match="plain function"):
        receiver.apply_once("k", later)
    assert receiver.applied() == {}


def test_inside_an_activity_the_key_and_the_attempt_are_its_own(receiver, monkeypatch):
    monkeypatch.setattr(effects, "current_activity", lambda: ("order/charge", 3))
    receiver.apply_once()
    receiver.apply_once("own", attempt=9)
    assert [(d.key, d.attempt) for d in receiver.deliveries()] == [("order/charge", 3), ("own", 9)]


@pytest.mark.parametrize("hook", [None, lambda: None])
def test_outside_an_activity_a_key_must_be_given(receiver, monkeypatch, hook):
    monkeypatch.setattr(effects, "current_activity", hook)
    with pytest.raises(InvalidArgument, match="key"):
        receiver.apply_once(fn=lambda: 1)
    for wrong in ("", "x" * 2_049):
        with pytest.raises(InvalidArgument, match="key"):
            receiver.apply_once(wrong)


def test_tokens_and_payloads_are_kept_as_hashes_only(receiver, path):
    receiver.apply_once("k", token="secret-token", payload={"b": 1, "a": "canary"})
    receiver.apply_once("k", token="other-token", payload={"a": "canary", "b": 1})
    one, two = receiver.deliveries("k")
    assert one.token_hash != two.token_hash
    assert one.payload_hash == two.payload_hash
    receiver.close()
    assert b"secret" not in path.read_bytes()
    assert b"canary" not in path.read_bytes()


def test_a_stale_fence_applies_nothing(receiver):
    with pytest.raises(RuntimeError):
        receiver.apply_once("k", lambda: (_ for _ in ()).throw(RuntimeError()), fence=7)
    with pytest.raises(FailedPrecondition, match="stale"):
        receiver.apply_once("k", lambda: "zombie", fence=6)
    assert receiver.apply_once("k", lambda: "live", fence=7) == "live"
    assert receiver.apply_once("k", lambda: "zombie", fence=6) == "live"
    assert [d.applied for d in receiver.deliveries("k")] == [False, False, True, False]


def test_the_database_survives_a_loss_of_power_by_its_settings(receiver):
    def settings(connection):
        return [
            connection.execute(f"PRAGMA {name}").fetchall()[0][0]
            for name in ("journal_mode", "synchronous")
        ]

    assert receiver.apply_once("k", settings) == ["wal", 2]


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidArgument, match="nowhere"):
        SqliteEffects(tmp_path / "nowhere" / "x.db").apply_once("k")


def test_a_database_that_stays_locked_is_unavailable_and_nothing_is_applied(receiver, path):
    receiver.apply_once("first")
    holder = apsw.Connection(str(path))
    holder.execute("BEGIN IMMEDIATE")
    with SqliteEffects(path, busy_timeout_ms=20) as impatient:
        with pytest.raises(Unavailable, match="locked"):
            impatient.apply_once("k", lambda: 1)
        holder.execute("ROLLBACK")
        holder.close()
        assert impatient.apply_once("k", lambda: 1) == 1


def test_a_change_of_mode_that_sqlite_does_not_wait_for_is_tried_again():
    class Busy:
        def __init__(self, times):
            self.left = times

        def execute(self, statement):
            self.left -= 1
            if self.left >= 0:
                raise apsw.BusyError("locked")
            return self

        def fetchall(self):
            return [("wal",)]

    effects._enter_wal(Busy(2), busy_timeout_ms=1_000)
    with pytest.raises(apsw.BusyError):
        effects._enter_wal(Busy(5), busy_timeout_ms=20)


def test_threads_share_a_receiver(receiver):
    ran, errors = [], []

    def work():
        try:
            for i in range(25):
                receiver.apply_once(f"k{i}", lambda i=i: ran.append(i))
        except Exception as caught:  # noqa: BLE001 - handed to the main thread
            errors.append(caught)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(ran) == list(range(25))
    assert len(receiver.deliveries()) == 150


# --- real processes ----------------------------------------------------------

WORKER = """
import sys
from perdure.effects import SqliteEffects
path, name, keys = sys.argv[1], sys.argv[2], int(sys.argv[3])
def apply(connection):
    connection.execute("INSERT INTO ledger VALUES (?, ?)", (key, name))
    return name
with SqliteEffects(path) as receiver:
    for i in range(keys):
        key = f"k{i}"
        receiver.apply_once(key, apply)
"""


def start_worker(path, name, keys):
    return subprocess.Popen([sys.executable, "-c", WORKER, str(path), name, str(keys)])


def ledger(path):
    connection = apsw.Connection(str(path))
    rows = connection.execute("SELECT key, count(*) FROM ledger GROUP BY key").fetchall()
    connection.close()
    return dict(rows)


def make_ledger(path):
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE ledger (key, who)")
    connection.close()


@pytest.mark.process
def test_eight_processes_apply_each_key_once_and_none_finds_the_database_locked(path):
    make_ledger(path)  # Not yet in WAL mode: all eight change it at once.
    workers = [start_worker(path, f"w{i}", 100) for i in range(8)]
    assert [worker.wait(timeout=60) for worker in workers] == [0] * 8
    with SqliteEffects(path) as receiver:
        assert receiver.applied() == {f"k{i}": 1 for i in range(100)} == ledger(path)
        assert len(receiver.deliveries()) == 800


@pytest.mark.process
def test_processes_that_are_killed_lose_and_double_nothing(path):
    make_ledger(path)
    with SqliteEffects(path) as receiver:
        for round_ in range(4):
            worker = start_worker(path, f"w{round_}", 10_000)
            while len(receiver.applied()) < (round_ + 1) * 30:
                assert worker.poll() is None
            worker.send_signal(signal.SIGKILL)
            worker.wait(timeout=30)
        assert start_worker(path, "last", 150).wait(timeout=30) == 0
        counts = receiver.applied()
    assert counts == ledger(path)
    assert set(counts.values()) == {1}
    assert counts.keys() >= {f"k{i}" for i in range(150)}


@pytest.mark.process
def test_a_forked_child_opens_the_database_anew(path):
    with SqliteEffects(path) as receiver:
        receiver.apply_once("parent", lambda: "p")
        inherited = receiver._connection
        child = os.fork()
        if child == 0:
            fine = False
            try:
                fine = receiver._connection is None and receiver.apply_once("child") is None
                fine = fine and receiver._connection is not inherited
                receiver.close()
            finally:
                os._exit(0 if fine else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert receiver._connection is inherited
        assert receiver.apply_once("parent", lambda: "q") == "p"
        assert receiver.applied() == {"parent": 1, "child": 1}
