from __future__ import annotations

import json

import apsw
import pytest

from perdure.cli.main import run
from perdure.effects import SqliteEffects
from perdure.store.sqlite import SqliteWriter


@pytest.fixture
def store(tmp_path):
    """A store in which a history began once."""
    data = tmp_path / "data"
    writer = SqliteWriter(data)
    writer.open_epoch("history.1", 1_000, "boot", 0)
    writer.close()
    return data


def test_a_whole_store_is_clean(store, capsys):
    assert run(["doctor", "--data", str(store)]) == 0
    out, err = capsys.readouterr()
    assert "clean" in out
    assert "1 (1 to 1)" in out
    assert "not checked: invariants 38 to 40" in err


def test_a_damaged_store_is_violated_and_the_numbers_are_named(store, capsys):
    with apsw.Connection(str(store / "perdure.db")) as connection:
        connection.execute("UPDATE commits SET hash = zeroblob(32)")
    assert run(["doctor", "--data", str(store), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["clean"]
    assert {one["invariant"] for one in found["violations"]} == {2, 9}
    assert found["found"] == {"2": 1, "9": 1}
    assert found["violations"][0]["name"] == "chain"
    assert run(["doctor", "--data", str(store)]) == 1
    assert "violated: invariant 2, commit 1: its hash" in capsys.readouterr().err


def test_where_there_is_no_store_the_exit_code_says_so(tmp_path, capsys):
    assert run(["doctor", "--data", str(tmp_path)]) == 5
    assert capsys.readouterr().err == f"perdure: there is no store in {tmp_path}\n"


@pytest.mark.parametrize("option", ["--ledger", "--history"])
def test_a_file_that_is_none_is_a_usage_error(store, tmp_path, option, capsys):
    assert run(["doctor", "--data", str(store), option, str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err


def test_of_many_violations_of_one_invariant_ten_are_shown(store, tmp_path, capsys):
    with SqliteEffects(tmp_path / "effects.db") as sink:
        for number in [*range(12), 1, 2]:
            sink.apply_once(f"w/{number}", lambda: None, attempt=1)
    assert run(["doctor", "--data", str(store), "--ledger", str(tmp_path / "effects.db")]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len([line for line in said if "the log has no such activity" in line]) == 10
    assert "violated: invariant 40, 2 more" in said


def test_a_ledger_that_is_no_database_is_a_violation(store, tmp_path, capsys):
    (tmp_path / "bad.db").write_bytes(b"no database" * 400)
    assert run(["doctor", "--data", str(store), "--ledger", str(tmp_path / "bad.db")]) == 1
    assert "invariant 38, ledger bad.db: can't be read" in capsys.readouterr().err


def test_what_was_looked_at_depends_on_what_was_given(store, tmp_path, capsys):
    run(["doctor", "--data", str(store), "--json"])
    without = json.loads(capsys.readouterr().out)
    with SqliteEffects(tmp_path / "effects.db") as sink:
        sink.applied()
    run(["doctor", "--data", str(store), "--ledger", str(tmp_path / "effects.db"), "--json"])
    ledger = json.loads(capsys.readouterr().out)
    assert set(ledger["looked_at"]) - set(without["looked_at"]) == {38, 39, 40, 42}
    assert sorted([*ledger["looked_at"], *map(int, ledger["not_looked_at"])]) == list(range(1, 50))
