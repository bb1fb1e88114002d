from __future__ import annotations

import contextlib
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
    assert "1 (1 to 1), 1 epoch\n" in out
    assert "38-40, 42: give --ledger" in out
    assert "docs/invariants.md" in out
    assert not err, "what the table has said is not said again"


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


@pytest.mark.parametrize("what", ["ledger", "history"])
def test_a_file_that_is_not_there_is_named_and_not_found(store, tmp_path, what, capsys):
    path = tmp_path / "nothing"
    assert run(["doctor", "--data", str(store), f"--{what}", str(path)]) == 5
    assert capsys.readouterr().err == f"perdure: there is no {what} {path}\n"


@pytest.mark.parametrize("what", ["ledger", "history"])
def test_a_file_that_is_another_thing_is_a_usage_error(store, tmp_path, what, capsys):
    (tmp_path / "other").write_bytes(b"no database" * 400)
    asked = ["doctor", "--data", str(store), f"--{what}"]
    assert run([*asked, str(tmp_path / "other")]) == 2
    assert "is no " in capsys.readouterr().err
    assert run([*asked, str(tmp_path)]) in (2, 5)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_database_of_something_else_is_no_ledger_and_an_empty_one_is(store, tmp_path, capsys):
    with apsw.Connection(str(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE orders (id)")
    assert run(["doctor", "--data", str(store), "--ledger", str(tmp_path / "shop.db")]) == 2
    assert "shop.db is no ledger" in capsys.readouterr().err
    (tmp_path / "empty.db").touch()  # Its receiver was killed before it wrote.
    assert run(["doctor", "--data", str(store), "--ledger", str(tmp_path / "empty.db")]) == 0
    assert "empty.db is an empty ledger" in capsys.readouterr().err


def test_of_many_violations_of_one_invariant_ten_are_shown(store, tmp_path, capsys):
    with SqliteEffects(tmp_path / "effects.db") as sink:
        for number in [*range(12), 1, 2]:
            sink.apply_once(f"w/{number}", lambda: None, attempt=1)
    assert run(["doctor", "--data", str(store), "--ledger", str(tmp_path / "effects.db")]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len([line for line in said if "the log has no such activity" in line]) == 10
    assert "violated: invariant 40, 2 more" in said


def test_a_ledger_with_a_damaged_page_is_a_violation(store, tmp_path, capsys):
    path = tmp_path / "effects.db"
    with SqliteEffects(path) as sink:
        sink.apply_once("w/1", lambda: None, attempt=1)
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.pragma("journal_mode", "delete")
        root = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'perdure_deliveries'"
        ).get
    with path.open("r+b") as file:
        file.seek((root - 1) * 4_096)
        file.write(b"\xff" * 4_096)
    assert run(["doctor", "--data", str(store), "--ledger", str(path)]) == 1
    assert "invariant 38, ledger effects.db: can't be read" in capsys.readouterr().err


def test_each_line_about_a_damaged_page_is_one_line(store, capsys):
    with contextlib.closing(apsw.Connection(str(store / "perdure.db"))) as connection:
        connection.pragma("journal_mode", "delete")
        root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'timers'").get
    with (store / "perdure.db").open("r+b") as file:
        file.seek((root - 1) * 4_096)
        file.write(b"\xff" * 4_096)
    assert run(["doctor", "--data", str(store)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert all(line.startswith(("violated: ", "not checked: ")) for line in said)
    assert not any("***" in line for line in said)


def test_what_shows_an_invariant_that_was_not_looked_at_is_said_alike(store, capsys):
    run(["doctor", "--data", str(store), "--json"])
    left = json.loads(capsys.readouterr().out)["not_looked_at"]
    heads = {text.partition(":")[0] for text in left.values()}
    assert heads == {
        "with --ledger",
        "with --history",
        "of a run that has settled",
        "not in data; looked at by",
    }


def test_what_was_looked_at_depends_on_what_was_given(store, tmp_path, capsys):
    run(["doctor", "--data", str(store), "--json"])
    without = json.loads(capsys.readouterr().out)
    with SqliteEffects(tmp_path / "effects.db") as sink:
        sink.applied()
    run(["doctor", "--data", str(store), "--ledger", str(tmp_path / "effects.db"), "--json"])
    ledger = json.loads(capsys.readouterr().out)
    assert set(ledger["looked_at"]) - set(without["looked_at"]) == {38, 39, 40, 42}
    assert sorted([*ledger["looked_at"], *map(int, ledger["not_looked_at"])]) == list(range(1, 50))
